"""Holds one experiment, and the ways to read and change one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from airprune import files
from airprune.checks import instance, path_of
from airprune.components.choice import ChoiceSection
from airprune.components.registry import Registry
from airprune.errors import AirpruneError, InvalidValue, UnknownName, UsageError
from airprune.methods import DEFAULT_METHOD, METHODS
from airprune.methods.topology import TOPOLOGIES
from airprune.models.start_weights import MAX_WEIGHTS_BYTES, weights_file
from airprune.scenario import build, sections
from airprune.scenario.presets import preset_text, presets
from airprune.settings import toml_text
from airprune.settings.problems import unknown_key
from airprune.settings.section import Label, Section, Text, is_label, starts_at_home
from airprune.settings.toml_text import flat
from airprune.tables.source import MAX_TABLE_BYTES
from airprune.text import shown
from airprune.wireless.channel import Radio
from airprune.wireless.motion import Motion
from airprune.wireless.network import Network
from airprune.wireless.traces import MAX_TRACE_BYTES

# Settings that the representation of a scenario names.
_MOST_SHOWN = 8
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]  # TOML's largest integer

# Where a key of earlier versions has gone.
_MOVED = {
    "network.topology": 'topology.name = "hierarchical" or "flat"',
    "rounds.edge_average": 'aggregation.edge = "masked-mean" or "data-weighted"',
    "rounds.cloud_average": 'aggregation.cloud = "masked-mean" or "data-weighted"',
    "pruning": "masking.probe, with the same keys",
}


class Scenario(Section):
    """One experiment as frozen data; `Scenario()` is the paper's. Two equal scenarios give equal results."""

    name: Annotated[Text, Label()] = Field(
        default="custom", description="name of the scenario; results do not depend on it"
    )
    method: Annotated[Text, Label()] = Field(
        default=DEFAULT_METHOD,
        description="a method of `airprune methods`: sets the components below, each of which can be changed",
    )
    seed: Seed = Field(default=0, description="seed of every random stream")
    network: sections.NetworkSection = sections.NetworkSection()
    topology: sections.TopologySection = sections.TopologySection()
    association: sections.AssociationSection = sections.AssociationSection()
    radio: sections.RadioSection = sections.RadioSection()
    model: sections.ModelSection = sections.ModelSection()
    data: sections.DataSection = sections.DataSection()
    selection: sections.SelectionSection = sections.SelectionSection()
    plan: sections.PlanSection = sections.PlanSection()
    clock: sections.ClockSection = sections.ClockSection()
    masking: sections.MaskingSection = sections.MaskingSection()
    objective: sections.ObjectiveSection = sections.ObjectiveSection()
    compression: sections.CompressionSection = sections.CompressionSection()
    backhaul: sections.BackhaulSection = sections.BackhaulSection()
    aggregation: sections.AggregationSection = sections.AggregationSection()
    privacy: sections.PrivacySection = sections.PrivacySection()
    train: sections.TrainSection = sections.TrainSection()
    rounds: sections.RoundsSection = sections.RoundsSection()
    evaluation: sections.EvaluationSection = sections.EvaluationSection()
    stop: sections.StopSection = sections.StopSection()
    events: sections.EventsSection = sections.EventsSection()
    attack: sections.AttackSection = sections.AttackSection()
    diagnostics: sections.DiagnosticsSection = sections.DiagnosticsSection()
    records: sections.RecordsSection = sections.RecordsSection()
    engine: sections.EngineSection = sections.EngineSection()

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            _refuse_moved(key, data[key])
            if key not in cls.model_fields:
                homes = (f"{name}.{key}" for name, part in _parts() if key in part.model_fields)
                raise unknown_key(cls.owner, key, cls.model_fields, instead=next(homes, None))
        return data

    @model_validator(mode="after")
    def _agree(self) -> Scenario:
        if self.method not in METHODS:
            raise METHODS.unknown(self.method, "Scenario.method")
        if self.network.table is None:  # a table's edges are counted when it is read
            self._edge_rounds_of(1 if self.is_flat else self.network.num_edges)
        return self

    @classmethod
    def preset(cls, name: str) -> Scenario:
        """Returns a scenario that comes with the package; `presets()` lists them."""
        return cls._from_values(toml_text.parse(preset_text(name), source=f"preset {name}"), name=name)

    @classmethod
    def load(cls, path: Path | str) -> Scenario:
        """Reads a TOML file. Relative paths in it start at its folder; without a name, it takes the file's."""
        known = f"Presets: {', '.join(presets())}"
        path = path_of("Scenario.load", path, what="the path of a TOML file", way_out=known)
        text = toml_text.read_text(path, way_out=known)
        return cls._from_values(toml_text.parse(text, source=str(path)), name=path.stem, folder=path.parent)

    @classmethod
    def stored(cls, path: Path, content: bytes) -> Scenario:
        """Reads the scenario of a run folder from its content; an error about it shows no value of the file."""
        try:
            text = toml_text.text_of(content, source=str(path))
            return cls._from_values(toml_text.parse(text, source=str(path)), name=path.stem, folder=path.parent)
        except AirpruneError as error:
            raise error.without_value() from None

    @classmethod
    def from_text(cls, text: str, *, source: str = "scenario") -> Scenario:
        """Reads a TOML text; `source` is its name in messages. `base = "paper"` starts from a preset."""
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
        """Returns this scenario with one value changed: `scenario.with_("plan.deadline_s", 0.04)`."""
        return self.with_values({instance("Scenario.with_.key", key, str, way_out='Example: "plan.deadline_s"'): value})

    def with_values(self, changes: Mapping[str, Any]) -> Scenario:
        """Returns this scenario with `changes` by dotted key or by section, checked together.

        A method comes first: it takes back what the former one had set, and sets its own; then come the other changes.
        """
        for key in instance("Scenario.with_values", changes, Mapping, way_out='Example: {"seed": 1}'):
            instance("Scenario.with_values", key, str, way_out='Example: {"seed": 1}')
        values = self.to_dict()
        if isinstance(name := changes.get("method"), str):
            if name not in METHODS:
                raise METHODS.unknown(name, "Scenario.method")
            if name != self.method:
                defaults = flat(type(self)().to_dict())
                former = METHODS[self.method].settings
                _overlay(values, {key: defaults[key] for key in former if key in defaults})
            _overlay(values, METHODS[name].settings)
        _overlay(values, changes)
        return type(self)(**values)

    def with_overrides(self, overrides: Iterable[str]) -> Scenario:
        """Returns this scenario changed by `key=value` words of a command line; values are TOML, or else text."""
        changes = {}
        for text in overrides:
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                raise InvalidValue("An override", "must be key=value", shown(text), "Example: plan.deadline_s=0.04")
            changes[key.strip()] = toml_text.word(value.strip())
        return self.with_values(changes)

    def to_dict(self) -> dict[str, Any]:
        """Returns all values, plain: text, numbers, lists, None."""
        return self.model_dump(mode="json")

    def to_toml(self) -> str:
        """Returns all values as TOML; `Scenario.from_text` gives back an equal scenario."""
        return toml_text.written(self.to_dict())

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Returns fields, types, limits, defaults and descriptions, with the options of all components, for forms."""
        schema = cls.model_json_schema()
        for name, part in _parts():
            if issubclass(part, ChoiceSection):
                target = schema["properties"][name]["$ref"].rpartition("/")[2]
                schema["$defs"][target]["properties"] |= part.tables_schema()
                schema["$defs"][target]["additionalProperties"] = False
        return schema

    @classmethod
    def choice_fields(cls) -> list[tuple[str, str, Registry[Any]]]:
        """Returns (section, field, registry) of every field that names a component."""
        parts = [(name, part) for name, part in _parts() if issubclass(part, ChoiceSection)]
        return [(name, field, registry) for name, part in parts for field, registry in part.choices.items()]

    @property
    def hash(self) -> str:
        """Returns the SHA-256 of what differs from the defaults, without labels, on which no result depends.

        So a new setting, or a new option of a component, changes no hash where it has its default; and a default stays
        what it is, or results would change under a hash. A network table and samples of your own count by
        their content, not their place.
        """
        changed = flat(self.model_dump(mode="json", exclude_defaults=True))
        counted = {key: value for key, value in changed.items() if key not in _labels()}
        if self.network.table is not None:
            counted["network.table"] = _digest(self.network.table)
        if self.network.traces is not None:
            counted["network.traces"] = _digest(self.network.traces, "network.traces")
        if self.data.path is not None:
            from airprune.data.files import digest_of

            counted["data.path"] = digest_of(Path(self.data.path))
        if self.model.start is not None:
            counted["model.start"] = _digest(str(weights_file(self.model.start)), "model.start")
        text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def diff(self, other: Scenario) -> Differences:
        """Returns (dotted key, mine, theirs) of every value that differs; printed, a line for each."""
        mine, theirs = flat(self.to_dict()), flat(other.to_dict())
        keys = [*mine, *(key for key in theirs if key not in mine)]
        return Differences((key, mine.get(key), theirs.get(key)) for key in keys if mine.get(key) != theirs.get(key))

    def __repr__(self) -> str:
        """Shows the preset and what differs from it, as an expression where that is short."""
        known = self.name in presets()
        changed = (Scenario.preset(self.name) if known else Scenario()).diff(self)
        base = f"Scenario.preset({self.name!r})" if known else "Scenario()"
        words = [f"{key!r}: {value!r}" for key, _, value in changed[:_MOST_SHOWN]]
        words += [f"… {len(changed) - _MOST_SHOWN} more"] if len(changed) > _MOST_SHOWN else []
        return f"{base}.with_values({{{', '.join(words)}}})" if words else base

    __str__ = __repr__

    def check_names(self) -> None:
        """Raises UnknownName for a data set that does not exist.

        Checked late because a caller may pass a data set of their own.
        """
        from airprune.data import DATASETS

        if self.data.path is None and self.data.name not in DATASETS:
            raise UnknownName("Scenario.data.name", self.data.name[:60], DATASETS)

    @property
    def is_flat(self) -> bool:
        """True if the cloud serves the devices with its own bandwidth."""
        return TOPOLOGIES[self.topology.name].stations == "cloud"

    def build_network(self) -> Network:
        """Returns devices and edges: placed by the seed, or read from the table."""
        return build.build_network(self.network, flat=self.is_flat, seed=self.seed, batch_samples=self.train.batch_size)

    def build_radio(self) -> Radio:
        """Returns the uplink channel in SI units."""
        return build.build_radio(self.radio, speed_m_per_s=self.network.speed_m_per_s)

    def build_motion(self, network: Network, radio: Radio) -> Motion | None:
        """Returns the movement of devices, by traces or from waypoint to waypoint; None: they stay."""
        return build.build_motion(self.network, network, radio, seed=self.seed)

    @property
    def num_devices(self) -> int:
        if self.network.table is not None:
            return self.build_network().num_devices
        return sum(self.network.device_counts)

    @property
    def edge_rounds_of(self) -> list[int]:
        """Returns E_k of every edge; one entry when flat."""
        if self.is_flat:
            return self._edge_rounds_of(1)
        return self._edge_rounds_of(
            self.network.num_edges if self.network.table is None else self.build_network().num_edges
        )

    def edge_rounds_on(self, network: Network) -> list[int]:
        """Returns E_k of every edge of this scenario's own network, once that is built."""
        return self._edge_rounds_of(network.num_edges)

    def _edge_rounds_of(self, num_edges: int) -> list[int]:
        rounds = self.rounds.edge_rounds
        if not isinstance(rounds, tuple):
            return [rounds] * num_edges
        if len(rounds) != num_edges:
            rule = f"must have one entry for each of {num_edges} edges"
            raise InvalidValue("Scenario.rounds.edge_rounds", rule, shown(rounds), "Example: edge_rounds = 5")
        return list(rounds)


class Differences(list[tuple[str, Any, Any]]):
    """(dotted key, value here, value there) of every setting in which two scenarios differ."""

    def __str__(self) -> str:
        return "\n".join(f"{key}: {mine!r} → {theirs!r}" for key, mine, theirs in self) or "no difference"


def checked_scenario(field: str, value: Scenario) -> Scenario:
    """Returns `value`, or raises InvalidValue if it is no scenario, e.g. the name of a preset."""
    return instance(field, value, Scenario, way_out='Example: ap.Scenario.preset("smoke")')


def _parts() -> list[tuple[str, type[Section]]]:
    fields = Scenario.model_fields.items()
    return [(name, type(field.default)) for name, field in fields if isinstance(field.default, Section)]


@cache
def _labels() -> frozenset[str]:
    """Returns the keys of all fields that are labels."""
    mine = [name for name, field in Scenario.model_fields.items() if is_label(field)]
    theirs = [f"{name}.{key}" for name, part in _parts() for key, field in part.model_fields.items() if is_label(field)]
    return frozenset([*mine, *theirs])


def _refuse_moved(section: str, part: Any) -> None:
    for old, new in _MOVED.items():
        home, _, key = old.partition(".")
        if section.partition(".")[0] == home and (not key or (isinstance(part, Mapping) and key in part)):
            raise UsageError(f"Scenario.{old} has become {new}.")


def _overlay(values: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Writes changes by dotted key or by section into plain nested values, in place."""
    given: dict[str, Any] = {}
    for key, value in changes.items():
        part, _, rest = key.partition(".")
        value = value.model_dump() if isinstance(value, Section) else value
        if rest and isinstance(values.get(part), dict):
            _put(given.setdefault(part, {}), rest, value)
        elif isinstance(value, Mapping) and isinstance(given.get(key), dict):
            _merge(given[key], value)
        else:
            given[key] = dict(value) if isinstance(value, Mapping) else value
    for key, value in given.items():
        if isinstance(value, Mapping) and isinstance(values.get(key), dict):
            values[key] = _overlaid(key, values[key], value)
        else:
            values[key] = value


def _put(table: dict[str, Any], key: str, value: Any) -> None:
    """Sets `value` at a dotted key."""
    part, _, rest = key.partition(".")
    if not rest:
        if isinstance(value, Mapping) and isinstance(table.get(part), dict):
            _merge(table[part], value)
        else:
            table[part] = value
        return
    inner = table.setdefault(part, {})
    if not isinstance(inner, dict):
        inner = table[part] = {}
    _put(inner, rest, value)


def _merge(table: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        _put(table, key, value)


def _overlaid(section: str, part: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    kind = dict(_parts())[section]
    merged = kind.overlaid(part, {key: value for key, value in given.items() if not isinstance(part.get(key), dict)})
    for key, value in given.items():
        if isinstance(part.get(key), dict):
            options = kind.options_kind(key) if issubclass(kind, ChoiceSection) else None
            known = options is not None and isinstance(value, Mapping)
            merged[key] = options.overlaid(part[key], value) if known else value  # type: ignore[union-attr]
    return _without_orphans(section, part, given, merged)


def _without_orphans(
    section: str, part: Mapping[str, Any], given: Mapping[str, Any], merged: dict[str, Any]
) -> dict[str, Any]:
    """Drops the options of a component that is no longer chosen; options just given stay."""
    kind = dict(_parts()).get(section)
    if kind is None or not issubclass(kind, ChoiceSection):
        return merged
    chosen = [merged.get(field) for field in kind.choices]
    orphans = [key for key in part if isinstance(part[key], dict) and key not in chosen and key not in given]
    return {key: value for key, value in merged.items() if key not in orphans}


def _start_paths_at(folder: Path, values: dict[str, Any]) -> None:
    for section, key in (
        ("network", "table"),
        ("data", "data_dir"),
        ("data", "path"),
        ("clock", "profile"),
        ("model", "start"),
        ("network", "traces"),
    ):
        part = values.get(section)
        if not isinstance(part, dict) or not isinstance(path := part.get(key), str):
            continue
        if path not in ("", "none") and not starts_at_home(path):
            part[key] = str(folder / path)


_MOST_BYTES = {
    "network.table": MAX_TABLE_BYTES,
    "network.traces": MAX_TRACE_BYTES,
    "model.start": MAX_WEIGHTS_BYTES,
}


def _digest(table: str, key: str = "network.table") -> str:
    path, most = Path(table), _MOST_BYTES[key]
    try:
        with files.open_to_read(path, max_bytes=most) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or "it cannot be"
        rule = "must be an existing file, not a link to one"
        raise InvalidValue(f"Scenario.{key}", rule, f"{shown(table)} ({reason})") from None
