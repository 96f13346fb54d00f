"""The settings of the planner page, their spelling in an address, and the scenario that they stand for.

The query of the page's own address is the whole state, and the same query asks the API: a link repeats the picture.
Every setting of the network and the radio is a key of a scenario, so that `airprune plan` gives the same numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from airprune.errors import InvalidValue, UnknownName
from airprune.planning.schemes import SCHEMES
from airprune.scenario import Scenario
from airprune.scenario.sections import NetworkSection, PlanSection, RadioSection
from airprune.settings.problems import unknown_key
from airprune.settings.section import Ratio, Section

MAX_DEVICES = 1_000_000
MAX_MOVES = 2_000
MAX_DEADLINE_MS = 1e6

# Scenarios that the page starts from: on the paper's clock, which needs no samples.
PRESETS = ("paper", "urban-5g", "factory", "iot")
# The largest arrays that a plan may take: links from devices to stations, amplitudes of antennas, legs of movements.
MAX_LINKS = MAX_AMPLITUDES = MAX_LEGS = 20_000_000
MAX_STREAMS = 10_000_000

_NETWORK, _RADIO, _PLAN = NetworkSection(), RadioSection(), PlanSection()
_NUMBER = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][+-]?[0-9]{1,4})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)

Metres = Annotated[float, Field(ge=0, le=100_000)]
Move = tuple[tuple[int, ...], float, float]


class PlannerSettings(Section):
    """One state of the page; the defaults are the paper's network."""

    owner: ClassVar[str] = "planner"

    scheme: Annotated[str, Field(max_length=60)] = Field(
        default="optimal", description="a scheme of `airprune schemes`"
    )
    deadline_ms: Annotated[float, Field(ge=0.001, le=MAX_DEADLINE_MS)] = Field(
        default=30.0, description="time for one edge round, compute plus upload"
    )
    bandwidth_mhz: Annotated[float, Field(ge=0.001, le=1e5)] = Field(
        default=_RADIO.bandwidth_hz / 1e6, description="uplink band of each edge"
    )
    transmit_power_dbm: Annotated[float, Field(ge=-50, le=80)] = Field(
        default=_RADIO.transmit_power_dbm, description="of every device"
    )
    inner_m: Metres = Field(default=_NETWORK.inner_m, description="nearest device to its edge")
    outer_m: Annotated[float, Field(ge=1, le=100_000)] = Field(
        default=_NETWORK.outer_m, description="farthest device from its edge"
    )
    num_edges: Annotated[int, Field(ge=1, le=10_000)] = Field(default=_NETWORK.num_edges, description="edge servers")
    devices_per_edge: Annotated[int, Field(ge=1, le=10_000_000)] = Field(default=5, description="of each edge")
    cpu_ghz: Annotated[float, Field(ge=0.001, le=1000)] = Field(
        default=_NETWORK.cpu_hz / 1e9, description="middle of the devices' clock rates"
    )
    cpu_spread: Annotated[float, Field(ge=0, le=0.95)] = Field(
        default=0.0, description="clock rates are uniform within this share of the middle"
    )
    max_pruning: Ratio = Field(default=_PLAN.max_pruning_ratio, description="largest ratio allowed")
    seed: Annotated[int, Field(ge=0, le=2**53)] = Field(default=0, description="of places and clock rates")
    preset: Annotated[str, Field(max_length=60)] = Field(
        default=PRESETS[0], description="scenario that all settings which are not given come from"
    )
    placement: Literal["ring", "disc"] = Field(default=_NETWORK.placement, description="uniform in distance or in area")
    edge_distance_m: Metres = Field(
        default=_NETWORK.edge_distance_m,
        description="of edges from the cloud, where their places matter: with reuse, movement or another association",
    )
    association: Literal["fixed", "best-rate", "nearest"] = Field(
        default="fixed", description="which edge serves a device: its own, that of the best channel, or the nearest"
    )
    mobility: Literal["none", "waypoint"] = Field(default=_NETWORK.mobility, description="movement of devices")
    speed_m_per_s: Annotated[float, Field(ge=0, le=300)] = Field(
        default=_NETWORK.speed_m_per_s, description="of devices"
    )
    start_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=_NETWORK.start_s, description="time of the movement that is shown"
    )
    noise: Literal["paper", "thermal"] = Field(
        default="paper", description="-110 dBm over the whole bandwidth, or thermal noise and a noise figure of 7 dB"
    )
    slice_noise: bool = Field(default=_RADIO.slice_noise, description="a device's share sees the noise of its share")
    rate: Literal["shannon", "nr-mcs"] = Field(default=_RADIO.rate, description="rate at an SNR")
    path_loss: Annotated[str, Field(max_length=60)] = Field(default=_RADIO.path_loss, description="a path-loss model")
    carrier_ghz: Annotated[float, Field(ge=0.5, le=100)] = Field(
        default=_RADIO.carrier_hz / 1e9, description="of TR 38.901 models"
    )
    fading: Literal["none", "rayleigh", "rician"] = Field(default=_RADIO.fading, description="new in each edge round")
    num_antennas: Annotated[int, Field(ge=1, le=256)] = Field(default=_RADIO.num_antennas, description="of a station")
    num_streams: Annotated[int, Field(ge=1, le=64)] = Field(
        default=_RADIO.num_streams, description="devices that a station hears at once"
    )
    reuse: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=_RADIO.reuse,
        description="edges whose numbers differ by a multiple of it share a bandwidth; none: none do",
    )
    downlink: Literal["none", "broadcast", "unicast"] = Field(
        default=_RADIO.downlink, description="way of the model to the devices, charged in time, bits and energy"
    )
    station_power_dbm: Annotated[float, Field(ge=-50, le=80)] | None = Field(
        default=_RADIO.station_power_dbm, description="of a station on the downlink; none: that of the devices"
    )
    power_p0_dbm: Annotated[float, Field(ge=-300, le=80)] | None = Field(
        default=_RADIO.power_p0_dbm, description="P0 of open-loop power control; none: full power"
    )
    power_alpha: Ratio = Field(default=_RADIO.power_alpha, description="share of the path loss that it makes up for")
    csi_correlation: Ratio = Field(
        default=_RADIO.csi_correlation, description="of the fading that plans know with the true one"
    )
    csi_delay_ms: Annotated[float, Field(ge=0, le=10_000)] = Field(
        default=_RADIO.csi_delay_s * 1e3, description="age of what plans know"
    )
    pilots: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=_RADIO.pilots, description="pilot symbols of each device, charged"
    )
    report_bits: Annotated[float, Field(ge=0, le=1e9)] = Field(
        default=_RADIO.report_bits, description="of a channel report beside each update, charged"
    )
    on_time: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=_PLAN.on_time, description="probability of meeting the deadline that plans promise"
    )
    ground: Literal["none", "sinr", "rate"] = Field(
        default="none",
        description="colours of the map's ground: SINR, or rate of a device alone on the whole bandwidth",
    )
    fleet: str | None = Field(default=None, description="a table sent before, by its SHA-256; replaces the network")
    moved: Annotated[str, Field(max_length=60_000)] | None = Field(
        default=None,
        description="devices moved by hand: EDGE.DEVICE_EAST_NORTH, or ROW_EAST_NORTH of a table, joined by *; metres "
        "from the edge",
    )

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> PlannerSettings:
        """Settings as an address spells them; what is no number stays text, for `Section` to complain about."""
        for name in query:
            if name not in cls.model_fields:
                raise unknown_key(cls.owner, name, cls.model_fields)
        given = {name: _value(cls.model_fields[name].annotation, text) for name, text in query.items()}
        return cls(**{**of_preset(query.get("preset", PRESETS[0])), **given})

    @field_validator("scheme")
    @classmethod
    def _known_scheme(cls, name: str) -> str:
        if name not in SCHEMES:
            raise UnknownName("planner.scheme", name, SCHEMES)
        return name

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, name: str) -> str:
        if name not in PRESETS:
            raise UnknownName("planner.preset", name, PRESETS)
        return name

    @field_validator("fleet")
    @classmethod
    def _is_digest(cls, text: str | None) -> str | None:
        if text is not None and not _DIGEST.fullmatch(text):
            raise InvalidValue("planner.fleet", "must be the 64 hexadecimal digits of a table", repr(text[:70]))
        return text

    @field_validator("moved")
    @classmethod
    def _can_be_read(cls, text: str | None) -> str | None:
        _moves(text)
        return text

    @model_validator(mode="after")
    def _agree(self) -> PlannerSettings:
        self.check_order("inner_m", "outer_m")
        if (total := self.num_edges * self.devices_per_edge) > MAX_DEVICES:
            rule = f"must make at most {MAX_DEVICES:,} devices in all"
            raise InvalidValue("planner.devices_per_edge", rule, f"{total:,}", "For more, use `airprune plan`.")
        if self.fleet is None:
            self._check_size(total)
        return self

    def _check_size(self, num_devices: int) -> None:
        """Refuses what no server of a page should compute."""
        rule = "must be smaller with so many devices"
        legs = 1.0 + self.start_s * self.speed_m_per_s / (self.edge_distance_m + self.outer_m)
        looks_around = self.reuse is not None or self.mobility != "none" or self.association != "fixed"
        for name, size, most in (
            ("num_edges", num_devices * self.num_edges if looks_around else 0, MAX_LINKS),
            ("num_antennas", num_devices * self.num_antennas if self.fading != "none" else 0, MAX_AMPLITUDES),
            ("num_streams", num_devices * self.num_antennas * self.num_streams * (self.num_streams > 1), MAX_STREAMS),
            ("start_s", num_devices * legs if self.mobility != "none" else 0, MAX_LEGS),
        ):
            if size > most:
                way_out = "For more, use `airprune plan`."
                raise InvalidValue(f"planner.{name}", rule, f"{getattr(self, name):g} for {num_devices:,}", way_out)

    @property
    def effort(self) -> int:
        """Number of devices that are planned on the paper's radio in the time of this plan, roughly."""
        factor = 30 if self.num_streams > 1 else 10 if self.reuse is not None else 2 if self.mobility != "none" else 1
        return factor * self.num_edges * self.devices_per_edge

    @property
    def has_places(self) -> bool:
        """True if links depend on where edges stand; otherwise they are drawn apart, as the paper has no map."""
        moves = self.mobility != "none" or self.association != "fixed"
        is_apart = self.edge_distance_m == PlannerSettings.model_fields["edge_distance_m"].default
        return moves or self.reuse is not None or self.preset != PRESETS[0] or not is_apart

    @property
    def is_papers_radio(self) -> bool:
        """True if an SNR says all of a link, so that a table of SNRs says all of the network."""
        theirs = of_preset(PRESETS[0])
        return self.preset == PRESETS[0] and all(getattr(self, name) == theirs[name] for name in _RADIO_FIELDS)

    def scenario(self) -> Scenario:
        """Returns the scenario whose first edge round is planned; devices moved by hand are not in it."""
        return Scenario.preset(self.preset).with_values(self.changes())

    def changes(self) -> dict[str, Any]:
        """Returns what differs from the preset, by a scenario's keys."""
        theirs = of_preset(self.preset)
        changed = {name for name in theirs if getattr(self, name) != theirs[name]}
        found = {_KEYS[name]: _in_si(name, getattr(self, name)) for name in theirs if name in changed & _KEYS.keys()}
        if "noise" in changed:
            power_dbm = {"radio.noise_power_dbm": _RADIO.noise_power_dbm, "radio.noise_figure_db": 0.0}
            found |= {"radio.noise": "thermal"} if self.noise == "thermal" else power_dbm
        if changed & {"cpu_ghz", "cpu_spread"}:
            low, high = (_plain(1e9 * self.cpu_ghz * (1.0 + sign * self.cpu_spread)) for sign in (-1.0, 1.0))
            found |= {"network.cpu_hz": low} | ({"network.cpu_hz_max": high} if self.cpu_spread else {})
        return found

    def command_words(self) -> list[str]:
        """Returns the preset and the changes as one types them after `airprune plan` or `airprune run`."""
        return [self.preset, *(f"{key}={_typed(value)}" for key, value in self.changes().items())]

    @property
    def moves(self) -> list[Move]:
        """((edge, device) or (row,), metres east, metres north of the edge)."""
        return _moves(self.moved)

    def as_json(self) -> dict[str, Any]:
        """Returns the settings; a radio's "none" is a value of its own, since a preset may have another one."""
        values = self.model_dump()
        unset = ("fleet", "moved")
        return {
            name: "none" if value is None else value
            for name, value in values.items()
            if not (value is None and name in unset)
        }


# The settings that are keys of a scenario, and the units of those that are not in SI.
_KEYS = {
    "scheme": "plan.scheme",
    "deadline_ms": "plan.deadline_s",
    "max_pruning": "plan.max_pruning_ratio",
    "on_time": "plan.on_time",
    "association": "association.name",
    "seed": "seed",
    **{
        name: f"network.{name}"
        for name in (
            *("num_edges", "devices_per_edge", "placement", "inner_m", "outer_m", "edge_distance_m"),
            *("mobility", "speed_m_per_s", "start_s"),
        )
    },
    "bandwidth_mhz": "radio.bandwidth_hz",
    "carrier_ghz": "radio.carrier_hz",
    "csi_delay_ms": "radio.csi_delay_s",
    **{
        name: f"radio.{name}"
        for name in (
            *(
                "transmit_power_dbm",
                "slice_noise",
                "rate",
                "path_loss",
                "fading",
                "num_antennas",
                "num_streams",
                "reuse",
            ),
            *(
                "downlink",
                "station_power_dbm",
                "power_p0_dbm",
                "power_alpha",
                "csi_correlation",
                "pilots",
                "report_bits",
            ),
        )
    },
}
_UNITS = {"deadline_ms": 1e-3, "bandwidth_mhz": 1e6, "carrier_ghz": 1e9, "csi_delay_ms": 1e-3}
_RADIO_FIELDS = (
    *("noise", "slice_noise", "rate", "path_loss", "fading", "num_antennas", "num_streams", "reuse", "downlink"),
    *("power_p0_dbm", "csi_correlation", "pilots", "report_bits", "on_time", "mobility", "association"),
)


@cache
def of_preset(name: str) -> dict[str, Any]:
    """Returns the settings of a preset, but for those of the page alone."""
    if name not in PRESETS:
        raise UnknownName("planner.preset", name, PRESETS)
    scenario = Scenario.preset(name)
    values = {field: _from_si(field, _at(scenario, key)) for field, key in _KEYS.items()}
    is_thermal = scenario.radio.noise_power_dbm is None
    return values | {
        "noise": "thermal" if is_thermal else "paper",
        "cpu_ghz": _plain(scenario.network.cpu_hz / 1e9),
        "cpu_spread": 0.0,
        "ground": "none" if name == PRESETS[0] else "sinr",
    }


def _at(scenario: Scenario, key: str) -> Any:
    value: Any = scenario
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _in_si(name: str, value: Any) -> Any:
    return _plain(value * _UNITS[name]) if name in _UNITS and value is not None else value


def _from_si(name: str, value: Any) -> Any:
    return _plain(value / _UNITS[name]) if name in _UNITS and value is not None else value


def _plain(value: float) -> float:
    """Returns the number as it is typed: 12 digits."""
    return float(f"{value:.12g}")


def _typed(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "none"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _value(annotation: Any, text: str) -> Any:
    kinds = _kinds(annotation)
    if bool in kinds:
        return {"true": True, "false": False}.get(text, text)
    if int in kinds and _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if float in kinds and _NUMBER.fullmatch(text) else text


def _kinds(annotation: Any) -> set[Any]:
    """Returns the types among which a value may be."""
    parts = get_args(annotation)
    return {annotation}.union(*(_kinds(part) for part in parts if not isinstance(part, str)))


def _moves(text: str | None) -> list[Move]:
    parts = text.split("*") if text else []
    if len(parts) > MAX_MOVES:
        raise InvalidValue("planner.moved", f"must move at most {MAX_MOVES:,} devices", f"{len(parts):,}")
    return [_move(part) for part in parts]


def _move(part: str) -> Move:
    key, *metres = part.split("_")
    numbers = key.split(".")
    if (
        len(metres) == 2
        and len(numbers) <= 2
        and all(re.fullmatch(r"[0-9]{1,9}", number, re.ASCII) for number in numbers)
        and all(_NUMBER.fullmatch(number) and abs(float(number)) <= 100_000 for number in metres)
    ):
        return tuple(map(int, numbers)), float(metres[0]), float(metres[1])
    rule = "must be EDGE.DEVICE_EAST_NORTH with metres up to 100,000"
    raise InvalidValue("planner.moved", rule, repr(part[:60]), "Example: moved=0.3_120.5_-40")
