"""The scenario's fields section by section, made from its JSON schema, and every preset's values."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airprune.data import DATASETS, PARTITIONS
from airprune.methods import METHODS
from airprune.methods.masking import MASKINGS
from airprune.methods.masking.core import IMPORTANCES
from airprune.methods.registration import registries
from airprune.models.names import MODELS
from airprune.scenario import Scenario, presets
from airprune.settings.toml_text import flat
from airprune.text import exact
from airprune.wireless.path_loss import PATH_LOSS


def _names() -> dict[str, Iterable[str]]:
    """Fields whose values are names of a list that can grow."""
    chosen = {f"{home}.{field}": list(registry) for home, field, registry in Scenario.choice_fields()}
    ranked = {f"masking.{name}.importance": list(IMPORTANCES) for name in MASKINGS}
    others: dict[str, Iterable[str]] = {
        "method": METHODS,
        "data.name": DATASETS,
        "data.partition": PARTITIONS,
        "radio.path_loss": PATH_LOSS,
        "model.name": MODELS,
    }
    return {**chosen, **ranked, **others}


def form() -> dict[str, Any]:
    """Values are text, as typed after `key=`.

    {sections: [{name, about, fields}], presets: {name: {about, values}}, methods: {name: {about, values}}}
    """
    return _form(tuple(name for registry in registries().values() for name in registry))


@functools.lru_cache(maxsize=1)
def _form(known: tuple[str, ...]) -> dict[str, Any]:
    """Made again whenever other components are known."""
    schema, names = Scenario.json_schema(), _names()
    sections: list[dict[str, Any]] = [{"name": "", "about": "", "fields": []}]
    for name, entry in schema["properties"].items():
        target = entry.get("$ref") or next((part["$ref"] for part in entry.get("allOf", [])), None)
        if target is None:
            sections[0]["fields"].append(_field(name, entry, names))
            continue
        part = schema["$defs"][target.rpartition("/")[2]]
        fields = [field for key, value in part["properties"].items() for field in _fields(name, key, value, names)]
        sections.append({"name": name, "about": part.get("description", ""), "fields": fields})
    chosen = {name: {"about": about, "values": _values(Scenario.preset(name))} for name, about in presets().items()}
    recipes = {
        name: {"about": recipe.summary, "values": {key: exact(value) for key, value in recipe.settings.items()}}
        for name, recipe in METHODS.items()
    }
    return {"sections": sections, "presets": chosen, "methods": recipes}


def _fields(
    home: str, name: str, schema: Mapping[str, Any], names: Mapping[str, Iterable[str]]
) -> Iterator[dict[str, Any]]:
    """A field of a section, or the options of a component: those are shown while one of `keys` names it."""
    if "properties" not in schema:
        yield _field(f"{home}.{name}", schema, names)
        return
    keys = [
        f"{part}.{field}" for part, field, registry in Scenario.choice_fields() if part == home and name in registry
    ]
    for option, entry in schema["properties"].items():
        yield _field(f"{home}.{name}.{option}", entry, names) | {"needs": {"keys": keys, "name": name}}


def _field(key: str, schema: Mapping[str, Any], names: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    kinds = {choice.get("type") for choice in schema.get("anyOf", [schema])}
    choices = ["true", "false"] if kinds == {"boolean"} else schema.get("enum", [])
    return {
        "key": key,
        "about": schema.get("description", ""),
        "choices": [str(choice) for choice in choices],
        "names": [str(name) for name in names.get(key, ())],
        "is_number": kinds <= {"number", "integer"},
        "default": exact(schema.get("default")),
        "needs": None,
    }


def _values(scenario: Scenario) -> dict[str, str]:
    """Dotted key → value as text."""
    return {key: exact(value) for key, value in flat(scenario.to_dict()).items()}
