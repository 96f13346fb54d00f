"""Units of models: what is seen of a forward pass, and that leaving units out is a narrower model."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from airprune.components.units import foremost, leading, widest
from airprune.errors import InvalidValue
from airprune.models.catalogue import MLP, FlatModel, PaperCNN

ALL = ("*",)


def paper(prunable=()) -> FlatModel:
    torch.manual_seed(0)
    return FlatModel(PaperCNN(), prunable=prunable, float64=True)


class Own(nn.Module):
    """Written as people write them: functions, methods, a reshape."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6)
        self.second, self.third, self.last = nn.Conv2d(6, 4, 3, stride=2), nn.Linear(4 * 6 * 6, 5), nn.Linear(5, 3)

    def forward(self, x):
        x = torch.tanh(self.second(torch.relu(self.norm(self.first(x)))))
        return self.last(self.third(x.reshape(x.size(0), -1)).relu())


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        x = self.a(x)
        return self.c(x + torch.relu(self.b(x)))


class Deciding(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.b(self.a(x) if x.sum() > 0 else self.a(-x))


def test_widths_of_the_papers_cnn_have_the_weights_of_the_table():
    """c₁ = ⌈32p⌉, c₂ = ⌈64p⌉, h = ⌈8p⌉: 9c₁ + 9c₁c₂ + 49c₂h + 10h, and 18,720 + 3,146h with whole convolutions."""
    widths = (0.0625, 0.125, 0.2, 0.25, 0.4, 0.5, 0.6, 0.8, 1.0)
    fc, every = paper(), paper(ALL)
    assert [fc.fixed_weights + fc.shape.units.num_weights(fc.shape.units.counts(p)) for p in widths] == [
        *(21_866, 21_866, 25_012, 25_012, 31_304, 31_304, 34_450, 40_742, 43_888)
    ]
    graph = every.shape.units
    assert every.fixed_weights == 0 and graph.sizes.tolist() == [32, 64, 8]
    assert [graph.num_weights(graph.counts(p)) for p in widths] == [
        *(296, 726, 2_176, 2_812, 8_295, 11_064, 16_805, 30_308, 43_888)
    ]
    for p in widths:
        assert np.count_nonzero(graph.mask(leading(graph, p))) == graph.num_weights(graph.counts(p))


def test_channel_c_of_the_second_convolution_owns_columns_49c_to_49c_plus_48():
    model = paper(ALL)
    graph, fc1 = model.shape.units, model.layers.layers[2]
    kept = [np.ones(n, dtype=bool) for n in (32, 64, 8)]
    kept[1][17] = False
    gone = ~fc1.matrix(graph.mask(kept))
    assert np.flatnonzero(gone.all(axis=0)).tolist() == list(range(49 * 17, 49 * 18)) and gone.sum() == 8 * 49


@pytest.mark.parametrize(
    ("build", "prunable", "inputs"),
    [
        (PaperCNN, ALL, (1, 28, 28)),
        (PaperCNN, (), (1, 28, 28)),
        (Own, ALL, (1, 15, 15)),
        (lambda: MLP((12,), 4), (), (12,)),
        (lambda: nn.Sequential(nn.Conv1d(2, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(40, 3)), ALL, (2, 10)),
    ],
)
def test_what_is_left_out_has_no_part_in_the_output(build, prunable, inputs):
    """An independent look at the graph: any values of the rows and biases of absent units give the same outputs."""
    torch.manual_seed(1)
    model = FlatModel(build(), prunable=prunable, float64=True)
    graph, rng = model.shape.units, np.random.default_rng(1)
    kept = foremost(graph, 0.5, rng.random(graph.num_units))
    mask = graph.mask(kept)
    assert 0 < np.count_nonzero(mask) == graph.num_weights(graph.counts(0.5)) < mask.size
    weights = model.state_array[model.prunable]
    weights *= mask
    x = torch.randn(3, *inputs, dtype=torch.float64)
    model.module.eval()
    before = model.module(x).detach().clone()
    biases = {part.name: part for part in model.parts}
    for group, stays in zip(graph.groups, kept, strict=True):
        layer = model.layers.layers[group.layer]
        layer.matrix(weights)[~stays] = rng.normal(size=(np.count_nonzero(~stays), layer.in_features))
        biases[layer.name.replace("weight", "bias")].view(model.state_array)[~stays] = 9.0
    assert torch.equal(model.module(x), before)
    layer = model.layers.layers[graph.groups[0].layer]
    layer.matrix(weights)[kept[0]] += 1.0
    assert not torch.equal(model.module(x), before)


@pytest.mark.parametrize(
    ("module", "prunable", "why"),
    [
        (Residual(), (), "held in place"),
        (Deciding(), (), "cannot be followed"),
        (nn.Linear(4, 2), (), "it has none"),
        (PaperCNN(), ("fc1",), "those of fc1 by fc2"),
    ],
)
def test_where_units_cannot_be_seen_a_sentence_says_why(module, prunable, why):
    graph = FlatModel(module, prunable=prunable).shape.units
    assert not graph.groups and why in graph.trouble


def test_layers_that_share_weights_or_run_twice_keep_their_units():
    shared = nn.Linear(4, 4)
    graph = FlatModel(nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))).shape.units
    assert [graph.layers.layers[group.layer].name for group in graph.groups] == ["3.weight"]


def test_the_star_names_every_linear_layer_and_convolution():
    assert [layer.name for layer in paper(ALL).layers] == ["conv1.weight", "conv2.weight", "fc1.weight", "fc2.weight"]
    assert paper(ALL).prunable_weights == 43_888


def test_narrower_models_lie_inside_wider_ones_and_the_widest_that_fits_is_found():
    graph = paper(ALL).shape.units
    masks = [graph.mask(leading(graph, p)) for p in graph.every_width]
    assert all(np.all(small <= large) for small, large in itertools.pairwise(masks))
    widths = (0.25, 0.5, 1.0)
    assert widest(graph, np.array([2_812, 11_063, 11_064, 43_888]), widths).tolist() == [0.25, 0.25, 0.5, 1.0]
    with pytest.raises(InvalidValue, match="2812, the weights of the narrowest"):
        widest(graph, np.array([2_811]), widths)
