"""The training components of a scenario, and functions of a script in their place."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from airprune.errors import InvalidValue
from airprune.methods.augmentations import Augmentation
from airprune.methods.loops import MINIBATCH_STEPS, Loop
from airprune.methods.loops.base import OwnLoop, function_name
from airprune.methods.optimisers import OPTIMISERS, Optimiser
from airprune.methods.optimisers.by_name import OwnOptimiser
from airprune.models.losses import OWN
from airprune.scenario import Scenario


@dataclass(frozen=True)
class Training:
    """Holds all that trains on a device.

    Attributes:
      loop: None for minibatch steps, which kernels compute.
      augmentation: None for samples as they are.
    """

    loop: Loop | None
    optimizer: Optimiser
    augmentation: Augmentation | None

    @classmethod
    def of(cls, scenario: Scenario, train: Any = None, optimizer: Any = None) -> Training:
        """Returns that of a scenario that `named_training` has made, with the functions given to `run`."""
        section = scenario.train
        loop: Loop | None = None
        if section.loop != MINIBATCH_STEPS:
            is_own = section.loop.startswith(OWN) and train is not None
            loop = _own_loop(train) if is_own else section.chosen("loop")
        own = section.optimizer.startswith(OWN) and optimizer is not None
        return cls(
            loop,
            OwnOptimiser(make=optimizer) if own else section.chosen("optimizer"),
            None if section.augmentation == "none" else section.chosen("augmentation"),
        )

    @property
    def needs_module(self) -> str:
        """Names what needs a torch module between two steps; empty if nothing does."""
        if self.loop is not None:
            return f"a training loop of its own ({self.loop.name!r})"
        return "" if self.augmentation is None else f"the augmentation {self.augmentation.name!r}"


def named_training(scenario: Scenario, train: Any, optimizer: Any) -> Scenario:
    """Returns the scenario with the names of a training function and an optimiser; None leaves its own."""
    changes: dict[str, Any] = {}
    if isinstance(train, str):
        changes["train.loop"] = train
    elif isinstance(train, type) and issubclass(train, Loop):
        changes["train.loop"] = OWN + train.name
    elif train is not None:
        changes["train.loop"] = OWN + (train.name if isinstance(train, Loop) else function_name(train))
    if isinstance(optimizer, str):
        changes["train.optimizer"] = optimizer
    elif optimizer is not None:
        changes["train.optimizer"] = OWN + _optimizer_name(optimizer)
    return scenario.with_values(changes) if changes else scenario


def _own_loop(train: Any) -> Loop:
    if isinstance(train, Loop):
        return train
    if isinstance(train, type) and issubclass(train, Loop):
        return train()
    return OwnLoop(function=train)


def _optimizer_name(optimizer: Any) -> str:
    if not callable(optimizer):
        rule = "must be a name, or a function of (parameters, lr=…) that returns a torch optimiser"
        known = f"Names: {', '.join(OPTIMISERS)}. Example: torch.optim.AdamW"
        raise InvalidValue("run.optimizer", rule, type(optimizer).__name__, known)
    function = getattr(optimizer, "func", optimizer)  # of functools.partial
    text = getattr(function, "__name__", type(function).__name__)
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower() or "function"


__all__ = ["Training", "named_training"]
