"""Samples reach the model as they were given: shapes, whole numbers, tables, loaders, targets that are no classes."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, SubsetRandomSampler, TensorDataset

import airprune as ap
from airprune.data import Dataset, as_dataset, save_shared, standardized
from airprune.errors import InvalidValue

RNG = np.random.default_rng(0)
Y = np.arange(40) % 3


@pytest.mark.parametrize("shape", [(7,), (10, 3), (3, 10), (2, 8, 5), (8, 9, 3), (2, 3, 4, 5)])
def test_real_samples_keep_their_shape(shape):
    x = RNG.normal(size=(40, *shape))
    found = as_dataset((x, Y))
    assert found.feature_shape == shape and found.train_x.dtype == np.float32


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint16])
def test_whole_numbers_stay_whole(dtype):
    tokens = RNG.integers(0, 100, size=(40, 6)).astype(dtype)
    found = as_dataset(((tokens, Y), (tokens, Y)))
    assert found.train_x.dtype == np.int64
    np.testing.assert_array_equal(found.train_x, tokens)


def test_tokens_that_float32_cannot_hold_arrive_exactly(tmp_path):
    tokens = np.full((40, 2), 2**24 + 1)
    found = save_shared(as_dataset((tokens, Y)), tmp_path).open()
    assert found.train_x.dtype == np.int64 and (found.train_x == 2**24 + 1).all()


def test_bytes_are_pixels_and_yes_or_no_is_a_real_number():
    assert as_dataset((np.full((40, 8, 9), 255, np.uint8), Y)).train_x.shape[1:] == (1, 8, 9)
    assert as_dataset((np.ones((40, 4), bool), Y)).train_x.dtype == np.float32


def test_a_table_of_pandas_has_its_target_in_a_column_of_a_usual_name():
    frame = pd.DataFrame({"size": np.arange(40), "age": RNG.random(40), "label": Y})
    found = as_dataset(frame)
    assert found.feature_shape == (2,) and found.train_x.dtype == np.float32 and found.num_classes == 3
    pairs = as_dataset((frame[["size", "age"]], frame["label"]))
    np.testing.assert_array_equal(pairs.train_x, found.train_x)
    both = as_dataset((frame[:30], frame[30:]))
    assert (both.num_train, both.num_test) == (30, 10)


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (
            pd.DataFrame({"a": [1.0] * 9, "price": [1.0] * 9}),
            "must have a target in a column label.*got columns 'a', 'pr",
        ),
        (pd.DataFrame({"a": ["red"] * 9, "label": [0] * 9}), "must have columns of numbers.*get_dummies"),
        (pd.DataFrame({"label": [0] * 9}), "must have a target in a column"),
        (pd.DataFrame({"a": [1.0] * 9, "label": ["cat"] * 9}), "must be a vector of whole numbers"),
    ],
)
def test_tables_that_cannot_be_read_are_refused_in_a_sentence(frame, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        as_dataset(frame)


def test_a_loader_gives_the_samples_of_its_sampler_in_the_order_of_its_dataset():
    pairs = TensorDataset(torch.arange(40.0)[:, None], torch.tensor(Y))
    shuffled = as_dataset((DataLoader(pairs, batch_size=7, shuffle=True),) * 2)
    np.testing.assert_array_equal(shuffled.train_x[:, 0], np.arange(40))
    some = as_dataset((DataLoader(pairs, batch_size=4, sampler=SubsetRandomSampler([9, 2, 30])),) * 2)
    np.testing.assert_array_equal(some.train_x[:, 0], [2, 9, 30])


def test_a_loader_pads_by_its_collate_function():
    items = [(torch.ones(1 + n % 4), n % 3) for n in range(40)]

    def padded(batch):
        rows = [torch.nn.functional.pad(x, (0, 4 - len(x))) for x, _ in batch]
        return torch.stack(rows), torch.tensor([y for _, y in batch])

    found = as_dataset((DataLoader(items, batch_size=8, collate_fn=padded),) * 2)
    np.testing.assert_array_equal(found.train_x.sum(axis=1), 1 + np.arange(40) % 4)
    with pytest.raises(InvalidValue, match=r"of one shape.*Pad or cut"):
        as_dataset(DataLoader(items, batch_size=1))


def test_a_loader_of_a_stream_comes_as_it_comes():
    class Stream(IterableDataset):
        def __iter__(self):
            return ((torch.tensor([float(n)]), n % 3) for n in range(20))

    found = as_dataset((DataLoader(Stream(), batch_size=6),) * 2)
    np.testing.assert_array_equal(found.train_x[:, 0], np.arange(20))


class HuggingFace:
    """What is used of `datasets.Dataset`, as 5.2.0 behaves: column_names, features, len, with_format("numpy")[:].

    The numpy format widens whole numbers to int64; `features` has what they were.
    """

    def __init__(self, columns):
        self.features = {
            name: SimpleNamespace(feature=SimpleNamespace(dtype=str(c.dtype))) for name, c in columns.items()
        }
        self.columns_ = {name: c.astype(np.int64) if c.dtype.kind in "iu" else c for name, c in columns.items()}

    def __len__(self):
        return len(next(iter(self.columns_.values())))

    @property
    def column_names(self):
        return list(self.columns_)

    def with_format(self, name):
        assert name == "numpy"
        return self

    def __getitem__(self, rows):
        return {name: column[rows] for name, column in self.columns_.items()}


def test_a_hugging_face_dataset_gives_its_one_column_as_it_is_or_several_side_by_side():
    tokens = RNG.integers(0, 9, size=(40, 5))
    one = HuggingFace({"input_ids": tokens, "labels": Y})
    found = as_dataset({"train": one, "test": one})
    np.testing.assert_array_equal(found.test_x, tokens)
    several = HuggingFace({"a": np.arange(40), "b": RNG.random(40), "label": Y})
    assert as_dataset(several).train_x.shape == (32, 2)
    with pytest.raises(InvalidValue, match=r"must have columns of numbers, got text\. Choose others.*'ids'"):
        as_dataset(HuggingFace({"ids": tokens, "text": np.array(["x"] * 40), "label": Y}))


def test_bytes_of_a_hugging_face_dataset_are_pixels_though_its_numpy_format_widens_them():
    pixels = RNG.integers(0, 256, size=(40, 8, 8), dtype=np.uint8)
    found = as_dataset(HuggingFace({"image": pixels, "label": Y}))
    assert found.train_x.shape == (32, 1, 8, 8) and found.train_x.dtype == np.float32 and found.train_x.max() <= 1.0


def test_parts_of_other_names_are_one_sentence():
    part = HuggingFace({"x": RNG.random((40, 3)), "label": Y})
    with pytest.raises(
        InvalidValue, match=r"must have the parts train and test, got train, validation\. Give one part"
    ):
        as_dataset({"train": part, "validation": part})


def test_real_hugging_face_datasets_are_read_as_their_stand_in_is(tmp_path):
    datasets = pytest.importorskip("datasets")
    tokens = RNG.integers(0, 9, size=(40, 5))
    pixels = RNG.integers(0, 256, size=(40, 8, 8), dtype=np.uint8)
    for columns in ({"input_ids": tokens, "labels": Y}, {"image": pixels, "label": Y}, {"a": Y, "b": Y, "label": Y}):
        real, stand_in = datasets.Dataset.from_dict(columns), HuggingFace(columns)
        real.save_to_disk(tmp_path / "on-disk")
        for data in (real, datasets.load_from_disk(tmp_path / "on-disk")):
            found, expected = as_dataset(data), as_dataset(stand_in)
            np.testing.assert_array_equal(found.train_x, expected.train_x, strict=True)
            np.testing.assert_array_equal(found.train_y, expected.train_y)
    both = as_dataset(datasets.DatasetDict(train=real, test=real))
    assert len(both.train_x) == len(both.test_x) == 40
    with pytest.raises(InvalidValue, match="must have a length, which a stream has not, got IterableDataset"):
        as_dataset(real.to_iterable_dataset())


def test_numbers_are_targets_of_any_shape_for_losses_of_numbers():
    x = RNG.normal(size=(40, 4))
    found = as_dataset((x, np.arange(40)), targets="values")
    assert (found.train_y.dtype, found.num_classes, found.num_outputs) == (np.float32, 0, 1)
    assert as_dataset((x, RNG.normal(size=(40, 2, 3))), targets="values").num_outputs == 6


def test_the_number_of_classes_is_that_of_the_training_labels():
    """A label that the test part alone has would widen the model by outputs that nothing trains."""
    x, y = np.zeros((6, 2), np.float32), np.arange(6) % 3
    odd = np.array([0, 1, 99, 2, 0, 1])
    sentence = (
        r"as_dataset\.test must have labels of the training samples, whose largest is 2, got 99\. "
        r"Remove those samples.* num_classes=100\)\."
    )
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1]})
    loaders = [DataLoader(TensorDataset(torch.tensor(x), torch.tensor(labels)), batch_size=2) for labels in (y, odd)]
    for given in (
        ((x, y), (x, odd)),
        {"train": (x, y), "test": (x, odd)},
        (table.assign(label=y), table.assign(label=odd)),
        tuple(loaders),
    ):
        for targets in ("classes", "any"):
            with pytest.raises(InvalidValue, match=sentence):
                as_dataset(given, targets=targets)
    with pytest.raises(InvalidValue, match=sentence):
        as_dataset((x, y), test=(x, odd))
    assert as_dataset(((x, y), (x, odd)), num_classes=100).num_classes == 100
    assert as_dataset(((x, y), (x, np.zeros(6, int)))).num_classes == 3
    with pytest.raises(InvalidValue, match="whose largest is 0, got 2"):
        as_dataset(((x, 0 * y), (x, y)))
    assert as_dataset(((x, 0 * y), (x, y % 2))).num_classes == 2  # one output tells nothing apart


def test_a_class_that_is_held_out_in_whole_is_counted():
    """All labels are the user's training labels; which of them are held out is chance."""
    x, y = np.zeros((4, 2), np.float32), np.array([0, 0, 0, 5])
    for seed in range(8):
        assert as_dataset((x, y), test_share=0.25, seed=seed).num_classes == 6


@pytest.mark.parametrize(
    ("y", "num_classes", "dtype"),
    [
        (Y, 3, np.int64),
        (Y - 1, 0, np.int64),
        (RNG.integers(0, 9, (40, 6)), 0, np.int64),
        (RNG.random(40), 0, np.float32),
    ],
)
def test_what_a_loss_of_your_own_gets_is_what_you_gave(y, num_classes, dtype):
    found = as_dataset((RNG.normal(size=(40, 4)), y), targets="any")
    assert (found.num_classes, found.train_y.dtype) == (num_classes, dtype)


def test_test_samples_must_be_of_the_kind_of_the_training_samples():
    x = np.ones((4, 2))
    with pytest.raises(InvalidValue, match=r"Dataset.test_x must have samples of shape \(2,\) and type float32"):
        Dataset(name="m", train_x=x, train_y=Y[:4], test_x=x.astype(int), test_y=Y[:4], num_classes=3)


def test_samples_without_classes_are_dealt_out_iid_only():
    sample = ap.Scenario.preset("smoke").with_values({"data.partition": "dirichlet", "train.loss": "mse"})
    with pytest.raises(InvalidValue, match="partition must be iid for samples without classes"):
        ap.run(sample)


def test_images_in_colour_are_standardized_by_channel():
    x = RNG.random((50, 3, 4, 4), dtype=np.float32) * np.array([1, 5, 0])[:, None, None] + 2
    found = standardized(as_dataset(((x, np.arange(50) % 3), (x, np.arange(50) % 3)))).train_x
    np.testing.assert_allclose(found.mean(axis=(0, 2, 3)), 0, atol=1e-5)  # float32
    np.testing.assert_allclose(found.std(axis=(0, 2, 3)), [1, 1, 0], atol=1e-5)
