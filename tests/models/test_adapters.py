"""Adapters of language models: outputs, tokens, ranks that are declared, and a base that is trained here."""

import types

import numpy as np
import pytest
import torch
from torch import nn

import airprune as ap
from airprune.errors import InvalidValue
from airprune.models import char_transformer
from airprune.models.adapters import Lora, add_adapters, lora_pairs
from airprune.models.catalogue import FlatModel
from airprune.models.char_transformer import CharLora, CharTransformer, char_lora
from airprune.models.losses import LOSSES, METRICS
from airprune.scenario.model_shape import shape_of

TOKENS, POSITIONS = 11, 6


class Output(dict):
    """As transformers have it: values by name, as keys and as attributes."""

    __getattr__ = dict.__getitem__


class PeftLayer(nn.Module):
    """The names that PEFT gives its parts: adapters in a dictionary, beside the layer that they belong to."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, base.out_features, bias=False)})
        self.lora_dropout = nn.ModuleDict({"default": nn.Identity()})

    def forward(self, x):
        if x.sum() == x.sum() + 1:  # which no trace can follow
            raise ValueError
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](self.lora_dropout["default"](x)))


class LanguageModel(nn.Module):
    """Outputs with the classes last, several of them, as language models have."""

    def __init__(self, rank: int = 3) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(TOKENS, 8).requires_grad_(False)
        self.layer = PeftLayer(nn.Linear(8, 16), rank)
        self.head = nn.Linear(16, TOKENS).requires_grad_(False)

    def forward(self, input_ids, labels=None):
        hidden = self.layer(self.embedding(input_ids)).relu()
        return Output(loss=None, logits=self.head(hidden), hidden_states=(hidden,))


def sequences(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Tokens that count upwards, and what comes next; the last two targets of every sequence are none."""
    start = np.random.default_rng(2).integers(TOKENS, size=(count, 1))
    whole = (start + np.arange(POSITIONS + 1)) % TOKENS
    targets = whole[:, 1:].copy()
    targets[:, -2:] = -100
    return whole[:, :-1], targets


def scenario(**changes) -> ap.Scenario:
    values = {
        "method": "fedit",
        "network.num_edges": 2,
        "network.devices_per_edge": 2,
        "train.loss": "tokens",
        "train.optimizer": "adam",
        "train.learning_rate": 0.05,
        "train.batch_size": 5,
        "train.local_epochs": 2,
        "rounds.global_rounds": 3,
        "rounds.edge_rounds": 2,
        "plan.deadline_s": 1.0,
        "engine.name": "serial",
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    return ap.Scenario.preset("smoke").with_values(values)


def test_a_model_that_gives_logits_among_other_outputs_learns_tokens():
    module = LanguageModel()
    before = [name for name, hook in module._forward_hooks.items()]
    records = [one for one in ap.run(scenario(), model=module, dataset=sequences()) if one["kind"] == "global"]
    assert records[-1]["test_perplexity"] < 0.7 * TOKENS < np.exp(records[0]["test_loss"]) * 2
    assert [name for name, hook in module._forward_hooks.items()] == before  # the user's module stays as it was


def test_the_metric_of_a_run_is_the_perplexity_of_the_positions_with_targets():
    module, data = LanguageModel(), sequences()
    trained = ap.train(scenario(), model=module, dataset=(data, data))
    module.load_state_dict({name: torch.from_numpy(array) for name, array in trained.weights.items()})
    with torch.no_grad():
        scores = module(torch.from_numpy(data[0])).logits.double().log_softmax(2).numpy()
    has_target = data[1] >= 0
    rows, places = np.nonzero(has_target)
    mean = -scores[rows, places, data[1][rows, places]].mean()
    assert trained.last["test_perplexity"] == pytest.approx(np.exp(mean), rel=1e-5)
    assert trained.last["test_loss"] == pytest.approx(mean, rel=1e-5)


def test_ignored_targets_by_hand():
    """Two positions, of which one has a target with probability 1/4."""
    scores = torch.log(torch.tensor([[[0.25, 0.9], [0.75, 0.1]]]))
    targets = torch.tensor([[0, -100]])
    assert LOSSES["tokens"].mean(scores, targets).item() == pytest.approx(np.log(4.0))
    assert METRICS["perplexity"].mean(scores, targets).item() == pytest.approx(4.0)


def test_targets_without_positions_are_refused_for_tokens():
    x, y = sequences()
    with pytest.raises(InvalidValue, match=r"y \[samples, positions\]"):
        list(ap.run(scenario(), model=LanguageModel(), dataset=(x, y[:, 0])))


def test_a_token_of_minus_100_is_refused_where_each_sample_has_one_class():
    x = np.zeros((20, 4), dtype=np.float32)
    with pytest.raises(InvalidValue, match="must be in"):
        list(ap.run(scenario(train__loss="cross-entropy"), model=nn.Linear(4, 3), dataset=(x, np.full(20, -100))))


def test_ranks_are_declared_where_the_forward_pass_cannot_be_traced():
    module = LanguageModel(rank=3)
    assert lora_pairs(module) == [("layer.lora_A.default", "layer.lora_B.default")]
    model = FlatModel(module)
    graph = model.find_units()
    assert graph.sizes.tolist() == [3]
    kept = graph.mask([np.array([True, False, True])])
    first, second = (layer.matrix(kept) for layer in graph.layers)
    assert first.shape == (3, 8) and first.all(axis=1).tolist() == [True, False, True] and not first[1].any()
    assert second.shape == (16, 3) and second.all(axis=0).tolist() == [True, False, True] and not second[:, 1].any()
    assert graph.num_weights([2]) == 2 * (8 + 16)


def test_a_module_with_the_names_of_one_layer_alone_has_no_adapters():
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    module.lora_A = types.SimpleNamespace()
    assert lora_pairs(module) == []
    assert FlatModel(module).find_units().sizes.tolist() == [5]  # traced


def test_an_adapter_starts_as_nothing_and_adds_s_b_a():
    torch.manual_seed(0)
    base = nn.Linear(5, 4)
    layer, x = Lora(base, 2, scale=3.0), torch.randn(7, 5)
    assert torch.equal(layer(x), base(x))
    nn.init.normal_(layer.lora_B.weight)
    product = layer.lora_B.weight @ layer.lora_A.weight
    torch.testing.assert_close(layer(x), x @ (base.weight + 3.0 * product).T + base.bias)


def test_adapters_of_some_layers_freeze_all_others():
    module = add_adapters(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)), 2, layers=["2"])
    assert [name for name, p in module.named_parameters() if p.requires_grad] == ["2.lora_A.weight", "2.lora_B.weight"]


def test_the_base_is_trained_once_and_the_same_every_time(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRPRUNE_DATA", str(tmp_path))
    monkeypatch.setattr(char_transformer, "STEPS", 2)
    lines = np.random.default_rng(0).integers(65, size=(40, 81)).astype(np.uint8)
    trained = []
    monkeypatch.setattr(
        char_transformer,
        "SOURCE",
        types.SimpleNamespace(
            files=char_transformer.SOURCE.files, contents=lambda: {char_transformer.SOURCE.files[0].name: b""}
        ),
    )
    monkeypatch.setattr(char_transformer, "epics", lambda archive: "")
    monkeypatch.setattr(char_transformer, "windows", lambda text: trained.append(1) or lines)
    first, second = char_transformer.trained_base(), char_transformer.trained_base()
    assert trained == [1]
    again = char_transformer.train_base(lines)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name]) and torch.equal(tensor, again.state_dict()[name])
    char_transformer.base_file().write_bytes(b"no weights")  # a corrupted file is replaced
    assert torch.equal(char_transformer.trained_base().head.weight, first.head.weight)


def test_char_lora_has_an_adapter_on_every_linear_layer_and_trains_nothing_else(monkeypatch):
    base = CharTransformer()
    monkeypatch.setattr(char_transformer, "trained_base", lambda: base)
    module, x = CharLora().load_base(), torch.randint(65, (2, 80))
    assert len(lora_pairs(module)) == 13
    widths = 2 * 4 * (64 + 64) + 2 * 2 * (64 + 128) + (64 + 65)
    assert sum(p.numel() for p in module.parameters() if p.requires_grad) == 8 * widths == 15_368
    assert torch.equal(module(x), base(x))
    with pytest.raises(InvalidValue, match="80 of 65 characters"):
        char_lora((1, 28, 28), 10)


def test_the_shape_of_a_scenario_needs_neither_the_base_nor_its_text(monkeypatch):
    monkeypatch.delattr(char_transformer, "trained_base")
    assert shape_of(ap.Scenario.preset("adapters")).num_weights == 15_368


def test_no_position_of_the_transformer_sees_a_later_one():
    torch.manual_seed(0)
    module, x = CharTransformer().eval(), torch.randint(65, (2, 80))
    changed = x.clone()
    changed[:, 40:] = (changed[:, 40:] + 1) % 65
    with torch.no_grad():
        torch.testing.assert_close(module(x)[:, :, :40], module(changed)[:, :, :40])
        assert not torch.allclose(module(x)[:, :, 40:], module(changed)[:, :, 40:])
