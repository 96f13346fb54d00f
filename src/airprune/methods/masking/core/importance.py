"""Importances of weights. To add one, write its function and list it in IMPORTANCES, or `register` it.

Every function maps a `Probe` to one score per prunable weight; only the order of the scores matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from airprune.checks import quantity
from airprune.components.component import Array
from airprune.components.registry import Registry
from airprune.errors import InvalidValue


@dataclass(frozen=True, kw_only=True, eq=False)
class Probe:
    """The dense model that a device received, as importances see it before it prunes.

    Attributes:
      weights: the prunable weights w.  [num_weights]
      gradient: ∇F(w, ξ) on one minibatch ξ, of the dense model.  [num_weights]
      learning_rate: η; scales `update`, never reorders it.
      loss: F as a function of the prunable weights.
      rng: stream for `random`.
    """

    weights: Array
    gradient: Array | None = None
    learning_rate: float = 1.0
    loss: Callable[[Array], float] | None = None
    rng: np.random.Generator | None = None

    def __post_init__(self) -> None:
        quantity("Probe.learning_rate", self.learning_rate, above=0.0, way_out="Example: learning_rate = 0.001")
        if np.ndim(self.weights) != 1:
            raise InvalidValue("Probe.weights", "must be one flat vector", f"shape {np.shape(self.weights)}")
        if self.gradient is not None and np.shape(self.gradient) != np.shape(self.weights):
            rule = f"must have the shape {np.shape(self.weights)} of the weights"
            raise InvalidValue("Probe.gradient", rule, f"shape {np.shape(self.gradient)}")


@dataclass(frozen=True, kw_only=True)
class Importance:
    """One way to score weights.

    Attributes:
      name: how users call it.
      summary: one line for help texts, tables and docs.
      score: the scores themselves, one per weight.
      needs_gradient: whether the caller must pay for a probe minibatch.
      needs_loss: whether the caller must provide F itself.
      needs_rng: whether it needs random numbers; making a stream costs as much as choosing a mask.
    """

    name: str
    summary: str
    score: Callable[[Probe], Array]
    needs_gradient: bool = False
    needs_loss: bool = False
    needs_rng: bool = True


def update(probe: Probe) -> Array:
    """Eq. (2): |w − ŵ| with ŵ = w − η ∇F(w, ξ), written as η |∇F(w, ξ)|.

    The subtraction itself would round steps below w's last bit to 0 and lose their order.

    Differs from Eq. (2) read literally, where ŵ comes from training the pruned model: there a pruned weight has
    importance 0 from then on and the first mask never changes. The dense probe lets pruned weights return.
    """
    return probe.learning_rate * np.abs(_gradient(probe, "update"))


def magnitude(probe: Probe) -> Array:
    """|w|."""
    return np.abs(probe.weights)


def taylor(probe: Probe) -> Array:
    """(w ∂F/∂w)², the first-order estimate of Eq. (1); exact where F is linear in each weight.

    In float64, because squares of small float32 products vanish and would tie.
    """
    return np.square(probe.weights * _gradient(probe, "taylor").astype(np.float64))


def random(probe: Probe) -> Array:
    """Uniform scores: what any other importance has to beat."""
    if probe.rng is None:
        way_out = 'Example: rng = rng_for(seed, "pruning", round_index, device)'
        raise InvalidValue("Probe.rng", "must be given for importance 'random'", None, way_out)
    return probe.rng.random(probe.weights.size)


def exact(probe: Probe) -> Array:
    """Eq. (1): (F(w) − F(w | w_j = 0))² for every j, at the price of num_weights + 1 evaluations of F."""
    if probe.loss is None:
        way_out = "Pass the loss as a function of the prunable weights, or take importance 'taylor'."
        raise InvalidValue("Probe.loss", "must be given for importance 'exact'", None, way_out)
    dense_loss = float(probe.loss(probe.weights.copy()))
    scores = np.empty(probe.weights.size)
    for j in range(probe.weights.size):
        without = probe.weights.copy()
        without[j] = 0.0
        scores[j] = (dense_loss - float(probe.loss(without))) ** 2
    return scores


def _gradient(probe: Probe, name: str) -> Array:
    if probe.gradient is None:
        way_out = "Run one minibatch on the dense model, or take importance 'magnitude'."
        raise InvalidValue("Probe.gradient", f"must be given for importance {name!r}", None, way_out)
    return np.asarray(probe.gradient)


UPDATE = Importance(
    name="update",
    summary="the paper's: update size of the weight in one step on a minibatch, Eq. (2)",
    score=update,
    needs_gradient=True,
    needs_rng=False,
)
MAGNITUDE = Importance(name="magnitude", summary="absolute value of the weight", score=magnitude, needs_rng=False)
TAYLOR = Importance(
    name="taylor",
    summary="first-order Taylor estimate of the squared loss change without the weight",
    score=taylor,
    needs_gradient=True,
    needs_rng=False,
)
RANDOM = Importance(name="random", summary="random scores, as a baseline", score=random)
EXACT = Importance(
    name="exact",
    summary="squared loss change without the weight, Eq. (1); one evaluation per weight",
    score=exact,
    needs_loss=True,
    needs_rng=False,
)

IMPORTANCES: Registry[Importance] = Registry(
    "importance",
    {name: f"{__name__}:{name.upper()}" for name in ("update", "magnitude", "taylor", "random", "exact")},
)
