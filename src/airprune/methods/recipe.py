"""A recipe: settings under one name, and where they come from. Families of them are TOML files.

title = "FedAvg, HierFAVG and extensions"
[fedprox]
summary = "HierFAVG with a proximal term in the local objective"          # source, label, departures …: see `Recipe`
[fedprox.settings]
objective.name = "prox"                                                   # any key of a scenario
[fedprox.knob]                                                            # see `Knob`; may be left out
key = "objective.prox.mu"
values = [0.1, 1.0]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from airprune.components.component import ModelShape, Slot
from airprune.errors import AirpruneError, InvalidValue, UsageError
from airprune.methods.compression.base import Wire
from airprune.settings.toml_text import flat

_ROUNDS = 60  # charges that come back every few rounds do so within as many


@dataclass(frozen=True, kw_only=True)
class Knob:
    """The main setting of a method that a league tunes beside the learning rate.

    Attributes:
      key: of the scenario.
      values: tried beside the method's own.
    """

    key: str
    values: tuple[Any, ...]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Knob:
        return cls(key=table["key"], values=tuple(table["values"]))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A named bundle of component choices.

    Attributes:
      summary: one line for help texts, tables and docs.
      settings: scenario keys and their values; what is not named stays as the scenario has it.
      source: where the method comes from.
      label: "as published", "after …" where details are our reading, or "own".
      departures: sentences, one for each point in which it differs from its source.
      other_work: how the work of a round differs from that of the other methods, less or more; empty where it is equal.
      claim: a claim of its source that can be tested here.
      knob: its main setting; None if it has none that changes what is learned.
    """

    name: str
    summary: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    label: str = "own"
    departures: Sequence[str] = ()
    other_work: str = ""
    claim: str = ""
    knob: Knob | None = None

    def __post_init__(self) -> None:
        """Checks that a label that names a source comes with what differs from it."""
        field, texts = f"Recipe {self.name!r}.departures", self.departures
        example = 'Example: departures = ["one server in the place of edges"]'
        if isinstance(texts, str) or not all(isinstance(text, str) and text.strip() for text in texts):
            raise InvalidValue(field, "must be a list of sentences", repr(texts)[:60], example)
        if self.label.startswith("after") and not texts:
            raise InvalidValue(field, f"must not be empty with label {self.label!r}", "[]", example)

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> Recipe:
        """Returns the recipe of a table of a family's file."""
        given = {**table, "settings": flat(table["settings"])}
        if "knob" in given:
            given["knob"] = Knob.of(given["knob"])
        return cls(name=name, **given)

    @property
    def components(self) -> dict[str, str]:
        """Components by scenario key: all choices, those it does not set as in the paper."""
        return _method_of(self).components

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Returns its persistent state, for a model of this shape."""
        return _method_of(self).slots(shape)

    def extra_cost(self, shape: ModelShape, value_bits: float = 64.0) -> list[str]:
        """Returns its cost beside the kept weights, in words; of each item the most of any round.

        Empty if kept weights at `value_bits` each are all that is sent and computed.
        """
        method = _method_of(self)
        found = [_message_cost(method, shape, value_bits), *_masking_cost(method.masking, shape, value_bits)]
        if beside := method.objective.upload_bits(shape, value_bits):
            found.append(f"{beside:,.0f} bits beside every update")
        if for_selection := method.selection.upload_bits(shape, value_bits):
            found.append(f"{for_selection:,.0f} bits for the selection")
        return [words for words in found if words]


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


def _message_cost(method: Any, shape: ModelShape, value_bits: float) -> str:
    if method.scheme.chooses_codes or method.scheme.fits_codes:
        return "bits per weight as the deadline allows"
    wire = Wire.of(shape, value_bits=value_bits)
    per_weight = method.compression.message_bits(wire, shape.num_weights) / shape.num_weights
    if per_weight == value_bits:
        return ""
    return "1 bit per weight" if per_weight == 1.0 else f"{per_weight:.4g} bits per weight"


def _masking_cost(masking: Any, shape: ModelShape, value_bits: float) -> list[str]:
    charges = [masking.charges(number, shape, value_bits) for number in range(_ROUNDS)]
    words = {
        "uplink_bits": "{:,.0f} bits to say which weights are sent",
        "always_bits": "{:,.0f} bits beside the weights in rounds that report",
        "late_bits": "{:,.0f} bits beside the weights, beyond the deadline, in rounds that report",
        "probe": "a minibatch on the whole model",
        "dense_gradients": "gradients of all weights",
    }
    most = {name: max(getattr(charge, name) for charge in charges) for name in words}
    found = [text.format(most[name]) for name, text in words.items() if most[name]]
    if any(charge.second_pass is not None for charge in charges):
        found.append("a second pass in every step, over a smaller width")
    if masking.dense_compute:
        found.append(f"{masking.dense_compute:.0%} of the compute of the whole model, whatever is sent")
    return found
