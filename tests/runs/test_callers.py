"""Whatever a Python caller gives: the answer, or one of airprune's own errors in one sentence."""

import re
import warnings

import numpy as np
import pytest

import airprune as ap
from airprune.errors import AirpruneError, InvalidValue
from airprune.planning.limits import DeviceLimits
from airprune.planning.schemes import SCHEMES
from support.each import each

RATES = {"full_band_rate_bps": [2e8, 3e8], "seconds_per_weight": 1.3e-8}
NONSENSE = {
    "ragged": [[1, 2], [3]],
    "huge": 10**400,
    "none": None,
    "table": {},
    "three": [1, 2, 3],
    "nan": np.nan,
    "infinite": np.inf,
    "negative": -1,
    "object": object(),
    "complex": 1j,
    "holes": [None, 1],
    "words": np.array(["a", "b"]),
    "bytes": b"x",
    "set": set(),
}
BOUND = {
    "initial_loss_gap": 1, "learning_rate": 0.1, "smoothness": 1, "gradient_bound": 1, "gradient_noise": 1,
    "pruning_noise": 1, "num_global_rounds": 1, "num_edge_rounds": 1, "num_local_iterations": 1, "num_weights": 1,
    "num_devices": 1, "min_coverage": 1, "pruning_ratio_sum": 0, "variant": "paper",
}  # fmt: skip
INVERSE = {"problem": ap.PlanProblem(**RATES), "target_pruning": 0.3, "statistic": "mean", "scheme": "optimal"}
SCENARIO = ap.Scenario.preset("smoke")

# Every public function with one argument after the other left to nonsense.
CALLS = {
    **{f"PlanProblem.{key}": (lambda x, key=key: ap.plan(ap.PlanProblem(**{**RATES, key: x}))) for key in (
        "full_band_rate_bps", "seconds_per_weight", "edge", "bits_per_weight", "conv_weights", "fc_weights",
        "deadline_s", "max_pruning_ratio", "min_pruning_ratio", "objective_weight", "fixed_bits", "extra_seconds",
        "limits", "ladder", "codes", "block_rate_bps",
    )},
    "plan.problem": ap.plan,
    "plan.scheme": lambda x: ap.plan(ap.PlanProblem(**RATES), scheme=x),
    "plan.options": lambda x: ap.plan(ap.PlanProblem(**RATES), options=x),
    **{f"smallest_deadline_s.{key}": (lambda x, key=key: ap.smallest_deadline_s(**{**INVERSE, key: x})) for key in (
        *INVERSE, "relative_tolerance",
    )},
    **{f"smallest_bandwidth_hz.{key}": (
        lambda x, key=key: ap.smallest_bandwidth_hz(**{**INVERSE, "bandwidth_hz": 2e7, key: x})
    ) for key in (*INVERSE, "bandwidth_hz", "relative_tolerance")},
    "aggregate.values": lambda x: ap.aggregate(x, np.ones((2, 3)), np.zeros(3)),
    "aggregate.masks": lambda x: ap.aggregate(np.ones((2, 3)), x, np.zeros(3)),
    "aggregate.previous": lambda x: ap.aggregate(np.ones((2, 3)), np.ones((2, 3)), x),
    "aggregate.weights": lambda x: ap.aggregate(np.ones((2, 3)), np.ones((2, 3)), np.zeros(3), weights=x),
    **{f"compress.{key}": (lambda x, key=key: ap.compress(**{
        "delta": np.ones(4), "name": "quantised", "rng": 0, "bits": 4, key: x,
    })) for key in ("delta", "name", "memory", "rng", "value_bits", "bits")},
    **{f"convergence_bound.{key}": (lambda x, key=key: ap.convergence_bound(**{**BOUND, key: x})) for key in BOUND},
    "Scenario.preset": ap.Scenario.preset,
    "Scenario.load": ap.Scenario.load,
    "Scenario.with_ key": lambda x: SCENARIO.with_(x, 1),
    "Scenario.with_ value": lambda x: SCENARIO.with_("plan.deadline_s", x),
    "Scenario.with_values": SCENARIO.with_values,
    "run.scenario": lambda x: next(ap.run(x)),
    "run.out": lambda x: ap.run(SCENARIO, out=x if x is not None else 0),
    "run.resume": lambda x: ap.run(x, resume=x),
    "run.model": lambda x: next(ap.run(SCENARIO, model=x if x is not None else 0)),
    "run.dataset": lambda x: next(ap.run(SCENARIO, dataset=x if x is not None else 0)),
    "run.loss": lambda x: next(ap.run(SCENARIO, loss=x if x is not None else 0)),
    "run.callbacks": lambda x: next(ap.run(SCENARIO, callbacks=[x])),
    "trace_round.scenario": ap.trace_round,
    "trace_round.global_round": lambda x: ap.trace_round(SCENARIO, x if x is not None else 0),
    "trace_round.edge_round": lambda x: ap.trace_round(SCENARIO, 1, x if x is not None else 0),
    "trace_round.model": lambda x: ap.trace_round(SCENARIO, model=x if x is not None else 0),
    "trace_round.dataset": lambda x: ap.trace_round(SCENARIO, dataset=x if x is not None else 0),
    "trace_round.loss": lambda x: ap.trace_round(SCENARIO, loss=x if x is not None else 0),
    "adapter_bias.trace": ap.adapter_bias,
    "train.scenario": ap.train,
    "train.out": lambda x: ap.train(x, out=x),
    "compare.scenario": lambda x: ap.compare(x, schemes=["optimal"]),
    **{f"compare.{key}": (lambda x, key=key: ap.compare(SCENARIO, **{"schemes": ["no"], key: x})) for key in (
        "schemes", "methods", "also", "seeds", "out", "target",
    )},
    "sweep.scenario": lambda x: ap.sweep(x, {"seed": [0]}),
    "sweep.values": lambda x: ap.sweep(SCENARIO, {"no.key": [0]} if isinstance(x, dict) else x),
    **{f"sweep.{key}": (lambda x, key=key: ap.sweep(SCENARIO, {"no.key": [0]}, **{key: x})) for key in (
        "seeds", "out", "target", "workers",
    )},
    "load_runs.folder": ap.load_runs,
    "partition_of.scenario": ap.partition_of,
    "partition_of.dataset": lambda x: ap.partition_of(SCENARIO, x if x is not None else 0),
    "deadlines.scenario": ap.deadlines,
    "deadlines.clocks": lambda x: ap.deadlines(SCENARIO, clocks=x if x is not None else 0),
    "deadlines.deadlines_s": lambda x: ap.deadlines(SCENARIO, clocks=["own"], deadlines_s=x),
    "bound_of.run": ap.bound_of,
    "load_model.run": ap.load_model,
    "privacy_epsilon.noise_multiplier": lambda x: ap.privacy_epsilon(x, 10),
    "privacy_epsilon.num_rounds": lambda x: ap.privacy_epsilon(2.0, x),
    "privacy_epsilon.delta": lambda x: ap.privacy_epsilon(2.0, 10, x),
    "METHODS": lambda x: ap.METHODS[x],
    "SCHEMES": lambda x: ap.SCHEMES[x],
    "register": ap.register,
}  # fmt: skip
# Values and errors: made by airprune, or for a user's subclass.
NOT_CALLED = {
    "Plan",
    "Status",
    "Callback",
    "RoundTrace",
    "Trained",
    "AirpruneError",
    "UsageError",
    "InvalidValue",
    "Infeasible",
    "Diverged",
    "StopRun",
    "__version__",
}


def test_every_public_name_is_called_with_nonsense():
    assert {re.split(r"[. ]", call)[0] for call in CALLS} == set(ap.__all__) - NOT_CALLED


@each("call", CALLS)
def test_nonsense_is_answered_or_refused_in_one_sentence(call, tmp_path, monkeypatch, tally):
    monkeypatch.chdir(tmp_path)
    for name, nonsense in NONSENSE.items():
        try:
            with warnings.catch_warnings(action="error"):
                CALLS[call](nonsense)
        except AirpruneError as error:
            assert "\n" not in str(error) and 10 < len(str(error)) < 1_500, name
    assert not any(tmp_path.iterdir())
    tally("calls with nonsense", len(NONSENSE))


@pytest.mark.parametrize("tolerance", [0.0, -1.0, np.nan, 1e-300, np.inf])
def test_inverse_questions_refuse_tolerances_that_would_not_end(tolerance):
    for ask in (ap.smallest_deadline_s, lambda *a, **k: ap.smallest_bandwidth_hz(*a, bandwidth_hz=2e7, **k)):
        with pytest.raises(InvalidValue, match="relative_tolerance must be"):
            ask(ap.PlanProblem(**RATES), target_pruning=0.3, relative_tolerance=tolerance)


def test_the_finest_tolerance_ends():
    found = ap.smallest_deadline_s(ap.PlanProblem(**RATES), target_pruning=0.3, relative_tolerance=1e-15)
    assert found.plan.mean_pruning_ratio <= 0.3


def test_edge_ids_beyond_int64_are_refused_not_wrapped():
    with pytest.raises(InvalidValue, match=r"PlanProblem\.edge must hold ids ≤ 9223372036854775807"):
        ap.PlanProblem(**RATES, edge=np.array([2**63 + 1, 3], dtype=np.uint64))
    assert ap.PlanProblem(**RATES, edge=np.array([2**63 - 1, 3], dtype=np.uint64)).edge_ids.tolist() == [3, 2**63 - 1]


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if not SCHEMES[name].needs_limits])
def test_a_model_with_nothing_to_prune_is_planned_without_warnings(scheme):
    with warnings.catch_warnings(action="error"):
        ap.plan(ap.PlanProblem(**RATES, fc_weights=0, deadline_s=0.1), scheme=scheme)


@pytest.mark.parametrize("weights", [[1.0, np.nan], [1.0, -1.0], [1.0], [[1.0, 2.0]]])
def test_averages_refuse_weights_that_are_no_weights(weights):
    with pytest.raises(InvalidValue, match=r"aggregate\.weights must"):
        ap.aggregate(np.ones((2, 3)), np.ones((2, 3)), np.zeros(3), weights=weights)


# Plans of anything


POOLS = {
    "full_band_rate_bps": [0.0, 1e-30, 1e-3, 1.0, 1e6, 2e8, 3e8, 1e15, 1e30],
    "seconds_per_weight": [0.0, 1e-30, 1e-15, 1.3e-8, 1e-6, 1.0, 1e30],
    "bits_per_weight": [0.0, 1e-30, 0.5, 1, 8, 32, 64, 1e9, 1e30],
    "conv_weights": [0, 1, 10, 18_720, 25_168, 1e9, 2**53, 0.5],
    "fc_weights": [0, 1, 10, 18_720, 25_168, 1e9, 2**53, 0.5],
    "deadline_s": [1e-30, 1e-9, 1e-3, 0.02, 0.03, 1.0, 1e9, 1e30],
    "max_pruning_ratio": [0.0, 1e-300, 0.3, 0.5, 0.95, 1.0, 1 - 1e-16],
    "min_pruning_ratio": [0.0, 0.0, 0.3],
    "objective_weight": [1e-30, 1e-3, 1.0, 5.0, 1e30],
    "fixed_bits": [0.0, 0.0, 0.0, 1.0, 1e4, 1e30],
    "extra_seconds": [0.0, 0.0, 0.0, 1e-3, 0.03, 1e30],
}


def absurd(rng: np.random.Generator, num_devices: int) -> dict:
    """Every value from the ends of what is allowed, alike or unlike for the devices."""
    values = {
        key: rng.choice(pool, size=num_devices) if rng.random() < 0.7 else np.full(num_devices, rng.choice(pool))
        for key, pool in POOLS.items()
    }
    return values | {"edge": rng.integers(0, 3, num_devices)}


def plausible(rng: np.random.Generator, num_devices: int) -> dict:
    limits = DeviceLimits(cpu_hz_max=3e9, power_w_max=0.63, bandwidth_hz=20e6, energy_j=10.0 ** rng.uniform(-3, 0))
    return {
        "full_band_rate_bps": rng.uniform(1.5e8, 3.5e8, num_devices),
        "seconds_per_weight": rng.uniform(5e-9, 5e-8, num_devices),
        "edge": rng.integers(0, 3, num_devices),
        "deadline_s": rng.uniform(0.005, 0.06),
        "max_pruning_ratio": rng.choice([0.95, 1.0]),
        "limits": limits,
    }


def faults_of(plan: ap.Plan) -> list[str]:
    """What an edge that is ok breaks of deadline, band and box."""
    problem, found = plan.problem, []
    for k in np.flatnonzero(plan.status == "ok"):
        mine = problem.groups.spread(np.arange(problem.groups.num_edges) == k)
        latency_s, deadline_s = plan.latency_s[mine], problem.deadline_s[mine]
        share, ratio = plan.bandwidth_share[mine], plan.pruning_ratio[mine]
        if not np.all(latency_s <= deadline_s * (1 + 1e-9)):
            found.append(f"{plan.scheme}: ok, but {latency_s} s for {deadline_s} s")
        if not (np.all(share >= 0.0) and share.sum() <= 1 + 1e-9):
            found.append(f"{plan.scheme}: shares {share}")
        box = (problem.min_pruning_ratio[mine] - 1e-12 <= ratio) & (ratio <= problem.max_pruning_ratio[mine] + 1e-12)
        if plan.scheme != "no-pruning" and not np.all(box):  # which prunes nothing, whatever the box says
            found.append(f"{plan.scheme}: ratios {ratio}")
    return found


# A slice is a few hundred problems of its own, so that all cores share the 20,000 and each slice can be repeated alone.
SLICES, SLICE = 40, 500


@pytest.mark.parametrize(
    ("seed", "count"), [(17, 150), *(pytest.param(1_000 + i, SLICE, marks=pytest.mark.slow) for i in range(SLICES))]
)
def test_no_problem_however_absurd_gets_a_plan_outside_deadline_band_or_box(seed, count, tally):
    rng = np.random.default_rng(seed)
    planned = refused = 0
    with warnings.catch_warnings(action="error"):
        for index in range(count):
            make = plausible if index % 3 == 0 else absurd
            try:
                problem = ap.PlanProblem(**make(rng, int(rng.integers(1, 7))))
            except AirpruneError:
                refused += 1
                continue
            for scheme in SCHEMES:
                try:
                    plan = ap.plan(problem, scheme)
                except AirpruneError:  # without limits
                    refused += 1
                    continue
                assert not faults_of(plan), problem
                assert plan.kept_fc_weights.dtype == np.int64
                assert all(plan.failure(int(k)) for k in np.flatnonzero(plan.failed))
                planned += 1
    assert planned > 3 * count > refused
    for what, number in {"planner problems": count, "plans": planned, "plans refused": refused}.items():
        tally(what, number)
