"""Gives a model its named inputs: samples are one array in all the rest of the program, a dictionary in its call."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airprune.data.input_fields import InputField

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Unpack:
    """A forward pre-hook: splits the one array into inputs, as keywords if `forward` has all their names.

    Attributes:
      fields: the inputs, side by side in the array.
    """

    fields: tuple[InputField, ...]

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if len(args) != 1 or isinstance(args[0], Mapping):  # the user's own call
            return args, kwargs
        inputs = self.inputs(args[0])
        names = inspect.signature(module.forward).parameters
        return ((), inputs) if set(inputs) <= set(names) else ((inputs,), kwargs)

    def inputs(self, x: Tensor) -> dict[str, Tensor]:
        """Returns the inputs by name; whole numbers are exact in float32 as far as packing allows them."""
        parts = x.split([one.size for one in self.fields], dim=1)
        return {
            one.name: (part.long() if one.is_whole else part).reshape(len(part), *one.shape)
            for one, part in zip(self.fields, parts, strict=True)
        }


@contextlib.contextmanager
def taking(module: Any, fields: tuple[InputField, ...]) -> Iterator[None]:
    """Lets copies of a module that are made inside take these fields; the module itself stays as it is."""
    if not fields or not hasattr(module, "register_forward_pre_hook"):
        yield
        return
    handle = module.register_forward_pre_hook(Unpack(fields), with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
