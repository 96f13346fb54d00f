"""Devices that torch computes on besides the CPU, and a model's twin there.

Weights, masks, steps and messages stay in the arrays of a `FlatModel`. Its twin on a device gets them before each
minibatch and gives gradients and buffers back, so nothing but the kernel knows of devices.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from airprune.errors import InvalidValue

if TYPE_CHECKING:
    import torch

    from airprune.models.catalogue import FlatModel

# In the order in which `auto` prefers them.
ACCELERATORS = ("cuda", "mps")


def is_there(name: str) -> bool:
    """True if torch finds such a device on this machine."""
    import torch

    if name == "cuda":
        return torch.cuda.is_available()
    return name == "cpu" or torch.backends.mps.is_available()


def device_named(wanted: str, *, float64: bool = False) -> str:
    """Returns the device that `train.device` means on this machine."""
    if wanted == "cpu":
        return wanted
    if wanted == "auto":
        usable = (name for name in ACCELERATORS if is_there(name) and not (float64 and name == "mps"))
        return next(usable, "cpu")
    if not is_there(wanted):
        rule, way_out = "must be a device that torch finds on this machine", "Use auto or cpu."
        raise InvalidValue("Scenario.train.device", rule, repr(wanted), way_out)
    if float64 and wanted == "mps":
        way_out = "Use cpu, or model.float64 = false."
        raise InvalidValue("Scenario.train.device", "must have double precision for model.float64", "'mps'", way_out)
    return wanted


def torch_device(name: str) -> torch.device:
    import torch

    return torch.device(name)


def seed_layers(name: str, seed: int) -> None:
    """Seeds layers that draw, such as Dropout, on this device and on the CPU, where they draw as well."""
    import torch

    torch.default_generator.manual_seed(seed)
    if name == "cuda" and is_there(name):
        torch.cuda.manual_seed(seed)
    elif name == "mps" and is_there(name):
        torch.mps.manual_seed(seed)


class Twin:
    """A model on another device; has `module`, `state` and `load` like the model that it follows."""

    def __init__(self, model: FlatModel, device: str) -> None:
        import torch

        from airprune.models.catalogue import lay_out

        self.device = torch_device(device)
        self.model = model
        self.module = copy.deepcopy(model.module).to(self.device)
        self.state = torch.zeros(model.num_state, dtype=model.state.dtype, device=self.device)
        self.gradient = torch.zeros(model.num_parameters, dtype=model.state.dtype, device=self.device)
        tensors = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        lay_out(model.parts, tensors, self.state, self.gradient)
        pairs = zip(model.module.buffers(), self.module.buffers(), strict=True)
        self._counters = [(mine, its) for mine, its in pairs if not mine.is_floating_point()]

    def load(self, state: np.ndarray) -> None:
        import torch

        self.state.copy_(torch.from_numpy(np.ascontiguousarray(state)))

    def take(self) -> None:
        """Copies everything as the model has it now."""
        self.state.copy_(self.model.state)
        for mine, its in self._counters:
            its.copy_(mine)
        if self.module.training != self.model.module.training:
            self.module.train(self.model.module.training)

    def give(self) -> None:
        """Copies back what a forward and a backward pass have changed: gradients and buffers."""
        trained = self.model.num_parameters
        self.model.gradient.copy_(self.gradient)
        self.model.state[trained:].copy_(self.state[trained:])
        for mine, its in self._counters:
            mine.copy_(its)
