"""`airprune doctor`: checks of the installation, each with the way to fix it. Fetches and installs nothing."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

import numpy as np
import typer
from rich.text import Text

import airprune
from airprune import extras
from airprune.cli.console import print_json, stdout_console
from airprune.cli.options import AsJson
from airprune.cli.tables import plain_table, print_table
from airprune.data import DATASETS, DatasetEntry
from airprune.data.published import cache_folder
from airprune.errors import WorkFailed

OLDEST_PYTHON = (3, 11)
# Measured on the preset `paper`: resident memory of the driver and of each worker; on disk, its data take 0.25 GB.
DRIVER_GB = 0.8
WORKER_GB = 0.5
LITTLE_DISK_GB = 1.0
# The extra `train` has lines of its own: torch and training.
EXTRAS = {extra: packages for extra, packages in extras.EXTRAS.items() if extra != "train"}
# The packages of extras whose modules have other names.
_DISTRIBUTIONS = {"grpc": "grpcio"}


class Health(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Something optional is missing."""
    FAIL = "fail"
    """Something essential does not work."""


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    check: str
    health: Health
    found: str
    advice: str = ""


def doctor(as_json: AsJson = False) -> None:
    """Check the installation: versions, data, a small plan and run.

    Also shows cores and memory. Exit status 0 if everything essential works, 1 otherwise.
    """
    findings = [_examined(name, check) for name, check in _checks()]
    healthy = all(finding.health is not Health.FAIL for finding in findings)
    if as_json:
        print_json({"ok": healthy, "checks": [dataclasses.asdict(finding) for finding in findings]})
    else:
        _show(findings)
    if not healthy:
        raise typer.Exit(1)


def _checks() -> Iterator[tuple[str, Callable[[], Finding]]]:
    yield "python", _python
    yield "airprune", lambda: Finding("airprune", Health.OK, airprune.__version__)
    yield "numpy", lambda: Finding("numpy", Health.OK, np.__version__)
    yield "torch", _torch
    yield "kernel", _kernel
    yield "cores", _cores
    yield "memory", _memory
    for entry in DATASETS.values():
        yield f"data {entry.name}", partial(_data, entry)
    yield "cache", _cache
    yield "pages", _pages
    for extra in EXTRAS:
        yield f"extra {extra}", partial(_extra, extra)
    yield "plan", _plan
    yield "training", _training


def _examined(name: str, check: Callable[[], Finding]) -> Finding:
    """Returns the check's finding; an exception is one, too."""
    try:
        return check()
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return Finding(
            name, Health.FAIL, f"{type(error).__name__}: {lines[-1]}", f"Install again: {extras.install_command()}"
        )


def _python() -> Finding:
    oldest = ".".join(map(str, OLDEST_PYTHON))
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", Health.FAIL, platform.python_version(), f"Use Python {oldest} or newer.")
    return Finding("python", Health.OK, f"{platform.python_version()}, {platform.system()} {platform.machine()}")


def _torch() -> Finding:
    if absent := extras.missing(extras.EXTRAS["train"]):
        advice = f"Planning, pages and reports work; to train: {extras.install_command('train')}"
        return Finding("torch", Health.NOTE, f"not installed ({', '.join(absent)})", advice)
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        way_out = f"Planning works; to train: {extras.install_command('train')}"
        return Finding("torch", Health.FAIL, f"cannot be imported: {error}", way_out)
    if torch.version.cuda or torch.version.hip:
        return Finding(
            "torch", Health.NOTE, f"{torch.__version__}, a GPU build", "Works; the CPU build is far smaller."
        )
    return Finding("torch", Health.OK, f"{torch.__version__}, CPU build")


def _kernel() -> Finding:
    native = importlib.import_module("airprune.models.kernels.native")
    if native.trouble:
        way_in = f"with a C compiler: {extras.install_command('train')}"
        advice = f"Training works with torch, at half the speed or less; {way_in}"
        return Finding("kernel", Health.NOTE, f"torch; no native one: {native.trouble}", advice)
    return Finding("kernel", Health.OK, f"native, {native.instruction_sets[0]}")


def _cores() -> Finding:
    cores, allowed = _num_cores(), _allowed_cores()
    if allowed < cores:
        found = f"{cores}, of which {allowed:g} may be used"
        return Finding("cores", Health.NOTE, found, f"Run with engine.workers={max(1, int(allowed))}.")
    return Finding("cores", Health.OK, str(cores))


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _allowed_cores() -> float:
    """Number of cores that a container may use, e.g. 1.5 for a quota of "150000 100000"."""
    quota = _cgroup("cpu.max").split()
    return float(quota[0]) / float(quota[1]) if len(quota) == 2 and quota[0] != "max" else math.inf


def _memory() -> Finding:
    available_gb = _available_bytes() / 1e9
    found = f"{available_gb:.1f} GB free"
    workers = int((available_gb - DRIVER_GB) / WORKER_GB)
    if workers < 1:
        return Finding("memory", Health.NOTE, found, "Runs of the paper's size need more; run with engine.name=serial.")
    if workers < _num_cores():
        return Finding("memory", Health.NOTE, found, f"Run with engine.workers={workers}.")
    return Finding("memory", Health.OK, found)


def _available_bytes() -> float:
    """Number of bytes that are free on this machine, or within the limit of this container if that is less."""
    limit, used = _cgroup("memory.max"), _cgroup("memory.current")
    allowed = float(limit) - float(used) if limit.isdigit() and used.isdigit() else math.inf
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(float(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
        return min(allowed, kilobytes * 1024)
    except (OSError, StopIteration):
        return min(allowed, float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))


def _cgroup(name: str) -> str:
    try:
        return Path("/sys/fs/cgroup", name).read_text().strip()
    except OSError:
        return ""


def _data(entry: DatasetEntry) -> Finding:
    check = f"data {entry.name}"
    if not entry.needs_files or entry.find is None:
        return Finding(check, Health.OK, "generated when needed")
    folder = entry.find(None)
    if folder is None:
        return Finding(check, Health.NOTE, "not here yet", f"With a network: airprune data fetch {entry.name}")
    return Finding(check, Health.OK, str(folder))


def _cache() -> Finding:
    """Tries a folder that does not exist yet by the nearest one above it, so that nothing is left behind."""
    folder = cache_folder()
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    way_out = "Set AIRPRUNE_DATA to a folder that can be written."
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"airprune")
    except OSError as error:
        return Finding("cache", Health.FAIL, f"{folder} cannot be written: {error.strerror}", way_out)
    free_gb = shutil.disk_usage(nearest).free / 1e9
    found = f"{folder}, {free_gb:.1f} GB free"
    if free_gb < LITTLE_DISK_GB:
        return Finding("cache", Health.NOTE, found, f"Make room. {way_out}")
    return Finding("cache", Health.OK, found)


def _extra(extra: str) -> Finding:
    return _packages(f"extra {extra}", EXTRAS[extra], f"If wanted: {extras.install_command(extra)}")


def _pages() -> Finding:
    return _packages("pages", extras.PAGES, f"Install again: {extras.install_command()}")


def _packages(check: str, packages: tuple[str, ...], advice: str) -> Finding:
    """Looks for all packages; the finding has the version of the first."""
    if absent := extras.missing(packages):
        return Finding(check, Health.NOTE, f"not installed ({', '.join(absent)})", advice)
    main = _DISTRIBUTIONS.get(packages[0], packages[0])
    return Finding(check, Health.OK, f"{main} {importlib.metadata.version(main)}")


def _plan() -> Finding:
    """Plans three devices on one edge exactly: the shares sum to at most 1 and the deadline is met."""
    problem = airprune.PlanProblem(
        full_band_rate_bps=np.array([2.9e8, 2.8e8, 2.7e8]), seconds_per_weight=2 * 20 / 3e9, deadline_s=0.020
    )
    plan = airprune.plan(problem)
    if list(plan.status) != ["ok"] or plan.bandwidth_share.sum() > 1 + 1e-9 or max(plan.latency_s) > 0.020 * (1 + 1e-9):
        raise WorkFailed(f"the plan of three devices is wrong: {plan.status[0]}, {plan.bandwidth_share.tolist()}")
    return Finding("plan", Health.OK, f"3 devices, status ok, mean pruning {plan.pruning_ratio.mean():.2f}")


def _training() -> Finding:
    """Runs one edge round and one global round of a small network on two separable classes, in this process."""
    if extras.missing(extras.EXTRAS["train"]):
        return Finding("training", Health.NOTE, "not tried, without the extra train")
    start = time.perf_counter()
    scenario = airprune.Scenario().with_values(
        {
            "engine.name": "serial",
            "model.name": "mlp",
            "network": {"num_edges": 1, "devices_per_edge": 3},
            "plan.deadline_s": 0.0005,
            "rounds": {"global_rounds": 1, "edge_rounds": 1},
            "train": {"learning_rate": 0.1, "batch_size": 16, "local_epochs": 5},
        }
    )
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 2
    samples = rng.normal(size=(240, 8)) + 3.0 * labels[:, None]
    *_, last = airprune.run(scenario, dataset=(samples.astype(np.float32), labels))
    if not last["test_accuracy"] > 0.8:
        raise WorkFailed(f"training three devices on two separable classes ends at {last['test_accuracy']:.0%}")
    seconds = time.perf_counter() - start
    return Finding("training", Health.OK, f"3 devices, accuracy {last['test_accuracy']:.0%}, {seconds:.1f} s")


_STYLES = {Health.OK: "green", Health.NOTE: "yellow", Health.FAIL: "bold red"}


def _show(findings: list[Finding]) -> None:
    table = plain_table("check", "", "found", paths=["found"])
    for finding in findings:
        health = Text(finding.health.value, style=_STYLES[finding.health])
        table.add_row(finding.check, health, Text(finding.found))
    print_table(table)
    for finding in findings:
        if finding.advice:
            stdout_console().print(f"{finding.check}: {finding.advice}", markup=False, soft_wrap=True)
