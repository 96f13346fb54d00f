"""Who takes part in a division: registered methods, a user's own among them, and the reference lines."""

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
from airprune.studies.league.divisions import FLAT_DEADLINE, Division, deadline_s, sends_codes

# Whom the others are measured against: the paper's method, and no pruning at 32 bits per weight.
SEED, FP32, WHOLE = "adaptive-pruning", "fp32", "no-pruning"
ALONE, CENTRAL = "one device alone", "all data centrally"
_ALWAYS = (SEED, FP32, "variance")


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One line of a division.

    Attributes:
      label: its honest name: "as published", "after …", "own".
      scenario: in this division, with the untuned learning rate.
      is_method: whether it competes; reference lines do not.
      has_costs: whether its seconds, bits and joules mean anything.
    """

    name: str
    label: str
    summary: str
    scenario: Scenario
    is_method: bool = True
    has_costs: bool = True

    @property
    def is_marked(self) -> bool:
        """Compressed updates are a knob that others do not have."""
        return sends_codes(self.scenario)

    def state_bytes(self) -> int:
        """What a device keeps between rounds."""
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
    entrants: tuple[Entrant, ...]
    absent: tuple[Absent, ...]


def lineup(base: Scenario, division: Division, methods: Sequence[str] | None = None) -> Lineup:
    """All methods that usually play in the division, or those named; and the reference lines, always."""
    start = division.scenario(base)
    start = start.with_("rounds.global_rounds", start.rounds.global_rounds * division.rounds_factor)
    for name in methods or ():
        if name not in METHODS:
            raise METHODS.unknown(name, "--methods")
    found: list[Entrant] = []
    absent: list[Absent] = []
    for name in METHODS:
        try:
            scenario = _in_division(start, name)
        except AirpruneError as error:
            absent.append(Absent(name, str(error)))
            continue
        wanted = name in methods if methods is not None else division.usual(scenario)
        if not division.possible(scenario) and wanted:
            absent.append(Absent(name, division.needs))
        elif wanted or name in _ALWAYS:
            recipe = METHODS[name]
            found.append(Entrant(name=name, label=recipe.label, summary=recipe.summary, scenario=scenario))
    named = [one for one in absent if methods is None or one.name in methods]
    if methods is not None and len(named) == len(methods):
        why = f"{named[0].name}: {named[0].reason.rstrip('.')}"
        raise UsageError(f"None of --methods can play in division {division.name} ({why}); name others.")
    return Lineup(entrants=(*found, *_references(start)), absent=tuple(named))


def _in_division(start: Scenario, name: str) -> Scenario:
    """The method's own settings come last: they are what it is."""
    scenario = start.with_("method", name)
    if scenario.is_flat and not start.is_flat and scenario.plan.deadline_s == start.plan.deadline_s:
        return scenario.with_("plan.deadline_s", deadline_s(start) * FLAT_DEADLINE)
    return scenario


def _references(start: Scenario) -> Iterator[Entrant]:
    whole = start.with_values({"method": SEED, "plan.scheme": "no-pruning"})
    yield Entrant(
        name=WHOLE,
        label="reference",
        summary="whole models at the scenario's bits per weight, late where the deadline is tight",
        scenario=whole,
        is_method=False,
    )
    samples = start.data.train_samples
    for name, summary, num_samples in (
        (ALONE, "a device that learns from as many samples as one has, of all classes", _per_device(start)),
        (CENTRAL, "one learner with everybody's samples and as many passes", samples),
    ):
        yield Entrant(
            name=name,
            label="reference",
            summary=summary,
            scenario=whole.with_values({**_BY_ITSELF, "data.train_samples": num_samples}),
            is_method=False,
            has_costs=False,
        )


_BY_ITSELF: Mapping[str, Any] = {
    "network.num_edges": 1,
    "network.devices_per_edge": 1,
    "network.table": None,
    "topology.name": "hierarchical",
    "data.partition": "iid",
    "data.size_spread": 0.0,
    "events.dropout_probability": 0.0,
    "events.straggler_probability": 0.0,
}


def _per_device(start: Scenario) -> int:
    from airprune.data import dataset_named

    samples = start.data.train_samples or dataset_named(start.data.name).num_train
    return max(1, samples // start.num_devices)
