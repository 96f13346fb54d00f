"""Minibatch gradients of the paper's CNN in C, more than twice as fast as torch's on a CPU.

The kernel (paper_cnn.c, paper_cnn.h) is built when airprune is installed, if there is a C compiler. It computes the
same function as `airprune.models.PaperCNN` in float32; only rounding differs. All of its instruction sets give the same
bits.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from torch import nn

from airprune.errors import InvalidValue
from airprune.kernels.base import Kernel
from airprune.models import FlatModel, PaperCNN

try:
    from airprune.kernels.native import _paper_cnn
except ImportError as error:
    instruction_sets: list[str] = []
    is_built = importlib.util.find_spec(f"{__name__}._paper_cnn") is not None
    trouble = f"it cannot be loaded ({error})" if is_built else "it was not built"
else:
    instruction_sets = _paper_cnn.instruction_sets()
    trouble = "" if instruction_sets else "this CPU has neither AVX2 nor AVX-512"

Array = np.ndarray

# In the order of the kernel's parameters.
_PARAMETERS = tuple(f"{layer}.{part}" for layer in ("conv1", "conv2", "fc1", "fc2") for part in ("weight", "bias"))
_CONVOLUTION = {
    "kernel_size": (3, 3),
    "stride": (1, 1),
    "padding": (1, 1),
    "dilation": (1, 1),
    "groups": 1,
    "padding_mode": "zeros",
}
# Of (channels, height, width, hidden, classes): beyond these the kernel refuses, so that its indices fit 31 bits.
_LARGEST = (64, 1024, 1024, 4096, 65536)


def unsupported(model: FlatModel, x: Array, y: Array) -> str:
    """Why this model cannot be trained by the kernel; empty if it can."""
    if trouble:
        return trouble
    module = model.module
    if type(module) is not PaperCNN:
        return "the model is not the paper's CNN"
    if _is_changed(module):
        return "the model is the paper's CNN with changes"
    trained = {part.name for part in model.parts if part.start < model.num_parameters}
    if set(_PARAMETERS) != trained:
        return "some of the model's parameters are frozen"
    if (model.state_array.dtype, x.dtype, y.dtype) != (np.float32, np.float32, np.int64):
        return "model and images are not in float32 and labels in int64"
    shape = _shape(module, x)
    fits = x.ndim == 4 and shape[0] == module.conv1.in_channels
    if not fits or 64 * (shape[1] // 4) * (shape[2] // 4) != module.fc1.in_features:
        return "the samples do not fit the model"
    return "the model is too large" if any(n > most for n, most in zip(shape, _LARGEST, strict=True)) else ""


def _is_changed(module: PaperCNN) -> bool:
    """Whether a layer was replaced, or something hooks into the forward pass."""
    conv1, conv2, fc1, fc2 = (getattr(module, name) for name in ("conv1", "conv2", "fc1", "fc2"))
    same = (
        all(type(conv) is nn.Conv2d and _CONVOLUTION.items() <= vars(conv).items() for conv in (conv1, conv2))
        and all(type(fc) is nn.Linear for fc in (fc1, fc2))
        and (conv1.out_channels, conv2.in_channels, conv2.out_channels) == (32, 32, 64)
        and fc1.out_features == fc2.in_features
        and all(layer.bias is not None for layer in (conv1, conv2, fc1, fc2))
    )
    hooks = [part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part) for part in module.modules()]
    return not same or any(hooks)


def _shape(module: Any, x: Array) -> tuple[int, ...]:
    """(channels, height, width, hidden, classes)"""
    return *x.shape[1:], module.fc1.out_features, module.fc2.out_features


class NativeGradient:
    """∇F(w, ξ) of a `PaperCNN` into `model.gradient`."""

    def __init__(self, model: FlatModel, x: Array, y: Array, *, instruction_set: str | None = None) -> None:
        if problem := unsupported(model, x, y):
            raise InvalidValue("NativeGradient", "must get the paper's CNN and its images", problem)
        self._instruction_set = instruction_set or instruction_sets[0]
        self._shape = _shape(model.module, x)
        starts = {part.name: part.start for part in model.parts}
        self._offsets = tuple(starts[name] for name in _PARAMETERS)
        self._scratch = np.empty(_paper_cnn.scratch_bytes(*self._shape), np.uint8)
        self._arrays = model.state_array, model.gradient.numpy(), np.ascontiguousarray(x), np.ascontiguousarray(y)

    def __call__(self, batch: Array) -> float:
        """The samples named by `batch`; returns F(w, ξ), their mean loss."""
        arrays = (*self._arrays, batch, self._scratch)
        return _paper_cnn.gradient(self._instruction_set, self._shape, self._offsets, *arrays)


KERNEL = Kernel(name="native", summary="the paper's CNN, in C", unsupported=unsupported, build=NativeGradient)
