"""The same final models of sub-model methods, evaluated whole and as they were trained.

    .venv/bin/python benchmarks/evaluated.py            makes the missing runs, then the table
    .venv/bin/python benchmarks/evaluated.py --table    the table of docs/related.md alone

The runs are those of track A in docs/league-played.jsonl: tuned values, five seeds; benchmarks/evaluated.jsonl has what
was measured. Two numbers of each final model of
the cloud, on the same test set: with every weight, those that no device has trained at their initial values and without
the factors of training; and as airprune evaluates it. The latter is the accuracy that the ledger has.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import airprune as ap
from airprune.engines import ENGINES
from airprune.methods.masking.base import RoundView, Values
from airprune.methods.masking.heterofl import WIDEST, HeteroFl
from airprune.results.statistics import Estimate
from airprune.rounds.evaluation import evaluated_models, top_models
from airprune.rounds.experiment import Experiment
from airprune.rounds.training.worker import TEST_PART
from airprune.runs.driver import InProcess
from airprune.scenario import Scenario
from airprune.simulation import run_rounds
from airprune.studies.league.ledger import Line, read_ledger

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "benchmarks/evaluated.jsonl"
PAGE = ROOT / "docs/related.md"
LEDGER = ROOT / "docs/league-played.jsonl"
METHODS = ("heterofl", "heterofl-fc", "fjord", "fjord-fc", "feddrop", "afd")
# Of heterofl also at other learning rates than its tuned one.
OTHER_RATES = (0.1, 0.01)
FULL = f"{METHODS[0]} with the factor 1/p"
MARKED = re.compile(r"(<!-- evaluated -->\n)(?:.*?\n)??(<!-- end evaluated -->)", re.DOTALL)
HEAD = (
    "| method | trained by some device | evaluated whole, % | evaluated as trained, % | difference, points |\n"
    "|---|---|---|---|---|"
)


def lines() -> list[Line]:
    """Returns the ranked lines of track A of these methods, seed by seed."""
    found = [line for line in read_ledger(LEDGER).lines if (line.track, line.purpose) == ("A", "ranked")]
    return sorted(
        (line for line in found if line.method in METHODS), key=lambda line: (line.seed, METHODS.index(line.method))
    )


class AgainstFull(HeteroFl):
    """HeteroFL whose factors are against the full width, whether a device holds it or not: 1/p."""

    name = "heterofl-full"

    def prepare(self, view: RoundView, values: Values) -> tuple[np.ndarray, Values]:
        return np.ones(1), values | {WIDEST: np.ones(1)}


def runs() -> Iterator[tuple[str, Scenario]]:
    """Yields the name and the scenario of every run."""
    found = lines()
    for line in found:
        yield line.method, line.scenario_again()
    for line, rate in itertools.product(found, OTHER_RATES):
        if line.method == METHODS[0]:
            yield named(rate), line.scenario_again().with_("train.learning_rate", rate)
    ap.register(AgainstFull)
    for line in found:
        if line.method == METHODS[0]:
            yield FULL, line.scenario_again().with_("masking.name", AgainstFull.name)


def named(rate: float) -> str:
    return f"{METHODS[0]} at rate {rate:g}"


def measured(scenario: Scenario) -> dict[str, Any]:
    """Makes the run; returns both accuracies of its final model, and the share of weights that devices have trained."""
    experiment = Experiment.of(scenario.with_("engine.name", "serial"))
    state, data = experiment.initial_state(), experiment.dataset
    with ENGINES["serial"](experiment.job(InProcess(data)), workers=1) as engine:
        for _ in run_rounds(experiment, engine, state):
            pass

        def accuracy(models: np.ndarray) -> float:
            parts = engine.map("evaluate", models, range(0, len(data.test_y), TEST_PART))
            return float(sum(score for _, score in parts) / len(data.test_y))

        trained = state.values[f"{scenario.masking.name}.trained"]
        return {
            "whole": accuracy(top_models(experiment, state)),
            "as_trained": accuracy(evaluated_models(experiment, state)),
            "trained": float(np.mean(trained)),
        }


def read() -> list[dict[str, Any]]:
    return [json.loads(text) for text in RUNS.read_text().splitlines()] if RUNS.exists() else []


def make() -> None:
    """Makes the missing runs, one after the other."""
    known = {one["scenario"] for one in read()}
    for name, scenario in runs():
        if scenario.hash in known:
            continue
        started = time.process_time()
        row = {"name": name, "seed": scenario.seed, "scenario": scenario.hash, **measured(scenario)}
        row["cpu_s"] = round(time.process_time() - started, 1)
        with RUNS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row, file=sys.stderr)


def table(rows: list[Mapping[str, Any]]) -> str:
    """Returns the table of the page."""
    cells = []
    for name in (*METHODS, *map(named, OTHER_RATES), FULL):
        mine = [row for row in rows if row["name"] == name]
        if not mine:
            continue
        shares = [row["trained"] for row in mine]
        whole, as_trained = (np.array([100.0 * row[key] for row in mine]) for key in ("whole", "as_trained"))
        low, high = 100.0 * min(shares), 100.0 * max(shares)
        share = f"{low:.0f} %" if round(low) == round(high) else f"{low:.0f} to {high:.0f} %"
        texts = [Estimate.of(list(values)) for values in (whole, as_trained, as_trained - whole)]
        shown = [
            f"{one.mean:{form}} ± {one.half_width:.1f}" for one, form in zip(texts, (".1f", ".1f", "+.1f"), strict=True)
        ]
        title = name.replace(METHODS[0], f"`{METHODS[0]}`") if " " in name else f"`{name}`"
        cells.append(f"| {title} | {share} | {' | '.join(shown)} |".replace("| -", "| −"))
    return "\n".join([HEAD, *cells])


def up_to_date(page: str) -> str:
    """Returns the page with the table of what was measured."""
    return MARKED.sub(lambda found: f"{found[1]}{table(read())}\n{found[2]}", page)


if __name__ == "__main__":
    if "--table" not in sys.argv[1:]:
        make()
    PAGE.write_text(up_to_date(PAGE.read_text()))
