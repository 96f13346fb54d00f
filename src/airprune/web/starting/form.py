"""The scenario's fields section by section, made from its JSON schema, and every preset's values."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from airprune.data import DATASETS
from airprune.model_names import MODELS
from airprune.path_loss import PATH_LOSS
from airprune.pruning import IMPORTANCES
from airprune.report.markup import exact
from airprune.scenario import Scenario, presets
from airprune.schemes import SCHEMES

# Fields whose values are names of a list that can grow.
_NAMES: dict[str, Iterable[str]] = {
    "plan.scheme": SCHEMES,
    "data.name": DATASETS,
    "pruning.importance": IMPORTANCES,
    "radio.path_loss": PATH_LOSS,
    "model.name": MODELS,
}


@functools.cache
def form() -> dict[str, Any]:
    """{sections: [{name, about, fields}], presets: {name: {about, values}}}; values are text, as typed after `key=`."""
    schema = Scenario.json_schema()
    sections: list[dict[str, Any]] = [{"name": "", "about": "", "fields": []}]
    for name, entry in schema["properties"].items():
        target = entry.get("$ref") or next((part["$ref"] for part in entry.get("allOf", [])), None)
        if target is None:
            sections[0]["fields"].append(_field(name, entry))
            continue
        part = schema["$defs"][target.rpartition("/")[2]]
        fields = [_field(f"{name}.{key}", value) for key, value in part["properties"].items()]
        sections.append({"name": name, "about": part.get("description", ""), "fields": fields})
    chosen = {name: {"about": about, "values": _values(Scenario.preset(name))} for name, about in presets().items()}
    return {"sections": sections, "presets": chosen}


def _field(key: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {choice.get("type") for choice in schema.get("anyOf", [schema])}
    choices = ["true", "false"] if kinds == {"boolean"} else schema.get("enum", [])
    return {
        "key": key,
        "about": schema.get("description", ""),
        "choices": [str(choice) for choice in choices],
        "names": [str(name) for name in _NAMES.get(key, ())],
        "is_number": kinds <= {"number", "integer"},
    }


def _values(scenario: Scenario) -> dict[str, str]:
    """Dotted key → value as text."""
    found = {}
    for key, value in scenario.to_dict().items():
        nested = value if isinstance(value, dict) else None
        found.update({key: exact(value)} if nested is None else {f"{key}.{k}": exact(v) for k, v in nested.items()})
    return found
