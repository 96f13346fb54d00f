"""Rounds that a method needs for those of the lossless method, from pilots of both on the same samples.

At equal accuracy the lossless pilot is at round t0 and the method's at round t: log(t / t0) = a + s log t0 + d / t0.
With a alone the method needs e^a times as many rounds throughout; d stands for a late start that is made good, as where
the first rounds train a part of the weights; s > 0 of a method that falls back further and further, as those do whose
losses are never made good. Least squares over the pairs of all seeds, with a prior that expects no slowdown and knows
no better: differences that short pilots cannot show stay open, and widen the forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airprune.studies.advice.curves import crossing, rising

Array = np.ndarray

# What is expected of a, s and d before any pilot: 0, give or take this.
_PRIOR_STD = np.array([0.5, 0.4, 1.0])
# Pairs scatter by at least so much, and of neighbouring pairs only this share is independent.
_LEAST_SCATTER, _OWN_EVIDENCE = 0.1, 0.25
# A small pilot's slowdown is not quite that of the real run.
_TRANSFER_STD = 0.1
_GRID = np.geomspace(0.1, 1e5, 400)  # rounds t0 at which laws are inverted


@dataclass(frozen=True, eq=False)
class Slowdown:
    """log(t / t0) = a + s log t0 + d / t0.

    Attributes:
      law: a, s and d.  [3]
      covariance: how well they are known.  [3, 3]
      num_pairs: how many pairs of rounds they are from.
    """

    law: Array
    covariance: Array
    num_pairs: int

    @property
    def ratio(self) -> float:
        """Rounds for one of the lossless method's, at its tenth."""
        return float(np.exp(_terms(np.array(10.0)) @ self.law))

    def drawn(self, normal: Array) -> Array:
        """Samples laws, given standard normal numbers of the same shape.  [num_laws, 3]"""
        spread = np.linalg.cholesky(self.covariance + 1e-18 * np.eye(3))
        return self.law + normal @ spread.T


def rounds_after(laws: Array, lossless_rounds: Array) -> Array:
    """Returns t of each law at a t0 of its own; ∞ stays ∞.  [num_laws]"""
    finite = np.where(np.isfinite(lossless_rounds), lossless_rounds, 1.0)
    with np.errstate(over="ignore"):
        rounds = finite * np.exp(np.sum(_terms(finite) * laws, axis=-1))
    return np.where(np.isfinite(lossless_rounds), rounds, np.inf)


def lossless_rounds_at(laws: Array, rounds: Array) -> Array:
    """Returns t0 of each law at all of some rounds t.  [num_rounds, num_laws]"""
    log_t = np.maximum.accumulate(np.log(_GRID) + laws @ _terms(_GRID).T, axis=1)  # training on never loses accuracy
    return np.exp([np.interp(np.log(rounds), of_law, np.log(_GRID)) for of_law in log_t]).T


def slowdown(lossless: Sequence[Array], method: Sequence[Array]) -> Slowdown:
    """Fits the law to accuracies after every round, one curve per seed; curve i of both is of the same seed."""
    pairs = [pairs_at_equal_accuracy(*curves) for curves in zip(lossless, method, strict=True)]
    t0, t = np.concatenate(pairs).T
    design, behind = _terms(t0), np.log(t / t0)
    law, scatter = np.zeros(3), _LEAST_SCATTER
    for _ in range(3):  # the scatter around the law, and the law that it allows, agree after a few turns
        evidence = _OWN_EVIDENCE / scatter**2
        precision = np.diag(_PRIOR_STD**-2.0) + evidence * design.T @ design
        law = np.linalg.solve(precision, evidence * design.T @ behind)
        scatter = max(_LEAST_SCATTER, float(np.sqrt(np.mean((behind - design @ law) ** 2))))
    covariance = np.linalg.inv(precision)
    covariance[0, 0] += _TRANSFER_STD**2 + _between_seeds(pairs, law)
    return Slowdown(law, covariance, len(t0))


NONE = Slowdown(np.zeros(3), np.zeros((3, 3)), 0)
"""The lossless method's own."""


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


def _terms(lossless_rounds: Array) -> Array:
    """Returns the factors of a, s and d.  [..., 3]"""
    t0 = np.asarray(lossless_rounds, dtype=np.float64)
    return np.stack((np.ones_like(t0), np.log(t0), 1.0 / np.maximum(t0, 1.0)), axis=-1)


def _between_seeds(pairs: Sequence[Array], law: Array) -> float:
    """Variance of the seeds' mean distance from the law, as it enters the mean of all."""
    if len(pairs) < 2:
        return _TRANSFER_STD**2
    offsets = [float(np.mean(np.log(t / t0) - _terms(t0) @ law)) for t0, t in (found.T for found in pairs)]
    return float(np.var(offsets, ddof=1)) / len(offsets)
