from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airprune.errors import InvalidValue, UnknownName
from airprune.theory.convergence import (
    VARIANTS,
    ConvergenceConstants,
    convergence_bound,
    lemma2_bound,
    lemma3_bound,
    lemma4_bound,
    lemma5_bound,
)

CLOSED_FORM = 1e-12  # the same products in another order: a few roundings

ORDINARY = {
    "initial_loss_gap": 2.3,
    "learning_rate": 0.01,
    "smoothness": 1.7,
    "gradient_bound": 0.9,
    "gradient_noise": 0.4,
    "pruning_noise": 3.0,
    "num_global_rounds": 10,
    "num_edge_rounds": 5,
    "num_local_iterations": 3,
    "num_weights": 50,
    "num_devices": 6,
    "min_coverage": 2,
    "pruning_ratio_sum": 7.5,
}
SHARED = tuple(field.name for field in fields(ConvergenceConstants))

positive = st.floats(0.01, 100)


@st.composite
def settings_of_theorem1(draw) -> dict:
    devices = draw(st.integers(1, 30))
    edge_rounds = draw(st.integers(1, 10))
    return {
        "initial_loss_gap": draw(positive),
        "learning_rate": draw(st.floats(1e-4, 1)),
        "smoothness": draw(positive),
        "gradient_bound": draw(positive),
        "gradient_noise": draw(positive),
        "pruning_noise": draw(positive),
        "num_global_rounds": draw(st.integers(1, 100)),
        "num_edge_rounds": edge_rounds,
        "num_local_iterations": draw(st.integers(1, 10)),
        "num_weights": draw(st.integers(1, 50_000)),
        "num_devices": devices,
        "min_coverage": draw(st.integers(1, devices)),
        "pruning_ratio_sum": draw(st.floats(0, 1)) * edge_rounds * devices,
    }


def constants_of(settings: dict) -> ConvergenceConstants:
    return ConvergenceConstants(**{name: settings[name] for name in SHARED})


# The formulas


@given(settings_of_theorem1())
def test_corrected_bound_is_eq_57_with_lemma_5_divided_by_eta_e_t_q_w_over_2(settings):
    constants = constants_of(settings)
    ρ_sum = settings["pruning_ratio_sum"]
    η, L, W = (settings[name] for name in ("learning_rate", "smoothness", "num_weights"))
    Q, E, T = (settings[f"num_{name}"] for name in ("global_rounds", "edge_rounds", "local_iterations"))
    # Eq. (55): Young's inequality over W weights; Eqs. (52), (57): L/2 of the squared step; Q rounds of both.
    inner_product = η * W / (2 * E * T) * lemma3_bound(constants, pruning_ratio_sum=ρ_sum)
    squared_step = L / 2 * lemma5_bound(constants, pruning_ratio_sum=ρ_sum)
    eq_58 = settings["initial_loss_gap"] + Q * (inner_product + squared_step)

    bound = convergence_bound(**settings)

    assert bound.total == pytest.approx(eq_58 / (η * E * T * Q * W / 2), rel=CLOSED_FORM)


@given(settings_of_theorem1())
def test_lemma_5_is_eq_48(settings):
    s = settings
    η, L, φ, σ, D = (
        s[name] for name in ("learning_rate", "smoothness", "gradient_bound", "gradient_noise", "pruning_noise")
    )
    E, T, W, N = (s[f"num_{name}"] for name in ("edge_rounds", "local_iterations", "weights", "devices"))
    Γ, ρ_sum = s["min_coverage"], s["pruning_ratio_sum"]
    eq_48 = (
        3 * η**2 * W**2 * E**2 * T**2 * φ**2
        + (3 * W**2 * η**2 * E**2 * T**2 * N * σ**2 + 3 * W**2 * E**2 * L**2 * T**4 * η**4 * N * φ**2) / Γ
        + 6 * W**2 * η**2 * L**2 * D**2 * T**2 * E * ρ_sum / Γ
    )
    eq_44 = (φ**2 * N * E**2 * η**2 * L**2 * T**4 + 2 * E * T**2 * L**2 * D**2 * ρ_sum) / Γ

    assert lemma5_bound(constants_of(s), pruning_ratio_sum=ρ_sum) == pytest.approx(eq_48, rel=CLOSED_FORM)
    assert lemma3_bound(constants_of(s), pruning_ratio_sum=ρ_sum) == pytest.approx(eq_44, rel=CLOSED_FORM)


@given(settings_of_theorem1())
def test_paper_variant_is_eqs_22_to_24_as_printed(settings):
    s = settings
    ΔF, η, L, φ, σ, D = list(s.values())[:6]
    Q, E, T, W, N, Γ, ρ_sum = list(s.values())[6:]
    h1 = (
        3 * L * η * T * E * W * φ**2
        + (φ**2 * N * η**2 * T**2 * L**3 + 3 * L * W * η * E * T * N * σ**2 + 3 * W * E * L**3 * T**3 * η**3 * φ**2 * N)
        / Γ
    )
    h2 = (2 * E * L**2 + 6 * W * η * L**3 * D**2 * T) / Γ

    bound = convergence_bound(**settings, variant="paper")

    assert bound.h1 == pytest.approx(h1, rel=CLOSED_FORM)
    assert bound.h2 == pytest.approx(h2, rel=CLOSED_FORM)
    assert bound.total == pytest.approx(2 * ΔF / (Q * W * η * E * T) + h1 + h2 * ρ_sum, rel=CLOSED_FORM)


@given(settings_of_theorem1())
def test_variants_differ_by_one_power_of_l_and_by_d_squared_over_e_squared_and_nothing_else(settings):
    ours, printed = convergence_bound(**settings), convergence_bound(**settings, variant="paper")
    L, D, E = settings["smoothness"], settings["pruning_noise"], settings["num_edge_rounds"]

    assert printed.local_drift == pytest.approx(L * ours.local_drift, rel=CLOSED_FORM)
    assert printed.pruning_drift_per_ratio * D**2 == pytest.approx(E**2 * ours.pruning_drift_per_ratio, rel=CLOSED_FORM)
    for same in ("optimisation_gap", "step", "step_gradient_noise", "step_drift", "pruning_step_per_ratio"):
        assert getattr(printed, same) == getattr(ours, same)


def test_variants_agree_where_the_errata_are_invisible():
    unit = {"smoothness": 1.0, "pruning_noise": 1.0, "num_edge_rounds": 1}
    settings = ORDINARY | unit | {"pruning_ratio_sum": 3}
    assert convergence_bound(**settings).total == convergence_bound(**settings, variant="paper").total


@given(settings_of_theorem1(), st.floats(0.1, 10))
def test_corrected_bound_scales_like_a_squared_gradient_in_new_units_of_weight(settings, unit):
    # w' = unit * w, same F: gradients shrink by unit and L by unit²; D grows by unit and η by unit².
    rescaled = settings | {
        "learning_rate": settings["learning_rate"] * unit**2,
        "smoothness": settings["smoothness"] / unit**2,
        "gradient_bound": settings["gradient_bound"] / unit,
        "gradient_noise": settings["gradient_noise"] / unit,
        "pruning_noise": settings["pruning_noise"] * unit,
    }
    before, after = convergence_bound(**settings).total, convergence_bound(**rescaled).total
    assert after == pytest.approx(before / unit**2, rel=CLOSED_FORM)


# Limits and monotonicity


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_pruning_leaves_no_pruning_term(variant):
    bound = convergence_bound(**ORDINARY | {"pruning_ratio_sum": 0}, variant=variant)
    assert bound.pruning == 0
    assert bound.total == bound.optimisation_gap + bound.h1


def test_full_batch_leaves_no_gradient_noise_term():
    assert convergence_bound(**ORDINARY | {"gradient_noise": 0}).step_gradient_noise == 0


def test_bound_vanishes_without_pruning_as_steps_shrink_and_rounds_grow_faster():
    rounds = 10 ** np.arange(4, 17, 2)
    sweep = {"num_global_rounds": rounds, "learning_rate": rounds**-0.5, "pruning_ratio_sum": 0}
    totals = convergence_bound(**ORDINARY | sweep).total
    assert np.all(np.diff(totals) < 0)
    assert totals[-1] == pytest.approx(0, abs=1e-4)  # every term falls at least as fast as Q^(-1/2) = 1e-8


def test_pruning_leaves_a_floor_that_small_steps_and_many_rounds_do_not_remove():
    bound = convergence_bound(**ORDINARY | {"num_global_rounds": 10**16, "learning_rate": 1e-8})
    L, D, E, Γ = 1.7, 3.0, 5, 2
    assert bound.total == pytest.approx(2 * L**2 * D**2 / (E * Γ) * 7.5, rel=1e-4)  # the rest is of order η


@given(settings_of_theorem1())
def test_bound_never_falls_as_pruning_grows(settings):
    most = settings["num_edge_rounds"] * settings["num_devices"]
    totals = convergence_bound(**settings | {"pruning_ratio_sum": np.linspace(0, most, 7)}).total
    assert np.all(np.diff(totals) >= 0)


@given(settings_of_theorem1())
def test_bound_falls_as_coverage_grows(settings):
    coverage = np.arange(1, settings["num_devices"] + 1)
    assert np.all(np.diff(convergence_bound(**settings | {"min_coverage": coverage}).total) <= 0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_total_is_the_sum_of_its_parts(variant):
    bound = convergence_bound(**ORDINARY, variant=variant)
    others = {"pruning_drift_per_ratio", "pruning_step_per_ratio", "pruning_ratio_sum", "variant"}
    parts = [getattr(bound, field.name) for field in fields(bound) if field.name not in others]
    assert bound.total == pytest.approx(sum(parts) + bound.h2 * 7.5, rel=CLOSED_FORM)


@given(settings_of_theorem1())
def test_bound_beats_the_assumed_gradient_bound_only_if_3_eta_l_e_t_w_squared_is_below_one(settings):
    assumed = settings["gradient_bound"] ** 2 / settings["num_weights"]
    steps = settings["num_edge_rounds"] * settings["num_local_iterations"]
    step = 3 * settings["learning_rate"] * settings["smoothness"] * steps * settings["num_weights"] ** 2
    assert step < 1 or convergence_bound(**settings).total >= assumed * (1 - CLOSED_FORM)


# Sweeps


def test_a_sweep_equals_its_points():
    ratios, rates = np.array([0.0, 4.0, 30.0]), np.array([[1e-3], [1e-2]])
    sweep = convergence_bound(**ORDINARY | {"pruning_ratio_sum": ratios, "learning_rate": rates})
    for row, rate in enumerate(rates[:, 0]):
        for column, ratio in enumerate(ratios):
            point = convergence_bound(**ORDINARY | {"pruning_ratio_sum": ratio, "learning_rate": rate})
            assert sweep.total[row, column] == pytest.approx(point.total, rel=CLOSED_FORM)


def test_each_term_has_the_shape_of_what_it_depends_on():
    axes = {"pruning_ratio_sum": [1, 2, 3], "learning_rate": [[1e-3], [1e-2]]}
    sweep = convergence_bound(**ORDINARY | axes)
    assert sweep.total.shape == sweep.pruning.shape == (2, 3)
    assert sweep.h1.shape == sweep.h2.shape == sweep.optimisation_gap.shape == (2, 1)
    assert np.ndim(sweep.pruning_drift_per_ratio) == 0


# Misuse


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("initial_loss_gap", -1, "must be >= 0"),
        ("learning_rate", 0, "must be > 0"),
        ("smoothness", -2, "must be >= 0"),
        ("gradient_bound", np.inf, "finite"),
        ("gradient_noise", np.nan, "finite"),
        ("pruning_noise", "large", "must be numeric"),
        ("num_global_rounds", 0, "must be a whole number >= 1"),
        ("num_edge_rounds", 2.5, "must be a whole number >= 1"),
        ("num_local_iterations", -3, "must be a whole number >= 1"),
        ("num_weights", 0, "must be a whole number >= 1"),
        ("num_devices", 0, "must be a whole number >= 1"),
        ("min_coverage", 0, "must be a whole number >= 1"),
        ("min_coverage", 7, "must be <= num_devices"),
        ("pruning_ratio_sum", -0.5, "must be >= 0"),
        ("pruning_ratio_sum", 30.5, "must be <= num_edge_rounds * num_devices"),
    ],
)
def test_a_bad_value_is_named_with_its_rule(field, value, rule):
    with pytest.raises(InvalidValue) as caught:
        convergence_bound(**ORDINARY | {field: value})
    message = str(caught.value)
    assert message.startswith(f"convergence_bound.{field} ")
    assert rule in message
    assert f"got {value!r}" in message


def test_one_bad_value_in_a_sweep_is_the_one_shown():
    with pytest.raises(InvalidValue, match=r"learning_rate must be > 0 and finite, got -0\.5\."):
        convergence_bound(**ORDINARY | {"learning_rate": [0.1, -0.5, 0.2]})


def test_arrays_that_do_not_broadcast_are_refused_with_their_shapes():
    with pytest.raises(InvalidValue, match=r"learning_rate \(2,\), pruning_ratio_sum \(3,\)"):
        convergence_bound(**ORDINARY | {"learning_rate": [0.1, 0.2], "pruning_ratio_sum": [1, 2, 3]})


def test_an_unknown_variant_names_the_nearest_one():
    with pytest.raises(UnknownName, match="did you mean 'corrected'"):
        convergence_bound(**ORDINARY, variant="correct")


def test_constants_and_lemmas_check_their_own_inputs():
    with pytest.raises(InvalidValue, match=r"ConvergenceConstants\.smoothness"):
        constants_of(ORDINARY | {"smoothness": -1})
    with pytest.raises(InvalidValue, match=r"lemma2_bound\.pruning_ratio_sum"):
        lemma5_bound(constants_of(ORDINARY), pruning_ratio_sum=31)


# The lemmas and the theorem on simulated training: constants are measured, so Assumptions 1–4 hold exactly


@dataclass(frozen=True)
class LeastSquares:
    """F_n(w) = 1/(2S) Σ_s (x_s·w − y_s)²; inputs [devices, samples, weights], targets [devices, samples]."""

    inputs: np.ndarray
    targets: np.ndarray

    @property
    def smoothness(self) -> float:
        hessians = np.einsum("nsi,nsj->nij", self.inputs, self.inputs) / self.inputs.shape[1]
        return float(np.linalg.eigvalsh(hessians).max())

    def gradients(self, weights: np.ndarray, batch: slice | np.ndarray = slice(None)) -> np.ndarray:
        """∇F_n at weights [devices, weights] over the samples `batch`."""
        x, y = self.inputs[:, batch], self.targets[:, batch]
        residuals = np.einsum("nsw,nw->ns", x, weights) - y
        return np.einsum("ns,nsw->nw", residuals, x) / x.shape[1]


@dataclass(frozen=True)
class EdgeTrace:
    """One global round of one edge; arrays [edge rounds, (iterations,) devices, weights]."""

    masks: np.ndarray
    received: np.ndarray
    local: np.ndarray
    sampled_gradients: np.ndarray
    full_gradients: np.ndarray
    received_gradients: np.ndarray
    final: np.ndarray

    @property
    def pruning_ratios(self) -> np.ndarray:
        return 1 - self.masks.mean(axis=-1)

    @property
    def coverage(self) -> np.ndarray:
        return self.masks.sum(axis=1)


def train_edge(problem, start, masks, *, iterations, learning_rate, batches) -> EdgeTrace:
    """Eqs. (5), (8), (12) for every edge round; `batches` yields the samples of the next iteration."""
    steps: dict[str, list] = {name: [] for name in ("received", "local", "sampled", "full", "at_received")}
    edge_model = start
    for mask in masks:
        received = np.broadcast_to(edge_model, mask.shape)
        weights = received * mask
        local, sampled, full = [], [], []
        for _ in range(iterations):
            local.append(weights)
            full.append(problem.gradients(weights))
            sampled.append(problem.gradients(weights, next(batches)))
            weights = weights - learning_rate * sampled[-1] * mask
        rows = (received, local, sampled, full, problem.gradients(received))
        for name, value in zip(steps, rows, strict=True):
            steps[name].append(value)
        edge_model = (weights * mask).sum(axis=0) / mask.sum(axis=0)
    stacked = (np.array(values) for values in steps.values())
    return EdgeTrace(masks, *stacked, edge_model)


def covering_masks(rng, *, edge_rounds, devices, num_weights, pruning_ratio) -> np.ndarray:
    """Random masks in which some device keeps each weight."""
    masks = rng.random((edge_rounds, devices, num_weights)) >= pruning_ratio
    keeper = rng.integers(devices, size=(edge_rounds, 1, num_weights))
    np.put_along_axis(masks, keeper, True, axis=1)
    return masks


def squared_norms(vectors: np.ndarray) -> np.ndarray:
    return np.sum(vectors**2, axis=-1)


def measured(traces: list[EdgeTrace], smoothness: float, learning_rate: float) -> ConvergenceConstants:
    """The smallest constants with which Assumptions 1–4 hold along the traces."""
    edge_rounds, iterations, devices, num_weights = traces[0].local.shape
    gradients = [trace.sampled_gradients for trace in traces] + [trace.full_gradients for trace in traces]
    gradients += [trace.received_gradients for trace in traces]
    noise = max(squared_norms(trace.sampled_gradients - trace.full_gradients).max() for trace in traces)
    pruned = max(
        (
            squared_norms(trace.received * ~trace.masks)[trace.pruning_ratios > 0]
            / trace.pruning_ratios[trace.pruning_ratios > 0]
        ).max(initial=0)
        for trace in traces
    )
    return ConvergenceConstants(
        learning_rate=learning_rate,
        smoothness=smoothness,
        gradient_bound=max(squared_norms(values).max() for values in gradients) ** 0.5,
        gradient_noise=noise**0.5,
        pruning_noise=pruned**0.5,
        num_edge_rounds=edge_rounds,
        num_local_iterations=iterations,
        num_weights=num_weights,
        num_devices=devices,
        min_coverage=min(trace.coverage.min() for trace in traces),
    )


def averaged_over_keepers(trace: EdgeTrace, per_iteration: np.ndarray) -> np.ndarray:
    """Σ_e 1/Γ^j Σ_t Σ_{n∈N^j} of [edge rounds, iterations, devices, weights], for every weight j."""
    kept = per_iteration.sum(axis=1) * trace.masks
    return (kept.sum(axis=1) / trace.coverage).sum(axis=0)


def endless_batches(rng, samples, size):
    while True:
        yield rng.integers(samples, size=size)


def random_round(seed: int) -> tuple[list[EdgeTrace], ConvergenceConstants, np.ndarray]:
    """One global round of two edges with unequal device data; returns traces, constants, w_G^q."""
    rng = np.random.default_rng(seed)
    devices, samples, num_weights = 4, 30, 6
    learning_rate = 10 ** rng.uniform(-3, -0.5)
    edge_rounds, iterations = rng.integers(1, 5, size=2)
    start = rng.normal(size=num_weights)
    problems = [
        LeastSquares(rng.normal(size=(devices, samples, num_weights)), rng.normal(size=(devices, samples)))
        for _edge in range(2)
    ]
    traces = []
    for problem in problems:
        masks = covering_masks(
            rng, edge_rounds=edge_rounds, devices=devices, num_weights=num_weights, pruning_ratio=rng.random()
        )
        traces.append(
            train_edge(
                problem,
                start,
                masks,
                iterations=iterations,
                learning_rate=learning_rate,
                batches=endless_batches(rng, samples, 5),
            )
        )
    smoothness = max(problem.smoothness for problem in problems)
    return traces, measured(traces, smoothness, learning_rate), start


SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_lemma_2_holds_in_simulated_training(seed):
    traces, constants, _ = random_round(seed)
    for trace in traces:
        moved = squared_norms(trace.local - trace.received[:, None]).sum()
        assert 0 < moved <= lemma2_bound(constants, pruning_ratio_sum=trace.pruning_ratios.sum())


@pytest.mark.parametrize("seed", SEEDS)
def test_lemma_3_holds_in_simulated_training_even_summed_over_weights(seed):
    traces, constants, _ = random_round(seed)
    for trace in traces:
        drift = averaged_over_keepers(trace, trace.full_gradients - trace.received_gradients[:, None])
        assert 0 < np.sum(drift**2) <= lemma3_bound(constants, pruning_ratio_sum=trace.pruning_ratios.sum())


@pytest.mark.parametrize("seed", SEEDS)
def test_lemma_4_holds_in_simulated_training_even_summed_over_weights(seed):
    traces, constants, _ = random_round(seed)
    for trace in traces:
        noise = averaged_over_keepers(trace, trace.sampled_gradients - trace.full_gradients)
        assert 0 < np.sum(noise**2) <= lemma4_bound(constants)


@pytest.mark.parametrize("seed", SEEDS)
def test_lemma_5_holds_in_simulated_training(seed):
    traces, constants, start = random_round(seed)
    cloud_model = np.mean([trace.final for trace in traces], axis=0)
    ρ_sum = np.mean([trace.pruning_ratios.sum() for trace in traces])  # Eq. (49) averages over edges
    assert 0 < squared_norms(cloud_model - start) <= lemma5_bound(constants, pruning_ratio_sum=ρ_sum)


@pytest.mark.parametrize("seed", SEEDS)
def test_global_step_is_the_sum_of_kept_gradients(seed):
    # The first line of Eqs. (49) and (53): averaging over the keepers of a weight adds no pruning error.
    traces, constants, start = random_round(seed)
    for trace in traces:
        step = -constants.learning_rate * averaged_over_keepers(trace, trace.sampled_gradients)
        np.testing.assert_allclose(trace.final - start, step, rtol=0, atol=1e-12)  # both are O(1) sums


def test_lemma_2_is_at_most_twice_too_large_where_pruning_alone_moves_the_model():
    # T = 1 and η → 0: each device is off by exactly ρD², and Eq. (41)'s split doubles it.
    rng = np.random.default_rng(0)
    problem = LeastSquares(rng.normal(size=(3, 9, 3)), rng.normal(size=(3, 9)))
    masks = ~np.eye(3, dtype=bool)[None]
    trace = train_edge(problem, np.ones(3), masks, iterations=1, learning_rate=1e-9, batches=endless_batches(rng, 9, 3))
    constants = measured([trace], problem.smoothness, 1e-9)
    moved = squared_norms(trace.local - trace.received[:, None]).sum()
    assert lemma2_bound(constants, pruning_ratio_sum=1.0) == pytest.approx(2 * moved, rel=CLOSED_FORM)


def test_lemma_4_is_exact_for_one_noisy_step_of_one_device():
    rng = np.random.default_rng(0)
    problem = LeastSquares(rng.normal(size=(1, 9, 4)), rng.normal(size=(1, 9)))
    masks = np.ones((1, 1, 4), dtype=bool)
    trace = train_edge(problem, np.ones(4), masks, iterations=1, learning_rate=0.1, batches=endless_batches(rng, 9, 2))
    noise = averaged_over_keepers(trace, trace.sampled_gradients - trace.full_gradients)
    bound = lemma4_bound(measured([trace], problem.smoothness, 0.1))
    assert bound == pytest.approx(np.sum(noise**2), rel=CLOSED_FORM)


def run_one_objective(hessian, optimum, start, masks, *, rounds, iterations, learning_rate):
    """Full-batch training of F(w) = ½(w − w*)ᵀH(w − w*) on every device; masks [edges, E, devices, weights].

    Returns the left side of Eq. (22) and the keyword arguments of its right side. Nothing is random, so
    expectations are values.
    """
    devices = masks.shape[2]
    root = np.linalg.cholesky(hessian).T * np.sqrt(len(hessian))
    problem = LeastSquares(np.tile(root, (devices, 1, 1)), np.tile(root @ optimum, (devices, 1)))
    every_sample = iter(lambda: slice(None), None)
    traces, gradients, cloud_model = [], [], start
    for _ in range(rounds):
        gradients.append(hessian @ (cloud_model - optimum))
        edges = [
            train_edge(
                problem,
                cloud_model,
                edge_masks,
                iterations=iterations,
                learning_rate=learning_rate,
                batches=every_sample,
            )
            for edge_masks in masks
        ]
        cloud_model = np.mean([trace.final for trace in edges], axis=0)
        traces += edges
    constants = measured(traces, problem.smoothness, learning_rate)
    settings = {name: getattr(constants, name) for name in SHARED} | {
        "initial_loss_gap": (start - optimum) @ hessian @ (start - optimum) / 2,
        "num_global_rounds": rounds,
        "pruning_ratio_sum": np.mean([trace.pruning_ratios.sum() for trace in traces]),
    }
    return squared_norms(np.array(gradients)).sum() / (rounds * len(start)), settings


@pytest.mark.parametrize("edge_rounds", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_theorem_1_holds_when_all_devices_share_one_objective(seed, edge_rounds):
    # Eq. (53) reads ∇F at the cloud model in every edge round, which is exact for E = 1 only; for E > 1 the
    # W² of Lemma 5 is slack enough to pay for the difference.
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(5, 5))
    hessian = factor @ factor.T / 5 + 0.1 * np.eye(5)
    masks = np.stack(
        [
            covering_masks(rng, edge_rounds=edge_rounds, devices=3, num_weights=5, pruning_ratio=0.4)
            for _edge in range(2)
        ]
    )
    mean_square, settings = run_one_objective(
        hessian,
        rng.normal(size=5),
        rng.normal(size=5),
        masks,
        rounds=60,
        iterations=2,
        learning_rate=0.02,
    )
    assert 0 < mean_square <= convergence_bound(**settings).total


def test_theorem_1_holds_and_says_more_than_its_own_assumption_for_small_steps_and_light_pruning():
    hessian = np.array([[1.0, 0.3], [0.3, 1.0]])
    masks = np.array([[[[1, 1], [1, 0]]]], dtype=bool)
    mean_square, settings = run_one_objective(
        hessian,
        np.array([3.0, 0.05]),
        np.array([-3.0, 0.0]),
        masks,
        rounds=2_000,
        iterations=1,
        learning_rate=0.01,
    )
    bound = convergence_bound(**settings).total
    assert 0 < mean_square <= bound < settings["gradient_bound"] ** 2 / settings["num_weights"]


def test_printed_eq_24_is_broken_by_a_run_that_the_corrected_bound_survives():
    # Device 2 prunes weight 2, and weight 1 settles where the two devices' gradients cancel: c·w₂/2 of F's
    # gradient is left for ever. It grows with the weights, and so must H2; the printed 2EL² does not know D.
    c, size = 0.5, 1_000.0
    w2 = size * (1 - c**2) / (1 - c**2 / 2)
    settled = np.array([c * (size - w2 / 2), w2])
    mean_square, settings = run_one_objective(
        np.array([[1.0, c], [c, 1.0]]),
        np.array([0.0, size]),
        settled,
        np.array([[[[1, 1], [1, 0]]]], dtype=bool),
        rounds=3,
        iterations=1,
        learning_rate=1e-4,
    )
    assert mean_square == pytest.approx((c * w2 / 2) ** 2 / 2, rel=1e-10)  # settled, up to rounding of `size`

    settings["num_global_rounds"] = 10**7  # more of the same
    assert mean_square <= convergence_bound(**settings).total
    assert mean_square > 2 * convergence_bound(**settings, variant="paper").total


def test_theorem_1_can_fail_when_device_losses_differ():
    # F_1 = ½‖w − (1, 0)‖², F_2 = ½‖w − (1, 10)‖², and device 2 always prunes weight 2. At w = (1, 0) nothing
    # moves and pruning changes nothing (D = 0), yet F = (F_1 + F_2)/2 has gradient (0, −5) there.
    identity = np.sqrt(2) * np.eye(2)
    optima = np.array([[1.0, 0.0], [1.0, 10.0]])
    problem = LeastSquares(np.tile(identity, (2, 1, 1)), np.sqrt(2) * optima)
    start, masks = np.array([1.0, 0.0]), np.array([[[1, 1], [1, 0]]], dtype=bool)
    every_sample = iter(lambda: slice(None), None)
    trace = train_edge(problem, start, masks, iterations=1, learning_rate=1e-3, batches=every_sample)
    assert np.array_equal(trace.final, start)

    constants = measured([trace], problem.smoothness, 1e-3)
    bound = convergence_bound(
        **{name: getattr(constants, name) for name in SHARED},
        initial_loss_gap=12.5,
        num_global_rounds=100_000,
        pruning_ratio_sum=0.5,
    )
    mean_square = squared_norms(problem.gradients(np.tile(start, (2, 1))).mean(axis=0)) / 2
    assert mean_square == pytest.approx(12.5, rel=CLOSED_FORM)
    assert bound.total < 1
