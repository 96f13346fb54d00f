"""Plans by an independent solver, and fleets on which it keeps its digits."""

import dataclasses

import cvxpy as cp
import numpy as np

import airprune as ap
from support.fleets import random_fleet, share_needed


def oracle_ratio(problem: ap.PlanProblem, loss) -> tuple[np.ndarray, float]:
    """(ratios of one edge that minimise Σ c loss(1 − ρ) by a conic solver, how far off their objective may be).

    Solved in the kept weights rather than in the shares.

    With w = W / W_all, D = T − x and α = a W_all / D, the share a model needs is β (w + α w² / (1 − α w)) for its
    weights and γ / (1 − α w) for its fixed bits, both convex in w.
    """
    p = problem
    everything = p.conv_weights + p.fc_weights
    time = p.deadline_s - p.extra_seconds
    alpha = p.seconds_per_weight * everything / time
    beta = p.bits_per_weight * everything / (p.full_band_rate_bps * time)
    gamma = p.fixed_bits / (p.full_band_rate_bps * time)
    kept = cp.Variable(p.num_devices)
    bend = cp.Variable(p.num_devices)
    w = cp.multiply(p.fc_weights / everything, kept) + p.conv_weights / everything
    left = 1 - cp.multiply(alpha, w)
    constraints = [
        kept >= 1 - p.max_pruning_ratio,
        kept <= 1 - p.min_pruning_ratio,
        left >= 0,
        cp.SOC(bend + left, cp.vstack([2 * w, bend - left]), axis=0),  # bend · left ≥ w²
    ]
    used = cp.multiply(beta, w) + cp.multiply(alpha * beta, bend)
    if np.any(gamma > 0):
        used = used + cp.multiply(gamma, cp.inv_pos(left))
    if p.mimo_group is not None:  # a group's time is at least what each member uses
        _, place = np.unique(p.mimo_group, return_inverse=True)
        time_of = cp.Variable(place.max() + 1)
        constraints.append(used <= time_of[place])
        used = time_of
    budget = cp.sum(used) <= 1
    goal = cp.Minimize(cp.sum(cp.multiply(p.objective_weight, loss(kept))))
    cp.Problem(goal, [*constraints, budget]).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11, reduced_tol_gap_rel=1e-9
    )
    ratio = np.clip(1 - kept.value, p.min_pruning_ratio, p.max_pruning_ratio)
    needed = share_needed(p, ratio)
    if p.mimo_group is not None:
        needed = np.array([needed[place == group].max() for group in range(place.max() + 1)])
    overspent = max(0.0, float(needed.sum()) - 1.0)  # band that the solver allowed itself
    return ratio, overspent * float(budget.dual_value)


def moderate_fleet(rng: np.random.Generator, *, num_devices: int, reserved: bool = False) -> ap.PlanProblem:
    """`random_fleet` with deadlines at which a conic solver still keeps its digits."""
    problem = random_fleet(rng, num_devices=num_devices, reserved=reserved)
    deadline = ap.plan(problem).min_deadline_s.max() * (1 + 10.0 ** rng.uniform(-2, 1))
    return dataclasses.replace(problem, deadline_s=max(deadline, 1e-6))
