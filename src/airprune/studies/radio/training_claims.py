"""The paper's claims about accuracy that need trainings of their own on a rung: Fig. 3(b), and one edge of Fig. 4."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.studies.claims import Claim, Judgement, Verdict
from airprune.studies.claims.decision import DELTA, SEQUENTIAL
from airprune.studies.claims.intervals import judge_better, judge_trend
from airprune.studies.radio.rungs import PAPERS, RUNGS, SCHEDULE, Rung

if TYPE_CHECKING:
    from airprune.studies.radio.study import ArmResult

PAPERS_MS = 30
# The ends and the middle of Fig. 3.
DEADLINES_MS = (25, 30, 40)
# The rungs on which these trainings are run: the paper's, and three on which devices are lost to the radio.
JUDGED = ("paper", "fading", "interference", "urban")

Ends = Mapping[str, Mapping[int, float]]
"""Final accuracy of the paper's plan on a rung, by deadline ("25 / 30") or "one edge", and by seed, the same of all."""


def level_of(ms: int) -> str:
    return f"{ms} / {PAPERS_MS}"


ONE_EDGE = "one edge"


def _at(rung: Rung, ms: int) -> Rung:
    return Rung(
        name=f"{rung.name}-at-{ms}",
        title=f"{rung.title}, {level_of(ms)} of the deadline",
        about=f"As {rung.title}, at {level_of(ms)} of its deadline.",
        settings=rung.settings,
        pressed_as=rung.pressed_as or rung.name,
        stretch=ms / PAPERS_MS,
    )


def _one_edge(rung: Rung) -> Rung:
    """One edge alone: no other interferes, and each of its devices has as many samples as among all edges."""
    settings = {key: value for key, value in rung.settings.items() if key != "radio.reuse"}
    whole = SCHEDULE.scenario()
    settings |= {
        "network.num_edges": 1,
        "data.train_samples": (whole.data.train_samples or 0) // whole.network.num_edges,
    }
    return Rung(
        name=f"{rung.name}-one-edge",
        title=f"{rung.title}, {ONE_EDGE}",
        about=f"As {rung.title}, with one edge and its own five devices.",
        settings=settings,
        pressed_as=rung.pressed_as or rung.name,
    )


def _variants(name: str) -> dict[str, Rung]:
    rung = RUNGS[name]
    at = {level_of(ms): rung if ms == PAPERS_MS else _at(rung, ms) for ms in DEADLINES_MS}
    return {**at, ONE_EDGE: _one_edge(rung)}


VARIANTS: Mapping[str, Mapping[str, Rung]] = {name: _variants(name) for name in JUDGED}


def ends_of(results: Iterable[ArmResult], name: str) -> Ends:
    """Returns the final accuracies of the paper's plan on a rung."""
    levels = {rung.name: level for level, rung in VARIANTS[name].items()}
    found: dict[str, dict[int, float]] = {level: {} for level in VARIANTS[name]}
    for one in results:
        if one.method == PAPERS and one.rung in levels:
            found[levels[one.rung]][one.seed] = one.accuracy[-1]
    return of_common_seeds(found)


def of_common_seeds(ends: Ends) -> Ends:
    """Returns the accuracies of the seeds that all trainings of a rung have."""
    seeds = sorted(set.intersection(*(set(found) for found in ends.values())))
    return {level: {seed: found[seed] for seed in seeds} for level, found in ends.items()}


def _values(ends: Ends, levels: Sequence[str]) -> list[np.ndarray]:
    return [np.array(list(ends[level].values())) for level in levels]


def _of_enough_seeds(found: Judgement, values: Sequence[np.ndarray]) -> Judgement:
    if (count := values[0].size) >= SEQUENTIAL.at[0]:
        return found
    reason = f"{found.reason} A verdict takes {SEQUENTIAL.at[0]} seeds, these are {count}."
    return replace(found, verdict=Verdict.UNDECIDED, reason=reason)


def _longer_deadline(ends: Ends) -> Judgement:
    levels = [level_of(ms) for ms in DEADLINES_MS]
    values = _values(ends, levels)
    found = judge_trend(levels, values, rising=True, delta=DELTA["test_accuracy"], what="accuracy")
    return _of_enough_seeds(found, values)


def _beats_one_edge(ends: Ends) -> Judgement:
    values = _values(ends, [level_of(PAPERS_MS), ONE_EDGE])
    names = ("hierarchical", ONE_EDGE)
    found = judge_better(*values, delta=DELTA["test_accuracy"], much=True, what="accuracy", names=names)
    return _of_enough_seeds(found, values)


def _claim(name: str, where: str, text: str, judge: Callable[[Ends], Judgement]) -> Claim[[Ends]]:
    return Claim(name=name, where=where, text=text, judge=judge)


TRAINING_CLAIMS: Sequence[Claim[[Ends]]] = (
    _claim("longer-deadline-higher-accuracy", "Fig. 3(b)", "A longer deadline ends more accurate.", _longer_deadline),
    _claim(
        "hierarchy-beats-one-edge",
        "Fig. 4(b)",
        "Hierarchical pruning is much more accurate than one edge with its own five devices.",
        _beats_one_edge,
    ),
)


def judged_trainings(results: Sequence[ArmResult]) -> list[dict[str, Any]]:
    """Returns these claims on every rung on which they were run, as JSON."""
    found = {name: ends_of(results, name) for name in JUDGED}
    return [
        {"claim": one.name, "where": one.where, "text": one.text, "rung": name, **one.judge(ends).as_json()}
        for name, ends in found.items()
        if ends[ONE_EDGE]
        for one in TRAINING_CLAIMS
    ]
