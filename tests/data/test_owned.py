"""Data that comes by owner: lists of data sets, partitioners, and inputs as dictionaries."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import airprune as ap
from airprune.data import as_dataset, save_shared
from airprune.errors import InvalidValue
from airprune.scenario import Scenario
from airprune.scenario.data import held_out_by_device, samples_by_device

RNG = np.random.default_rng(0)


def part(n, size=10):
    """Samples whose first number says whose they are."""
    return np.column_stack([np.full(size, n), RNG.normal(size=size)]).astype(np.float32), np.arange(size) % 2


def scenario(**changes):
    values = {"data.partition": "natural", "engine.name": "serial", "rounds.global_rounds": 1, "model.name": "mlp"}
    return Scenario.preset("smoke").with_values({**values, **changes})


def held(data, **changes):
    """Whose samples each of the four devices holds."""
    one = scenario(**changes)
    return [set(data.train_x[own, 0].tolist()) for own in samples_by_device(one, data, one.build_network())]


@pytest.mark.parametrize("form", ["arrays", "torch", "pandas", "loader"])
def test_device_n_holds_part_n_of_a_list(form):
    parts = [part(n, 5 + n) for n in range(4)]
    wrapped = {
        "arrays": lambda x, y: (x, y),
        "torch": lambda x, y: TensorDataset(torch.tensor(x), torch.tensor(y)),
        "pandas": lambda x, y: pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "label": y}),
        "loader": lambda x, y: DataLoader(TensorDataset(torch.tensor(x), torch.tensor(y)), batch_size=3, shuffle=True),
    }
    data = as_dataset([wrapped[form](*one) for one in parts], test=part(0))
    assert held(data) == [{0}, {1}, {2}, {3}] == held(data, seed=5)
    assert data.num_train == 5 + 6 + 7 + 8 and data.test_owner is None


def test_parts_with_their_own_tests_keep_them():
    lists = (
        [(part(n), part(n, 3)) for n in range(4)],
        {"train": [part(n) for n in range(4)], "test": [part(n, 3) for n in range(4)]},
    )
    for given in (*lists, ([part(n) for n in range(4)], [part(n, 3) for n in range(4)])):
        data = as_dataset(given)
        one = scenario()
        samples = samples_by_device(one, data, one.build_network())
        tests = held_out_by_device(one, data, samples)
        assert [data.test_x[own, 0].tolist() for own in tests] == [[n] * 3 for n in range(4)]


def test_a_run_trains_on_a_list_of_data_sets():
    records = list(ap.run(scenario(), dataset=[part(n) for n in range(4)]))
    assert records[-1]["test_accuracy"] >= 0


@pytest.mark.parametrize(
    ("given", "changes", "sentence"),
    [
        ([part(n) for n in range(3)], {}, r"one part for each of 4 devices, got 3 parts"),
        ([part(n) for n in range(4)], {"data.partition": "iid"}, r"data.partition must be natural for a list"),
        ([part(0), part(1), part(2), (np.ones((2, 5)), [0, 1])], {}, r"of one shape.*x \[2\] real.*\[5\].*in part 3"),
        ([part(0), part(1), part(2), part(3, 0)], {}, r"data\[3\] must have samples, got none"),
        ([], {}, "must have a part for each device, got an empty list"),
        ([part(0), part(1), part(2), (part(3), part(3))], {}, "a test part in all .*, got none in part 0"),
        ([(np.ones((5, 2)), np.ones(5) / 2)] * 4, {}, "must be a vector of whole numbers"),
    ],
)  # fmt: skip
def test_a_list_that_does_not_fit_is_refused_in_a_sentence(given, changes, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        list(ap.run(scenario(**changes), dataset=given))


class Partitioner:
    """What is used of a partitioner of flwr-datasets."""

    def __init__(self, parts, by=None):
        self.parts, self.num_partitions, self._partition_by = parts, len(parts), by

    def load_partition(self, partition_id):
        return self.parts[partition_id]


class Columns:
    """What is used of `datasets.Dataset`."""

    def __init__(self, columns):
        self.columns_, self.features = columns, {}

    def __len__(self):
        return len(next(iter(self.columns_.values())))

    column_names = property(lambda self: list(self.columns_))

    def with_format(self, kind):
        assert kind == "numpy"
        return self

    def __getitem__(self, rows):
        return self.columns_


def hugging(n, size=6, **extra):
    x, y = part(n, size)
    return Columns({"features": x, "label": y, **{name: np.full(size, value) for name, value in extra.items()}})


def test_device_n_holds_partition_n_and_the_column_of_ids_is_no_feature():
    parts = [hugging(n, writer=n) for n in range(4)]
    data = as_dataset(Partitioner(parts, by="writer"), test=part(0))
    assert held(data) == [{0}, {1}, {2}, {3}] and data.feature_shape == (2,)


def test_a_federated_dataset_brings_its_test_split():
    federated = SimpleNamespace(
        partitioners={"train": Partitioner([hugging(n) for n in range(4)])},
        load_partition=lambda n, split: None,
        load_split=lambda split: hugging(7, 9),
    )
    data = as_dataset(federated)
    assert held(data) == [{0}, {1}, {2}, {3}] and data.test_x[:, 0].tolist() == [7] * 9
    federated.partitioners["test"] = Partitioner([hugging(n, 2) for n in range(4)])
    assert as_dataset(federated).test_owner.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_partitioner_that_fails_is_reported_in_a_sentence():
    class Broken(Partitioner):
        def load_partition(self, partition_id):
            raise AttributeError("The dataset field should be set before using it.")

    with pytest.raises(InvalidValue, match="must load its partitions, got AttributeError: The dataset field"):
        as_dataset(Broken([1, 2]))
    with pytest.raises(InvalidValue, match=r"load_partition\(1\) must have samples, got none"):
        as_dataset(Partitioner([hugging(0), hugging(1, 0)]))


TOKENS, SIZE = RNG.integers(0, 20, size=(80, 5)), RNG.normal(size=(80, 2)).astype(np.float32)
Y = (TOKENS.mean(axis=1) + SIZE[:, 0] > 9.5).astype(int)


class Both(nn.Module):
    """Takes a dictionary."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 4), nn.Linear(6, 2)

    def forward(self, batch):
        assert batch["tokens"].dtype == torch.int64
        return self.head(torch.cat([self.embed(batch["tokens"]).mean(1), batch["size"]], dim=1))


class Keywords(Both):
    """Takes its inputs by name, as language models do."""

    def forward(self, tokens, size):
        return super().forward({"tokens": tokens, "size": size})


class Items(Dataset):
    def __len__(self):
        return len(Y)

    def __getitem__(self, n):
        return {"tokens": TOKENS[n], "size": SIZE[n], "label": Y[n]}


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_models_get_dictionaries_with_the_same_result_in_every_form(engine):
    one = scenario(**{"data.partition": "iid", "engine.name": engine, "engine.workers": 1})
    losses = set()
    for model in (Both, Keywords):
        for given in (({"tokens": TOKENS, "size": SIZE}, Y), Items(), DataLoader(Items(), batch_size=7)):
            torch.manual_seed(0)
            module = model()
            *_, last = ap.run(one, model=module, dataset=given)
            losses.add(last["test_loss"])
            assert not module._forward_pre_hooks  # the user's module stays as it is
    assert len(losses) == 1


def test_whole_inputs_arrive_exactly_beside_real_ones(tmp_path):
    from airprune.models.input_dictionary import Unpack

    large = np.array([[2**24], [-(2**24)], [1]] * 4)
    data = as_dataset((({"a": large, "b": RNG.normal(size=12)}, np.arange(12) % 2),) * 2)
    found = Unpack(data.fields).inputs(torch.tensor(save_shared(data, tmp_path).open().train_x))
    np.testing.assert_array_equal(found["a"].numpy(), large)
    assert found["b"].shape == (12,)
    with pytest.raises(InvalidValue, match="whole numbers up to 16,777,216 in the input 'a'"):
        as_dataset(({"a": large + 1, "b": RNG.normal(size=12)}, np.arange(12) % 2))


@pytest.mark.parametrize(
    ("given", "model", "sentence"),
    [
        (({"a": np.ones((9, 2)), "b": np.ones((8, 2))}, np.zeros(9, int)), Both, "shapes|one entry of each input"),
        (({"tokens": TOKENS}, Y), Both, "a dictionary of tokens.*KeyError|run.model"),
        (({"tokens": TOKENS, "size": SIZE}, Y), None, "run.model must be given for samples of several inputs"),
        ((({"a": SIZE}, Y), ({"b": SIZE}, Y)), Both, r"inputs of the training samples, a \[2\], got b \[2\]"),
    ],
)
def test_dictionaries_that_do_not_fit_are_refused_in_a_sentence(given, model, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        list(ap.run(scenario(**{"data.partition": "iid"}), dataset=given, model=model and model()))
