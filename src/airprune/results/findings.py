"""Three sentences about a comparison, computed from its own numbers: what was seen, what it means, where to go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airprune.results.statistics import Estimate
from airprune.results.time_to_target import reference_among
from airprune.scenario import Scenario
from airprune.text import counted, number

# Losses of accuracy up to this count as none.
_MARGIN = 0.01
# Fewer seeds than this decide nothing.
_ENOUGH_SEEDS = 5
# Settings in which two variants may differ and still prune the same way under the same deadline.
_ALLOCATION = {"plan.scheme", "method", "name", "seed", "train.learning_rate"}


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One variant at its end.

    Attributes:
      accuracy: test accuracy by seed.
      time_s: simulated time of its last global round, mean over seeds.
    """

    name: str
    scenario: Scenario
    accuracy: Mapping[int, float]
    time_s: float

    @classmethod
    def of(cls, name: str, scenario: Scenario, last: Mapping[int, Mapping[str, Any]]) -> Arm | None:
        """Reads an arm from the last global record of each seed; None where one has no test accuracy."""
        if not last or any(record.get("test_accuracy") is None for record in last.values()):
            return None
        return cls(
            name=name,
            scenario=scenario,
            accuracy={seed: record["test_accuracy"] for seed, record in last.items()},
            time_s=float(np.mean([record["time_s"] for record in last.values()])),
        )

    def minus(self, other: Arm) -> Estimate:
        """Paired difference in accuracy over the seeds that both have."""
        return Estimate.of(
            [self.accuracy[seed] - other.accuracy[seed] for seed in self.accuracy if seed in other.accuracy]
        )


def findings(arms: Sequence[Arm], wanted: str | None = None) -> list[str]:
    """Returns the three sentences; none for fewer than two arms with a common seed and a clock.

    Args:
      wanted: name of the reference; by default the first arm that does not prune.
    """
    if wanted is None:
        wanted = reference_among({arm.name: arm.scenario.plan.scheme for arm in arms})
    reference = next((arm for arm in arms if arm.name == wanted), arms[0] if arms else None)
    if reference is None or not reference.time_s:
        return []
    others = [arm for arm in arms if arm is not reference and arm.accuracy.keys() & reference.accuracy.keys()]
    if not others:
        return []
    charged: set[str] = {arm.scenario.radio.downlink for arm in (reference, *others)}
    return [_seen(reference, others), _meaning(reference, others), _next(reference, charged)]


def _seen(reference: Arm, others: Sequence[Arm]) -> str:
    parts = [f"{reference.name} ends at {_percent(reference)} after {number(reference.time_s, '.2g')} s"]
    parts += [
        f"{arm.name} at {_percent(arm)} ({_points(arm.minus(reference))} points) after {number(arm.time_s, '.2g')} s"
        for arm in others
    ]
    return f"Seen: {'; '.join(parts)}."


def _meaning(reference: Arm, others: Sequence[Arm]) -> str:
    keeps = [arm for arm in others if arm.minus(reference).mean >= -_MARGIN]
    loses = [arm for arm in others if arm not in keeps]
    sooner = sorted((arm for arm in keeps if arm.time_s < reference.time_s), key=lambda arm: arm.time_s)
    if sooner:
        share = number(100 * sooner[0].time_s / reference.time_s, ".2g")
        words = f"{sooner[0].name} keeps the accuracy of {reference.name} within a point in {share} % of its time"
    else:
        words = f"no variant is both sooner done than {reference.name} and within a point of its accuracy"
    pair = next(((bad, good) for bad in loses for good in sooner if _differ_in_allocation(bad, good)), None)
    if pair is not None:
        bad, good = pair
        words += (
            f"; {bad.name} and {good.name} prune by the same rule at the same deadline, so what {bad.name} loses, "
            f"{_points(bad.minus(good))} points, comes from how it shares the bandwidth, not from pruning as such"
        )
    elif loses:
        worst = min(loses, key=lambda arm: arm.minus(reference).mean)
        words += f"; {worst.name} loses most, {_points(worst.minus(reference))} points"
    return f"Meaning: {words}."


def _differ_in_allocation(one: Arm, other: Arm) -> bool:
    changed = {key for key, _, _ in one.scenario.diff(other.scenario)}
    return "plan.scheme" in changed and changed <= _ALLOCATION and other.scenario.plan.scheme != "no-pruning"


def _next(reference: Arm, downlinks: set[str]) -> str:
    seeds = len(reference.accuracy)
    few = f"{counted(seeds, 'seed')} decide{'s' if seeds == 1 else ''} little: --seeds 0-4 gives intervals; "
    return (
        f"Next: {few if seeds < _ENOUGH_SEEDS else ''}"
        f"times are simulated, with {_links(downlinks)}; "
        "nothing is tuned here: airprune league tunes all methods by the same rule, airprune advise tries methods on a "
        "fleet of your own."
    )


def _links(downlinks: set[str]) -> str:
    """Says what is charged beside the uplink, from the variants' `radio.downlink`."""
    if downlinks == {"none"}:
        return "the downlink free, and the backhaul too unless its rate is set"
    if "none" in downlinks:
        return "the downlink free in some variants and charged in others"
    return f"the downlink charged ({' or '.join(sorted(downlinks))}), and the backhaul both ways where its rate is set"


def _percent(arm: Arm) -> str:
    return f"{100 * float(np.mean(list(arm.accuracy.values()))):.1f} %"


def _points(difference: Estimate) -> str:
    text = f"{100 * difference.mean:+.1f}".replace("-", "−")
    return text if np.isnan(difference.half_width) else f"{text} ± {100 * difference.half_width:.1f}"
