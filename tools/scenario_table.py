"""The tables of scenario settings, presets and records in docs/, made from their fields.

.venv/bin/python tools/scenario_table.py     brings the pages up to date
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_type_hints

from airprune.data import DATASETS, PARTITIONS
from airprune.json_types import JsonRecord
from airprune.methods import METHODS
from airprune.methods.masking import MASKINGS
from airprune.methods.masking.core import IMPORTANCES
from airprune.models.kernels import KERNELS
from airprune.models.losses import LOSSES, METRICS
from airprune.models.names import MODELS
from airprune.results.measures import MEASURES
from airprune.rounds.records import About, EdgeRecord, GlobalRecord, NodeRecord
from airprune.scenario import Scenario, presets
from airprune.scenario.explained import unit_of
from airprune.settings.section import Section
from airprune.settings.toml_text import literal
from airprune.wireless.path_loss import PATH_LOSS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [
    DOCS / f"{name}.md"
    for name in ("scenarios", "settings-network", "settings-methods", "settings-learning", "records")
]
MARKED = re.compile(r"(<!-- fields: (\w*) -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)
RECORD_HEAD = "| field | per | unit | meaning |\n|---|---|---|---|"
HEAD = "| key | default | unit or choices | meaning |\n|---|---|---|---|"
LISTS = {
    "radio.path_loss": PATH_LOSS,
    "model.name": MODELS,
    "data.name": DATASETS,
    "data.partition": PARTITIONS,
    "train.kernel": ("auto", *KERNELS),
    "train.loss": LOSSES,
    "train.metric": ("auto", *(name for name in METRICS if not METRICS[name].is_vector)),
    "evaluation.metrics": METRICS,
    "method": METHODS,
    **{f"{home}.{field}": registry for home, field, registry in Scenario.choice_fields()},
    **{f"masking.{name}.importance": IMPORTANCES for name in MASKINGS},
}


def tables() -> dict[str, str]:
    """Returns the tables by their names in the pages."""
    fields = Scenario.model_fields
    own = {name: field for name, field in fields.items() if not isinstance(field.default, Section)}
    parts = {name: type(field.default) for name, field in fields.items() if name not in own}
    rows = [f"| `{name}` | {summary.rstrip('.')} |" for name, summary in presets().items()]
    found = {
        "presets": "\n".join(["| preset | what it is |\n|---|---|", *rows]),
        "scenario": _table("", Scenario, own),
    }
    found |= {name: _table(f"{name}.", part, part.model_fields) for name, part in parts.items()}
    return found | {f"{cls.kind}_record": _record_table(cls) for cls in (EdgeRecord, NodeRecord, GlobalRecord)}


def _record_table(cls: type[JsonRecord]) -> str:
    """The fields of a record, from what they say of themselves; units from the measures."""
    rows = [f'| `kind` | round | | `"{cls.kind}"` |']
    for name, kind in get_type_hints(cls, include_extras=True).items():
        about = next((entry for entry in getattr(kind, "__metadata__", ()) if isinstance(entry, About)), None)
        if about is not None:
            unit = MEASURES[name].recorded_unit if name in MEASURES else ""
            rows.append(f"| `{name}` | {about.per} | {unit} | {about.meaning} |".replace("|  |", "| |"))
    return "\n".join([RECORD_HEAD, *rows])


def _table(prefix: str, model: type[Section], fields: dict[str, Any]) -> str:
    return "\n".join([HEAD, *_rows(prefix, model, fields), *_component_rows(prefix, model)])


def _rows(prefix: str, model: type[Section], fields: dict[str, Any]) -> list[str]:
    schema = model.model_json_schema()["properties"]
    return [
        f"| `{prefix}{name}` | `{_default(field)}` | {_values(prefix + name, schema[name])} | {_escaped(field)} |"
        for name, field in fields.items()
    ]


def _component_rows(prefix: str, model: type[Section]) -> list[str]:
    """The options of every component that a section can choose."""
    rows: list[str] = []
    for registry in {registry.kind: registry for registry in getattr(model, "choices", {}).values()}.values():
        for name, component in registry.items():
            rows += _rows(f"{prefix}{name}.", component, component.model_fields)
    return rows


def _escaped(field: Any) -> str:
    """The meaning of a field, for a cell of a table."""
    return str(field.description).replace("|", "\\|")


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
    return unit_of(key)


def up_to_date(page: str) -> str:
    """Returns the page with every marked table made again."""
    found = tables()
    return MARKED.sub(lambda match: f"{match[1]}{found[match[2]]}\n{match[3]}", page)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(up_to_date(page.read_text()))
