"""One line about each run: what it is, how far it has come, whether somebody writes it."""

from __future__ import annotations

import functools
import threading
import time
from pathlib import Path
from typing import Any

from airprune import files
from airprune.results.figures.styles import Style, styles_for
from airprune.results.report.reading import drawable, scenario_or_trouble
from airprune.rounds.records import GlobalRecord, record_from
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.web.runs.finding import Findings, Found, find

# A global round's record follows its edge rounds', each with lists over all devices; beyond this, none is looked for.
LAST_ROUND_WITHIN_BYTES = 4 * 2**20
FRESH_S = 0.5
MAX_TROUBLE = 1_000

_SYMBOLS = {"o": "circle", "v": "triangle-down", "s": "square", "D": "diamond", "^": "triangle-up", "x": "x"}
_DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}


class Listing:
    """The runs under one folder; looked up again at most every `FRESH_S`, however many ask."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._about: dict[str, tuple[tuple[object, ...], dict[str, Any]]] = {}
        self._latest: dict[str, Any] = {}
        self._at = -FRESH_S

    def latest(self, *, fresh_s: float = FRESH_S) -> dict[str, Any]:
        """{runs: one row each, last written first; num_left_out, is_complete, reproductions, leagues, deployments,
        styles}."""
        with self._lock:
            if not self._latest or time.monotonic() - self._at > fresh_s:
                started = time.monotonic()
                self._latest = self._look(find(self.root))
                # A folder that takes long to search is searched less often.
                self._at = time.monotonic() + 4 * (time.monotonic() - started)
            return self._latest

    def _look(self, findings: Findings) -> dict[str, Any]:
        known, self._about = self._about, {}
        for run in findings.runs:
            signature, about = known.get(run.name, ((), {}))
            if signature != run.signature:
                about = _about(run)
            self._about[run.name] = (run.signature, about)
        rows = [{**self._about[run.name][1], "state": state_of(run.path)} for run in findings.runs]
        return {
            "runs": rows,
            "num_left_out": findings.num_left_out,
            "is_complete": findings.is_complete,
            "reproductions": findings.reproductions,
            "leagues": findings.leagues,
            "deployments": findings.deployments,
            "styles": drawn_styles(row["scheme"] for row in rows if row["scheme"]),
        }


@functools.lru_cache(maxsize=16)
def listing(root: Path) -> Listing:
    return Listing(root)


def drawn_styles(schemes: Any) -> dict[str, dict[str, str]]:
    """Each scheme as the reports draw it, in the words of the page's charts."""
    return {name: _drawn(style) for name, style in styles_for(sorted(set(schemes))).items()}


def _drawn(style: Style) -> dict[str, str]:
    return {
        "colour": style.colour,
        "symbol": _SYMBOLS.get(style.marker, "cross"),
        "dash": _DASHES[style.line],
    }


def scenario_of(path: Path) -> Scenario | None:
    """The scenario of a run folder; None if it cannot be read."""
    return scenario_or_trouble_of(path)[0]


def scenario_or_trouble_of(path: Path) -> tuple[Scenario | None, str]:
    if not files.is_regular(path / "scenario.toml"):
        return None, "There is no scenario.toml."
    return scenario_or_trouble(path)


def state_of(path: Path) -> str:
    """finished, running, diverged or stopped."""
    folder = RunFolder(path)
    if folder.is_finished:
        return "finished"
    return "running" if folder.is_running else "diverged" if folder.divergence else "stopped"


def _about(run: Found) -> dict[str, Any]:
    (scenario, trouble), last = scenario_or_trouble_of(run.path), _last_round(run.path)
    return {
        "name": run.name,
        "written": run.written,
        "scenario": scenario.name if scenario else None,
        "trouble": trouble.replace(str(run.path), run.name)[:MAX_TROUBLE],
        "scheme": scenario.plan.scheme if scenario else None,
        "seed": str(scenario.seed) if scenario else None,  # JavaScript would round a long one
        "data": scenario.data.source if scenario else None,
        "clock": RunFolder(run.path).clock_words(scenario) if scenario else None,
        "is_deployed": RunFolder(run.path).is_deployed,
        "rounds_done": last.global_round if last else 0,
        "rounds_total": scenario.rounds.global_rounds if scenario else None,
        "test_accuracy": drawable(last.test_accuracy) if last else None,
        "test_loss": drawable(last.test_loss) if last else None,
    }


def _last_round(path: Path) -> GlobalRecord | None:
    folder = RunFolder(path)
    try:
        record = record_from(folder.reader.last("global", within_bytes=LAST_ROUND_WITHIN_BYTES))
        return record if isinstance(record, GlobalRecord) else None
    except OSError:
        pass
    return None
