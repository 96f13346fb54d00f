"""Would the tests notice? Changes the numeric core in one place at a time, in a copy, and runs the nearest tests.

A mutant is killed if a test fails or the tests take far longer than without it. Those that survive are listed with
file, line and change; `EQUIVALENT` names the ones that were looked at and change nothing that is promised. Exit
status 1 if any other survives.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from support.mutants import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[1]
_PLANNER = (
    "planning/test_feasibility.py",
    "planning/test_schemes.py",
    "planning/test_planner_properties.py",
    "planning/test_optimality.py",
)

# Module below src/airprune → tests nearest to it, the quickest first.
NEAREST: dict[str, tuple[str, ...]] = {
    "methods/aggregation/masked_sum.py": ("methods/test_aggregate.py", "methods/test_aggregation.py"),
    "methods/aggregation/fill.py": ("methods/test_aggregation.py",),
    "methods/aggregation/predicted.py": ("methods/test_aggregation.py",),
    "wireless/channel.py": ("wireless/test_channel.py",),
    "theory/convergence.py": ("theory/test_convergence.py",),
    "planning/inverse.py": ("planning/test_inverse.py",),
    "wireless/latency.py": ("wireless/test_latency.py",),
    "planning/edges.py": _PLANNER,
    "planning/feasibility.py": _PLANNER,
    "planning/compression_levels.py": (
        "methods/test_codes.py",
        "planning/test_deadline_codes.py",
        "planning/test_air_budget.py",
    ),
    "planning/levels.py": ("planning/test_energy.py",),
    "planning/limits.py": ("planning/test_energy.py",),
    "planning/tradeoff.py": (*_PLANNER, "planning/test_energy.py"),
    "planning/water_filling.py": _PLANNER,
    "methods/masking/core/masks.py": ("methods/test_pruning_masks.py", "methods/test_pruning_coverage.py"),
    "planning/schemes/base.py": _PLANNER,
    "planning/schemes/min_max.py": _PLANNER,
}

# (module, what stood there, what was put in its place) → why nothing that is promised changes.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "wireless/channel.py",
        "1",
        "2",
    ): "the stations' streams of random numbers get other names: other draws of the same law",
    ("planning/inverse.py", "1.0", "2.0"): "where a search gives up, of a factor of 1e12 or so",
    (
        "planning/inverse.py",
        "max(secant + margin, low + margin)",
        "secant + margin",
    ): "a secant is never below its lower end",
    (
        "planning/levels.py",
        "self.problem.deadline_s * (1.0 + ROUNDING_MARGIN)",
        "self.problem.deadline_s / (1.0 + ROUNDING_MARGIN)",
    ): "which of two neighbouring levels is taken; both are in time by the plan's own tolerance",
    (
        "planning/schemes/min_max.py",
        "at_low - at_high",
        "at_low + at_high",
    ): "a worse guess costs steps; bisection ends the search",
    (
        "planning/schemes/min_max.py",
        "(4.0 if step % 3 else -4.0) * np.spacing(secant)",
        "(4.0 if step % 3 else -4.0) / np.spacing(secant)",
    ): "likewise",
    ("methods/masking/core/masks.py", "True", "False"): "zip(strict=…) of two lists that always have one length",
    (
        "methods/masking/core/masks.py",
        "best.size > layers.num_rows",
        "best.size >= layers.num_rows",
    ): "nothing is tied then",
}

# Imported once, before the tests of each mutant are run in a process of their own that is forked from this one.
_HEAVY = ("numpy", "scipy.optimize", "torch", "cvxpy", "pydantic", "pytest", "safetensors.numpy")
# Of pytest: passed; a test failed; not even collected.
_PASSED, _NOTICED = 0, (1, 2)
_PATIENCE = 8.0  # times as long as without a mutant, and at least a minute


def sampled(num: int, seed: int, only: str = "") -> list[tuple[str, Mutant]]:
    """So many mutants of all, drawn without replacement; (module, mutant) in the order of modules and lines."""
    found = [
        (module, mutant)
        for module in sorted(NEAREST)
        if only in module
        for mutant in mutants_of((ROOT / "src/airprune" / module).read_text())
    ]
    chosen = random.Random(seed).sample(range(len(found)), min(num, len(found)))
    return [found[index] for index in sorted(chosen)]


def copied(scratch: Path) -> Path:
    """Sources and tests, in which mutants live; the tree itself is never changed."""
    ignored = shutil.ignore_patterns("__pycache__", "static", "*.egg-info")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, scratch / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", scratch)
    return scratch


def passes(tree: Path, tests: tuple[str, ...], patience_s: float) -> bool | None:
    """Whether the tests pass on this tree; None if they took too long. In a forked process: heavy imports are there."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = _run_tests(tree, tests)
        finally:
            os._exit(status)
    try:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return _judged(os.waitstatus_to_exitcode(status))
            time.sleep(0.02)
    except BaseException:
        _kill(child)
        raise
    _kill(child)
    return None


def _judged(status: int) -> bool:
    if status not in (_PASSED, *_NOTICED) and status >= 0:  # a signal is a crash of what is tested
        raise RuntimeError(f"pytest could not run the tests: exit status {status}")
    return status == _PASSED


def _kill(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _run_tests(tree: Path, tests: tuple[str, ...]) -> int:
    import pytest

    os.setpgid(0, 0)
    os.chdir(tree)
    sys.path[:0] = [str(tree / "tests"), str(tree / "src")]
    for name in [name for name in sys.modules if name.split(".")[0] in ("support", "airprune")]:
        del sys.modules[name]
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    import airprune

    assert Path(airprune.__file__).is_relative_to(tree), "the copy is not what is tested"
    words = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow"]
    return int(pytest.main([*words, *(str(tree / "tests" / name) for name in tests)]))


def survives(tree: Path, module: str, mutant: Mutant, patience_s: float) -> bool:
    path = tree / "src/airprune" / module
    source = path.read_text()
    path.write_text(mutant.applied(source))
    try:
        return passes(tree, NEAREST[module], patience_s) is True
    finally:
        path.write_text(source)


def difference(module: str, mutant: Mutant) -> str:
    source = (ROOT / "src/airprune" / module).read_text()
    lines = [text.splitlines() for text in (source, mutant.applied(source))]
    shown = difflib.unified_diff(*lines, lineterm="", n=0)
    return "\n".join(f"    {line}" for line in shown if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=50, help="how many mutants")
    parser.add_argument("--seed", type=int, default=17, help="of the sample")
    parser.add_argument("--only", default="", metavar="TEXT", help="modules whose path has this in it")
    wanted = parser.parse_args()
    chosen = sampled(wanted.sample, wanted.seed, wanted.only)
    if not chosen:
        parser.error(f"--only must be part of one of {', '.join(NEAREST)}, got {wanted.only}")
    for name in _HEAVY:
        __import__(name)
    survivors = 0
    patience_s: dict[tuple[str, ...], float] = {}
    with tempfile.TemporaryDirectory(prefix="mutate-") as name:
        tree = copied(Path(name))
        for module, mutant in chosen:
            tests = NEAREST[module]
            if tests not in patience_s:
                begun = time.monotonic()
                if not passes(tree, tests, 3_600.0):
                    sys.exit(f"{', '.join(tests)} must pass before anything is changed; see scripts/test.")
                patience_s[tests] = max(60.0, _PATIENCE * (time.monotonic() - begun))
            word = "killed"
            if survives(tree, module, mutant, patience_s[tests]):
                reason = EQUIVALENT.get((module, " ".join(mutant.before.split()), mutant.after))
                survivors += reason is None
                word = f"survives, as it may: {reason}" if reason else f"SURVIVES\n{difference(module, mutant)}"
            sys.stdout.write(f"src/airprune/{module}:{mutant.line} {mutant.kind}: {mutant.told()}: {word}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen)} mutants, seed {wanted.seed}: {survivors} survive that nobody has looked at.\n")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
