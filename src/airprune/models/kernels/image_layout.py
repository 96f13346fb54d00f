"""Keeps images out of the layout channels last where torch's convolutions would crash with it.

oneDNN, which computes torch's convolutions on a CPU, has a defect (its issue 6035, present in torch 2.13): a 1×1
convolution with a stride and fewer input channels than a vector has entries, 8 with AVX2 and 16 with AVX-512, computes
its weights' gradient in a workspace that is too small if images or weights lie channels last. That corrupts the heap.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

# The wider of the two vectors: a run goes the same way on every machine.
_VECTOR_ENTRIES = 16


def guard(module: nn.Module) -> None:
    """Makes convolutions that may crash compute channel by channel; all others stay as they are."""
    for part in module.modules():
        if may_crash(part):
            assert isinstance(part, _ConvNd)
            if _channel_by_channel not in part._forward_pre_hooks.values():
                part.register_forward_pre_hook(_channel_by_channel, with_kwargs=True)
            for tensor in (part.weight, part.weight.grad):  # in the same memory: 1×1 has one order, but two strides
                if tensor is not None:
                    tensor.data = tensor.data.flatten().view(tensor.shape)


def is_guard(hook: object) -> bool:
    """True for what `guard` hooks into a convolution."""
    return hook is _channel_by_channel


def may_crash(part: nn.Module) -> bool:
    """True for a convolution that may crash with channels last; that depends on image sizes too, which vary."""
    if not isinstance(part, _ConvNd) or part.groups > 1 or max(part.stride) == 1:
        return False
    # Of a transposed convolution, the second size counts the channels that come out, which is where it crashes.
    return part.weight.shape[2:].numel() == 1 and part.weight.shape[1] < _VECTOR_ENTRIES


def _channel_by_channel(
    layer: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(map(_plain, inputs)), {name: _plain(value) for name, value in named.items()}


def _plain(value: Any) -> Any:
    """Copies by way of a flat tensor: of one channel, `contiguous` would leave the strides of channels last."""
    return value.flatten().view(value.shape) if isinstance(value, torch.Tensor) else value
