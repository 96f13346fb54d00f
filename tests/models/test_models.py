"""The paper's CNN to the weight, and any module as one flat vector."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import airprune as ap
from airprune.models.catalogue import FlatModel, build_model
from support.each import each
from support.tiny import blobs, tiny_scenario


def paper_cnn(seed: int = 0) -> nn.Module:
    return build_model("paper-cnn", input_shape=(1, 28, 28), num_classes=10, seed=seed)


def test_the_papers_cnn_has_18_720_convolution_and_25_168_fully_connected_weights():
    flat = FlatModel(paper_cnn())
    assert (flat.fixed_weights, flat.prunable_weights) == (18_720, 25_168)
    shapes = {name: tuple(p.shape) for name, p in flat.module.named_parameters() if p.dim() > 1}
    assert shapes["conv1.weight"] == (32, 1, 3, 3) and shapes["conv2.weight"] == (64, 32, 3, 3)
    assert shapes["fc1.weight"] == (8, 3136) and shapes["fc2.weight"] == (10, 8)


def test_pooling_before_the_relu_is_the_papers_function():
    model, x = paper_cnn(), torch.randn(4, 1, 28, 28)
    h = F.max_pool2d(F.relu(model.conv1(x)), 2)
    h = F.max_pool2d(F.relu(model.conv2(h)), 2)
    expected = model.fc2(F.relu(model.fc1(h.flatten(1))))
    torch.testing.assert_close(model(x), expected, rtol=0, atol=0)  # max and relu commute exactly


def test_no_unit_of_the_papers_cnn_starts_dead_or_always_on():
    """Behind a ReLU inputs are ≥ 0; weights that sum to zero let each unit answer to what differs between images."""
    for seed in range(3):
        model = build_model("paper-cnn", input_shape=(1, 28, 28), num_classes=10, seed=seed)
        for layer in (model.conv2, model.fc1, model.fc2):
            np.testing.assert_allclose(layer.weight.detach().flatten(1).sum(1), 0.0, atol=1e-5)


def test_flattening_changes_no_output_and_no_gradient():
    torch.manual_seed(0)
    plain = paper_cnn()
    x, y = torch.randn(8, 1, 28, 28), torch.randint(10, (8,))
    flat = FlatModel(paper_cnn())
    torch.testing.assert_close(flat.module(x), plain(x))
    F.cross_entropy(plain(x), y).backward()
    F.cross_entropy(flat.module(x), y).backward()
    assert flat.num_state == flat.num_parameters  # no buffers
    gradients = flat.named_arrays(flat.gradient.numpy())
    for name, parameter in plain.named_parameters():
        np.testing.assert_allclose(gradients[name], parameter.grad.numpy(), rtol=1e-4, atol=1e-6)  # float32


def test_named_arrays_are_the_modules_own_tensors():
    flat = FlatModel(paper_cnn())
    arrays = flat.named_arrays(flat.state.numpy())
    for name, tensor in flat.module.state_dict().items():
        np.testing.assert_array_equal(arrays[name], tensor.numpy())


def test_the_same_seed_gives_the_same_weights_whatever_torch_did_before():
    first = FlatModel(paper_cnn(3)).state.clone()
    torch.randn(100)
    assert torch.equal(first, FlatModel(paper_cnn(3)).state)
    assert not torch.equal(first, FlatModel(paper_cnn(4)).state)


def test_building_a_model_leaves_the_users_random_state_alone():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    paper_cnn()
    assert torch.equal(torch.rand(1), expected)


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 3, bias=False)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.embed(x))))


def test_any_module_is_laid_out_with_its_prunable_weights_in_one_slice():
    flat = FlatModel(Custom())
    assert flat.prunable_weights == 4 * 6 + 6 * 3 == flat.prunable.stop - flat.prunable.start
    assert flat.fixed_weights == 0
    assert [layer.name for layer in flat.layers.layers] == ["embed.weight", "head.weight"]
    assert flat.num_state == sum(p.numel() for p in Custom().parameters()) + 12  # running mean and variance


def test_prunable_layers_can_be_named():
    flat = FlatModel(Custom(), prunable=["head"])
    assert flat.prunable_weights == 18 and flat.fixed_weights == 24
    cnn = FlatModel(paper_cnn(), prunable=["conv2", "fc1"])
    assert cnn.prunable_weights == 18_432 + 25_088


def test_frozen_parameters_are_carried_along_but_never_trained_or_counted():
    module = Custom()
    module.embed.weight.requires_grad_(False)
    flat = FlatModel(module)
    assert flat.prunable_weights == 18 and flat.fixed_weights == 0
    assert flat.num_parameters == 6 + 6 + 6 + 18  # bias, norm, head
    flat.module(torch.randn(5, 4)).sum().backward()
    assert flat.module.embed.weight.grad is None


def test_a_weight_shared_by_two_layers_is_laid_out_once():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(5, 5, bias=False), nn.Linear(5, 5, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(self.first(x))

    flat = FlatModel(Tied())
    assert flat.num_state == 25 and flat.module.first.weight is flat.module.second.weight


def test_unknown_or_unprunable_layers_are_refused():
    with pytest.raises(ap.UsageError, match="'heed' is unknown; did you mean 'head'"):
        FlatModel(Custom(), prunable=["heed"])
    with pytest.raises(ap.InvalidValue, match="weight matrices"):
        FlatModel(Custom(), prunable=["norm"])
    with pytest.raises(ap.InvalidValue, match="without Linear layers"):
        FlatModel(nn.Sequential(nn.Conv2d(1, 2, 3)))


class Tied(nn.Module):
    """The output layer is the embedding turned round, as language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 12)
        self.head = nn.Linear(12, 4, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(x)


class Holding(nn.Module):
    """A parameter of any type beside a layer, if wanted."""

    def __init__(self, dtype: torch.dtype, *, layer: bool) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(12, 4).to(dtype), requires_grad=dtype.is_complex)
        self.layer = nn.Linear(12, 4) if layer else None


def frozen(module: nn.Module, *names: str) -> nn.Module:
    for name in names:
        module.get_parameter(name).requires_grad_(False)
    return module


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))


def with_complex_buffer() -> nn.Module:
    module = nn.Linear(12, 4)
    module.register_buffer("phases", torch.ones(3, dtype=torch.complex64))
    return module


REFUSED = {
    "tied": (Tied, [], "'head', whose weight is embed.weight (tied). Name the other one: prunable = [\"embed\"]"),
    "tied, named": (
        Tied,
        ["head"],
        "must name layers that own their weights, got 'head', whose weight",
    ),
    "one weight under two names": (Tied, ["embed", "head"], "own their weights, got 'head'"),
    "frozen": (lambda: frozen(nn.Sequential(nn.Linear(12, 4)), "0.weight"), [], "got '0', whose weight is frozen"),
    "frozen, named": (lambda: frozen(two_layers(), "0.weight"), ["0"], "got '0', whose weight is frozen. Set req"),
    "all frozen": (lambda: two_layers().requires_grad_(False), [], "run.model must have parameters to train, got 4 fr"),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(4)), [], "no shape for 0.weight, 0.bias. Call the model on a batch"),
    "lazy, another named": (lambda: nn.Sequential(nn.Linear(12, 8), nn.LazyLinear(4)), ["0"], "no shape for 1.weight"),
    "lazy buffers": (lambda: nn.Sequential(nn.Linear(12, 4), nn.LazyBatchNorm1d()), [], "and 1 more"),
    "without values": (lambda: nn.Linear(12, 4, device="meta"), [], "weight, bias on the device meta"),
    "without parameters": (lambda: nn.Flatten(0), [], "must have parameters to train, got a model without any"),
    "without parameters, named": (lambda: nn.Flatten(0), ["fc"], "got a model without any"),
    "complex": (lambda: Holding(torch.complex64, layer=False), [], "run.model must be real, got complex table."),
    "complex beside a layer": (lambda: Holding(torch.complex64, layer=True), [], "got complex table."),
    "complex buffer": (with_complex_buffer, [], "got complex phases."),
    "integers": (lambda: Holding(torch.int64, layer=False), [], "floating-point parameters, got integers in table."),
    "integers beside a layer": (lambda: Holding(torch.int64, layer=True), [], "got integers in table."),
    "named twice": (two_layers, ["0", "2", "0"], "must name each layer once, got '0' twice."),
    "computed weights": (lambda: nn.utils.spectral_norm(nn.Linear(12, 4)), [], "is computed from other parameters."),
    "not picklable": (lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)), [], "can be pickled, got Param"),
    "a class": (lambda: nn.Linear, [], "run.model must be a torch.nn.Module, got the class Linear."),
    "a function": (lambda: F.relu, [], "run.model must be a torch.nn.Module, got function."),
}


@pytest.mark.filterwarnings("ignore:.*spectral_norm.*:FutureWarning", "ignore:Lazy modules:UserWarning")
@each("kind", REFUSED)
def test_a_model_that_cannot_be_pruned_is_refused_in_one_sentence_before_the_run(kind):
    make, prunable, sentence = REFUSED[kind]
    scenario = tiny_scenario(model__prunable=prunable)
    with pytest.raises(ap.InvalidValue, match=re.escape(sentence)) as refusal:
        ap.run(scenario, model=make(), dataset=blobs())  # no record asked for
    assert "\n" not in str(refusal.value) and re.match(
        r"(run\.model|Scenario\.model\.prunable) must", str(refusal.value)
    )


def test_a_lazy_model_called_once_and_the_owner_of_a_tied_weight_run():
    """The ways out that the sentences give."""
    lazy = nn.Sequential(nn.LazyLinear(4))
    lazy(torch.zeros(2, 12))
    for module, prunable in ((lazy, []), (Tied(), ["embed"]), (frozen(two_layers(), "0.weight"), ["0", "2"])):
        scenario = tiny_scenario(model__prunable=prunable, plan__deadline_s=2e-5, rounds__global_rounds=1)
        *_, last = ap.run(scenario, model=module, dataset=blobs())
        assert last["mean_pruning_ratio"] > 0


def test_unknown_models_list_the_known_ones():
    with pytest.raises(ap.UsageError, match="paper-cnn, cifar-cnn, resnet-8, mlp"):
        build_model("resnet", input_shape=(1, 28, 28), num_classes=10, seed=0)
