"""The map of equations is true: its functions exist, and who it says calls them does call them.

Small runs, plans and reproductions go through a tracer in this process; "called by" is compared with what it has seen.
"""

import functools
import importlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pytest

import airprune as ap
from airprune.models.catalogue import FlatModel, build_model
from airprune.models.kernels import KERNELS
from support.tiny import blobs, tiny_scenario

PAGE = (Path(__file__).parents[2] / "docs/equations.md").read_text()
CALLERS = ("run", "plan", "reproduce", "test only", "–")
NATIVE = (
    "airprune.models.kernels.native.NativeGradient",
    "airprune.models.kernels.native.NativeGradient.train_chunk",
    "airprune.models.without_torch.PlainCnn",
)

TIGHT = {"plan__deadline_s": 0.0003, "rounds__global_rounds": 1}
RUNS: dict[str, dict[str, Any]] = {
    "by weights, in fading": {"radio__fading": "rayleigh", **TIGHT},
    "correlated fading": {"radio__channel": "gauss-markov", "radio__fading": "rayleigh", **TIGHT},
    "slice noise": {"radio__slice_noise": True, **TIGHT},
    "modulation and coding": {"radio__rate": "nr-mcs", **TIGHT},
    "estimated channels": {
        "radio__fading": "rayleigh",
        "radio__csi_correlation": 0.9,
        "plan__on_time": 0.9,
        **TIGHT,
    },
    "interference": {"radio__reuse": 1, **TIGHT},
    "several devices at once": {
        "radio__fading": "rayleigh",
        "radio__num_antennas": 4,
        "radio__num_streams": 2,
        **TIGHT,
    },
    "movement": {
        "network__mobility": "waypoint",
        "network__speed_m_per_s": 15.0,
        "association__name": "a3",
        "radio__channel": "clarke",
        "radio__fading": "rayleigh",
        "radio__csi_delay_s": 0.001,
        "radio__pilots": 4,
        "radio__power_p0_dbm": 0.0,
        **TIGHT,
    },
    "by neurons": {"masking__probe__structure": "neurons", **TIGHT},
    "exact importance": {
        "masking__probe__importance": "exact",
        "network__devices_per_edge": 1,
        "rounds__edge_rounds": 1,
        **TIGHT,
        "plan__deadline_s": 0.0001,
    },
    "constants of Theorem 1": {"diagnostics__gradients": True, "rounds__edge_rounds": 1, **TIGHT},
    "counted FLOPs": {"clock__compute": "flops", "clock__flops_per_cycle": 1.0, **TIGHT},
    "moving devices": {"association__name": "best-rate", "rounds__edge_rounds": 1, **TIGHT},
    **{
        f"{way} downlink": {"radio__downlink": way, "clock__idle_power_w": 1.0, "rounds__edge_rounds": 1, **TIGHT}
        for way in ("broadcast", "unicast")
    },
    "ranks": {"plan__scheme": "ranks", "masking__name": "ranks", **TIGHT},
    **{f"scheme {name}": {"plan__scheme": name, **TIGHT} for name in ("min-max", "variance", "energy")},
}
PAPER_CNN = {
    "model__name": "paper-cnn",
    "data__name": "glyphs",
    "data__train_samples": 60,
    "data__test_samples": 20,
    "rounds__edge_rounds": 1,
    "rounds__global_rounds": 1,
}


def rows() -> Iterator[tuple[str, list[str], str]]:
    """(the whole row, its functions, who calls them) of every table with the column."""
    column: int | None = None
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            column = None
        elif "called by" in cells:
            column = cells.index("called by")
        elif column is not None and not set(line) <= set("|-"):
            yield line, re.findall(r"`(airprune(?:\.\w+)+)`", cells[column - 1]), cells[column]


def resolved(name: str) -> Any:
    """What a dotted name stands for: a module's function or class, or a member of a class."""
    parts = name.split(".")
    for size in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            found = vars(found)[part] if isinstance(found, type) else getattr(found, part)
        return found
    raise LookupError(name)


def code_of(name: str) -> CodeType:
    found = resolved(name)
    if isinstance(found, functools.cached_property):
        found = found.func
    elif isinstance(found, property):
        found = found.fget
    elif isinstance(found, type):
        found = found.__init__
    code: CodeType = found.__code__
    return code


def traced(work: Callable[[], object]) -> set[CodeType]:
    """The code of every Python function that `work` calls."""
    seen: set[CodeType] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    former = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(former)
    return seen


def small_runs() -> list[dict[str, Any]]:
    for changes in RUNS.values():
        records = list(ap.run(tiny_scenario(**changes), dataset=blobs()))
        assert records[-1]["mean_pruning_ratio"] > 0.0  # else masks and budgets would not be needed
    with tempfile.TemporaryDirectory() as folder:
        traces = traced_links(tiny_scenario(**TIGHT), Path(folder, "traces.npz"))
        list(ap.run(tiny_scenario(network__traces=str(traces), **TIGHT), dataset=blobs()))
    list(ap.run(tiny_scenario(method="over-the-air"), dataset=blobs()))  # prunes nothing
    return list(ap.run(tiny_scenario(**PAPER_CNN)))


def traced_links(scenario: ap.Scenario, path: Path) -> Path:
    """Writes a file of traces with the same gain for every link."""
    devices, stations = np.arange(scenario.num_devices), np.arange(scenario.network.num_edges)
    device, station = (grid.ravel() for grid in np.meshgrid(devices, stations))
    np.savez(path, time=np.zeros(len(device)), device=device, station=station, gain_db=np.full(len(device), -96.0))
    return path


def small_plans() -> None:
    problem = ap.PlanProblem(full_band_rate_bps=np.array([2.9e8, 2.6e8]), seconds_per_weight=2 * 20 / 3e9)
    for scheme in ap.SCHEMES:
        if not ap.SCHEMES[scheme].needs_limits:
            ap.plan(problem, scheme)
    ap.smallest_deadline_s(problem, target_pruning=0.5)
    ap.smallest_bandwidth_hz(problem, target_pruning=0.5, bandwidth_hz=20e6)


def small_reproductions() -> None:
    from airprune.studies.paper import bound, errata, table2

    scenario = tiny_scenario(**RUNS["constants of Theorem 1"])
    records = list(ap.run(scenario, dataset=blobs()))
    bound.rows(records, learning_rate=0.05, local_steps=2, num_weights=1024)
    errata.rows()
    table2.table2([0])


@pytest.fixture(scope="module")
def callers() -> dict[str, set[CodeType]]:
    """What each kind of work calls that those before it do not need."""
    small_plans()  # whatever happens at the first use only must not count
    run = traced(small_runs)
    plan = traced(small_plans)
    return {"run": run, "plan": plan - run, "reproduce": traced(small_reproductions) - run - plan}


def has_native_kernel() -> bool:
    x, y = np.zeros((2, 1, 28, 28), dtype=np.float32), np.zeros(2, dtype=np.int64)
    model = FlatModel(build_model("paper-cnn", input_shape=x.shape[1:], num_classes=10, seed=0))
    return not KERNELS["native"].unsupported(model, x, y)


def test_every_row_says_who_calls_its_functions():
    assert len(list(rows())) > 40
    for row, functions, caller in rows():
        assert caller in CALLERS, row
        assert bool(functions) == (caller != "–"), row


def test_every_equation_of_the_paper_is_in_the_map():
    numbers = re.findall(r"^\| \((\d+)\)(?:–\((\d+)\))?", PAGE, re.MULTILINE)
    covered = {n for first, last in numbers for n in range(int(first), int(last or first) + 1)}
    assert covered >= set(range(1, 68))


def test_every_function_of_the_map_exists():
    for row, functions, _ in rows():
        for name in functions:
            assert code_of(name), row


def test_every_function_is_called_by_whom_the_map_says(callers):
    for row, functions, caller in rows():
        for name in functions:
            if name in NATIVE and not has_native_kernel():
                continue
            found = [kind for kind, seen in callers.items() if code_of(name) in seen]
            assert found == ([caller] if caller in callers else []), f"{name} is called by {found or 'nobody'}\n{row}"


def test_the_tracer_sees_functions_properties_and_constructors():
    problem = ap.PlanProblem(full_band_rate_bps=[2e8], seconds_per_weight=1e-8)
    seen = traced(lambda: ap.plan(problem).kept_fc_weights)
    assert code_of("airprune.planning.plan.Plan.kept_fc_weights") in seen
    assert code_of("airprune.planning.plan.Plan") in seen
    assert code_of("airprune.planning.water_filling.water_fill") in seen
    assert code_of("airprune.planning.schemes.min_max.MinMax.allocate") not in seen


# What every edge round of the paper does, by the numbers of its equations.
OF_EVERY_ROUND = (2, 5, 6, 8, 9, 10, 11, 12, 13, 14, 16, 25, 31, 32)


def test_the_map_is_true_for_the_papers_own_preset():
    """Each of these equations has a function in the map that a short run of the preset `paper` calls."""
    small = {"data.name": "glyphs", "data.train_samples": 500, "data.test_samples": 50, "rounds.global_rounds": 1}
    paper = ap.Scenario.preset("paper").with_values({**small, "rounds.edge_rounds": 2, "engine.name": "serial"})
    seen = traced(lambda: list(ap.run(paper)))
    functions: dict[int, list[str]] = {}
    for row, named, _ in rows():
        first = row.strip("|").split(" | ")[0]
        for low, high in re.findall(r"\((\d+)\)(?:–\((\d+)\))?", first):
            for number in range(int(low), int(high or low) + 1):
                functions.setdefault(number, []).extend(named)
    untrue = [n for n in OF_EVERY_ROUND if not any(code_of(name) in seen for name in functions[n])]
    assert not untrue
