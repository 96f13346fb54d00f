"""What a recipe is: settings under one name, and an honest word on where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airprune.components.component import ModelShape, Slot
from airprune.errors import AirpruneError, UsageError


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A named bundle of component choices.

    Attributes:
      summary: one line for help texts, tables and docs.
      settings: scenario keys and their values; what is not named stays as the scenario has it.
      source: where the method comes from.
      label: "as published", "after …" where details are our reading, or "own".
      claim: what its source claims of it, if that can be tested here.
    """

    name: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    label: str = "own"
    claim: str = ""

    @property
    def components(self) -> dict[str, str]:
        """What it is made of, by scenario key: all choices, those it leaves alone as the paper has them."""
        return _method_of(self).components

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The memory it keeps, for a model of this shape."""
        return _method_of(self).slots(shape)

    def extra_cost(self, shape: ModelShape, value_bits: float = 64.0) -> list[str]:
        """What it costs beside the weights that are kept, in words."""
        from airprune.methods.costs import extra_cost  # which knows the components, which know recipes

        return extra_cost(_method_of(self), shape, value_bits)


def _method_of(recipe: Recipe) -> Any:
    from airprune.rounds.method import Method  # which reads scenarios, which read recipes
    from airprune.scenario import Scenario

    try:
        return Method.of(Scenario().with_values(recipe.settings))
    except AirpruneError as error:
        raise UsageError(f"Method {recipe.name!r} cannot be used: {error}") from error
