"""A scenario as commands take it: a preset or a file, then changes."""

from __future__ import annotations

from collections.abc import Sequence

from airprune.scenario import Scenario


def scenario_from(
    name: str, overrides: Sequence[str], *, engine: str | None = None, workers: int | None = None
) -> Scenario:
    """The preset or file `name` with `key=value` changes and the engine options applied."""
    scenario = Scenario.load(name) if name.endswith(".toml") or "/" in name else Scenario.preset(name)
    scenario = scenario.with_overrides(overrides)
    if engine is not None:
        scenario = scenario.with_("engine.name", engine)
    if workers is not None:
        scenario = scenario.with_("engine.workers", workers)
    return scenario
