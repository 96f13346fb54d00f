"""Counts the FLOPs of a torch model by one dry forward pass of one sample."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from airprune.components.layers import layer_numbers
from airprune.wireless.device_speed.work import LayerWork, ModelWork

OTHER = "other operations"
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_LAYERS = (nn.Linear, *_CONVOLUTIONS, *_TRANSPOSED)
_LOOKUPS = (nn.Embedding, nn.EmbeddingBag)


def count_work(module: nn.Module, sample: np.ndarray, prunable: Collection[str]) -> ModelWork:
    """FLOPs of `module` for one sample, forward and backward.

    Every weight of a linear layer or convolution is multiplied once per output position (of a transposed convolution,
    per input position), zeros of padding included; so are the gradients of its input and of its weight. Matrix products
    outside of such layers, as in attention, are counted as torch's own counter counts them, twice more for the
    gradients of both factors. See `work.NOT_COUNTED` for the rest.

    Args:
      module: is run in evaluation mode on copies of nothing: hand in one of your own.
      sample: one input, without the batch dimension.
      prunable: names of the weight tensors that masks choose in.
    """
    found: dict[str, list[float]] = {}
    fed_by: dict[str, int] = {}
    number, of_tensor = _numbers(module)
    hooks = [
        layer.register_forward_hook(_counter(name, layer, found, fed_by, of_tensor))
        for name, layer in module.named_modules()
        if isinstance(layer, _LAYERS)
    ]
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), FlopCounterMode(display=False) as counter:
            module.eval()(_batch_of_one(sample, module))
    finally:
        for hook in hooks:
            hook.remove()
    layers = [
        LayerWork(
            name=name,
            prunable=_weight_of(name) in prunable,
            forward=forward,
            input_gradient=input_gradient,
            weight_gradient=weight_gradient,
            number=number.get(name, 0),
            fed_by=fed_by[name],
        )
        for name, (forward, input_gradient, weight_gradient) in found.items()
    ]
    rest = counter.get_total_flops() - sum(layer.forward for layer in layers)
    if rest > 0:
        last = max(number.values(), default=0)  # wherever they are, they are never taken for frozen
        shared = {"forward": rest, "input_gradient": rest, "weight_gradient": rest}
        layers.append(LayerWork(name=OTHER, prunable=False, **shared, number=last, fed_by=last))
    return ModelWork(layers=tuple(layers), uncertain=tuple(_uncertain(module)))


def _numbers(module: nn.Module) -> tuple[dict[str, int], dict[int, int]]:
    """Returns the number of every layer by name, and that of every trained parameter by its identity."""
    order = {name: place for place, (name, _) in enumerate(module.named_modules())}
    parameters = dict(module.named_parameters())
    tensors = [*parameters, *dict(module.named_buffers())]
    tensors.sort(key=lambda name: order[name.rpartition(".")[0]])
    trained = {name: tensor for name, tensor in parameters.items() if tensor.requires_grad}
    number = layer_numbers(tensors, trained)
    by_layer = {name.rpartition(".")[0]: value for name, value in number.items()}
    return by_layer, {id(tensor): number[name] for name, tensor in trained.items()}


def _highest_below(values: torch.Tensor, of_tensor: dict[int, int]) -> int:
    """Highest number of the layers whose parameters these values depend on; -1 for none."""
    todo, seen, highest = [values.grad_fn], set[Any](), -1
    while todo:
        step = todo.pop()
        if step is None or step in seen:
            continue
        seen.add(step)
        highest = max(highest, of_tensor.get(id(getattr(step, "variable", None)), -1))
        todo += [before for before, _ in step.next_functions]
    return highest


def _counter(
    name: str, layer: Any, found: dict[str, list[float]], fed_by: dict[str, int], of_tensor: dict[int, int]
) -> Any:
    def count(_: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        places = inputs[0] if isinstance(layer, _TRANSPOSED) else output
        if isinstance(layer, nn.Linear):
            positions = math.prod(places.shape[:-1])
        else:
            positions = math.prod(places.shape[places.dim() - (layer.weight.dim() - 2) :])
        flops = 2.0 * layer.weight.numel() * positions
        sums = found.setdefault(name, [0.0, 0.0, 0.0])
        fed_by[name] = max(fed_by.get(name, -1), _highest_below(inputs[0], of_tensor))
        for place, counts in enumerate((True, inputs[0].requires_grad, layer.weight.requires_grad)):
            sums[place] += flops * counts

    return count


def _batch_of_one(sample: np.ndarray, module: nn.Module) -> torch.Tensor:
    batch = torch.from_numpy(np.array(sample)[None])
    floating = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    return batch.to(floating) if batch.is_floating_point() else batch


def _weight_of(layer: str) -> str:
    return f"{layer}.weight" if layer else "weight"


def _uncertain(module: nn.Module) -> list[str]:
    """Modules that own matrices and are neither layers of known work nor look-ups."""
    return [
        f"{name} ({type(part).__name__})"
        for name, part in module.named_modules()
        if not isinstance(part, (*_LAYERS, *_LOOKUPS)) and any(p.dim() > 1 for p in part.parameters(recurse=False))
    ]
