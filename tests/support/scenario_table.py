"""The tables of docs/scenarios.md, made from the scenario's own fields.

.venv/bin/python tests/support/scenario_table.py     brings the page up to date
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from airprune.data import DATASETS
from airprune.masking import MASKINGS
from airprune.methods import METHODS
from airprune.model_names import MODELS
from airprune.path_loss import PATH_LOSS
from airprune.pruning import IMPORTANCES
from airprune.scenario import Scenario, presets
from airprune.settings.section import Section
from airprune.settings.toml_text import literal

PAGE = Path(__file__).parents[2] / "docs/scenarios.md"
MARKED = re.compile(r"(<!-- fields: (\w*) -->\n)(?:.*?\n)?(<!-- end -->)", re.DOTALL)
HEAD = "| key | default | unit or choices | meaning |\n|---|---|---|---|"
UNITS = {
    "noise_density_dbm_per_hz": "dBm/Hz",
    "bits_per_weight": "bit",
    "_dbm": "dBm",
    "_db": "dB",
    "_hz": "Hz",
    "_hz_max": "Hz",
    "_m": "m",
    "_s": "s",
    "_ratio": "0 … 1",
    "_probability": "0 … 1",
}
LISTS = {
    "radio.path_loss": PATH_LOSS,
    "model.name": MODELS,
    "data.name": DATASETS,
    "method": METHODS,
    **{f"{home}.{field}": registry for home, field, registry in Scenario.choice_fields()},
    **{f"masking.{name}.importance": IMPORTANCES for name in MASKINGS},
}


def tables() -> dict[str, str]:
    """The tables by their names in the page."""
    fields = Scenario.model_fields
    own = {name: field for name, field in fields.items() if not isinstance(field.default, Section)}
    parts = {name: type(field.default) for name, field in fields.items() if name not in own}
    rows = [f"| `{name}` | {summary.rstrip('.')} |" for name, summary in presets().items()]
    found = {
        "presets": "\n".join(["| preset | what it is |\n|---|---|", *rows]),
        "scenario": _table("", Scenario, own),
    }
    return found | {name: _table(f"{name}.", part, part.model_fields) for name, part in parts.items()}


def _table(prefix: str, model: type[Section], fields: dict[str, Any]) -> str:
    return "\n".join([HEAD, *_rows(prefix, model, fields), *_component_rows(prefix, model)])


def _rows(prefix: str, model: type[Section], fields: dict[str, Any]) -> list[str]:
    schema = model.model_json_schema()["properties"]
    return [
        f"| `{prefix}{name}` | `{_default(field)}` | {_values(prefix + name, schema[name])} | {field.description} |"
        for name, field in fields.items()
    ]


def _component_rows(prefix: str, model: type[Section]) -> list[str]:
    """The options of every component that a section can choose."""
    rows: list[str] = []
    for registry in dict.fromkeys(getattr(model, "choices", {}).values()):
        for name, component in registry.items():
            rows += _rows(f"{prefix}{name}.", component.Options, component.Options.model_fields)
    return rows


def _default(field: Any) -> str:
    value = field.default
    return f"{value:g}".replace("e+0", "e") if isinstance(value, float) else literal(value)


def _values(key: str, schema: dict[str, Any]) -> str:
    if key in LISTS:
        return ", ".join(LISTS[key])
    if "enum" in schema:
        return ", ".join(schema["enum"])
    if schema.get("type") == "boolean":
        return "true, false"
    return next((unit for ending, unit in UNITS.items() if key.endswith(ending)), "")


def up_to_date(page: str) -> str:
    """The page with every marked table made anew."""
    found = tables()
    return MARKED.sub(lambda match: f"{match[1]}{found[match[2]]}\n{match[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(up_to_date(PAGE.read_text()))
