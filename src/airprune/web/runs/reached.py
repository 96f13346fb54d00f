"""The costs of runs to an accuracy, for any accuracy that is requested."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airprune.results.measures import TO_TARGET
from airprune.results.time_to_target import Evaluation, cost, evaluations_in, first_reaching
from airprune.runs.followed import MAX_BYTES_AT_ONCE, version_of
from airprune.runs.layout import RunFolder
from airprune.web.runs.views import run_named

_MAX_KEPT = 1_000


def reached(root: Path, names: Sequence[str], target: float) -> dict[str, Any]:
    """Per run, whether it reached the target (None: never tested, or too large to look into) and what that took."""
    return {"target": target, "runs": [{"name": name, **_of_run(run_named(root, name), target)} for name in names]}


def _of_run(path: Path, target: float) -> dict[str, Any]:
    tests = tests_of(path)
    costs = {name: cost(tests, target, name) for name in TO_TARGET}
    return {
        "reached": first_reaching(tests, target) is not None if tests else None,
        **{name: value if math.isfinite(value) else None for name, value in costs.items()},
    }


def tests_of(path: Path) -> tuple[Evaluation, ...]:
    """Every evaluation of a run; none if its records are too large to look into."""
    version = version_of(path / "records.jsonl")
    return () if version is None or version[0] > MAX_BYTES_AT_ONCE else _read(path, *version)


@functools.lru_cache(maxsize=_MAX_KEPT)
def _read(path: Path, size: int, written_ns: int) -> tuple[Evaluation, ...]:
    """Read again when the file has changed."""
    return tuple(evaluations_in(RunFolder(path)))
