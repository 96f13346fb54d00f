"""Datasets as values: what is accepted, what is refused, and how processes share them."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from airprune.data import Dataset, as_dataset, load_dataset, save_shared, standardized
from airprune.errors import InvalidValue, UnknownName, WorkFailed
from airprune.rounds.experiment import Experiment
from airprune.scenario import Scenario


def small(**changes) -> Dataset:
    rng = np.random.default_rng(0)
    fields = {
        "name": "small",
        "train_x": rng.random((20, 1, 4, 4), dtype=np.float32),
        "train_y": np.arange(20) % 3,
        "test_x": rng.random((6, 1, 4, 4), dtype=np.float32),
        "test_y": np.arange(6) % 3,
        "num_classes": 3,
    }
    return Dataset(**{**fields, **changes})


def test_arrays_cannot_be_written_nor_changed_through_the_callers_own():
    mine = np.zeros((20, 1, 4, 4), dtype=np.float32)
    dataset = small(train_x=mine)
    mine[0] = 7
    assert dataset.train_x.max() == 0
    for array in (dataset.train_x, dataset.train_y, dataset.test_x, dataset.test_y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_read_only_arrays_are_not_copied():
    mine = np.zeros((20, 1, 4, 4), dtype=np.float32)
    mine.flags.writeable = False
    assert np.shares_memory(small(train_x=mine).train_x, mine)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train_x": np.full((20, 1, 4, 4), np.nan)}, "Dataset.train_x must be finite.*sample 0"),
        ({"train_x": np.full((20, 1, 4, 4), 1e300)}, "Dataset.train_x must be finite in float32"),
        ({"train_x": np.zeros((20,))}, "Dataset.train_x must be .*samples, features"),
        ({"train_x": np.zeros((0, 4))}, "Dataset.train_x must be .*at least one"),
        ({"train_x": np.array([["a"] * 4] * 20)}, "Dataset.train_x must hold numbers"),
        ({"train_y": np.arange(19) % 3}, "Dataset.train_y must have one label for each of 20 samples, got 19"),
        ({"train_y": np.full(20, 3)}, r"Dataset.train_y must be in \[0, 2\], got 3 for sample 0"),
        ({"test_y": np.array([0, 1, 2, -1, 0, 0])}, "Dataset.test_y must be .*got -1 for sample 3"),
        ({"train_y": np.zeros(20)}, "Dataset.train_y must be a vector of whole numbers.*not one-hot"),
        ({"test_x": np.zeros((6, 1, 5, 4))}, r"Dataset.test_x must have samples of shape \(1, 4, 4\)"),
        ({"num_classes": 1}, "Dataset.num_classes must be a whole number ≥ 2, got 1"),
        ({"name": ""}, "Dataset.name must be a non-empty name"),
    ],
)
def test_wrong_datasets_are_refused_in_a_sentence(changes, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        small(**changes)


def test_fingerprint_follows_contents_and_shapes_but_not_the_name():
    base = small()
    assert base.fingerprint == small(name="other").fingerprint
    flat = {"train_x": base.train_x.reshape(20, 16), "test_x": base.test_x.reshape(6, 16)}
    changed = base.train_x.copy()
    changed[3, 0, 2, 1] += 1e-3
    others = [small(**flat), small(num_classes=4), small(train_x=changed), small(test_y=np.zeros(6, dtype=int))]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_arrays_become_a_dataset_with_a_held_out_part():
    x, y = np.arange(100.0).reshape(50, 2), np.arange(50) % 5
    dataset = as_dataset((x, y), test_share=0.3, seed=4)
    assert (dataset.num_train, dataset.num_test, dataset.num_classes) == (35, 15, 5)
    np.testing.assert_array_equal(np.sort(np.concatenate((dataset.train_x, dataset.test_x)), axis=0), x)
    assert dataset.fingerprint == as_dataset((x, y), test_share=0.3, seed=4).fingerprint
    assert dataset.fingerprint != as_dataset((x, y), test_share=0.3, seed=5).fingerprint


def test_every_form_of_the_same_data_gives_the_same_dataset():
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 256, (12, 5, 6), dtype=np.uint8), np.arange(12) % 4
    xt, yt = rng.integers(0, 256, (4, 5, 6), dtype=np.uint8), np.arange(4)
    tensors = (torch.tensor(x), torch.tensor(y)), (torch.tensor(xt), torch.tensor(yt))
    torch_sets = tuple(torch.utils.data.TensorDataset(*pair) for pair in tensors)
    forms = {
        "arrays": as_dataset(((x, y), (xt, yt))),
        "test by name": as_dataset((x, y), test=(xt, yt)),
        "tensors": as_dataset(tensors),
        "torch datasets": as_dataset(torch_sets),
        "torch dataset, test by name": as_dataset(torch_sets[0], test=torch_sets[1]),
        "lists": as_dataset((x, y.tolist()), test=(xt, yt.tolist())),
        "channel last": as_dataset((x[..., None], y), test=(xt[..., None], yt)),
        "a dataset": as_dataset(as_dataset(((x, y), (xt, yt)))),
    }
    assert len({form.fingerprint for form in forms.values()}) == 1
    dataset = forms["arrays"]
    assert dataset.train_x.shape == (12, 1, 5, 6)
    np.testing.assert_allclose(dataset.train_x[:, 0], x / 255.0, rtol=1e-7)  # float32


def test_a_torch_dataset_alone_has_a_part_held_out():
    data = torch.utils.data.TensorDataset(torch.rand(30, 3, 8, 8), torch.arange(30) % 3)
    dataset = as_dataset(data, name="mine")
    assert (dataset.name, dataset.train_x.shape, dataset.num_test) == ("mine", (24, 3, 8, 8), 6)


def test_images_with_colour_last_are_turned():
    x = np.zeros((6, 8, 9, 3), dtype=np.uint8)
    assert as_dataset((x, np.arange(6) % 2)).feature_shape == (3, 8, 9)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    "data",
    [
        None,
        np.zeros((4, 2)),
        (np.zeros((4, 2)),),
        (np.zeros((4, 2)), np.zeros(3, dtype=int)),
        (np.zeros((4, 2)), np.eye(4)),
        (np.zeros((4, 2)), np.full(4, 0.5)),
        ([[1], [1, 2]], [0, 1]),
        Stream(),
        torch.utils.data.TensorDataset(torch.zeros(4, 2)),
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_is_not_samples_with_labels_is_refused(data):
    with pytest.raises(InvalidValue):
        as_dataset(data)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_a_test_share_that_leaves_nothing_is_refused(share):
    with pytest.raises(InvalidValue, match="test_share"):
        as_dataset((np.zeros((4, 2)), np.arange(4) % 2), test_share=share)


def test_torch_is_not_imported_for_arrays():
    code = (
        "import sys, numpy as np; from airprune.data import as_dataset, load_dataset;"
        "as_dataset((np.zeros((9, 2)), np.arange(9) % 3)); load_dataset('glyphs', train_samples=5, test_samples=5);"
        "sys.exit(bool({'torch', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_processes_map_a_shared_dataset(tmp_path):
    dataset = small()
    shared = save_shared(dataset, tmp_path / "shared")
    assert len(pickle.dumps(shared)) < 1000
    code = (
        "import pickle, sys; d = pickle.load(sys.stdin.buffer).open();"
        "print(d.fingerprint, repr(float(d.train_x.sum())), d.train_x.flags.writeable)"
    )
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(shared), capture_output=True, timeout=60)
    assert done.stdout.decode().split() == [dataset.fingerprint, repr(float(dataset.train_x.sum())), "False"]
    opened = shared.open()
    assert isinstance(opened.train_x.base, np.memmap)
    for name in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(opened, name), getattr(dataset, name))


def test_a_folder_that_another_dataset_took_over_is_noticed(tmp_path):
    shared = save_shared(small(), tmp_path)
    save_shared(small(num_classes=4), tmp_path)
    with pytest.raises(WorkFailed, match=r"fingerprint.*save the dataset again"):
        shared.open()


@pytest.mark.parametrize("fault", ["no record", "record is no json", "record is no object", "no array", "cut", "other"])
def test_a_damaged_shared_folder_is_noticed(tmp_path, fault):
    shared = save_shared(small(), tmp_path)
    array = tmp_path / "train_x.npy"
    match fault:
        case "no record":
            (tmp_path / "dataset.json").unlink()
        case "record is no json":
            (tmp_path / "dataset.json").write_text("{")
        case "record is no object":
            (tmp_path / "dataset.json").write_text(json.dumps([1]))
        case "no array":
            array.unlink()
        case "cut":
            array.write_bytes(array.read_bytes()[:-100])
        case "other":
            np.save(array, np.zeros((2, 2)))
    with pytest.raises(WorkFailed, match="save the dataset again"):
        shared.open()


def test_a_folder_that_cannot_be_written_is_an_error_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkFailed, match="file"):
        save_shared(small(), tmp_path / "file")


def test_an_unknown_dataset_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'fashion-mnist'"):
        load_dataset("fashion_mnist")


def test_more_samples_than_there_are_is_an_error():
    with pytest.raises(
        InvalidValue, match=r"load_dataset\.train_samples must be ≤ 60,000, all that mnist has, got 60,001"
    ):
        load_dataset("mnist", train_samples=60_001)
    with pytest.raises(InvalidValue, match=r"load_dataset\.test_samples"):
        load_dataset("glyphs", test_samples=0)


def test_standardizing_gives_training_samples_mean_0_and_deviation_1_and_moves_the_test_alike():
    rng = np.random.default_rng(0)
    raw = as_dataset(((rng.random((200, 4), dtype=np.float32), np.arange(200) % 2), (np.ones((2, 4)), [0, 1])))
    scaled = standardized(raw)
    assert scaled.train_x.mean() == pytest.approx(0, abs=1e-5) and scaled.train_x.std() == pytest.approx(1, rel=1e-5)
    expected = (1 - raw.train_x.mean(dtype=np.float64)) / raw.train_x.std(dtype=np.float64)
    np.testing.assert_allclose(scaled.test_x, expected, rtol=1e-5)  # float32
    assert scaled.fingerprint != raw.fingerprint


def test_the_catalogues_samples_are_standardized_and_a_users_own_taken_as_they_are():
    scenario = Scenario.preset("smoke")
    assert Experiment.of(scenario).dataset.train_x.std() == pytest.approx(1, rel=1e-4)
    assert Experiment.of(scenario.with_("data.standardize", False)).dataset.train_x.min() >= 0
    own = (np.full((40, 1, 28, 28), 3.0, dtype=np.float32), np.arange(40) % 10)
    assert np.all(Experiment.of(scenario, dataset=own).dataset.train_x == 3.0)


def test_held_out_samples_are_training_samples_that_nobody_trains_on():
    usual = load_dataset("glyphs", train_samples=60, test_samples=20, seed=3)
    held = load_dataset("glyphs", train_samples=60, test_samples=20, judge_on="held-out", seed=3)
    more = load_dataset("glyphs", train_samples=80, seed=3)
    assert np.array_equal(held.train_x, usual.train_x) and np.array_equal(held.train_y, usual.train_y)
    assert np.array_equal(held.test_x, more.train_x[60:]) and np.array_equal(held.test_y, more.train_y[60:])
    assert not np.array_equal(held.test_x, usual.test_x)


@pytest.mark.parametrize("train_samples", [None, 59_990])
def test_holding_out_more_than_is_left_is_refused_in_a_sentence(train_samples):
    with pytest.raises(InvalidValue, match="must leave 100 of 60,000 training samples of mnist to be held out, got"):
        load_dataset("mnist", train_samples=train_samples, test_samples=100, judge_on="held-out")
    with pytest.raises(InvalidValue, match=r"Scenario\.data\.judge_on must be test with a data set of your own"):
        Experiment.of(Scenario().with_("data.judge_on", "held-out"), dataset=((np.eye(4), range(4)),) * 2)
