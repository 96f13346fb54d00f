"""The local training of a device by a loop of its own: the module lent, and everything put in order after it.

A loop sees an ordinary torch module. What it may not change is put back before every minibatch and at the end: pruned
and frozen weights by the mask, views of the flat model, gradients, modes. What it leaves in the module is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn

from airprune.errors import InvalidValue
from airprune.methods.loops.base import Loop, TrainingContext
from airprune.methods.masking.base import SubModel
from airprune.models.catalogue import FlatModel, lay_out
from airprune.models.kernels.image_layout import guard
from airprune.models.losses import CROSS_ENTROPY, LOSSES
from airprune.rounds.local import Device, Streams, Trained
from airprune.rounds.messages import Orders
from airprune.rounds.trained_part import Frozen, moving_parameters

Array = np.ndarray
Tensor = torch.Tensor


def train_by_loop(
    device: Device, received: Array, orders: Orders, sub_model: SubModel, batches: list[Array], streams: Streams
) -> Trained:
    """Trains by `settings.loop`; see `rounds.device.train` for the rest."""
    model, loop = device.model, device.settings.loop
    assert isinstance(model, FlatModel) and loop is not None  # `kernel_for` has checked it
    if sub_model.forward is not None or sub_model.scale is not None or sub_model.collect:
        rule = f"must be steps with masking {device.method.masking.name!r}, which changes forward passes or steps"
        raise InvalidValue("Scenario.train.loop", rule, repr(loop.name), 'Example: train.loop = "steps"')
    frozen = Frozen(model, sub_model.first_trained, sub_model.last_trained) if sub_model.freezes else None
    if frozen is not None:
        frozen.restore_buffers(model.state_array, received)
    lent = _Lent(model, loop, moving_parameters(device, sub_model))
    round_ = LoopRound(device, received, orders, batches, streams, lent)
    try:
        loop.train(model.module, round_.batches, round_)
    finally:
        lent.take_back()
    lent.check()
    if frozen is not None:
        frozen.restore_buffers(model.state_array, received)
    return round_.trained()


class LoopRound(TrainingContext):
    """The context of one device in one edge round."""

    def __init__(
        self, device: Device, received: Array, orders: Orders, batches: list[Array], streams: Streams, lent: _Lent
    ) -> None:
        self._local, self._received, self._lent = device, received, lent
        settings = device.settings
        self.device, self.round_index = orders.device, orders.round_index
        self.global_round, self.edge_round = streams.global_round, streams.edge_round
        self.num_steps, self.time_left_s = len(batches), orders.time_left_s
        self.learning_rate = orders.learning_rate
        self.rates = (orders.learning_rate,) * len(batches)
        if settings.step_rates is not None:
            found = settings.step_rates.of_steps(orders.learning_rate, orders.round_index, len(batches))
            self.rates = tuple(found)
        self.rng = streams.loop[orders.device]
        self.seed = int(self.rng.integers(2**63))
        self.batches = Batches(device, batches, lent, streams.augmentation[orders.device])
        self._loss = LOSSES[CROSS_ENTROPY] if device.minimised is None else device.minimised
        self._losses: list[tuple[float, int]] = []

    @cached_property
    def received(self) -> Mapping[str, Tensor]:  # type: ignore[override]
        flat = torch.from_numpy(self._received)
        return {part.name: part.view(flat).clone() for part in self._lent.model.parts}

    @cached_property
    def mask(self) -> Mapping[str, Tensor]:  # type: ignore[override]
        return self._lent.mask

    def received_model(self) -> nn.Module:
        module = copy.deepcopy(self._lent.model.module)
        tensors = dict([*module.named_parameters(), *module.named_buffers()])
        with torch.no_grad():
            for name, value in self.received.items():
                tensors[name].copy_(value)
        return module.requires_grad_(False).eval()

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        value = self._loss.mean(outputs, targets)
        self._losses.append((value.item(), len(targets)))
        return value

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        settings = self._local.settings
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return settings.optimizer.torch_optimizer(parameters, settings.steps(self.learning_rate))

    def clip_gradients(self, model: nn.Module) -> None:
        settings = self._local.settings
        if settings.clip_gradient_value is not None:
            nn.utils.clip_grad_value_(model.parameters(), settings.clip_gradient_value)
        if settings.clip_gradient_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip_gradient_norm)

    def trained(self) -> Trained:
        """Returns the sums of the steps; without recorded losses, the trained model's on the last minibatch."""
        drawn = self.batches.drawn
        if not drawn:
            self._lent.refuse("must train on a minibatch at least", "none", "for x, y in batches: …")
        if not self._losses:
            module = self._lent.model.module
            module.eval()
            self._losses.append((self._local.loss.value(drawn[-1]), len(drawn[-1])))
            module.train()
        count = sum(size for _, size in self._losses)
        return Trained(
            loss=sum(loss * size for loss, size in self._losses) / count,
            loss_sq=sum(loss * loss * size for loss, size in self._losses) / count,
            num_samples=sum(map(len, drawn)),
            num_steps=len(drawn),
            gradient_sq_max=0.0,
            gradient_sum=None,
        )


class Batches:
    """The minibatches (x, y) of a device in an edge round, each once.

    Attributes:
      drawn: sample numbers of those taken.
    """

    def __init__(self, device: Device, batches: list[Array], lent: _Lent, rng: np.random.Generator) -> None:
        self._device, self._batches, self._lent, self._rng = device, batches, lent, rng
        self.drawn: list[Array] = []

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if len(self.drawn) == len(self._batches):
            way_out = "They are those of all local epochs: raise train.local_epochs for more"
            self._lent.refuse("must take every minibatch once", "another pass over them", way_out)
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        self._lent.put_back()
        if len(self.drawn) == len(self._batches):
            raise StopIteration
        batch = self._batches[len(self.drawn)]
        self.drawn.append(batch)
        loss, augmentation = self._device.loss, self._device.settings.augmentation
        x, y = loss.inputs(batch), loss.y[loss.index(batch)]
        return (x if augmentation is None else augmentation.apply(x, self._rng)), y


class _Lent:
    """A module in the hands of a loop, and the way it was before.

    Attributes:
      mask: True where entries of a parameter may move; of those with others.
    """

    def __init__(self, model: FlatModel, loop: Loop, may_move: Array | None) -> None:
        self.model, self._loop = model, loop
        self._fixed = None if may_move is None else np.flatnonzero(~may_move)
        self._values = None if self._fixed is None else model.state_array[self._fixed].copy()
        self._tensors = self._named()
        self._needs_grad = {name: tensor.requires_grad for name, tensor in self._tensors.items()}
        self._modules = {module: (module.training, _attributes(module)) for module in model.module.modules()}
        self.mask: dict[str, Tensor] = {}
        self._hooks: list[Any] = []
        for part in model.parts:
            if part.start >= model.num_parameters:
                continue
            parameter = self._tensors[part.name]
            parameter.grad = None
            if may_move is not None and not may_move[part.start : part.stop].all():
                mask = part.view(torch.from_numpy(may_move))
                self.mask[part.name] = mask
                self._hooks.append(parameter.register_hook(lambda gradient, mask=mask: gradient * mask))

    def _named(self) -> dict[str, Tensor]:
        module = self.model.module
        found = dict([*module.named_parameters(), *module.named_buffers()])
        return {part.name: found[part.name] for part in self.model.parts if part.name in found}

    def put_back(self) -> None:
        """Restores the entries that may not move."""
        if self._fixed is not None and self._values is not None:
            self.model.state_array[self._fixed] = self._values

    def take_back(self) -> None:
        """Makes the module the flat model again; refuses one with other layers."""
        for hook in self._hooks:
            hook.remove()
        model, now = self.model, self._named()
        parts = {part.name: part for part in model.parts}
        changed = [name for name, part in parts.items() if name not in now or tuple(now[name].shape) != part.shape]
        changed += [name for name, _ in model.module.named_parameters() if name not in parts]
        if changed or set(model.module.modules()) != set(self._modules):
            self.refuse("must leave the layers of the model as they are", f"a change of {(changed or ['a layer'])[0]}")
        for name, tensor in now.items():
            tensor.requires_grad_(self._needs_grad[name])
        lay_out(model.parts, now, model.state, model.gradient)
        guard(model.module)
        self.put_back()
        for module, (training, _) in self._modules.items():
            module.training = training

    def check(self) -> None:
        """Refuses what a loop has left in the module for later."""
        for module, (_, attributes) in self._modules.items():
            if left := _attributes(module) ^ attributes:
                way_out = "Keep it in local variables: nothing may pass from one device to the next"
                self.refuse("must leave nothing in the model", f"{sorted(left)[0]} of {type(module).__name__}", way_out)

    def refuse(self, rule: str, got: str, way_out: str = "") -> NoReturn:
        raise InvalidValue(f"The training loop {self._loop.name!r}", rule, got, way_out)


def _attributes(module: nn.Module) -> set[str]:
    """Returns the names of what a module has, and the numbers of its hooks."""
    hooks = (key for key in vars(module) if key.endswith("_hooks") and isinstance(vars(module)[key], dict))
    return {*vars(module), *(f"{key} {number}" for key in hooks for number in vars(module)[key])}
