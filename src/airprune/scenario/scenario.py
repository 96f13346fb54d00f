"""One experiment, and the ways to get and change one."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from airprune.channel import Radio
from airprune.errors import InvalidValue, UnknownName
from airprune.network import Network
from airprune.scenario import build, sections
from airprune.scenario.presets import preset_text, presets
from airprune.settings import toml_text
from airprune.settings.problems import unknown_key
from airprune.settings.section import Section, Text, starts_at_home
from airprune.wording import shown

Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]  # TOML's largest integer

# Key of a name that is checked late, and the module and list that know it.
_LATE_NAMES = (
    ("pruning.importance", "airprune.pruning", "IMPORTANCES"),
    ("data.name", "airprune.data", "DATASETS"),
)
# Of each pair one is given: setting one takes the other away.
_EITHER = (("radio", "noise_power_dbm", "noise_density_dbm_per_hz"),)


class Scenario(Section):
    """One experiment as frozen data; `Scenario()` is the paper's. Two equal scenarios give equal results."""

    name: Text = Field(default="custom", description="for people; results do not depend on it")
    seed: Seed = Field(default=0, description="of every random stream")
    network: sections.NetworkSection = sections.NetworkSection()
    radio: sections.RadioSection = sections.RadioSection()
    model: sections.ModelSection = sections.ModelSection()
    data: sections.DataSection = sections.DataSection()
    plan: sections.PlanSection = sections.PlanSection()
    pruning: sections.PruningSection = sections.PruningSection()
    train: sections.TrainSection = sections.TrainSection()
    rounds: sections.RoundsSection = sections.RoundsSection()
    events: sections.EventsSection = sections.EventsSection()
    diagnostics: sections.DiagnosticsSection = sections.DiagnosticsSection()
    engine: sections.EngineSection = sections.EngineSection()

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                homes = (f"{name}.{key}" for name, part in _parts() if key in part.model_fields)
                raise unknown_key(cls.owner, key, cls.model_fields, instead=next(homes, None))
        return data

    @model_validator(mode="after")
    def _agree(self) -> Scenario:
        if self.network.table is None:  # a table's edges are counted when it is read
            self._edge_rounds_of(1 if self.network.topology == "flat" else self.network.num_edges)
        return self

    @classmethod
    def preset(cls, name: str) -> Scenario:
        """A scenario that comes with the package; `presets()` lists them."""
        return cls._from_values(toml_text.parse(preset_text(name), source=f"preset {name}"), name=name)

    @classmethod
    def load(cls, path: Path | str) -> Scenario:
        """A TOML file. Relative paths in it start at its folder; without a name, it takes the file's."""
        path = Path(path)
        text = toml_text.read_text(path, way_out=f"Presets: {', '.join(presets())}")
        return cls._from_values(toml_text.parse(text, source=str(path)), name=path.stem, folder=path.parent)

    @classmethod
    def from_text(cls, text: str, *, source: str = "scenario") -> Scenario:
        """A TOML text; `source` is what messages call it. `base = "paper"` starts from a preset."""
        return cls._from_values(toml_text.parse(text, source=source), name="custom")

    @classmethod
    def _from_values(cls, values: dict[str, Any], *, name: str, folder: Path | None = None) -> Scenario:
        base = values.pop("base", None)
        if base is not None and not isinstance(base, str):
            raise InvalidValue("Scenario.base", "must be the name of a preset", shown(base), 'Example: base = "paper"')
        start = cls() if base is None else cls.preset(base)
        if folder is not None:
            _start_paths_at(folder, values)
        return start.with_values({"name": name} | values)

    def with_(self, key: str, value: Any) -> Scenario:
        """This scenario but for one value: `scenario.with_("plan.deadline_s", 0.04)`."""
        return self.with_values({key: value})

    def with_values(self, changes: Mapping[str, Any]) -> Scenario:
        """This scenario with `changes` by dotted key or by section, checked together."""
        values = self.to_dict()
        given: dict[str, Any] = {}
        for key, value in changes.items():
            section, _, field = key.partition(".")
            if field and isinstance(values.get(section), dict) and isinstance(earlier := given.get(section, {}), dict):
                given[section] = {**earlier, field: value}
            else:
                given[key] = value.model_dump() if isinstance(value, Section) else value
        for key, value in given.items():
            values[key] = _overlaid(key, values[key], value) if isinstance(value, Mapping) and key in values else value
        return type(self)(**values)

    def with_overrides(self, overrides: Iterable[str]) -> Scenario:
        """`key=value` words of a command line; values are TOML, and what is not TOML is text."""
        changes = {}
        for text in overrides:
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                raise InvalidValue("An override", "must be key=value", shown(text), "Example: plan.deadline_s=0.04")
            changes[key.strip()] = toml_text.word(value.strip())
        return self.with_values(changes)

    def to_dict(self) -> dict[str, Any]:
        """All values, plain: text, numbers, lists, None."""
        return self.model_dump(mode="json")

    def to_toml(self) -> str:
        """All values; `Scenario.from_text` gives back an equal scenario."""
        return toml_text.written(self.to_dict())

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Fields, types, limits, defaults and explanations, for forms and editors."""
        return cls.model_json_schema()

    @property
    def hash(self) -> str:
        """SHA-256 of everything that results depend on: not the name, the engine or where data lie.

        A network table counts by its content, so the same table elsewhere is the same scenario.
        """
        values = self.to_dict()
        del values["name"], values["engine"], values["data"]["data_dir"]
        if self.network.table is not None:
            values["network"]["table"] = _digest(self.network.table)
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def diff(self, other: Scenario) -> list[tuple[str, Any, Any]]:
        """(dotted key, mine, theirs) of every value that differs."""
        mine, theirs = flat(self.to_dict()), flat(other.to_dict())
        return [(key, value, theirs[key]) for key, value in mine.items() if value != theirs[key]]

    def check_names(self) -> None:
        """Raises UnknownName for a dataset or importance that does not exist.

        Checked late because those modules are heavy, and a caller may bring a dataset of their own.
        """
        values = flat(self.to_dict())
        for key, module, registry in _LATE_NAMES:
            known = getattr(importlib.import_module(module), registry)
            if values[key] not in known:
                raise UnknownName(f"Scenario.{key}", values[key][:60], known)

    def build_network(self) -> Network:
        """Who is where: placed by the seed, or read from the table."""
        return build.build_network(self.network, seed=self.seed)

    def build_radio(self) -> Radio:
        """The uplink band in SI units."""
        return build.build_radio(self.radio)

    @property
    def num_devices(self) -> int:
        if self.network.table is not None:
            return self.build_network().num_devices
        return sum(self.network.device_counts)

    @property
    def edge_rounds_of(self) -> list[int]:
        """E_k of every edge; one entry when flat."""
        if self.network.topology == "flat":
            return self._edge_rounds_of(1)
        return self._edge_rounds_of(
            self.network.num_edges if self.network.table is None else self.build_network().num_edges
        )

    def _edge_rounds_of(self, num_edges: int) -> list[int]:
        rounds = self.rounds.edge_rounds
        if not isinstance(rounds, tuple):
            return [rounds] * num_edges
        if len(rounds) != num_edges:
            rule = f"must have one entry for each of {num_edges} edges"
            raise InvalidValue("Scenario.rounds.edge_rounds", rule, shown(rounds), "Example: edge_rounds = 5")
        return list(rounds)


def _parts() -> list[tuple[str, type[Section]]]:
    fields = Scenario.model_fields.items()
    return [(name, type(field.default)) for name, field in fields if isinstance(field.default, Section)]


def _overlaid(section: str, part: Any, given: Mapping[str, Any]) -> Any:
    if not isinstance(part, dict):
        return given
    for home, *pair in _EITHER:
        if home == section and sum(given.get(one) not in (None, "none") for one in pair) == 1:
            part = {**part, **dict.fromkeys(pair)}
    return {**part, **given}


def _start_paths_at(folder: Path, values: dict[str, Any]) -> None:
    for section, key in (("network", "table"), ("data", "data_dir")):
        part = values.get(section)
        if not isinstance(part, dict) or not isinstance(path := part.get(key), str):
            continue
        if path not in ("", "none") and not starts_at_home(path):
            part[key] = str(folder / path)


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, dict)
        found.update({f"{key}.{name}": entry for name, entry in value.items()} if nested else {key: value})
    return found


def _digest(table: str) -> str:
    path = Path(table)
    if not path.is_file():
        raise InvalidValue("Scenario.network.table", "must be an existing file", shown(table))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
