"""Trains a part of a torch module: its frozen tensors get no gradient, and its frozen layers are computed once.

Autograd itself ends where nothing below is trained. A trace of a module shows which tensors the frozen layers hand over
to the others: these are the features, and there the module is cut in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import fx, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from airprune.models.kernels.base import TrainedPart
from airprune.models.kernels.image_layout import is_guard
from airprune.models.layout import Part

Tensor = torch.Tensor

# Layers that make the same of a sample every time, whatever the others of its minibatch, once they are frozen.
_STEADY = (
    nn.Linear, nn.Embedding, _ConvNd, _NormBase, nn.GroupNorm, nn.LayerNorm, nn.Flatten, nn.Unflatten, nn.Identity,
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Sigmoid, nn.Hardtanh,
    nn.Hardswish, nn.Softplus, nn.Softsign, nn.Softmax, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d,
    nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
)  # fmt: skip
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Frozen:
    """Holds still what a part does not train: tensors without gradients, layers that behave as in evaluation.

    The latter are those below the part's first layer and above its last: normalisation takes their running means, which
    do not move.
    """

    def __init__(self, module: nn.Module, parts: Sequence[Part], part: TrainedPart) -> None:
        tensors = dict(module.named_parameters())
        pairs = zip(parts, part.tensors, strict=True)
        frozen = [tensors[own.name] for own, is_trained in pairs if own.name in tensors and not is_trained]
        self._tensors = [tensor for tensor in frozen if tensor.requires_grad]
        last = max(own.layer for own in parts) if part.last_trained is None else part.last_trained
        outside = [own for own in parts if not part.first_trained <= own.layer <= last]
        owners = {own.name.rpartition(".")[0] for own in outside}
        self._layers = [module.get_submodule(owner) for owner in sorted(owners)]

    @contextmanager
    def held(self) -> Iterator[None]:
        training = [layer for layer in self._layers if layer.training]
        for tensor in self._tensors:
            tensor.requires_grad_(False)
        for layer in training:
            layer.training = False
        try:
            yield
        finally:
            for tensor in self._tensors:
                tensor.requires_grad_(True)
            for layer in training:
                layer.training = True


class Cut(NamedTuple):
    """A module in two: below gives the features, a tuple of tensors, and above makes the outputs of them."""

    below: nn.Module
    above: nn.Module


def cut(module: nn.Module, parts: Sequence[Part], first_trained: int) -> Cut | None:
    """Returns the module cut below a layer; None if that cannot be done, or if there is nothing below."""
    if not is_plain(module):
        return None
    try:
        graph = fx.symbolic_trace(module).graph
    except Exception:  # whatever a forward pass makes of being traced
        return None
    layer = {part.name: part.layer for part in parts}
    steady: set[fx.Node] = set()
    for node in graph.nodes:
        if _is_steady(node, module, layer, first_trained) and steady.issuperset(node.all_input_nodes):
            steady.add(node)
    ends = [node for node in graph.nodes if node in steady and not steady.issuperset(node.users)]
    if all(node.op == "placeholder" for node in ends):
        return None
    below, above = fx.Graph(), fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node in steady:
            copied[node] = below.node_copy(node, copied.__getitem__)
    below.output(tuple(copied[node] for node in ends))
    copied = {node: above.placeholder(f"feature_{number}") for number, node in enumerate(ends)}
    for node in graph.nodes:
        if node not in steady:
            copied[node] = above.node_copy(node, copied.__getitem__)
    return Cut(fx.GraphModule(module, below), fx.GraphModule(module, above))


def is_plain(module: nn.Module) -> bool:
    """True if its forward pass is torch's or airprune's, which a trace shows in full, and no stranger hooks into it."""
    return all(
        type(part).__module__.partition(".")[0] in ("torch", "airprune")
        and "forward" not in vars(part)
        and all(is_guard(found) for hook in _HOOKS for found in getattr(part, hook).values())
        for part in module.modules()
    )


def _is_steady(node: fx.Node, module: nn.Module, layer: dict[str, int], first_trained: int) -> bool:
    """True if a node makes the same of the same inputs throughout a round."""
    if node.op == "call_module":
        owner = module.get_submodule(str(node.target))
        tensors = [f"{node.target}.{name}" for name in (*dict(owner.named_parameters()), *dict(owner.named_buffers()))]
        # Counters of normalisation have no place in the state, nor have tensors that an earlier layer shares.
        if not isinstance(owner, _STEADY) or any(layer.get(name, -1) >= first_trained for name in tensors):
            return False
        shared = any(name not in layer for name in tensors if not name.endswith("num_batches_tracked"))
        return not shared
    if node.op == "call_function" or node.op == "call_method":
        return "drop" not in str(node.target) and "rand" not in str(node.target) and "bernoulli" not in str(node.target)
    return node.op == "placeholder"
