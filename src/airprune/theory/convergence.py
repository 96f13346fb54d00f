"""Convergence of hierarchical federated learning with pruning: Theorem 1 and Lemmas 2–5.

Theorem 1 bounds the mean squared gradient over Q global rounds,

    1/(QW) Σ_q ‖∇F(w_q)‖²  ≤  2ΔF/(QWηET) + H1 + H2 Σ_e Σ_n ρ_{n,e}          Eq. (22)

and H2 Σρ is the only part a planner controls. Two facts to know before reading numbers off it:

- The proof takes every device's loss to be F (this is what Eq. (53) makes of "IID"). Where device losses
  differ, the gradient that a weight sees depends on the devices that kept it, and the bound can be broken.
- The left side is at most φ²/W by Assumption 3 alone, so the bound says more than that only if 3ηLETW² < 1.
  For a real network read it for its *shape* in ρ, Γ* and η, not for its value. `variant="tight"` derives the same
  statement without the factors W and with the drift of edge models that Eq. (53) leaves out: docs/theory.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from airprune.checks import array_of
from airprune.errors import InvalidValue, UnknownName

Values = float | npt.NDArray[np.float64]
"""A number, or an array of them for a sweep; all inputs of one call broadcast together."""

VARIANTS = ("corrected", "paper", "tight")


@dataclass(frozen=True, kw_only=True)
class ConvergenceConstants:
    """The constants of Lemmas 2–5 and Theorem 1; scalars, or arrays that broadcast.

    Attributes:
      learning_rate: η.
      smoothness: L of Assumption 1, every F_n is L-smooth.
      gradient_bound: φ of Assumption 3, E‖∇F_n(w, ξ)‖² ≤ φ².
      gradient_noise: σ̂ of Assumption 4, E‖∇F_n(w, ξ) − ∇F_n(w)‖² ≤ σ̂².
      pruning_noise: D of Assumption 2, E‖w − w⊙m‖² ≤ ρD².
      num_edge_rounds: E, edge rounds per global round.
      num_local_iterations: T, local iterations per edge round.
      num_weights: W.
      num_devices: N. The proof works edge by edge, so the devices of the largest edge are enough; all
        devices of the network give a looser bound that is also true.
      min_coverage: Γ*, the smallest number of devices of one edge that kept the same weight, over all
        weights, edges and rounds.
    """

    learning_rate: Values
    smoothness: Values
    gradient_bound: Values
    gradient_noise: Values
    pruning_noise: Values
    num_edge_rounds: Values
    num_local_iterations: Values
    num_weights: Values
    num_devices: Values
    min_coverage: Values

    def __post_init__(self) -> None:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, values in _checked("ConvergenceConstants", given).items():
            object.__setattr__(self, name, values)


@dataclass(frozen=True, kw_only=True)
class ConvergenceBound:
    """Right-hand side of Eq. (22), term by term; `total` is the bound.

    Attributes:
      optimisation_gap: 2ΔF/(QWηET), how far the start is from the optimum.
      step: 3LηTEWφ², the price of a finite step; H1's first term.
      local_drift: φ²Nη²T²L²/Γ*, devices move away from the edge model between two edge averages, Eq. (55).
      step_gradient_noise: 3LWηETNσ̂²/Γ*, minibatch noise in the global step, Lemma 4.
      step_drift: 3WEL³T³η³φ²N/Γ*, local drift in the global step, Lemma 3 inside Lemma 5.
      pruning_drift_per_ratio: 2L²D²/(EΓ*), the part of H2 that stays as η → 0, Eq. (55).
      pruning_step_per_ratio: 6WηL³D²T/Γ*, the part of H2 from the global step, Lemma 5.
      pruning_ratio_sum: Σ_e Σ_n ρ_{n,e}, as given.
      edge_drift: 0; edge models move away from the cloud model over E rounds, which only "tight" counts.
      variant: "corrected", "paper" or "tight"; the formulas above are the corrected ones, those of "tight" are in
        `convergence_bound`.
    """

    optimisation_gap: Values
    step: Values
    local_drift: Values
    step_gradient_noise: Values
    step_drift: Values
    pruning_drift_per_ratio: Values
    pruning_step_per_ratio: Values
    pruning_ratio_sum: Values
    edge_drift: Values
    variant: str

    @property
    def h1(self) -> Values:
        """H1, Eq. (23): what remains after infinitely many rounds without pruning."""
        return self.step + self.local_drift + self.step_gradient_noise + self.step_drift + self.edge_drift

    @property
    def h2(self) -> Values:
        """H2, Eq. (24): the price of one unit of Σρ."""
        return self.pruning_drift_per_ratio + self.pruning_step_per_ratio

    @property
    def pruning(self) -> Values:
        """H2 Σρ, the planner's objective, Eq. (25)."""
        return self.h2 * self.pruning_ratio_sum

    @property
    def total(self) -> Values:
        """Right-hand side of Eq. (22)."""
        return self.optimisation_gap + self.h1 + self.pruning


def convergence_bound(
    *,
    initial_loss_gap: Values,
    learning_rate: Values,
    smoothness: Values,
    gradient_bound: Values,
    gradient_noise: Values,
    pruning_noise: Values,
    num_global_rounds: Values,
    num_edge_rounds: Values,
    num_local_iterations: Values,
    num_weights: Values,
    num_devices: Values,
    min_coverage: Values,
    pruning_ratio_sum: Values,
    variant: str = "corrected",
) -> ConvergenceBound:
    """Theorem 1: bound on 1/(QW) Σ_q ‖∇F(w_q)‖², Eqs. (22)–(24).

        2ΔF/(QWηET) + H1 + H2 Σρ
        H1 = 3LηTEWφ² + (φ²Nη²T²L² + 3LWηETNσ̂² + 3WEL³T³η³φ²N)/Γ*
        H2 = (2L²D²/E + 6WηL³D²T)/Γ*

    Differs from Eq. (23): the first fraction term has L², not L³; Eq. (58) copies Eq. (55)'s L² as L³.
    Differs from Eq. (24): 2L²D²/E stands in place of 2EL², which is what Eq. (58) divided by ηETQW/2 gives.
    The printed term lacks D², so rescaling the weights is enough to break the printed bound.
    `variant="paper"` gives both as printed.

    `variant="tight"` is derived in docs/theory.md, with κ = N/Γ*, and c = 2 if E > 1, else 1:

        H1 = (max(0, 2ηLET − 1)κφ² + cκη²L²φ²(T − 1)(2T − 1)/6 + κη²L²φ²T²(E − 1)(2E − 1)/3 + 2κηLσ̂²)/W
        H2 = cL²D²/(EΓ*W)

    Differs from Eq. (49): a squared norm is the sum of its squared coordinates, so no W² arises. Differs from
    Eq. (53): the drift of edge models is bounded, its third term. It is below the corrected bound wherever
    N/Γ* ≤ W² and ηLET ≤ 3/2.

    Args:
      initial_loss_gap: ΔF = E[F(w⁰) − F(w*)].
      learning_rate, smoothness, gradient_bound, gradient_noise, pruning_noise: η, L, φ, σ̂, D.
      num_global_rounds, num_edge_rounds, num_local_iterations: Q, E, T.
      num_weights, num_devices, min_coverage: W, N, Γ*; see `ConvergenceConstants`.
      pruning_ratio_sum: Σ_e Σ_n ρ_{n,e} of one global round; where rounds differ, the mean over rounds.
      variant: "corrected", "paper" or "tight".

    Inputs may be arrays (a sweep); each term has the shape of what it depends on, `total` of all together.
    """
    given = dict(locals())
    del given["variant"]
    if not isinstance(variant, str) or variant not in VARIANTS:
        raise UnknownName("convergence_bound.variant", variant, VARIANTS)
    v = _checked("convergence_bound", given)
    η, L, φ = v["learning_rate"], v["smoothness"], v["gradient_bound"]
    σ, D, ρ_sum = v["gradient_noise"], v["pruning_noise"], v["pruning_ratio_sum"]
    Q, E, T = v["num_global_rounds"], v["num_edge_rounds"], v["num_local_iterations"]
    W, N, Γ = v["num_weights"], v["num_devices"], v["min_coverage"]

    if variant == "tight":
        κ = N / Γ
        split = np.where(E > 1, 2, 1)[()]  # ‖a + b‖² ≤ 2‖a‖² + 2‖b‖², where edge drift b is there at all
        return ConvergenceBound(
            optimisation_gap=2 * v["initial_loss_gap"] / (Q * W * η * E * T),
            step=np.maximum(0, 2 * η * L * E * T - 1) * κ * φ**2 / W,
            local_drift=split * κ * η**2 * L**2 * φ**2 * (T - 1) * (2 * T - 1) / (6 * W),
            step_gradient_noise=2 * κ * η * L * σ**2 / W,
            step_drift=0.0,
            pruning_drift_per_ratio=split * L**2 * D**2 / (E * Γ * W),
            pruning_step_per_ratio=0.0,
            pruning_ratio_sum=ρ_sum,
            edge_drift=κ * η**2 * L**2 * φ**2 * T**2 * (E - 1) * (2 * E - 1) / (3 * W),
            variant=variant,
        )
    printed = variant == "paper"
    return ConvergenceBound(
        optimisation_gap=2 * v["initial_loss_gap"] / (Q * W * η * E * T),
        step=3 * L * η * T * E * W * φ**2,
        local_drift=φ**2 * N * η**2 * T**2 * (L**3 if printed else L**2) / Γ,
        step_gradient_noise=3 * L * W * η * E * T * N * σ**2 / Γ,
        step_drift=3 * W * E * L**3 * T**3 * η**3 * φ**2 * N / Γ,
        pruning_drift_per_ratio=(2 * E * L**2 if printed else 2 * L**2 * D**2 / E) / Γ,
        pruning_step_per_ratio=6 * W * η * L**3 * D**2 * T / Γ,
        pruning_ratio_sum=ρ_sum,
        edge_drift=0.0,
        variant=variant,
    )


def lemma2_bound(constants: ConvergenceConstants, *, pruning_ratio_sum: Values) -> Values:
    """Bound on Σ_e Σ_t Σ_n E‖w_n^{e,t−1} − w^e‖², how far local models are from the received one, Eq. (40).

        η²φ²NET³ + 2TD² Σρ

    Pruning enters without η: a smaller step does not undo it.
    """
    c = constants
    ρ_sum = _checked_ratio_sum("lemma2_bound", c, pruning_ratio_sum)
    training = (
        c.learning_rate**2 * c.gradient_bound**2 * (c.num_devices * c.num_edge_rounds * c.num_local_iterations**3)
    )
    return training + 2 * c.num_local_iterations * c.pruning_noise**2 * ρ_sum


def lemma3_bound(constants: ConvergenceConstants, *, pruning_ratio_sum: Values) -> Values:
    """Bound on the squared gradient drift of one weight in one global round, Eq. (44).

        E‖Σ_e 1/Γ^j Σ_t Σ_{n∈N^j} [∇F_n^j(w_n^{e,t−1}) − ∇F_n^j(w^e)]‖²  ≤  ETL²/Γ* × Lemma 2

    The right side bounds the *sum* over all weights j as well: the proof drops from ∇F^j to ∇F.
    """
    c = constants
    gain = c.num_edge_rounds * c.num_local_iterations * c.smoothness**2 / c.min_coverage
    return gain * lemma2_bound(c, pruning_ratio_sum=pruning_ratio_sum)


def lemma4_bound(constants: ConvergenceConstants) -> Values:
    """Bound on the squared minibatch noise of one weight in one global round, Eq. (46): E²T²Nσ̂²/Γ*.

    Neither independence nor zero mean of the noise is used, only its size.
    """
    c = constants
    steps = c.num_edge_rounds * c.num_local_iterations
    return steps**2 * c.num_devices * c.gradient_noise**2 / c.min_coverage


def lemma5_bound(constants: ConvergenceConstants, *, pruning_ratio_sum: Values) -> Values:
    """Bound on the squared length of one global step, E‖w_G^{q+1} − w_G^q‖², Eq. (48).

        3η²W² × (E²T²φ² + Lemma 4 + Lemma 3)

    Differs from Eq. (50): its G is Assumption 3's φ. The factor W² is loose: weights are orthogonal
    coordinates, so the sum over j in Eq. (49) needs no Cauchy–Schwarz.
    """
    c = constants
    steps = c.num_edge_rounds * c.num_local_iterations
    per_weight = steps**2 * c.gradient_bound**2 + lemma4_bound(c) + lemma3_bound(c, pruning_ratio_sum=pruning_ratio_sum)
    return 3 * c.learning_rate**2 * c.num_weights**2 * per_weight


_Test = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.bool_]]


def _at_least_zero(x: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    return x >= 0


def _count(x: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    return (x >= 1) & (x == np.floor(x))


_RULES: dict[str, tuple[str, _Test, str]] = {
    "initial_loss_gap": ("must be >= 0", _at_least_zero, "F(w*) is the minimum of the loss."),
    "learning_rate": ("must be > 0", lambda x: x > 0, "Example: learning_rate = 0.001"),
    "smoothness": ("must be >= 0", _at_least_zero, "Example: smoothness = 1.0"),
    "gradient_bound": ("must be >= 0", _at_least_zero, "Give φ, not φ². Example: gradient_bound = 1.0"),
    "gradient_noise": ("must be >= 0", _at_least_zero, "Full-batch training has gradient_noise = 0"),
    "pruning_noise": ("must be >= 0", _at_least_zero, "Give D, not D². Example: pruning_noise = 1.0"),
    "num_global_rounds": ("must be a whole number >= 1", _count, "Example: num_global_rounds = 10"),
    "num_edge_rounds": ("must be a whole number >= 1", _count, "Example: num_edge_rounds = 5"),
    "num_local_iterations": ("must be a whole number >= 1", _count, "Example: num_local_iterations = 2"),
    "num_weights": ("must be a whole number >= 1", _count, "Example: num_weights = 43888"),
    "num_devices": ("must be a whole number >= 1", _count, "Example: num_devices = 5"),
    "min_coverage": (
        "must be a whole number >= 1",
        _count,
        "Theorem 1 needs every weight kept by at least one device of each edge; lower the pruning ratios.",
    ),
    "pruning_ratio_sum": ("must be >= 0", _at_least_zero, "No pruning is pruning_ratio_sum = 0"),
}


def _checked(owner: str, given: dict[str, Values]) -> dict[str, Values]:
    """The given values as float64, each within its rule."""
    values: dict[str, npt.NDArray[np.float64]] = {}
    for name, got in given.items():
        rule, holds, way_out = _RULES[name]
        value = array_of(f"{owner}.{name}", got, "must be numeric", kinds="biuf", way_out=way_out).astype(np.float64)
        _require(np.isfinite(value) & holds(value), value, f"{owner}.{name}", f"{rule} and finite", way_out)
        values[name] = value
    try:
        np.broadcast_shapes(*(value.shape for value in values.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in values.items() if value.ndim)
        raise InvalidValue(owner, "needs arrays that broadcast together", shapes) from None
    if "min_coverage" in values:
        coverage, devices = values["min_coverage"], values["num_devices"]
        way_out = "No weight is kept by more devices than there are."
        _require(coverage <= devices, coverage, f"{owner}.min_coverage", "must be <= num_devices", way_out)
    if "pruning_ratio_sum" in values and "num_devices" in values:
        ρ_sum, most = values["pruning_ratio_sum"], values["num_edge_rounds"] * values["num_devices"]
        way_out = "Sum one ratio in [0, 1] per device and edge round of one global round."
        rule = "must be <= num_edge_rounds * num_devices"
        _require(ρ_sum <= most, ρ_sum, f"{owner}.pruning_ratio_sum", rule, way_out)
    return {name: value[()] for name, value in values.items()}


def _checked_ratio_sum(owner: str, constants: ConvergenceConstants, pruning_ratio_sum: Values) -> Values:
    shared = {field.name: getattr(constants, field.name) for field in fields(constants)}
    return _checked(owner, shared | {"pruning_ratio_sum": pruning_ratio_sum})["pruning_ratio_sum"]


def _require(ok: npt.NDArray[np.bool_], value: npt.NDArray[np.float64], field: str, rule: str, way_out: str) -> None:
    if not np.all(ok):
        first_bad = np.broadcast_to(value, np.shape(ok))[~ok].flat[0]
        raise InvalidValue(field, rule, f"{first_bad:g}", way_out)
