"""Any optimiser of torch.optim by its name, and optimisers that a script makes by a function of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field

from airprune.errors import InvalidValue, UnknownName
from airprune.methods.optimisers.base import Optimiser, StepSettings
from airprune.settings.section import Text

if TYPE_CHECKING:
    import torch

KEY = "Scenario.train.torch"
# Set by the keys that all optimisers share.
_SHARED = {"lr": "train.learning_rate", "momentum": "train.momentum", "weight_decay": "train.weight_decay"}


class ByName(Optimiser):
    """An optimiser of torch.optim; keys of its table beside `kind` are arguments of that class."""

    name = "torch"
    summary = "any optimiser of torch.optim, named by kind; further keys are its arguments"
    source = "torch.optim"
    model_config = ConfigDict(extra="allow")

    kind: Text = Field(default="RMSprop", description="name of a class of torch.optim; further keys are its arguments")

    def torch_optimizer(self, parameters: Iterable[Any], settings: StepSettings) -> torch.optim.Optimizer:
        cls, known = optimizer_class(self.kind)
        options = _options(self.kind, known, self.model_extra or {}, settings)
        try:
            made: torch.optim.Optimizer = cls(parameters, lr=settings.learning_rate, **options)
        except (TypeError, ValueError) as error:
            got = f"{self.kind}({', '.join(f'{name}={value!r}' for name, value in options.items())})"
            raise InvalidValue(KEY, "must have arguments that torch accepts", f"{got}: {error}") from None
        return made


@lru_cache
def optimizer_class(kind: str) -> tuple[Any, tuple[str, ...]]:
    """Returns (a class of torch.optim, the names of its arguments)."""
    import torch

    classes = {
        name: value
        for name, value in vars(torch.optim).items()
        if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer) and value is not torch.optim.Optimizer
    }
    if kind not in classes:
        raise UnknownName(f"{KEY}.kind", kind[:60], sorted(classes))
    if kind in ("LBFGS", "SparseAdam"):
        rule = "must make a step from one dense gradient"
        way_out = "A training function of your own can use it: docs/training.md"
        raise InvalidValue(f"{KEY}.kind", rule, repr(kind), way_out)
    return classes[kind], tuple(list(inspect.signature(classes[kind]).parameters)[1:])


def _options(kind: str, known: tuple[str, ...], given: Mapping[str, Any], settings: StepSettings) -> Mapping[str, Any]:
    """Returns the arguments of a class beside its parameters and learning rate."""
    for name in given:
        if name not in known or name in _SHARED:
            if name in _SHARED:
                raise InvalidValue(f"{KEY}.{name}", f"must be set as {_SHARED[name]}", given[name])
            raise UnknownName(f"{KEY} ({kind})", name[:60], [one for one in known if one not in _SHARED])
    shared = {"momentum": settings.momentum, "weight_decay": settings.weight_decay}
    for name, value in shared.items():
        if value and name not in known:
            rule = f"must be 0 for torch.optim.{kind}, which has no such argument"
            raise InvalidValue(f"Scenario.{_SHARED[name]}", rule, value)
    return {**{name: value for name, value in shared.items() if name in known}, **given}


class OwnOptimiser(Optimiser):
    """Holds what a script gave to `run(optimizer=…)`; never listed."""

    name = "own"
    summary = "a function of a script"

    make: Callable[..., Any]

    def torch_optimizer(self, parameters: Iterable[Any], settings: StepSettings) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = self.make(parameters, lr=settings.learning_rate)
        return made
