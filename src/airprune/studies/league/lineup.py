"""The methods of a track, a user's own among them, and the reference lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airprune.components.component import Owner
from airprune.errors import AirpruneError, UsageError
from airprune.methods import METHODS
from airprune.rounds.method import Method
from airprune.scenario import Scenario
from airprune.scenario.model_shape import shape_of
from airprune.studies.league.tracks import FLAT_DEADLINE, Track, deadline_s, sends_codes

# The methods that the others are compared with: the paper's, and no pruning at 32 bits per weight.
SEED, FP32, WHOLE = "adaptive-pruning", "fp32", "no-pruning"
ALONE, CENTRAL = "one device alone", "all data centrally"
_ALWAYS = (SEED, FP32, "variance")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A method or a reference line of a track.

    Attributes:
      label: how near it is to its source: "as published", "after …", "own".
      scenario: in this track, with its own, untuned values.
      is_method: False for reference lines, which are not ranked.
      has_costs: True if its seconds, bits and joules mean anything.
    """

    name: str
    label: str
    scenario: Scenario
    is_method: bool = True
    has_costs: bool = True

    @property
    def is_marked(self) -> bool:
        """True if it sends compressed updates, a choice that other methods do not have."""
        return sends_codes(self.scenario)

    @property
    def other_work(self) -> str:
        """Returns how the work of a round differs from that of the other methods; empty where it is equal."""
        return METHODS[self.name].other_work if self.is_method else ""

    @property
    def departures(self) -> tuple[str, ...]:
        """The points in which it differs from its source, a sentence each."""
        return tuple(METHODS[self.name].departures) if self.is_method else ()

    def state_bytes(self) -> int:
        """Returns the number of bytes that a device keeps between rounds."""
        shape = shape_of(self.scenario)
        slots = Method.of(self.scenario).slots(shape)
        return sum(slot.num_bytes(shape) for slot in slots if slot.owner is Owner.DEVICE)


@dataclass(frozen=True)
class Absent:
    """A method that does not take part, and why."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Lineup:
    entries: tuple[Entry, ...]
    absent: tuple[Absent, ...]


def lineup(base: Scenario, track: Track, methods: Sequence[str] | None = None) -> Lineup:
    """Returns the methods that usually take part in the track, or those named; and always the reference lines."""
    start = track.scenario(base)
    for name in methods or ():
        if name not in METHODS:
            raise METHODS.unknown(name, "--methods")
    found: list[Entry] = []
    absent: list[Absent] = []
    for name in METHODS:
        try:
            scenario = _in_track(start, name)
        except AirpruneError as error:
            absent.append(Absent(name, str(error)))
            continue
        wanted = name in methods if methods is not None else track.usual(scenario)
        if not track.possible(scenario) and wanted:
            absent.append(Absent(name, track.needs))
        elif wanted or name in _ALWAYS:
            found.append(Entry(name=name, label=METHODS[name].label, scenario=scenario))
    named = [one for one in absent if methods is None or one.name in methods]
    if methods is not None and len(named) == len(methods):
        why = f"{named[0].name}: {named[0].reason.rstrip('.')}"
        raise UsageError(f"None of --methods can take part in track {track.name} ({why}); name others.")
    return Lineup(entries=(*found, *_references(start, base)), absent=tuple(named))


def _in_track(start: Scenario, name: str) -> Scenario:
    """Returns the track's scenario with the method's own settings, which come last since they define it."""
    scenario = start.with_("method", name)
    if scenario.is_flat and not start.is_flat and scenario.plan.deadline_s == start.plan.deadline_s:
        return scenario.with_("plan.deadline_s", deadline_s(start) * FLAT_DEADLINE)
    return scenario


def _references(start: Scenario, base: Scenario) -> Iterator[Entry]:
    whole = start.with_values({"method": SEED, "plan.scheme": "no-pruning"})
    yield Entry(name=WHOLE, label="reference", scenario=whole, is_method=False)
    # One learner: with as many samples as a device has, of all classes, or with the samples of all devices.
    for name, num_samples in ((ALONE, _per_device(start)), (CENTRAL, start.data.train_samples)):
        scenario = whole.with_values({**_BY_ITSELF, "data.train_samples": num_samples})
        if start.stop.time_s is not None:  # the seconds of one learner mean nothing
            scenario = scenario.with_values({"stop.time_s": None, "rounds.global_rounds": base.rounds.global_rounds})
        yield Entry(name=name, label="reference", scenario=scenario, is_method=False, has_costs=False)


_BY_ITSELF: Mapping[str, Any] = {
    "network.num_edges": 1,
    "network.devices_per_edge": 1,
    "network.table": None,
    "topology.name": "hierarchical",
    "data.partition": "iid",
    "data.size_spread": 0.0,
    "events.dropout_probability": 0.0,
    "events.straggler_probability": 0.0,
    "attack.kind": "none",
}


def _per_device(start: Scenario) -> int:
    from airprune.data import dataset_named

    samples = start.data.train_samples or dataset_named(start.data.name).num_train
    return max(1, samples // start.num_devices)
