"""The learning curve of a pilot's accuracies, and its uncertainty.

The error after t rounds is modelled as e(t) = e∞ + A t^−p. All (e∞, A, p) of a grid are weighed by how well they
explain the pilot's errors, in logarithms, and by a broad prior on p; a few hundred of them, as many as their weight
says, stand for what is known. So a short pilot gives a wide forecast by itself, and a floor above the wanted error
means "never" with the weight that it has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray

NUM_DRAWS = 400
"""So many curves stand for what is known."""

# The grid: floors as shares of the last error, powers, last errors around the one observed.
_FLOORS = np.linspace(0.0, 0.96, 25)
_POWERS = np.geomspace(0.15, 2.5, 25)
_ENDS = np.exp(np.linspace(-0.2, 0.2, 41))
# Powers of learning curves lie around this, give or take this factor.
_USUAL_POWER, _POWER_SPREAD = 0.8, np.log(2.0)
# Accuracies scatter by about so much of the error; worth as much as so many rounds.
_USUAL_SCATTER, _SCATTER_ROUNDS = 0.04, 4.0
# Neighbouring rounds have similar errors: so much of a round's evidence is its own.
_OWN_EVIDENCE = 0.2
# A model that has seen one round is still leaving chance behind.
_SKIPPED, _NEEDED = 1, 5
_LEAST_ERROR = 1e-4


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Curves that explain a pilot, equally likely.  Each [NUM_DRAWS]

    Attributes:
      floor: e∞.
      last: the error after the pilot's last round.
      power: p.
      rounds: the pilot's length.
      pace: how many of the pilot's rounds one of the real run is worth.
    """

    floor: Array
    last: Array
    power: Array
    rounds: int
    pace: Array | float = 1.0

    def accuracy_at(self, rounds: Array) -> Array:
        """Returns 1 − e(t) of every curve, at rounds of its own.  [..., NUM_DRAWS]"""
        with np.errstate(divide="ignore", over="ignore"):
            error = self.floor + (self.last - self.floor) * (rounds * self.pace / self.rounds) ** -self.power
        return 1.0 - np.minimum(error, 1.0)

    def rounds_to(self, accuracy: float) -> Array:
        """Returns t with e(t) = 1 − accuracy; ∞ where a curve never reaches it.  [NUM_DRAWS]"""
        above = (1.0 - accuracy) - self.floor
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            rounds = self.rounds / self.pace * (above / (self.last - self.floor)) ** (-1.0 / self.power)
        return np.where(above > 0.0, rounds, np.inf)


def fit_curve(accuracy: Array) -> LearningCurve:
    """Fits curves to accuracies after rounds 1, 2, …"""
    error = np.maximum(1.0 - np.asarray(accuracy, dtype=np.float64), _LEAST_ERROR)
    count = len(error)
    rounds = np.arange(1, count + 1)
    used = slice(_SKIPPED if count >= _NEEDED else 0, None)
    end = float(np.exp(np.mean(np.log(error[-max(1, count // 5) :]))))
    share, last, power = (axis.ravel() for axis in np.meshgrid(_FLOORS, end * _ENDS, _POWERS, indexing="ij"))
    floor = share * last
    squares = np.zeros(len(last))
    for t, observed in zip(rounds[used], np.log(error[used]), strict=True):
        squares += (np.log(floor + (last - floor) * (t / count) ** -power) - observed) ** 2
    evidence = _OWN_EVIDENCE * len(rounds[used])
    scatter = _SCATTER_ROUNDS * _USUAL_SCATTER**2 + _OWN_EVIDENCE * squares
    log_weight = -0.5 * (evidence + _SCATTER_ROUNDS) * np.log(scatter)
    log_weight -= 0.5 * (np.log(power / _USUAL_POWER) / _POWER_SPREAD) ** 2
    weight = np.exp(log_weight - log_weight.max())
    chosen = _spread_evenly(weight)
    return LearningCurve(floor[chosen], last[chosen], power[chosen], count)


def _spread_evenly(weight: Array) -> Array:
    """Returns indices that represent the weights: each as often as its weight says, to within one."""
    edges = np.cumsum(weight) / weight.sum()
    return np.minimum(np.searchsorted(edges, (np.arange(NUM_DRAWS) + 0.5) / NUM_DRAWS), len(weight) - 1)


def rising(accuracy: Array) -> Array:
    """Returns the nearest curve that never falls, by pooling neighbours that do (isotonic regression)."""
    levels: list[float] = []
    sizes: list[int] = []
    for value in np.asarray(accuracy, dtype=np.float64).tolist():
        level, size = value, 1
        while levels and levels[-1] >= level:
            size += sizes[-1]
            level += (levels.pop() - level) * sizes.pop() / size
        levels.append(level)
        sizes.append(size)
    return np.repeat(levels, sizes)


def crossing(rounds: Array, curve: Array, level: float) -> float:
    """Returns when a curve that never falls first reaches a level, between rounds if need be; NaN outside its range."""
    if level < curve[0] or level > curve[-1]:
        return float("nan")
    i = int(np.searchsorted(curve, level))
    if i == 0 or curve[i] == level:
        return float(rounds[i])
    share = (level - curve[i - 1]) / (curve[i] - curve[i - 1])
    return float(rounds[i - 1] + share * (rounds[i] - rounds[i - 1]))
