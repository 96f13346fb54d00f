"""Oort: devices of high utility and short rounds are selected again; the other places go to untried devices.

    U = D √(mean loss²)                                                 utility of a device's last upload
    score = (min(U, U_95) − 0.999 min U) / range + √(0.1 ln t / t_last)
            × (T / duration)^α  if it takes longer than T               T: a percentile of all durations

The pacer raises that percentile when utility stands still and lowers it when it jumps.

Differs from the source: the mean is over minibatches, weighted by their samples, since kernels return the mean loss of
a minibatch; with minibatches of one sample it is the source's. It is over all local steps of the round; the authors'
code takes a moving average over the first pass.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, ReportKind, Slot, Values, per_device
from airprune.methods.objectives.base import LocalRun, Memory
from airprune.methods.outcome import Outcome
from airprune.methods.selection.base import Array, Candidates, number_of
from airprune.methods.selection.random_share import ShareSelection
from airprune.settings.section import Count, NonNegative, Ratio

UTILITY, LAST, DURATION = "oort.utility", "oort.last_round", "oort.duration_s"
PERCENTILE, GAINS = "oort.percentile", "oort.gains"
# The report of the mean square of a device's losses.
LOSS_SQ = "oort.loss_sq/"
_CLIP = 0.95  # quantile beyond which utilities count equally
_FLAT, _JUMP = 0.1, 5.0  # changes of utility between two windows at which the pacer moves
_SMALL = 1e-4


def preferred_duration_s(duration_s: Array, percentile: float) -> float:
    """T: the duration at this place of all, in order; infinite from the 100th percentile on."""
    if percentile >= 100.0 or not len(duration_s):
        return np.inf
    place = int(len(duration_s) * percentile / 100.0)
    return float(np.sort(duration_s)[min(place, len(duration_s) - 1)])


def scores(utility: Array, last: Array, duration_s: Array, *, t: int, preferred_s: float, penalty: float) -> Array:
    """Returns the scores of devices that were tried before; `t` and `last` count rounds from 1.  [num_devices]"""
    clip = np.sort(utility)[min(int(len(utility) * _CLIP), len(utility) - 1)]
    least = 0.999 * utility.min()
    gain = (np.minimum(utility, clip) - least) / max(utility.max() - least, _SMALL)
    score = gain + np.sqrt(0.1 * np.log(t) / last)
    slow = duration_s > preferred_s
    score[slow] *= (preferred_s / np.maximum(duration_s[slow], _SMALL)) ** penalty
    return score


def sampled_places(weight: Array, draws: Array, count: int) -> Array:
    """Samples `count` places without replacement with odds by weight: the least exponential draws over weights."""
    with np.errstate(divide="ignore"):
        return np.argsort(draws / weight, kind="stable")[:count]


class Oort(ShareSelection):
    """Selects by the last losses and durations, and a share of the untried. Defaults of the authors' code."""

    name = "oort"
    summary = "guided client selection: large losses, much data, short rounds, with exploration"
    source = "after Oort (Lai et al.), rules of the authors' code"

    explore: Ratio = Field(default=0.9, description="initial share of places for devices never selected before")
    explore_decay: Ratio = Field(default=0.98, description="decay of that share per round")
    explore_least: Ratio = Field(
        default=0.2, description="lower bound of that share, while some devices were never selected"
    )
    percentile: NonNegative = Field(
        default=50.0,
        description="percentile of durations beyond which a device is slow; moved by the pacer; from 100 on: none",
    )
    penalty: NonNegative = Field(default=2.0, description="exponent of the penalty of slow devices; 0: none")
    cut_off: Ratio = Field(
        default=0.95,
        description="share of the first score without a place; places are sampled among all scores above it",
    )
    pacer_every: Count = Field(default=20, description="rounds between two moves of the percentile")
    pacer_step: NonNegative = Field(default=10.0, description="change of the percentile in one move; 0: never")

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """Stores U, the round of the last upload (0: never tried) and the duration of every device.

        And of the pacer: the percentile, and the exploited devices' mean utilities, summed over the last window and
        over this one.
        """
        return (
            Slot(name=UTILITY, owner=Owner.RUN, shape=per_device, dtype="<f8"),
            Slot(name=LAST, owner=Owner.RUN, shape=per_device, dtype="<i8"),
            Slot(name=DURATION, owner=Owner.RUN, shape=per_device, dtype="<f8"),
            Slot(name=PERCENTILE, owner=Owner.RUN, shape=lambda s: (1,), dtype="<f8", start=self.percentile),
            Slot(name=GAINS, owner=Owner.RUN, shape=lambda s: (2,), dtype="<f8"),
        )

    def before(self, candidates: Candidates) -> Array:
        """Compares scores among all candidates, places given edge by edge; one number is sampled for each device."""
        device, memory, t = candidates.device, candidates.memory, candidates.round_index + 1
        tried = memory[LAST][device] > 0
        score = np.zeros(len(device))
        if tried.any():
            known = device[tried]
            durations_s = memory[DURATION][memory[LAST] > 0]
            score[tried] = scores(
                memory[UTILITY][known],
                memory[LAST][known],
                memory[DURATION][known],
                t=t,
                preferred_s=preferred_duration_s(durations_s, float(memory[PERCENTILE][0])),
                penalty=self.penalty,
            )
        draws = candidates.rng.exponential(size=len(device))
        selected = np.zeros(len(device), dtype=bool)
        for edge in np.unique(candidates.edge):
            here = np.flatnonzero(candidates.edge == edge)
            selected[self._places(here, tried, score, candidates.num_samples, draws, t)] = True
        return selected

    def _places(self, here: Array, tried: Array, score: Array, num_samples: Array, draws: Array, t: int) -> Array:
        """Returns the selected candidates of an edge: the best tried, some untried by their data, then any others."""
        wanted = number_of(self.share, len(here))
        old, new = here[tried[here]], here[~tried[here]]
        exploit = min(int(wanted * (1.0 - self.explored_share(t))) if len(new) else wanted, len(old))
        if exploit:
            ranked = np.sort(score[old])[::-1]
            old = old[score[old] >= self.cut_off * ranked[min(exploit, len(ranked) - 1)]]
        chosen = old[sampled_places(score[old], draws[old], exploit)]
        chosen = np.append(chosen, new[sampled_places(num_samples[new], draws[new], wanted - len(chosen))])
        others = np.setdiff1d(here, chosen)
        return np.append(chosen, others[sampled_places(np.ones(len(others)), draws[others], wanted - len(chosen))])

    def explored_share(self, t: int) -> float:
        """0.9 · 0.98^t, but at least 0.2."""
        return float(max(self.explore * self.explore_decay**t, self.explore_least))

    def upload_bits(self, shape: ModelShape, value_bits: float) -> float:
        """The mean square of the losses."""
        return 64.0

    def report(self, run: LocalRun, before: Memory, after: Memory) -> Values:
        """Reports the mean square of the device's losses."""
        return {LOSS_SQ: np.array([run.loss_sq])}

    def reported(self, shape: ModelShape) -> dict[str, ReportKind]:
        return {LOSS_SQ: ("<f8", (1,))}

    def after_edge_round(self, outcome: Outcome, values: Values) -> Values:
        """Stores U, round and duration of the devices that arrived; then moves the pacer."""
        memory, t = outcome.candidates.memory, outcome.candidates.round_index + 1
        arrived = outcome.device[outcome.arrived]
        utility, last, duration_s = (memory[name].copy() for name in (UTILITY, LAST, DURATION))
        exploited = arrived[last[arrived] > 0]
        utility[arrived] = (outcome.num_samples * _rms_loss(outcome))[outcome.arrived]
        duration_s[arrived] = outcome.latency_s[outcome.arrived]
        last[arrived] = t
        gain = float(utility[exploited].mean()) if len(exploited) else 0.0
        percentile, gains = self.paced(float(memory[PERCENTILE][0]), memory[GAINS] + [0.0, gain], t)
        return {UTILITY: utility, LAST: last, DURATION: duration_s, PERCENTILE: np.array([percentile]), GAINS: gains}

    def paced(self, percentile: float, gains: Array, t: int) -> tuple[float, Array]:
        """Returns (percentile, gains of the last and this window); compared when one is full, from the second on."""
        if t % self.pacer_every:
            return percentile, gains
        past, present = gains.tolist()
        if t >= 2 * self.pacer_every:
            change = abs(present - past)
            if change <= _FLAT * past:
                percentile = min(100.0, percentile + self.pacer_step)
            elif change >= _JUMP * past:
                percentile = max(self.pacer_step, percentile - self.pacer_step)
        return percentile, np.array([present, 0.0])


def _rms_loss(outcome: Outcome) -> Array:
    """√(mean loss²) of each selected device; its mean loss where none is reported, as in rounds without training."""
    found = [outcome.sums.get(f"{LOSS_SQ}{number}") for number in outcome.device.tolist()]
    return np.array([loss if own is None else np.sqrt(own[0]) for own, loss in zip(found, outcome.loss, strict=True)])
