"""How long devices compute: the paper's clock, counted FLOPs, measured speed."""

from __future__ import annotations

import contextlib
import html
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import airprune as ap
from airprune.cli import main
from airprune.components.component import paper_shape
from airprune.components.units import leading
from airprune.errors import AirpruneError
from airprune.models.catalogue import MLP, FlatModel, PaperCNN, ResNet8
from airprune.rounds.compute_times import compute_times, flops_per_cycle
from airprune.rounds.experiment import Experiment
from airprune.rounds.method import Method
from airprune.runs import run
from airprune.scenario import Scenario
from airprune.settings import toml_text
from airprune.studies.write_report import write_report
from airprune.text import clocks_text
from airprune.wireless.device_speed.boards import BOARDS
from airprune.wireless.device_speed.flops import OTHER, count_work
from airprune.wireless.latency import EFFECTIVE_CAPACITANCE, compute_time_s, seconds_per_weight
from support.tiny import blobs, tiny_scenario

CLOSED = 1e-12  # closed forms
PRUNABLE = ("fc1.weight", "fc2.weight")
IMAGE = np.zeros((1, 28, 28), np.float32)
SIGNAL = np.zeros((2, 15), np.float32)
FLOPS = {"clock.compute": "flops", "clock.flops_per_cycle": 8.0}
FROZEN = {"masking.name": "frozen"}
NEURONS = {"masking.probe.structure": "neurons"}


def paper_work():
    return count_work(PaperCNN(), IMAGE, PRUNABLE)


def times_of(changes=(), *, samples=(2000, 500), cpu_hz=(1e9, 3e9)):
    scenario = Scenario().with_values(dict(changes))
    return compute_times(
        scenario,
        Method.of(scenario).masking,
        shape=paper_shape(),
        num_samples=np.array(samples),
        cpu_hz=np.array(cpu_hz),
        work=paper_work,
    )


# FLOPs


def test_the_flops_of_the_papers_cnn_are_those_of_the_hand():
    conv1, conv2 = 2 * 28 * 28 * 9 * 32, 2 * 14 * 14 * 9 * 32 * 64
    fc1, fc2 = 2 * 3136 * 8, 2 * 8 * 10
    found = {layer.name: (layer.forward, layer.input_gradient, layer.weight_gradient) for layer in paper_work().layers}
    assert found == {
        "conv1": (conv1, 0, conv1),  # nobody asks for the gradient of the images
        "conv2": (conv2, conv2, conv2),
        "fc1": (fc1, fc1, fc1),
        "fc2": (fc2, fc2, fc2),
    }
    assert paper_work().flops_per_sample == 2 * conv1 + 3 * (conv2 + fc1 + fc2) == 22_730_208
    assert paper_work().prunable / paper_work().flops_per_sample < 0.007  # what pruning could save at the most


class Attention(nn.Module):
    """Products of activations outside of any layer."""

    def __init__(self):
        super().__init__()
        self.queries, self.keys, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        scores = self.queries(x) @ self.keys(x).transpose(1, 2)
        return self.out((scores.softmax(-1) @ self.queries(x)).mean(1))


class Mixed(nn.Module):
    """A one-dimensional and a transposed convolution, and a layer that is used twice."""

    def __init__(self):
        super().__init__()
        self.conv, self.back = nn.Conv1d(2, 4, 3, stride=2), nn.ConvTranspose1d(4, 2, 3)
        self.twice = nn.Linear(9, 9)

    def forward(self, x):
        return self.twice(self.twice(self.back(self.conv(x)))).mean(1)


@pytest.mark.parametrize(
    ("module", "sample"),
    [
        (PaperCNN(), IMAGE),
        (MLP((12,), 4), np.zeros(12, np.float32)),
        (Attention(), np.zeros((5, 6), np.float32)),
        (Mixed(), np.zeros((2, 15), np.float32)),
    ],
    ids=["paper-cnn", "mlp", "attention", "mixed"],
)
def test_counted_flops_are_those_of_torchs_own_counter(module, sample):
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(module(torch.from_numpy(sample[None])), torch.tensor([0])).backward()
    assert count_work(module, sample, ()).flops_per_sample == counter.get_total_flops()


@pytest.mark.parametrize(
    ("module", "sample"),
    [
        (PaperCNN(), IMAGE),
        (MLP((12,), 4), np.zeros(12, np.float32)),
        (ResNet8((3, 16, 16), 5), np.zeros((3, 16, 16), np.float32)),
        (nn.Sequential(nn.Conv1d(2, 4, 3), nn.ConvTranspose1d(4, 2, 3), nn.Flatten(), nn.Linear(30, 3)), SIGNAL),
    ],
    ids=["paper-cnn", "mlp", "resnet-8", "one-dimensional"],
)
def test_flops_of_every_trained_part_are_those_of_torchs_own_counter(module, sample):
    """Of a backward pass that autograd ends itself, where nothing below requires a gradient."""
    work, tensors = count_work(module, sample, ()), FlatModel(module).shape.tensors
    parameters = dict(module.eval().named_parameters())
    for first in range(1 + max(tensor.layer for tensor in tensors)):
        for tensor in tensors:
            if tensor.name in parameters:
                parameters[tensor.name].requires_grad_(tensor.layer >= first)
        with FlopCounterMode(display=False) as counter:
            F.cross_entropy(module(torch.from_numpy(sample[None])), torch.tensor([0])).backward()
        assert work.step_flops(first) == counter.get_total_flops(), first


def test_flops_of_the_papers_head_are_those_of_the_hand():
    """Forward of everything; of fc1 no gradient of its input."""
    conv1, conv2 = 2 * 28 * 28 * 9 * 32, 2 * 14 * 14 * 9 * 32 * 64
    fc1, fc2 = 2 * 3136 * 8, 2 * 8 * 10
    work = paper_work()
    assert work.step_flops(2) == conv1 + conv2 + 2 * fc1 + 3 * fc2
    assert work.frozen_forward(2) == conv1 + conv2
    assert work.step_flops(2, from_features=True) == 2 * fc1 + 3 * fc2
    assert work.step_flops(1) == conv1 + 2 * conv2 + 3 * (fc1 + fc2)
    three_epochs = work.round_flops(np.array([3 * 50]), np.array([50]), 2)
    assert three_epochs.tolist() == [50 * (conv1 + conv2) + 150 * (2 * fc1 + 3 * fc2)]
    assert work.round_flops(np.array([50]), np.array([50]), 2).tolist() == [50 * work.step_flops(2)]
    assert work.round_flops(150, 50, 2, keeps_features=False) == 150 * work.step_flops(2)


@pytest.mark.parametrize("width", [0.25, 0.5, 0.6])
def test_flops_of_a_narrow_model_are_those_counted_in_it(width):
    model = FlatModel(PaperCNN(), prunable=("*",))
    graph = model.shape.units
    small = model.smaller(leading(graph, width), IMAGE[None])
    counted, predicted = count_work(small.module, IMAGE, ()), paper_work().narrowed(graph, graph.counts(width).tolist())
    for first in range(4):
        assert predicted.step_flops(first) == counted.step_flops(first)
        assert predicted.frozen_forward(first) == counted.frozen_forward(first)


def test_step_times_follow_flops_between_the_measured_ones():
    work = paper_work()
    assert work.step_s(3.0) == work.step_s(3.0, forward_s=1.0, overhead_s=0.5) == pytest.approx(3.0, rel=CLOSED)
    assert work.step_s(3.0, 2) == pytest.approx(3.0 * work.step_flops(2) / work.flops_per_sample, rel=CLOSED)
    known = {"forward_s": 1.0, "overhead_s": 0.5}
    back = (work.step_flops(1) - work.forward) / (work.flops_per_sample - work.forward)
    assert work.step_s(3.0, 1, **known) == pytest.approx(0.5 + 1.0 + 1.5 * back, rel=CLOSED)
    kept = work.step_s(3.0, 1, **known) - work.step_s(3.0, 1, **known, from_features=True)
    assert kept == pytest.approx(work.frozen_forward(1) / work.forward, rel=1e-9)  # a difference of sums


def test_products_outside_of_layers_are_counted_and_unknown_layers_named():
    work = count_work(Attention(), np.zeros((5, 6), np.float32), ())
    assert work.layers[-1].name == OTHER and work.layers[-1].forward == 2 * (2 * 5 * 6 * 5)
    recurrent = nn.Sequential(nn.Flatten(2), nn.GRU(3, 4))
    assert count_work(recurrent, np.zeros((2, 3), np.float32), ()).uncertain == ("1 (GRU)",)


def test_a_layer_that_is_not_trained_has_no_weight_gradient():
    module = PaperCNN()
    module.conv1.requires_grad_(False)
    conv1, conv2 = count_work(module, IMAGE, ()).layers[:2]
    assert (conv1.weight_gradient, conv2.input_gradient) == (0, 0)
    assert conv2.weight_gradient > 0


def test_counting_leaves_no_trace_in_an_experiment():
    experiment = Experiment.of(tiny_scenario(), dataset=blobs())
    before = experiment.model.state_array.copy()
    state = torch.random.get_rng_state()
    assert experiment.work.flops_per_sample == 2 * 2 * 12 * 64 + 3 * 2 * 64 * 4
    assert np.array_equal(experiment.model.state_array, before)
    assert torch.equal(torch.random.get_rng_state(), state)


# Times


DEVICES = np.arange(2)
CPU_HZ = np.array([1e9, 3e9])


@pytest.mark.parametrize("changes", [{}, FROZEN], ids=["probe", "frozen"])
def test_the_papers_clock_is_eq_9_to_the_bit(changes):
    times, eq_9 = times_of(changes), {"local_iterations": 2, "cycles_per_weight": 20.0, "cpu_hz": CPU_HZ}
    dense, weights = (2 / 3 if changes else 0.0), np.array([30_000, 43_888])
    trained = weights + dense * (43_888 - weights)
    assert np.array_equal(times.training_s(weights, DEVICES, CPU_HZ), compute_time_s(trained, **eq_9))
    per_weight_s, extra_s = times.line(DEVICES, CPU_HZ, probe=True)
    slope_s, probe_s = seconds_per_weight(**eq_9), 20.0 * 43_888 / CPU_HZ
    assert np.array_equal(per_weight_s, slope_s * (1.0 - dense))
    assert np.array_equal(extra_s, slope_s * (dense * 43_888) + probe_s)
    assert np.array_equal(times.probe_s(DEVICES, CPU_HZ), probe_s)


def direct_s(keep, *, fixed, prunable, samples, cpu_hz):
    """P (F_fixed + F_prunable · share kept) / speed, two epochs, 8 FLOP per cycle."""
    return samples * 2 * (fixed + prunable * keep / 25_168) / (8.0 * cpu_hz)


@pytest.mark.parametrize(
    ("changes", "saved"),
    [
        ({"clock.savings": "weights"}, 3 * 50_336),  # all three products
        ({"clock.savings": "units"}, 0),
        ({"clock.savings": "units", **NEURONS}, 3 * 50_336),
        ({"clock.savings": "weights", **FROZEN}, 50_336),  # weight gradients of what moves
        ({"clock.savings": "units", **FROZEN}, 0),
        ({"clock.savings": "units", **FROZEN, "masking.frozen.structure": "neurons"}, 50_336),
    ],
    ids=["weights", "units", "neurons", "frozen", "frozen-units", "frozen-neurons"],
)
def test_a_mask_saves_what_it_really_saves_and_compute_is_a_line_in_the_weights(changes, saved):
    times, samples = times_of({**FLOPS, **changes}), np.array([2000, 500])
    per_weight_s, extra_s = times.line(DEVICES, CPU_HZ)
    for keep in (0, 1, 10_000, 25_168):
        wanted = direct_s(keep, fixed=22_730_208 - saved, prunable=saved, samples=samples, cpu_hz=CPU_HZ)
        weights = np.full(2, 18_720.0 + keep)
        np.testing.assert_allclose(times.training_s(weights, DEVICES, CPU_HZ), wanted, rtol=CLOSED)
        np.testing.assert_allclose(per_weight_s * weights + extra_s, wanted, rtol=CLOSED)


def test_sample_passes_go_by_samples_and_epochs_and_not_by_the_papers_t():
    weights = np.full(2, 43_888.0)
    base = times_of(FLOPS).training_s(weights, DEVICES, CPU_HZ)
    same = times_of({**FLOPS, "plan.local_iterations": 7, "plan.cycles_per_weight": 1.0})
    assert np.array_equal(same.training_s(weights, DEVICES, CPU_HZ), base)
    twice = times_of({**FLOPS, "train.local_epochs": 4}).training_s(weights, DEVICES, CPU_HZ)
    np.testing.assert_allclose(twice, 2 * base, rtol=CLOSED)
    assert base[0] / base[1] == pytest.approx(4 * 3, rel=CLOSED)  # four times the samples at a third of the clock


def test_a_probe_is_one_minibatch_on_the_whole_model():
    times = times_of(FLOPS)
    np.testing.assert_allclose(times.probe_s(DEVICES, CPU_HZ), 128 * 22_730_208 / (8.0 * CPU_HZ), rtol=CLOSED)
    without, with_probe = times.line(DEVICES, CPU_HZ), times.line(DEVICES, CPU_HZ, probe=True)
    np.testing.assert_allclose(
        with_probe[1] - without[1], times.probe_s(DEVICES, CPU_HZ), rtol=1e-9
    )  # a small difference


def test_where_fixed_weights_are_looked_up_extra_time_stays_positive():
    """An embedding has weights but no products: its model may not be charged negative seconds."""
    module = nn.Sequential(nn.Embedding(1000, 8), nn.Flatten(), nn.Linear(16, 3))
    work = count_work(module, np.zeros(2, np.int64), ("2.weight",))
    scenario = Scenario().with_values({**FLOPS, "clock.savings": "weights"})
    shape = SimpleNamespace(num_weights=8048, prunable_weights=48)
    masking = Method.of(scenario).masking
    times = compute_times(
        scenario, masking, shape=shape, num_samples=np.array([10]), cpu_hz=np.array([1e9]), work=lambda: work
    )
    per_weight_s, extra_s = times.line(np.array([0]), np.array([1e9]))
    assert per_weight_s > 0 and extra_s >= 0
    assert per_weight_s * 8048 + extra_s == pytest.approx(10 * 2 * work.flops_per_sample / 8e9, rel=CLOSED)


def test_a_measured_clock_takes_its_seconds_at_its_clock_and_scales_with_others():
    measured = {"clock.compute": "measured", "clock.seconds_per_sample": 1e-3, "clock.at_hz": 2e9}
    found = times_of(measured).training_s(np.full(2, 43_888.0), DEVICES, CPU_HZ)
    np.testing.assert_allclose(found, [2000 * 2 * 1e-3 * 2, 500 * 2 * 1e-3 * 2 / 3], rtol=CLOSED)


def test_a_board_is_as_fast_as_its_cores_and_efficiency():
    clock = Scenario().with_values({"clock.compute": "flops", "clock.board": "raspberry-pi-4"}).clock
    assert flops_per_cycle(clock, paper_work(), np.array([1.8e9])) == 8 * 4 * clock.efficiency
    assert all(board.cores >= 1 and 1e9 <= board.cpu_hz <= 5e9 and board.source for board in BOARDS.values())
    with pytest.raises(AirpruneError, match=r"network.cpu_hz must be at most 1.8e\+09.*got 3e\+09"):
        flops_per_cycle(clock, paper_work(), np.array([1e9, 3e9]))


def test_every_board_is_on_the_page_with_its_numbers_and_sources(pytestconfig):
    page = (pytestconfig.rootpath / "docs/clock.md").read_text()
    for b in BOARDS.values():
        assert f"| `{b.name}` | {b.cpu} | {b.cores} | {b.cpu_hz / 1e9:g} | {b.peak} | {b.source} |" in page


# Runs


def honest_experiment(**changes):
    """The preset with fewer samples and as many more epochs: the same sample passes."""
    small = {"data.name": "glyphs", "data.train_samples": 250, "data.test_samples": 20, "train.local_epochs": 400}
    return Experiment.of(Scenario.preset("honest").with_values({**small, **changes}))


def first_round(experiment):
    from airprune.rounds.edge import select_and_plan
    from airprune.rounds.timing import Events, time_round

    state = experiment.initial_state()
    at = experiment.place(state)
    candidates, _ = experiment.candidates(at, state, experiment.served(at, state))
    planned = select_and_plan(experiment.context, candidates, experiment.network.cpu_hz[candidates.device], 0)
    calm = Events(dropped=np.zeros(25, bool), slowdown=np.ones(25))
    return time_round(experiment.context, planned, calm)


def test_the_deadline_of_the_preset_honest_is_met_by_everybody():
    timed = first_round(honest_experiment())
    assert set(timed.outcome) == {"ok"}
    np.testing.assert_allclose(timed.compute_s, 4000 * 22_730_208 / (8 * 4 * 0.25 * 1.8e9), rtol=CLOSED)
    assert timed.edge_latency_s.max() <= 6.344 * (1 + 1e-9)
    assert 0.6 < timed.ratio.mean() < 0.8  # the paper's 30 ms are left to upload, so it prunes as the paper does


def test_energy_is_kappa_f_cubed_times_all_compute_seconds():
    timed = first_round(honest_experiment(**{"masking.probe.count_probe": True, "plan.deadline_s": 8.0}))
    compute_j = EFFECTIVE_CAPACITANCE * 1.8e9**3 * timed.compute_s
    transmit_w = ap.Scenario().build_radio().transmit_power_w
    np.testing.assert_allclose(timed.energy_j, compute_j + transmit_w * timed.uplink_s, rtol=CLOSED)


def test_a_deadline_below_the_compute_time_is_infeasible():
    with pytest.raises(AirpruneError, match="deadline"):
        first_round(honest_experiment(**{"plan.deadline_s": 6.3}))


def test_the_clock_changes_times_and_leaves_learning_alone():
    """With time enough for the whole model, only the clock differs."""
    by_paper, honest = (
        list(ap.run(tiny_scenario(plan__deadline_s=100.0, **clock), dataset=blobs()))
        for clock in ({}, {"clock__compute": "flops", "clock__flops_per_cycle": 0.01})
    )
    assert [r["test_loss"] for r in by_paper if "test_loss" in r] == [
        r["test_loss"] for r in honest if "test_loss" in r
    ]
    computes = [next(r["compute_s"] for r in records if r["kind"] == "edge") for records in (by_paper, honest)]
    assert min(computes[1]) > 100 * max(computes[0])


def test_the_papers_clock_reads_nothing_of_the_others_keys():
    plain, other = (
        list(ap.run(tiny_scenario(**clock), dataset=blobs()))
        for clock in ({}, {"clock__board": "raspberry-pi-4", "clock__savings": "weights"})
    )
    assert plain == other


@pytest.mark.usefixtures("blank_pictures")
def test_a_run_from_before_there_were_clocks_is_resumed_and_reported(tmp_path, monkeypatch):
    scenario, out = tiny_scenario(), tmp_path / "run"
    with monkeypatch.context() as before:
        older = {key: part for key, part in scenario.to_dict().items() if key != "clock"}
        before.setattr(Scenario, "to_toml", lambda self: toml_text.written(older))
        with contextlib.closing(run(scenario, dataset=blobs(), out=out)) as records:
            next(records)
    assert "clock" not in (out / "scenario.toml").read_text()
    *_, last = run(scenario, dataset=blobs(), out=out, resume=True)
    assert last["global_round"] == 2
    assert "Clock: the paper's." in html.unescape(write_report(out).read_text())


# Profiles


SMALL = ["smoke", "data.name=glyphs", "data.train_samples=120", "data.test_samples=20", "model.name=mlp"]


@pytest.mark.usefixtures("blank_pictures")
def test_a_profile_goes_from_a_file_into_a_run(tmp_path, capsys):
    file = tmp_path / "profile.json"
    assert main(["profile", *SMALL, "--seconds", "0.05", "--out", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["edge_round_s"] > 0 and told["paper_edge_round_s"] > 0  # which is longer depends on the machine
    written = json.loads(file.read_text()) | {"at_hz": 2e9}  # a machine may not tell
    file.write_text(json.dumps(written))
    (tmp_path / "mine.toml").write_text('base = "smoke"\n[clock]\nprofile = "profile.json"\n')
    clock = Scenario.load(tmp_path / "mine.toml").clock
    assert (clock.compute, clock.profile, clock.at_hz) == ("measured", None, 2e9)
    assert clock.seconds_per_sample == written["seconds_per_sample"] == min(t["median_s"] for t in written["timings"])

    out = tmp_path / "run"
    words = [f"clock.profile={file}", "plan.deadline_s=100", "train.local_epochs=3", "rounds.global_rounds=1"]
    assert main(["run", *SMALL, *words, "--engine", "serial", "--out", str(out)]) == 0
    assert "clock            measured, " in capsys.readouterr().out
    file.unlink()  # a run needs it no more
    scenario = Scenario.load(out / "scenario.toml")
    records = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    edge = next(record for record in records if record["kind"] == "edge")
    passes = 120 / scenario.num_devices * 3
    wanted = passes * written["seconds_per_sample"] * 2e9 / scenario.network.cpu_hz
    np.testing.assert_allclose(edge["compute_s"], wanted, rtol=1e-9)  # records round
    assert "Clock: measured" in (out / "report.html").read_text()


def test_a_profile_of_another_model_is_refused(tmp_path, capsys):
    keys = {"seconds_per_sample": 1e-3, "at_hz": 2e9, "flops_per_sample": 7.0}
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"kind": "airprune-profile", "version": 1, **keys}))
    assert main(["run", *SMALL, f"clock.profile={file}", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: Scenario.clock.flops_per_sample must be the model's own") and "got 7." in error


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["clock.compute=flops"], "Scenario.clock.board or flops_per_cycle must be given"),
        (["clock.compute=fast"], "Scenario.clock.compute 'fast' is unknown"),
        (["clock.board=raspberry-pi-44"], "did you mean 'raspberry-pi-4'?"),
        (["clock.board=raspberry-pi-4", "clock.cores=5"], "Scenario.clock.cores must be at most 4"),
        (["clock.compute=flops", "clock.board=raspberry-pi-4", "clock.flops_per_cycle=2"], "got both"),
        (["clock.compute=measured"], "Scenario.clock.seconds_per_sample must be given"),
        (["clock.compute=measured", "clock.seconds_per_sample=1"], "Scenario.clock.at_hz must be given"),
        (["clock.efficiency=0"], "Scenario.clock.efficiency must be"),
        (["clock.profile=/nowhere.json"], "Scenario.clock.profile must be an existing file"),
        (["clock.profile=pyproject.toml"], "Scenario.clock.profile must be JSON that `airprune profile` has written"),
        (["clock.profile=3"], "Scenario.clock.profile must be"),
        (["--seconds", "0"], "--seconds must be"),
        (["--seconds", "1e9"], "--seconds must be"),
    ],
)
def test_bad_input_is_one_sentence(words, sentence, capsys, pytestconfig, monkeypatch):
    monkeypatch.chdir(pytestconfig.rootpath)
    assert main(["profile", "smoke", *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("error: ") and sentence in line


@pytest.mark.parametrize(
    "values",
    [{}, [], {"kind": "airprune-profile"}, {"kind": "airprune-profile", "version": 1, "seconds_per_sample": -1}],
)
def test_a_damaged_profile_is_refused(tmp_path, values):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(values))
    with pytest.raises(AirpruneError, match=r"^Scenario\.clock\.profile must "):
        Scenario().with_("clock.profile", str(file))


def test_a_profile_that_cannot_be_written_is_one_sentence(tmp_path, capsys):
    assert main(["profile", *SMALL, "--seconds", "0.01", "--out", str(tmp_path / "no/such/profile.json")]) == 2
    assert "error: --out must be a file that can be written" in capsys.readouterr().err


def test_tables_say_which_clock_and_warn_of_two():
    assert clocks_text(["the paper's"] * 3) == "Clock: the paper's."
    honest = Scenario.preset("honest").clock.words
    assert honest == "flops, raspberry-pi-4"
    assert clocks_text(["the paper's", honest]).endswith("Times by different clocks do not compare.")
