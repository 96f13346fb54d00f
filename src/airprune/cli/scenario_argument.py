"""The scenario of a command: a preset or a file, then changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from airprune.cli.console import say
from airprune.errors import UsageError
from airprune.scenario import Scenario


def scenario_from(
    name: str | Scenario,
    overrides: Sequence[str],
    *,
    engine: str | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    tls: Path | None = None,
    fleet: Path | None = None,
) -> Scenario:
    """Returns the preset, file or scenario `name` with `key=value` changes, the fleet and the engine options applied.

    A scheduler or its certificates mean the engine dask, unless another one is given, which is refused.
    """
    if isinstance(name, str):
        name = Scenario.load(name) if name.endswith(".toml") or "/" in name else Scenario.preset(name)
    scenario = name.with_overrides(overrides)
    if fleet is not None:
        scenario = _with_fleet(scenario, fleet)
    if engine is None and (scheduler is not None or tls is not None):
        engine = "dask"
    if engine is not None:
        scenario = scenario.with_("engine.name", engine)
    if workers is not None:
        scenario = scenario.with_("engine.workers", workers)
    if scheduler is not None:
        scenario = scenario.with_("engine.scheduler", scheduler)
    if tls is not None:
        scenario = scenario.with_("engine.tls", str(tls))
    _check_cluster(scenario, engine, scheduler, tls)
    return scenario


def _with_fleet(scenario: Scenario, fleet: Path) -> Scenario:
    from airprune.planning.fleet import unused_by_runs

    unused, unknown = unused_by_runs(fleet)
    for column in unknown:
        say(f"note: ignored column {column}")
    if unused:
        say(
            f"note: `airprune plan` alone reads {', '.join(unused)} of {fleet}; a run has them from model and scenario."
        )
    return scenario.with_("network.table", str(fleet))


def _check_cluster(scenario: Scenario, engine: str | None, scheduler: str | None, tls: Path | None) -> None:
    for option, value in (("--scheduler", scheduler), ("--tls", tls)):
        if value is not None and scenario.engine.name != "dask":
            raise UsageError(f"{option} is for the engine dask, got --engine {engine}; leave one of the two out.")
    if tls is not None and scenario.engine.scheduler is None:
        raise UsageError("--tls goes with the address of a scheduler: --scheduler tls://host:8786.")
    if scheduler is not None and scheduler.startswith("tls://") and scenario.engine.tls is None:
        raise UsageError(f"The scheduler at {scheduler} wants certificates: give --tls FOLDER.")
    if scheduler is not None and scheduler.startswith("tcp://") and scenario.engine.tls is not None:
        raise UsageError(f"--tls goes with an address like tls://host:8786, got {scheduler}, which is not encrypted.")
