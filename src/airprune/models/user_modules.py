"""Checks a user's torch module before the run, so that a fault is one sentence and not a traceback in a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cloudpickle
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from airprune.errors import InvalidValue, UnknownName
from airprune.models.names import EVERY_LAYER, LAST, PERSONAL, PRUNABLE

MODEL = "run.model"
FROZEN = "whose weight is frozen"


def pickled_module(module: Any) -> bytes:
    """Returns the module as bytes for the workers, with classes of the user's script inside."""
    check_module(module)
    try:
        return cloudpickle.dumps(module)
    except Exception as error:  # whatever the module's own pickling raises
        got = f"{type(module).__name__} ({first_sentence(error)})"
        way_out = "Parametrized and scripted modules cannot; give the plain module."
        raise InvalidValue(MODEL, "must be a module that can be pickled", got, way_out) from error


def check_module(module: Any) -> None:
    """Raises InvalidValue for what cannot be laid out as one vector of trained numbers."""
    if not isinstance(module, nn.Module):
        got = f"the class {module.__name__}" if isinstance(module, type) else type(module).__name__
        raise InvalidValue(MODEL, "must be a torch.nn.Module", got, "Example: model=torch.nn.Linear(12, 4)")
    parameters = dict(module.named_parameters())
    tensors = {**parameters, **dict(module.named_buffers())}
    if lazy := [name for name, tensor in tensors.items() if is_lazy(tensor)]:
        way_out = "Call the model on a batch first, e.g. model(x[:2])."
        raise InvalidValue(MODEL, "must have its lazy layers initialised", f"no shape for {_listed(lazy)}", way_out)
    if empty := [name for name, tensor in tensors.items() if tensor.is_meta]:
        way_out = "Load its weights first."
        raise InvalidValue(MODEL, "must have values", f"{_listed(empty)} on the device meta", way_out)
    if unreal := [name for name, tensor in tensors.items() if tensor.is_complex()]:
        way_out = "Keep real and imaginary part as two real tensors."
        raise InvalidValue(MODEL, "must be real", f"complex {_listed(unreal)}", way_out)
    if whole := [name for name, parameter in parameters.items() if not parameter.is_floating_point()]:
        way_out = "Register integers as buffers (register_buffer)."
        raise InvalidValue(MODEL, "must have floating-point parameters", f"integers in {_listed(whole)}", way_out)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        got = f"{len(parameters)} frozen ones" if parameters else "a model without any"
        way_out = "Set requires_grad = True on those to train." if parameters else ""
        raise InvalidValue(MODEL, "must have parameters to train", got, way_out)


def prunable_names(module: nn.Module, chosen: Sequence[str]) -> list[str]:
    """Returns the names of the prunable weight tensors: of the named layers, or of every Linear that is trained.

    The name "*" stands for every trained linear layer and convolution. A shared weight has the name of its first layer.
    """
    modules = module.named_modules()
    layers = {name: layer for name, layer in modules if isinstance(getattr(layer, "weight", None), torch.Tensor)}
    by_kind: tuple[type[nn.Module], ...] = (nn.Linear,)
    if tuple(chosen) == (EVERY_LAYER,):
        by_kind, chosen = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d), ()
    _check_chosen(chosen, layers)
    names = list(chosen) or [name for name, layer in layers.items() if isinstance(layer, by_kind)]
    if not names:
        raise InvalidValue(PRUNABLE, "must name at least one layer of a model without Linear layers", "none")
    first = {id(parameter): name for name, parameter in module.named_parameters()}
    obstacles = {name: _obstacle(name, layers[name].weight, first) for name in names}
    # A frozen layer may be named, as one list of names serves several stages of training; a borrowed weight may not.
    borrowed = [name for name in chosen if obstacles[name] not in ("", FROZEN)]
    if borrowed or all(obstacles.values()):
        blocked = borrowed or names
        got = "; ".join(f"{name!r}, {obstacles[name]}" for name in blocked[:3])
        rule = "must name layers that own their weights" if borrowed else "must leave a layer whose weights are trained"
        raise InvalidValue(PRUNABLE, rule, got, _way_out(first.get(id(layers[blocked[0]].weight)), blocked[0]))
    return [_weight_of(name) for name in names if not obstacles[name]]


def personal_names(module: nn.Module, chosen: Sequence[str]) -> list[str]:
    """Returns the trained parameters of personal layers; `LAST` is the last layer with a weight matrix."""
    weights = {name: getattr(layer, "weight", None) for name, layer in module.named_modules()}
    matrices = [name for name, weight in weights.items() if isinstance(weight, torch.Tensor) and weight.dim() > 1]
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    layers = []
    for name in chosen:
        if name != LAST and name not in matrices:
            raise UnknownName(PERSONAL, name, [*matrices, LAST])
        layers.append(matrices[-1] if name == LAST else name)
    return [name for name in trained if name.rpartition(".")[0] in layers]


def _check_chosen(chosen: Sequence[str], layers: dict[str, Any]) -> None:
    for position, name in enumerate(chosen):
        if name not in layers:
            raise UnknownName(PRUNABLE, name, layers)
        if layers[name].weight.dim() < 2:
            raise InvalidValue(PRUNABLE, "must name layers with weight matrices", repr(name))
        if name in chosen[:position]:
            raise InvalidValue(PRUNABLE, "must name each layer once", f"{name!r} twice", "Leave one out.")


def _obstacle(name: str, weight: torch.Tensor, first: dict[int, str]) -> str:
    """Returns why a layer's weight cannot be pruned under the layer's name; empty if it can."""
    owner = first.get(id(weight))
    if owner is None:
        return "whose weight is computed from other parameters"
    if owner != _weight_of(name):
        return f"whose weight is {owner} (tied)"
    return "" if weight.requires_grad else FROZEN


def _way_out(owner: str | None, name: str) -> str:
    if owner is None:
        return "Name another layer with a weight matrix."
    if owner == _weight_of(name):
        return "Set requires_grad = True on it, or name another layer with a weight matrix."
    return f'Name the other one: prunable = ["{owner.removesuffix(".weight")}"]'


def _weight_of(layer: str) -> str:
    return f"{layer}.weight" if layer else "weight"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def first_sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()}".split("\n")[0].split(". ")[0].rstrip(".!")
