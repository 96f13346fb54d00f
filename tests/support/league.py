"""Leagues without training: runs of made-up accuracies, and what is written of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airprune.results.time_to_target import Evaluation
from airprune.results.traffic import LinkBits
from airprune.studies.league.finished import FinishedRun, RunStatistics
from airprune.studies.league.folder import League
from airprune.studies.league.league_run import LeagueRun
from airprune.studies.league.ledger import Line
from airprune.studies.league.lineup import ALONE, CENTRAL, FP32, SEED, WHOLE, lineup
from airprune.studies.league.schedule import SCHEDULES
from airprune.studies.league.standings import Result, Standings, standings
from airprune.studies.league.tracks import TRACKS

BASE = SCHEDULES["default"].scenario()
ABOUT: dict[str, Any] = {"note": "made up", "scenario": "none", "seeds": (0, 1, 2), "is_tuned": False}
CLAIM = {
    "name": "frozen-beats-zeroed",
    "where": "partial training",
    "text": "Frozen beats zeroed.",
    "verdict": "holds",
    "reason": "0.75 against 0.70.",
    "numbers": {"difference": "0.05"},
}

_QUIET = RunStatistics(mean_ratio=0.5, max_ratio=0.9, late_share=0.0, min_count=1.0, uncovered=0.0)


def run_of(*accuracies: float, round_s: float = 1.0) -> FinishedRun:
    """A run whose cloud models have these accuracies, one after every `round_s`."""
    tests = tuple(
        Evaluation(
            global_round=i,
            edge_round=None,
            test_accuracy=accuracy,
            time_s=round_s * i,
            uploaded_bits=1e6 * i,
            energy_j=0.1 * i,
        )
        for i, accuracy in enumerate(accuracies, start=1)
    )
    links = {
        i: LinkBits(uplink=1e6 * i, downlink=2e6 * i, backhaul=3e6 * i, d2d=4e6 * i) for i in range(1, len(tests) + 1)
    }
    return FinishedRun(tests=tests, conduct=_QUIET, links=links)


def line_of(run: LeagueRun, played: FinishedRun, commit: str = "c0ffee") -> Line:
    """A line of a ledger."""
    return Line.of(run, environment={"commit": commit, "kernel": "native", "cpu": "x"}, cpu_s=1.5, played=played)


def made_up() -> Standings:
    """Two rounds of 1 s, compared after 2 s. The codes take half a second per round, no pruning one and a half."""
    names = ["mem-sgd", "frozen-pruning"]
    entries = {entry.name: entry for entry in lineup(BASE, TRACKS["A"], names).entries}

    def result(name: str, *accuracies: float, round_s: float = 1.0) -> Result:
        runs = {seed: run_of(accuracies[0], accuracies[1] + 0.001 * seed, round_s=round_s) for seed in range(3)}
        return Result(entry=entries[name], runs=runs)

    results = [
        result(SEED, 0.5, 0.70),
        result(FP32, 0.6, 0.78),
        result("variance", 0.5, 0.70),
        result("frozen-pruning", 0.5, 0.75),
        result("mem-sgd", 0.3, 0.60, round_s=0.5),
        result(WHOLE, 0.6, 0.80, round_s=1.5),
        Result(entry=entries[ALONE], runs={seed: run_of(0.4, 0.4) for seed in range(3)}),
        Result(entry=entries[CENTRAL], runs={}, trouble="It was stopped."),
    ]
    return standings(TRACKS["A"], results, seeds=(0, 1, 2), horizon_s=2.0)


def tiny_league(out: Path) -> League:
    """Of fp32 and the references; nothing has been run."""
    return League(
        base=BASE,
        note="made up",
        tracks=(TRACKS["A"],),
        methods=("fp32",),
        seeds=(0, 1, 2),
        is_tuned=False,
        out=out,
        engine=BASE.engine,
    )


def make_league(folder: Path) -> Path:
    """A folder as `airprune league` leaves it, but for the runs."""
    folder.mkdir(parents=True)
    tiny_league(folder).write([made_up()], [CLAIM])
    return folder
