"""How many rounds a method needs for one of the lossless method, from pilots of both on the same samples.

At equal accuracy the lossless pilot is at round t0 and the method's at round t: log t = a + (1 + s) log t0. With s = 0
the method needs e^a times as many rounds throughout; s > 0 tells of one that falls back further and further, as those
do whose losses are never made good. A line through the pairs of all seeds, with a prior that expects no slowdown and
knows no better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airprune.advice.curves import crossing, rising

Array = np.ndarray

# What is expected of a and s before any pilot: 0, give or take this.
_PRIOR_STD = np.array([1.0, 0.4])
# Pairs scatter by at least so much, and of neighbouring pairs only so many tell something new.
_LEAST_SCATTER, _OWN_EVIDENCE = 0.1, 0.25
# A small pilot's slowdown is not quite that of the real run.
_TRANSFER_STD = 0.1
_STEEPEST = 0.2  # of 1 + s: methods do not overtake the lossless one without end


@dataclass(frozen=True, eq=False)
class Slowdown:
    """log t = a + (1 + s) log t0.

    Attributes:
      line: a and s.  [2]
      covariance: how well they are known.  [2, 2]
      pairs: how many pairs of rounds they are from.
    """

    line: Array
    covariance: Array
    pairs: int

    def drawn(self, normal: Array) -> tuple[Array, Array]:
        """(a, 1 + s) as they may be, for standard normal numbers.  [num_draws, 2] → each [num_draws]"""
        a, s = (self.line + normal @ np.linalg.cholesky(self.covariance + 1e-18 * np.eye(2)).T).T
        return a, np.maximum(1.0 + s, _STEEPEST)

    @property
    def ratio(self) -> float:
        """Rounds for one of the lossless method's, at its tenth."""
        return float(np.exp(self.line[0] + self.line[1] * np.log(10.0)))


NONE = Slowdown(np.zeros(2), np.zeros((2, 2)), 0)
"""The lossless method's own."""


def slowdown(lossless: Sequence[Array], method: Sequence[Array]) -> Slowdown:
    """From accuracies after every round, one curve per seed; curve i of both is of the same seed."""
    pairs = [pairs_at_equal_accuracy(*curves) for curves in zip(lossless, method, strict=True)]
    t0, t = np.log(np.concatenate(pairs)).T
    design = np.column_stack((np.ones(len(t0)), t0))
    prior = np.diag(_PRIOR_STD**-2.0)
    behind = t - t0
    scatter = _LEAST_SCATTER
    line = np.zeros(2)
    for _ in range(3):  # the scatter around the line, and the line that it allows, agree after a few turns
        precision = prior + design.T @ design * (_OWN_EVIDENCE / scatter**2)
        line = np.linalg.solve(precision, design.T @ behind * (_OWN_EVIDENCE / scatter**2))
        scatter = max(_LEAST_SCATTER, float(np.sqrt(np.mean((behind - design @ line) ** 2))))
    covariance = np.linalg.inv(precision)
    covariance[0, 0] += _TRANSFER_STD**2 + _between_seeds(pairs, line)
    return Slowdown(line, covariance, len(t0))


def pairs_at_equal_accuracy(lossless: Array, method: Array) -> Array:
    """(t0, t) of the lossless curve and the method's, at every accuracy that one of them had and both passed.  [_, 2]

    A method that is never as good as the lossless one after a round is at least as slow as its whole pilot.
    """
    curves = [rising(lossless), rising(method)]
    rounds = [np.arange(1, len(curve) + 1) for curve in curves]
    levels = np.unique(np.concatenate(curves))
    found = np.array([[crossing(rounds[i], curves[i], level) for i in (0, 1)] for level in levels.tolist()])
    found = found[np.isfinite(found).all(axis=1)]
    if len(found):
        return found
    ahead = curves[1][0] > curves[0][-1]
    return np.array([[len(curves[0]), 1.0]] if ahead else [[1.0, len(curves[1])]])


def _between_seeds(pairs: Sequence[Array], line: Array) -> float:
    """Variance of the seeds' mean distance from the line, as it enters the mean of all."""
    if len(pairs) < 2:
        return _TRANSFER_STD**2
    offsets = [float(np.mean(np.log(t / t0) - line[0] - line[1] * np.log(t0))) for t0, t in (p.T for p in pairs)]
    return float(np.var(offsets, ddof=1)) / len(offsets)
