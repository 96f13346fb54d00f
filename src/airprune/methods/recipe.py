"""A recipe: settings under one name, and an honest word on where they come from. Families of them are TOML files.

title = "FedAvg, HierFAVG and what others have added to them"
[fedprox]
summary = "HierFAVG with a pull to the received model on the devices"     # source, label and claim: see `Recipe`
[fedprox.settings]
objective.name = "prox"                                                   # any key of a scenario
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from airprune.components.component import ModelShape, Slot
from airprune.errors import AirpruneError, UsageError
from airprune.settings.toml_text import flat


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

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> Recipe:
        """Returns the recipe of a table of a family's file."""
        return cls(name=name, **{**table, "settings": flat(table["settings"])})

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


@dataclass(frozen=True, kw_only=True)
class Family:
    """The methods of one file.

    Attributes:
      title: what they share, as a heading.
      recipes: by name, in the order of the file.
    """

    title: str
    recipes: Mapping[str, Recipe]


@cache
def family(name: str) -> Family:
    """Reads the recipes of the family `name`."""
    tables = tomllib.loads((files("airprune.methods.recipes") / f"{name}.toml").read_text(encoding="utf-8"))
    title = tables.pop("title")
    return Family(title=title, recipes={method: Recipe.of(method, table) for method, table in tables.items()})


def listed(name: str, family_name: str) -> Recipe:
    """Returns the recipe of a method that comes with the package."""
    return family(family_name).recipes[name]


def _method_of(recipe: Recipe) -> Any:
    from airprune.rounds.method import Method  # which reads scenarios, which read recipes
    from airprune.scenario import Scenario

    try:
        return Method.of(Scenario().with_values(recipe.settings))
    except AirpruneError as error:
        raise UsageError(f"Method {recipe.name!r} cannot be used: {error}") from error
