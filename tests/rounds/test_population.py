"""Populations: of very many devices only those asked are drawn, planned, trained and told of; nothing else changes."""

import pickle
import signal
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

import airprune as ap
from airprune.components.component import Owner, Slot
from airprune.data import Holdings, as_dataset, draw_samples, share
from airprune.data.dataset import ARRAYS
from airprune.data.sampling import Sampled
from airprune.errors import InvalidValue
from airprune.methods.selection.base import Candidates, best_of_each_edge, known_rates, number_of
from airprune.randomness import WholeNumbers, rng_for
from airprune.rounds.experiment import Experiment
from airprune.runs.durations import most_selected, workload_of
from airprune.runs.layout import RunFolder
from airprune.runs.store import DeviceStore
from airprune.studies.write_report import write_report
from airprune.web.runs import views
from airprune.wireless.channel import full_band_rates
from airprune.wireless.network import Numbered
from support.processes import kill, start_airprune, wait_for, wait_until_gone, workers_of
from support.tiny import blobs, final_bytes, last_state, tiny_scenario

pytestmark = pytest.mark.usefixtures("warm_workers")

LABELS = np.arange(600) % 10
EDGES = np.repeat(np.arange(40), 50)  # 2,000 devices: more than samples
KINDS = ("iid", "shards", "dirichlet", "edge-iid", "edge-non-iid")

CROWD = {
    "network": {"num_edges": 5, "devices_per_edge": 4_000},
    "data": {"samples_per_device": 4, "partition": "dirichlet"},
    "selection.name": "random-share",
    "selection.random-share.share": 0.0025,  # 10 of each edge's 4,000
    "radio.fading": "rayleigh",
    "rounds": {"global_rounds": 2, "edge_rounds": 2},
}


def crowd(**changes) -> ap.Scenario:
    """20,000 devices, 50 of them asked per edge round, on 240 samples."""
    return tiny_scenario(**CROWD, **changes)


def drawn(kind: str, **options) -> Sampled:
    return draw_samples(LABELS, edge=EDGES, kind=kind, samples_per_device=12, seed=3, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_draws_the_same_samples_whoever_asks_and_when(kind):
    at_once, later = list(drawn(kind)), pickle.loads(pickle.dumps(drawn(kind)))
    for device in (1_999, 0, 731, 0):
        np.testing.assert_array_equal(later[device], at_once[device])
    np.testing.assert_array_equal(later[-1], at_once[-1])
    np.testing.assert_array_equal(np.concatenate(later[3:6]), np.concatenate(at_once[3:6]))
    with pytest.raises(IndexError):
        later[2_000]


@pytest.mark.parametrize("kind", KINDS)
def test_every_device_has_its_number_of_samples_and_none_twice(kind):
    for part in list(drawn(kind))[::37]:
        assert len(np.unique(part)) == len(part) == 12 and np.all(np.diff(part) > 0)


def test_devices_draw_from_the_classes_of_their_kind():
    few = [np.unique(LABELS[part]) for part in list(drawn("shards", classes_per_device=2))[::19]]
    assert all(len(classes) <= 2 for classes in few) and len({tuple(classes) for classes in few}) > 10
    by_edge = drawn("edge-non-iid", classes_per_device=3)
    of_edge = [np.unique(LABELS[np.concatenate(by_edge[50 * k : 50 * k + 50])]) for k in range(40)]
    assert all(len(classes) == 3 for classes in of_edge)
    np.testing.assert_array_equal(np.unique(np.concatenate(of_edge)), np.arange(10))


def test_a_device_of_an_iid_population_is_a_fair_sample_of_the_pool():
    counts = np.bincount(np.concatenate(list(drawn("iid"))), minlength=600)
    assert np.abs(counts - 40).max() < 5 * np.sqrt(40)  # 24,000 draws over 600 samples: five standard deviations


def test_sizes_of_a_population_spread_around_their_mean():
    sizes = draw_samples(LABELS, edge=EDGES, kind="iid", samples_per_device=30, seed=3, size_spread=0.5).sizes
    assert sizes.min() >= 1 and abs(sizes.mean() - 30) < 0.1 and np.std(np.log(sizes)) == pytest.approx(0.5, abs=0.05)


def test_a_pool_that_is_too_small_for_a_device_is_refused_in_a_sentence():
    with pytest.raises(InvalidValue, match=r"samples_per_device must leave every device at most 60, .* got 61 for"):
        draw_samples(LABELS, edge=EDGES, kind="shards", samples_per_device=61, seed=0, classes_per_device=1)
    with pytest.raises(InvalidValue, match=r"a sample for each of 20,000 devices, got 240.*samples_per_device lets"):
        Experiment.of(crowd(data__samples_per_device=None), dataset=blobs())


@given(st.integers(0, 2**40), st.lists(st.integers(0, 3_000), min_size=1, max_size=5))
def test_a_number_drawn_alone_is_the_one_drawn_with_all_others(seed, places):
    all_of_them = rng_for(seed, "layers", 1, 2).integers(2**63, size=3_001).tolist()
    alone = WholeNumbers(seed, "layers", 1, 2)
    assert [alone[place] for place in places] == [all_of_them[place] for place in places]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0, 2.0, np.nan, -np.inf])), min_size=1),
    st.sampled_from([0.01, 0.3, 0.5, 1.0]),
)
def test_the_best_of_each_edge_are_those_that_sorting_puts_first(devices, share):
    edge, score = np.array([k for k, _ in devices]), np.array([value for _, value in devices])
    number = np.arange(len(devices))
    found = Candidates(
        device=number,
        edge=edge,
        rates_bps=known_rates(number, score),
        num_samples=number,
        round_index=0,
        rng=np.random.default_rng(0),
    )
    expected = np.zeros(len(devices), dtype=bool)
    for k in np.unique(edge):
        order = [n for n in np.lexsort((number, -score)) if edge[n] == k]
        expected[order[: number_of(share, len(order))]] = True
    np.testing.assert_array_equal(best_of_each_edge(found, score, share), expected)


@pytest.mark.parametrize("fading", ["none", "rayleigh", "rician"])
def test_rates_of_those_asked_are_the_rates_drawn_for_all(fading):
    experiment = Experiment.of(crowd(radio__fading=fading), dataset=blobs())
    state = experiment.initial_state()
    at = experiment.place(state)
    candidates, _ = experiment.candidates(at, state, experiment.served(at, state))
    every = full_band_rates(experiment.network, experiment.radio, seed=5)
    asked = np.array([3, 4_000, 19_999])
    np.testing.assert_array_equal(candidates.rates_bps(asked), every[asked])
    np.testing.assert_array_equal(candidates.full_band_rate_bps, every)


def test_numbers_as_names_are_not_held():
    names = Numbered(1_000_000)
    assert names[999_999] == "999999" and len(names) == 1_000_000 and Numbered(2) == ("0", "1") != Numbered(3)
    assert list(Numbered(3)) == ["0", "1", "2"] and Numbered(3)[1:] == ("1", "2")


def test_only_those_asked_draw_their_samples(monkeypatch):
    asked_for, of = [], Sampled.of
    monkeypatch.setattr(Sampled, "of", lambda self, device: asked_for.append(device) or of(self, device))
    _, records, _ = last_state(crowd())
    trained = [device for record in records if record["kind"] == "edge" for device in record["device"]]
    assert sorted(asked_for) == sorted(trained) and len(trained) == 4 * 50


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run folder of the crowd in one process."""
    folder = tmp_path_factory.mktemp("crowd") / "serial"
    list(ap.run(crowd(), out=folder, dataset=blobs()))
    return folder


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """The same with records of seven devices."""
    folder = tmp_path_factory.mktemp("crowd") / "sampled"
    list(ap.run(crowd(records__devices=7), out=folder, dataset=blobs()))
    return folder


def test_a_crowd_ends_in_the_same_bytes_on_three_workers(alone, tmp_path):
    scenario = crowd(engine__name="processes", engine__workers=3)
    list(ap.run(scenario, out=tmp_path / "three", dataset=blobs()))
    assert final_bytes(tmp_path / "three") == final_bytes(alone)


CROWD_TOML = """\
base = "smoke"
model.name = "mlp"
data.train_samples = 200
data.test_samples = 40
data.samples_per_device = 4
network.num_edges = 5
network.devices_per_edge = 4000
selection.name = "random-share"
selection.random-share.share = 0.0025
plan.deadline_s = 1.0
rounds.global_rounds = 3
rounds.edge_rounds = 2
records.devices = 5
"""


KILLED = """\
import os, signal, sys, airprune as ap
run = ap.run(ap.Scenario.load(sys.argv[1]).with_("engine.name", "serial"), out=sys.argv[2])
for number, _ in enumerate(run):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_crowd_that_is_killed_ends_in_the_same_bytes(tmp_path):
    file = tmp_path / "crowd.toml"
    file.write_text(CROWD_TOML)
    scenario = ap.Scenario.load(file).with_("engine.name", "serial")
    list(ap.run(scenario, out=tmp_path / "undisturbed"))
    folder = RunFolder(tmp_path / "killed")
    killed = subprocess.run([sys.executable, "-c", KILLED, str(file), str(folder.path)], check=False)
    assert killed.returncode == -signal.SIGKILL and len(folder.records()) == 4 and not folder.is_finished
    list(ap.run(scenario, out=folder.path, resume=True))
    assert final_bytes(folder.path) == final_bytes(tmp_path / "undisturbed")


PER_DEVICE = ("device", "edge", "fate", "pruning_ratio", "compute_s", "uplink_s", "kept_weights", "loss")


def test_a_sampled_record_differs_in_its_lists_alone(alone, sampled):
    assert len(RunFolder(alone).records()) == len(RunFolder(sampled).records()) == 6
    for whole, part in zip(RunFolder(alone).records(), RunFolder(sampled).records(), strict=True):
        if whole["kind"] == "global":
            assert part == whole
            continue
        assert part["sampled_of"] == whole["asked"] == 50 and "sampled_of" not in whole
        places = [whole["device"].index(device) for device in part["device"]]
        assert len(set(places)) == 7 and places == sorted(places)
        for name in PER_DEVICE:
            assert part[name] == [whole[name][place] for place in places], name
        same = whole.keys() - {name for name, value in whole.items() if isinstance(value, list) and len(value) == 50}
        assert {name: part[name] for name in same} == {name: whole[name] for name in same}
        latency_s = np.add(whole["compute_s"], whole["uplink_s"])
        np.testing.assert_array_equal(part["latency_quartiles_s"], np.quantile(latency_s, [0, 0.25, 0.5, 0.75, 1]))
        np.testing.assert_array_equal(part["loss_quartiles"], np.quantile(whole["loss"], [0, 0.25, 0.5, 0.75, 1]))
        assert len(part["pruning_ratio_quartiles"]) == 5


def test_a_larger_sample_than_devices_is_all_of_them():
    _, records, _ = last_state(tiny_scenario(records__devices=6))
    _, whole, _ = last_state(tiny_scenario())
    assert records == whole


def test_the_trained_model_does_not_depend_on_what_is_recorded(alone, sampled):
    ours, theirs = (safetensors.numpy.load_file(folder / "final.safetensors") for folder in (alone, sampled))
    assert ours.keys() == theirs.keys()
    for name, weights in ours.items():
        np.testing.assert_array_equal(weights, theirs[name])


def test_readers_tell_that_records_hold_a_sample(sampled, tmp_path):
    page = write_report(sampled, tmp_path / "report.html").read_text()
    assert "50 devices. Recorded and shown is a random sample of 7." in page
    rows = ap.load_runs(sampled, level="device")
    assert len(rows) == 4 * 7 and rows["device"].between(0, 19_999).all()
    assert ap.load_runs(sampled, level="edge")["sampled_of"].tolist() == [50] * 4
    told = views.devices(sampled.parent, sampled.name, 1, 1)
    assert (told["num_devices"], told["num_recorded"], len(told["device"])) == (50, 7, 7)


def test_keys_of_populations_count_in_the_hash_only_where_they_are_used():
    scenario = ap.Scenario()
    assert "records" in scenario.to_dict() and scenario.hash == ap.Scenario.from_text('records.devices = "all"').hash
    assert len({scenario.hash, scenario.with_("records.devices", 5).hash, crowd().hash}) == 3
    with pytest.raises(InvalidValue, match=r"Scenario.records.devices"):
        scenario.with_("records.devices", 0)


def test_a_duration_counts_those_asked():
    million = ap.Scenario.preset("million")
    assert million.num_devices == 1_000_000 and most_selected(million) == 1_000
    work = workload_of(million.with_("rounds.evaluate_every", "never"))
    assert work.device_rounds == 50 * 1_000 and work.samples == 50 * 1_000 * 20
    assert most_selected(million.with_("selection.name", "everyone")) == 1_000_000


def test_a_driver_does_not_keep_samples_that_its_workers_map(tmp_path):
    data = as_dataset(blobs())
    before = {name: getattr(data, name).copy() for name in ARRAYS}
    share(data, tmp_path)
    for name, array in before.items():
        mapped = getattr(data, name)
        np.testing.assert_array_equal(mapped, array)
        assert isinstance(mapped.base, np.memmap) and not mapped.flags.writeable
    with pytest.raises(InvalidValue, match=r"Dataset.use_arrays_of must be given an equal data set"):
        data.use_arrays_of(as_dataset(blobs(seed=1)))


def test_holdings_are_sequences():
    dealt = Experiment.of(tiny_scenario(), dataset=blobs()).samples
    assert isinstance(dealt, Holdings) and len(dealt) == 6 and dealt.sizes.tolist() == [40] * 6
    np.testing.assert_array_equal(np.sort(np.concatenate(list(dealt))), np.arange(240))
    assert [len(part) for part in dealt[2:4]] == [40, 40]


def test_memory_of_a_population_is_made_for_those_who_take_part(tmp_path):
    scenario = crowd(compression__name="top-k")
    experiment = Experiment.of(scenario, dataset=blobs())
    assert experiment.most_devices == 2 * 2 * 50
    list(ap.run(scenario, out=tmp_path / "run", dataset=blobs()))
    asked = {n for record in RunFolder(tmp_path / "run").records() for n in record.get("device", ())}
    blocks = list((tmp_path / "run" / "memory").glob("*.block"))
    row_bytes = 4 * experiment.shape.num_parameters
    whole_bytes = 20_000 * row_bytes
    assert len(blocks) <= len(asked) and sum(block.stat().st_size for block in blocks) < whole_bytes / 2


def test_memory_that_few_devices_can_fill_is_not_refused_for_all(tmp_path):
    slot, shape = Slot(name="error", owner=Owner.DEVICE, shape=lambda _: (44_000,)), None
    with pytest.raises(InvalidValue, match=r"1,000,000 devices, most of it for 'error', must be ≤ 64.0 GB, got 176.0"):
        DeviceStore(tmp_path / "memory", [slot], shape, 10**6)
    store = DeviceStore(tmp_path / "memory", [slot], shape, 10**6, max_bytes=2 * 10**9, most_writers=10_000)
    row = np.ones((1, 44_000), dtype=np.float32)
    for version, device in enumerate((999_999, 5, 5)):
        store.put([device], {"error": (version + 1) * row})
        store.commit(version)
        store.forget_unnamed()
    files = list((tmp_path / "memory").iterdir())
    assert sum(file.stat().st_size for file in files) == 2 * row.nbytes
    assert store.take([5, 6, 999_999])["error"][:, 0].tolist() == [3.0, 0.0, 1.0]


@pytest.mark.slow
def test_a_million_devices_end_in_the_same_bytes_on_any_number_of_workers_and_after_a_kill(tmp_path):
    file = tmp_path / "million.toml"
    changes = 'base = "million"\nmodel.name = "mlp"\ndata.name = "glyphs"\ndata.train_samples = 2000\n'
    file.write_text(changes + "data.test_samples = 200\nrounds.global_rounds = 1\nplan.deadline_s = 1.0\n")
    for workers in (1, 2, 3):
        list(ap.run(ap.Scenario.load(file).with_("engine.workers", workers), out=tmp_path / f"on-{workers}"))
    killed = RunFolder(tmp_path / "killed")
    process = start_airprune("run", file, "--out", killed.path)
    wait_for(lambda: killed.records_file.exists() and killed.records_file.stat().st_size, "a record")
    workers_left = workers_of(process.pid)
    kill(process)
    wait_until_gone(workers_left)
    list(ap.run(ap.Scenario.load(file), out=killed.path, resume=True))
    ends = [final_bytes(folder) for folder in sorted(tmp_path.iterdir()) if folder.is_dir()]
    assert len(ends) == 4 and ends.count(ends[0]) == 4
