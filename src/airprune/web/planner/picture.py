"""A plan as the page draws it: statistics of all devices, arrays of those that are drawn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np

from airprune.errors import InvalidValue
from airprune.planning import Plan, PlanProblem, Status
from airprune.planning.fleet import FLEET_COLUMNS, Fleet
from airprune.planning.plan import DEADLINE_TOLERANCE, round_up_ms
from airprune.planning.schemes import SCHEMES
from airprune.planning.schemes import plan as plan_by
from airprune.rounds.first_round import FirstRound, first_round, links_of
from airprune.rounds.planned_network import PlannedNetwork
from airprune.units import mhz_to_hz, ms_to_s, ratio_to_db
from airprune.web.answers import number_or_null, numbers
from airprune.web.planner.density import density
from airprune.web.planner.ground import ground
from airprune.web.planner.promises import on_time
from airprune.web.planner.scene import Scene
from airprune.web.planner.settings import MAX_DEADLINE_MS, PlannerSettings, of_preset
from airprune.wireless.channel import sent_gain, snr
from airprune.wireless.latency import kept_weights

Array = np.ndarray

# Browsers draw this many marks in a tenth of a second or two.
MAX_DRAWN = 1_200
MAX_EDGES_DRAWN = 1_000
# The other schemes are planned beside the chosen one up to this size.
MAX_COMPARED = 20_000


class Mark(StrEnum):
    """The outcome of a plan for a device."""

    OK = "ok"
    LATE = "late"
    """It misses the deadline."""
    BLOCKS = "blocks"
    """Its edge has a plan once it leaves."""
    WAITS = "waits"
    """Its edge has no plan, through no fault of its own."""
    OUTSIDE = "outside"
    """A formula gave it a share or a ratio that cannot be used."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Planned:
    """A scene, its plan, and what follows from both.

    Attributes:
      given: the problem as it was before its plan settled the interference of edges that share a bandwidth.
      found: the first edge round of a placed network; None for a table.
    """

    settings: PlannerSettings
    scene: Scene
    given: PlanProblem
    plan: Plan
    found: FirstRound | None = None

    @property
    def problem(self) -> PlanProblem:
        return self.plan.problem

    @cached_property
    def fleet(self) -> Fleet:
        """The devices as a table that `airprune plan` reads: of SNRs if these say all of a link, else of rates."""
        if self.found is None:
            assert self.scene.fleet is not None
            return self.scene.fleet
        fleet, problem = self.found.fleet, self.problem
        if not self.settings.is_papers_radio:
            more = {"fixed_bits": problem.fixed_bits, "extra_seconds": problem.extra_seconds}
            more = {name: values for name, values in more.items() if np.any(values)}
            return dataclasses.replace(fleet, columns=fleet.columns | more, given=(*fleet.given, *more))
        columns = {
            c.name: np.full(len(fleet.device), c.default) for c in FLEET_COLUMNS if isinstance(c.default, int | float)
        }
        columns |= {"snr_db": self.snr_db, "cpu_hz": fleet.columns["cpu_hz"]}
        return dataclasses.replace(fleet, columns=columns, given=())

    @cached_property
    def snr_db(self) -> Array:
        """SNR of each device over the whole bandwidth, alone and with the fading that its plan counts on.

        [num_devices]
        """
        if self.found is None:
            return self.fleet.columns["snr_db"]
        served, fading = links_of(self.found)
        radio = self.found.experiment.radio
        return ratio_to_db(np.maximum(snr(sent_gain(served.gain[self.found.device], radio) * fading, radio), 1e-30))

    @cached_property
    def on_time(self) -> Array | None:
        """On-time probability of each device; None where plans know fading, and for too many devices.  [num_devices]"""
        return None if self.found is None else on_time(self.found)

    @cached_property
    def load(self) -> Array | None:
        """Interference over noise at every station, as the drawn plan causes it; None where there is none.

        [num_stations]
        """
        return None if self.given.interference is None else self.given.interference.load(self.drawn_plan)

    @cached_property
    def has_plan(self) -> Array:
        """Devices whose edge has a plan, if a late one.  [num_devices]"""
        return self.problem.groups.spread(~self.plan.failed)

    @cached_property
    def late(self) -> Array:
        with np.errstate(invalid="ignore"):
            return self.has_plan & (self.plan.latency_s > self.problem.deadline_s * (1.0 + DEADLINE_TOLERANCE))

    @cached_property
    def outside(self) -> Array:
        """Devices at which a formula left its box."""
        share, ratio = self.plan.bandwidth_share, self.plan.pruning_ratio
        inside = (share >= 0) & (share <= 1 + DEADLINE_TOLERANCE)
        inside &= ratio >= self.problem.min_pruning_ratio - DEADLINE_TOLERANCE
        inside &= ratio <= self.problem.max_pruning_ratio + DEADLINE_TOLERANCE
        return self.problem.groups.spread(self.plan.status == Status.OUTSIDE_BOX) & ~inside

    @cached_property
    def blocks(self) -> Array:
        infeasible = self.plan.failed & (self.plan.status != Status.OUTSIDE_BOX)
        return self.plan.blocking_devices & self.problem.groups.spread(infeasible)

    def marks(self, rows: Array) -> Array:
        """Returns the marks of these devices only: texts of a million would keep every other thread waiting."""
        return np.select(
            [self.blocks[rows], self.outside[rows], ~self.has_plan[rows], self.late[rows]],
            [Mark.BLOCKS, Mark.OUTSIDE, Mark.WAITS, Mark.LATE],
            Mark.OK,
        )

    @cached_property
    def drawn_plan(self) -> Plan:
        """The plan, but with each infeasible edge at its own smallest deadline, so that there is something to see."""
        hopeful = self.plan.failed & np.isfinite(self.plan.min_deadline_s) & (self.plan.min_deadline_s > 0)
        hopeful &= self.plan.status != Status.OUTSIDE_BOX
        if not hopeful.any():
            return self.plan
        longer_s = np.where(hopeful, self.plan.min_deadline_s, self.problem.groups.max(self.problem.deadline_s))
        problem = dataclasses.replace(self.given, deadline_s=self.problem.groups.spread(longer_s))
        return self._by_same_scheme(problem)

    def _by_same_scheme(self, problem: PlanProblem) -> Plan:
        return plan_by(problem, self.plan.scheme) if self.found is None else self.found.scheme.plan(problem)

    @cached_property
    def drawn_ratio(self) -> Array:
        """Pruning ratios of that plan, NaN where it has none.  [num_devices]"""
        failed = self.problem.groups.spread(self.drawn_plan.failed)
        return np.where(failed, np.nan, self.drawn_plan.pruning_ratio)

    @cached_property
    def suggested_deadline_ms(self) -> float | None:
        """A deadline with which every edge has a plan in time; None if there is nothing to suggest."""
        if (self.plan.status == Status.OK).all() or (self.plan.status == Status.OUTSIDE_BOX).any():
            return None
        longest_s = float(np.max(self.plan.min_deadline_s))
        if not np.isfinite(longest_s) or longest_s <= np.max(self.problem.deadline_s):  # late, but time is not the cure
            return None
        suggested = float(round_up_ms(longest_s))
        return suggested if suggested <= MAX_DEADLINE_MS else None

    def drawn(self) -> Array:
        """Returns the devices to draw: all, or an even sample, with those that were moved or that trouble the plan."""
        count = self.problem.num_devices
        if count <= MAX_DRAWN:
            return np.arange(count)
        troubled = np.flatnonzero(self.blocks | self.late | self.outside)
        troubled = troubled[_evenly(len(troubled), MAX_DRAWN // 3)]
        sample = _evenly(count, MAX_DRAWN - len(troubled))
        return np.union1d(np.union1d(sample, troubled), self.scene.moved)


def plan_scene(settings: PlannerSettings, scene: Scene, **changes: float) -> Planned:
    """The scene planned as set; `changes` replace single numbers of the settings."""
    changed = settings.model_copy(update=changes)
    if scene.setup is not None:
        setup = scene.setup
        if changes:
            setup = PlannedNetwork.of(changed.scenario(), network=setup.network)
        found = first_round(setup)
        return Planned(settings=changed, scene=scene, given=found.given, plan=found.plan, found=found)
    assert scene.fleet is not None
    problem = scene.fleet.problem(
        bandwidth_hz=mhz_to_hz(changed.bandwidth_mhz),
        deadline_s=ms_to_s(changed.deadline_ms),
        max_pruning_ratio=changed.max_pruning,
    )
    return Planned(settings=changed, scene=scene, given=problem, plan=plan_by(problem, changed.scheme))


def picture(planned: Planned) -> dict[str, Any]:
    """Everything the page draws, as JSON values."""
    drawn = planned.drawn()
    scene, plan = planned.scene, planned.plan
    return {
        "settings": planned.settings.as_json(),
        "is_table": scene.is_table,
        "num_devices": planned.problem.num_devices,
        "num_edges": len(scene.edge_position_m),
        "num_drawn": len(drawn),
        "summary": summary(planned),
        "suggested_deadline_ms": planned.suggested_deadline_ms,
        "edges": _edges(planned),
        "devices": _devices(planned, drawn),
        "moved": scene.moved.tolist(),
        "density": None
        if len(drawn) == planned.problem.num_devices
        else density(scene.position_m, planned.drawn_ratio),
        "ground": ground(planned.found, scene, planned.load, planned.settings.ground),
        "status": {str(word): int(np.count_nonzero(plan.status == word)) for word in np.unique(plan.status)},
    }


def summary(planned: Planned) -> dict[str, Any]:
    """Statistics of every device whose edge has a plan."""
    plan, problem, has_plan = planned.plan, planned.problem, planned.has_plan
    count = int(np.count_nonzero(has_plan))
    ratio = plan.pruning_ratio[has_plan]
    weights = kept_weights(plan.pruning_ratio, conv_weights=problem.conv_weights, fc_weights=problem.fc_weights)
    whole = problem.conv_weights + problem.fc_weights
    bits = problem.bits_per_weight * weights + problem.fixed_bits
    return {
        "num_planned": count,
        "num_late": int(np.count_nonzero(planned.late)),
        "num_blocking": int(np.count_nonzero(planned.blocks)),
        "num_outside": int(np.count_nonzero(planned.outside)),
        "sum_pruning": float(np.sum(ratio)) if count else None,
        "mean_pruning": float(np.mean(ratio)) if count else None,
        "mean_weights": number_or_null(np.mean(weights[has_plan])) if count else None,
        "mean_whole_weights": float(np.mean(whole)),
        "mean_bits": number_or_null(np.mean(bits[has_plan])) if count else None,
        "round_ms": number_or_null(1e3 * np.max(plan.latency_s[has_plan])) if count else None,
    }


def compared(planned: Planned) -> list[dict[str, Any]]:
    """Every scheme on the same devices; empty for a fleet too large to do that at once.

    A scheme that does not go with the radio has the sentence that refuses it.
    """
    if planned.problem.num_devices > MAX_COMPARED or planned.settings.effort > MAX_COMPARED:
        return []
    rows: list[dict[str, Any]] = []
    for name in offered_schemes(planned.settings.preset):
        other = planned
        if name != planned.plan.scheme:
            try:
                other = dataclasses.replace(planned, plan=plan_by(planned.given, name))
            except InvalidValue as refused:
                rows.append({"scheme": name, "refused": str(refused)})
                continue
        facts = summary(other)
        rows.append(
            {
                "scheme": name,
                "mean_pruning": facts["mean_pruning"],
                "round_ms": facts["round_ms"],
                "num_late": facts["num_late"],
                "num_failed": int(np.count_nonzero(other.plan.failed)),
            }
        )
    return rows


def offered_schemes(preset: str) -> list[str]:
    """Returns the schemes that plan from rates and compute times, and the preset's own."""
    own = of_preset(preset)["scheme"]
    return [name for name, scheme in SCHEMES.items() if scheme.plans_fleets() or name == own]


def _edges(planned: Planned) -> dict[str, list[Any]]:
    """Returns values of every edge of the network, also of one that serves no device."""
    plan, groups, scene = planned.plan, planned.problem.groups, planned.scene
    ids, shown = planned.problem.edge_ids, slice(0, MAX_EDGES_DRAWN)
    count = len(scene.edge_position_m)
    mean_ratio = groups.sum(plan.pruning_ratio) / groups.counts

    def of_all(values: Array, otherwise: Any = np.nan) -> Array:
        found = np.full(count, otherwise, dtype=object if values.dtype.kind == "U" else values.dtype)
        found[ids] = values
        return found[shown]

    names = planned.fleet.edge_names if planned.found is None else np.arange(count)
    load_db = np.full(count, np.nan) if planned.load is None else ratio_to_db(1.0 + planned.load)
    return {
        "name": [str(name) for name in names[shown].tolist()],
        "x_m": _rounded(scene.edge_position_m[shown, 0], 2),
        "y_m": _rounded(scene.edge_position_m[shown, 1], 2),
        "status": of_all(plan.status, "no devices").tolist(),
        "num_devices": of_all(groups.counts, 0).tolist(),
        "mean_pruning": numbers(of_all(np.where(plan.failed, np.nan, mean_ratio))),
        "round_ms": numbers(of_all(1e3 * np.where(plan.failed, np.nan, plan.edge_latency_s))),
        "min_deadline_ms": numbers(of_all(1e3 * plan.min_deadline_s)),
        "shadow_price": numbers(of_all(np.broadcast_to(plan.shadow_price, plan.status.shape))),
        "rise_db": _rounded(load_db[shown], 3),
    }


def _devices(planned: Planned, drawn: Array) -> dict[str, list[Any]]:
    scene, plan, problem = planned.scene, planned.drawn_plan, planned.problem
    ratio = planned.drawn_ratio[drawn]
    usable = ~problem.groups.spread(plan.failed)[drawn]
    share = np.where(usable, plan.bandwidth_share[drawn], np.nan)
    latency_s = np.where(usable, plan.latency_s[drawn], np.nan)
    if planned.found is None:
        weights = kept_weights(ratio, conv_weights=problem.conv_weights[drawn], fc_weights=problem.fc_weights[drawn])
        compute_s = problem.seconds_per_weight[drawn] * weights + problem.extra_seconds[drawn]
    else:
        compute_s = np.where(usable, dataclasses.replace(planned.found, plan=plan).compute_s[drawn], np.nan)
    snr_db = planned.snr_db[drawn]
    edge = problem.edge[drawn]
    return {
        "index": drawn.tolist(),
        "name": [str(name) for name in planned.fleet.device[drawn].tolist()],
        "edge": edge.tolist(),
        "x_m": _rounded(scene.position_m[drawn, 0], 2),
        "y_m": _rounded(scene.position_m[drawn, 1], 2),
        "mark": planned.marks(drawn).tolist(),
        "share": numbers(share),
        "ratio": numbers(ratio),
        "compute_ms": numbers(1e3 * compute_s),
        "uplink_ms": numbers(1e3 * (latency_s - compute_s)),
        "latency_ms": numbers(1e3 * latency_s),
        "snr_db": _rounded(snr_db, 3),
        "sinr_db": None if planned.load is None else _rounded(snr_db - ratio_to_db(1.0 + planned.load)[edge], 3),
        "on_time": None if planned.on_time is None else numbers(planned.on_time[drawn]),
        "cpu_ghz": _rounded(planned.fleet.columns["cpu_hz"][drawn] / 1e9, 4),
    }


def _rounded(values: Array, decimals: int) -> list[Any]:
    return numbers(np.round(values, decimals))


def _evenly(count: int, wanted: int) -> Array:
    """Up to `wanted` of `count` places, evenly spaced, always the same ones."""
    if count <= wanted:
        return np.arange(count)
    return np.arange(wanted) * count // wanted
