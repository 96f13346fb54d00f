"""The plan in sentences: its outcome, the effect of more bandwidth or time, and the devices that block it."""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.planning import Status
from airprune.planning.schemes import scheme_named
from airprune.rounds.overhead import overhead_of, overhead_sentences
from airprune.text import counted
from airprune.web.planner.picture import Planned, plan_scene, summary

_FAILURES_SHOWN = 5
_SAME_TIME = 1e-6  # of the deadline: far more than rounding, far less than can be seen
# Up to this size three plans take no longer than a user waits.
MAX_PRICED = 100_000


def words(planned: Planned) -> dict[str, Any]:
    """Returns the outcome (good, fair, chance or bad), the effect of more bandwidth and time, and the failures."""
    kind, verdict = _verdict(planned)
    return {
        "kind": kind,
        "verdict": verdict,
        "times": _times(planned),
        "prices": _prices(planned),
        "failures": _failures(planned),
        "overhead": _overhead(planned),
    }


def _verdict(planned: Planned) -> tuple[str, str]:
    facts, plan = summary(planned), planned.plan
    deadline = f"{planned.settings.deadline_ms:g} ms"
    num_failed, num_edges = int(np.count_nonzero(plan.failed)), len(plan.status)
    if num_failed:
        none = f"{num_failed:,} of {num_edges:,} edges {'has' if num_failed == 1 else 'have'} no"
        edges_have = "No edge has a" if num_failed == num_edges else none
        if (plan.status == Status.OUTSIDE_BOX).any():
            return "bad", (
                f"{edges_have} usable plan: scheme {plan.scheme} needs shares or ratios outside the bounds, for "
                f"{counted(facts['num_outside'], 'device')}. Scheme optimal stays within bounds."
            )
        who = counted(facts["num_blocking"], "device")
        return "bad", f"{edges_have} plan for {deadline}: {who} would have to leave, or the deadline to be longer."
    mean = f"{100 * facts['mean_pruning']:.1f} %"
    pruned = f"on average {mean} of the prunable weights are pruned"
    if facts["num_late"]:
        return "fair", (
            f"{facts['num_late']:,} of {facts['num_planned']:,} devices miss the {deadline} deadline, since scheme "
            f"{plan.scheme} does not adapt to it; the slowest takes {facts['round_ms']:.4g} ms, and "
            + (f"{pruned}." if facts["mean_pruning"] else "nothing is pruned.")
        )
    if planned.found is not None and not planned.found.experiment.radio.knows_fading:
        return _by_chance(planned, deadline, pruned if facts["mean_pruning"] else "nothing is pruned")
    if facts["mean_pruning"] == 0:
        return "good", f"Every device meets the {deadline} deadline with its whole model; nothing is pruned."
    return "good", f"Every device meets the {deadline} deadline; {pruned}."


def _by_chance(planned: Planned, deadline: str, pruned: str) -> tuple[str, str]:
    """Returns the outcome where plans do not know the fading of their round exactly."""
    promised, chances = planned.settings.on_time, planned.on_time
    if promised is not None:
        return (
            "good",
            f"Every device meets the {deadline} deadline with a probability of {100 * promised:g} % or more; {pruned}.",
        )
    if chances is None:
        return "chance", f"Every device meets the {deadline} deadline if its channel is as estimated; {pruned}."
    low, high = (f"{100 * value:.0f}" for value in (np.nanmin(chances), np.nanmax(chances)))
    share = f"{low} %" if low == high else f"{low} to {high} %"
    return "chance", (
        f"The plan counts on mean gains, so a device meets the {deadline} deadline with a probability of only {share}; "
        f"{pruned}. With a promise it counts on less."
    )


def _times(planned: Planned) -> str:
    """Returns the reason why the bars end where they end."""
    plan, deadline_s = planned.plan, planned.settings.deadline_ms / 1e3
    latency_s = plan.latency_s[planned.has_plan]
    at_deadline = int(np.count_nonzero(np.abs(latency_s - deadline_s) <= _SAME_TIME * deadline_s))
    if not at_deadline:
        return ""
    count = f"{at_deadline:,} of {len(latency_s):,} devices"
    if not scheme_named(plan.scheme).adapts:
        return f"{count} end exactly at the deadline."
    return (
        f"{count} end exactly at the deadline, and that is what makes the plan good: time left over would be weights "
        "pruned for nothing. A device that could end sooner keeps more of its model, or leaves bandwidth to others. "
        "Only a device that sends its whole model can be early."
    )


def _prices(planned: Planned) -> list[str]:
    """Returns the effect of 1 MHz and of 1 ms more, each planned once more; nothing for a fleet too large for that."""
    if planned.plan.failed.any() or max(planned.settings.effort, planned.problem.num_devices) > MAX_PRICED:
        return []
    settings, scene = planned.settings, planned.scene
    more_band = plan_scene(settings, scene, bandwidth_mhz=settings.bandwidth_mhz + 1.0)
    more_time = plan_scene(settings, scene, deadline_ms=settings.deadline_ms + 1.0)
    return [
        f"1 MHz more for each edge {_effect(planned, more_band)}.",
        f"1 ms more for each round {_effect(planned, more_time)}.",
    ]


def _effect(planned: Planned, other: Planned) -> str:
    before, after = summary(planned), summary(other)
    if other.plan.failed.any():
        return "would leave an edge without a usable plan"
    saved = 100 * (before["mean_pruning"] - after["mean_pruning"])
    if abs(saved) >= 0.0005:
        verb = "cut" if saved > 0 else "raise"
        return (
            f"would {verb} mean pruning by {_points(abs(saved))} "
            f"({100 * before['mean_pruning']:.2f} % → {100 * after['mean_pruning']:.2f} %)"
        )
    sooner_ms = before["round_ms"] - after["round_ms"]
    if scheme_named(planned.plan.scheme).adapts or abs(sooner_ms) < 5e-4:
        return "would change nothing"
    return f"would not change pruning, but the slowest device would be {sooner_ms:.3g} ms sooner"


def _points(value: float) -> str:
    return f"{value:.1f} points" if value >= 0.95 else f"{value:.2g} points"


def _failures(planned: Planned) -> list[str]:
    """Returns one sentence for each of the first edges without a plan, as `airprune plan` prints it."""
    failed = np.flatnonzero(planned.plan.failed)
    fleet = planned.fleet
    sentences = [
        planned.plan.failure(int(k), edge_name=str(fleet.edge_names[k]), device_names=fleet.device)
        for k in failed[:_FAILURES_SHOWN]
    ]
    if len(failed) > _FAILURES_SHOWN:
        sentences.append(f"{len(failed) - _FAILURES_SHOWN:,} more edges have no plan.")
    return sentences


def _overhead(planned: Planned) -> list[str]:
    """Returns what pilots, channel reports and the downlink take, as `airprune plan` prints it."""
    overhead = None if planned.found is None else overhead_of(planned.found)
    return [] if overhead is None else overhead_sentences(overhead)
