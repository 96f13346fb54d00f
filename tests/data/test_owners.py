"""Owners of samples: data sets that have them, and the natural partition that keeps their samples together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airprune as ap
from airprune.data import Dataset, as_dataset, draw_samples, load_dataset, partition, save_shared
from airprune.errors import InvalidValue
from airprune.scenario import Scenario
from airprune.scenario.data import samples_by_device

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 6)).astype(np.float32)
Y = X[:, :3].argmax(axis=1)
OWNER = RNG.integers(0, 9, 300) * 11  # numbers with gaps
EDGE = np.array([0, 0, 1, 1])


def natural(owner, num_devices=4, seed=0, **options):
    edge = np.arange(num_devices) % 2
    return partition(np.zeros(len(owner), int), edge=edge, kind="natural", seed=seed, owner=owner, **options)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(1, 12), st.integers(0, 99))
def test_owners_stay_whole_and_are_spread_evenly(owner, num_devices, seed):
    owner = np.array(owner)
    names = np.unique(owner)
    if len(names) < num_devices:
        with pytest.raises(InvalidValue, match=r"an owner for each|a sample for each"):
            natural(owner, num_devices, seed)
        return
    parts = natural(owner, num_devices, seed)
    assert sorted(np.concatenate(list(parts)).tolist()) == list(range(len(owner)))  # every sample is used once
    held = [set(owner[part].tolist()) for part in parts]
    assert sum(map(len, held)) == len(names)  # no owner is on two devices
    assert {len(one) for one in held} <= {len(names) // num_devices, -(-len(names) // num_devices)}


def test_as_many_devices_as_owners_are_one_each_in_an_order_of_the_seed():
    owner = np.repeat(np.arange(8), 5)
    orders = {tuple(int(owner[part[0]]) for part in natural(owner, 8, seed)) for seed in range(4)}
    assert len(orders) == 4 and all(sorted(order) == list(range(8)) for order in orders)
    assert [part.tolist() for part in natural(owner, 8, 3)] == [part.tolist() for part in natural(owner, 8, 3)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"owner": None}, "partition.owner must be given for the partition natural"),
        ({"owner": OWNER[:-1]}, "must be given for each of 300 samples, got 299"),
        ({"owner": OWNER, "size_spread": 0.5}, "size_spread must be 0 for the partition natural"),
    ],
)
def test_wrong_owners_are_refused(options, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        partition(Y, edge=EDGE, kind="natural", seed=0, **options)


def test_devices_that_sample_from_one_pool_have_no_owners():
    with pytest.raises(InvalidValue, match="samples_per_device must be none with the partition natural"):
        draw_samples(Y, edge=EDGE, kind="natural", seed=0, samples_per_device=5)


def test_owners_follow_their_samples_when_some_are_held_out():
    data = as_dataset((X, Y), owner=OWNER)
    rows = {x.tobytes(): owner for x, owner in zip(X, OWNER, strict=True)}
    for x, owner in ((data.train_x, data.train_owner), (data.test_x, data.test_owner)):
        assert [rows[row.tobytes()] for row in x] == owner.tolist()
    assert as_dataset((X, Y)).train_owner is None


def test_the_fingerprint_has_owners_only_if_there_are_any(tmp_path):
    plain, owned, other = (
        as_dataset(((X, Y), (X, Y)), owner=o, test_owner=o) for o in (None, OWNER, np.roll(OWNER, 1))
    )
    assert len({plain.fingerprint, owned.fingerprint, other.fingerprint}) == 3
    for data in (plain, owned):
        opened = save_shared(data, tmp_path).open()
        assert opened.arrays.keys() == data.arrays.keys()
        assert all(np.array_equal(opened.arrays[name], array) for name, array in data.arrays.items())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train_owner": None}, "Dataset.train_owner must be given with the test part's owners"),
        ({"train_owner": OWNER[:-1]}, r"Dataset.train_owner must be a whole number ≥ 0 for each of 300"),
        ({"train_owner": -OWNER - 1}, r"Dataset.train_owner must be a whole number ≥ 0"),
        ({"train_owner": OWNER / 2}, r"Dataset.train_owner must be a whole number"),
    ],
)
def test_owners_that_do_not_fit_are_refused(changes, sentence):
    parts = {"train_x": X, "train_y": Y, "test_x": X, "test_y": Y, "train_owner": OWNER, "test_owner": OWNER}
    with pytest.raises(InvalidValue, match=sentence):
        Dataset(name="x", num_classes=3, **{**parts, **changes})


def test_data_sets_without_owners_refuse_a_choice_of_them():
    for changes in ({"owners": 3}, {"min_owner_samples": 2}):
        with pytest.raises(InvalidValue, match="must be left out for glyphs, which has no owners"):
            load_dataset("glyphs", **changes)


def scenario(**changes) -> Scenario:
    values = {"data.partition": "natural", "engine.name": "serial", "rounds.global_rounds": 1}
    return Scenario.preset("smoke").with_values({**values, **changes})


def test_a_scenario_gives_each_device_its_owners_and_trains_on_them():
    data = as_dataset((X, Y), owner=OWNER)
    network = scenario().build_network()
    held = [set(data.train_owner[part].tolist()) for part in samples_by_device(scenario(), data, network)]
    assert sum(map(len, held)) == 9 and len(held) == 4
    records = list(ap.run(scenario(**{"model.name": "mlp"}), dataset=data))
    assert records[-1]["test_accuracy"] > 0


def test_devices_with_own_layers_are_evaluated_on_their_owners():
    from airprune.rounds.experiment import Experiment

    data = as_dataset((X, Y), owner=OWNER)
    own = scenario(**{"model.name": "mlp", "model.personal": ["last"], "method": "hierfavg"})
    experiment = Experiment.of(own, dataset=data)
    for mine, tested in zip(experiment.samples, experiment.own_tests, strict=True):
        assert set(data.test_owner[tested].tolist()) <= set(data.train_owner[mine].tolist())


def test_a_natural_partition_needs_owners_and_tokens_have_no_classes_to_partition_by():
    with pytest.raises(InvalidValue, match=r"data.partition must be another for samples without owners"):
        list(ap.run(scenario(**{"model.name": "mlp"}), dataset=(X, Y)))
    tokens = RNG.integers(0, 5, (60, 8))
    data = Dataset(name="t", train_x=tokens, train_y=tokens, test_x=tokens, test_y=tokens, num_classes=5)
    network = scenario().build_network()
    with pytest.raises(InvalidValue, match="must be iid for samples without classes"):
        samples_by_device(scenario(**{"data.partition": "shards"}), data, network)
    records = list(
        ap.run(scenario(**{"data.partition": "iid", "model.name": "char-cnn", "model.prunable": ["*"]}), dataset=data)
    )
    assert 0 < records[-1]["test_accuracy"] <= 1
