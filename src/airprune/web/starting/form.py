"""The scenario's fields section by section, made from its JSON schema, and every preset's values."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airprune.data import DATASETS
from airprune.masking import MASKINGS
from airprune.methods import METHODS
from airprune.model_names import MODELS
from airprune.path_loss import PATH_LOSS
from airprune.pruning import IMPORTANCES
from airprune.registration import registries
from airprune.report.markup import exact
from airprune.scenario import Scenario, presets
from airprune.scenario.scenario import flat


def _names() -> dict[str, Iterable[str]]:
    """Fields whose values are names of a list that can grow."""
    chosen = {f"{home}.{field}": list(registry) for home, field, registry in Scenario.choice_fields()}
    ranked = {f"masking.{name}.importance": list(IMPORTANCES) for name in MASKINGS}
    others = {"method": METHODS, "data.name": DATASETS, "radio.path_loss": PATH_LOSS, "model.name": MODELS}
    return {**chosen, **ranked, **others}


def form() -> dict[str, Any]:
    """{sections: [{name, about, fields}], presets: {name: {about, values}}}; values are text, as typed after `key=`."""
    return _form(tuple(name for registry in registries().values() for name in registry))


@functools.lru_cache(maxsize=1)
def _form(known: tuple[str, ...]) -> dict[str, Any]:
    """Made anew whenever other components are known."""
    schema, names = Scenario.json_schema(), _names()
    sections: list[dict[str, Any]] = [{"name": "", "about": "", "fields": []}]
    for name, entry in schema["properties"].items():
        target = entry.get("$ref") or next((part["$ref"] for part in entry.get("allOf", [])), None)
        if target is None:
            sections[0]["fields"].append(_field(name, entry, names))
            continue
        part = schema["$defs"][target.rpartition("/")[2]]
        fields = [_field(key, value, names) for key, value in _leaves(name, part["properties"])]
        sections.append({"name": name, "about": part.get("description", ""), "fields": fields})
    chosen = {name: {"about": about, "values": _values(Scenario.preset(name))} for name, about in presets().items()}
    return {"sections": sections, "presets": chosen}


def _leaves(home: str, properties: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Dotted keys and schemas: fields, and the options of each component that can be chosen."""
    for key, value in properties.items():
        if "properties" in value:
            yield from _leaves(f"{home}.{key}", value["properties"])
        else:
            yield f"{home}.{key}", value


def _field(key: str, schema: Mapping[str, Any], names: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    kinds = {choice.get("type") for choice in schema.get("anyOf", [schema])}
    choices = ["true", "false"] if kinds == {"boolean"} else schema.get("enum", [])
    return {
        "key": key,
        "about": schema.get("description", ""),
        "choices": [str(choice) for choice in choices],
        "names": [str(name) for name in names.get(key, ())],
        "is_number": kinds <= {"number", "integer"},
    }


def _values(scenario: Scenario) -> dict[str, str]:
    """Dotted key → value as text."""
    return {key: exact(value) for key, value in flat(scenario.to_dict()).items()}
