"""A reproduction folder: runs, tidy tables, figures, claims.

runs/<hash>/         every run once, however many figures need it; interrupted ones resume
fig2.csv …           tidy tables, from which figures and verdicts are made
fig2.png, .pdf, .svg figures (one per preset if there are several)
fig2.tex …           the same tables for LaTeX, unless they are curves
claims.json, .tex    verdicts, with numbers and reasons
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from airprune.engines.machine import num_cores
from airprune.results.bound import departures_of
from airprune.results.figures.curves import figure_files, save_figure
from airprune.results.latex import tabular
from airprune.results.tidy import Rows, read_rows, select, values, write_rows
from airprune.runs.layout import RunFolder
from airprune.scenario.model_shape import shape_of
from airprune.scenario.sections import EngineSection
from airprune.studies.campaign import WITHIN, Campaign, CampaignRun
from airprune.studies.paper import bound, errata, fair, fig2, fig3, fig4, fig5, fig6, frozen, table1, table2, to_target
from airprune.studies.paper.claim import PaperClaim, Tables
from airprune.studies.paper.profiles import Profile
from airprune.studies.paper.training import TrainingFigure, run_path
from airprune.tables import write_text_atomic
from airprune.text import MISSING, number

PLACEMENTS = 40
# Longer tables are curves, for figures.
_MOST_LINES = 60
_ROUNDING = 1e-12
CLAIMS: tuple[PaperClaim, ...] = tuple(
    claim
    for module in (fig2, fig3, table2, fig4, fair, to_target, fig5, fig6, frozen, bound, errata)
    for claim in module.CLAIMS
)


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """A table or figure of the paper: the runs it needs, the tables it writes and how it is drawn.

    Attributes:
      tables: name → function of the reproduction that makes the rows.
      draw: returns the figure of one preset's tables and a caption; None for tables.
      needs: artefacts whose tables its claims are judged from, too.
    """

    name: str
    title: str
    tables: dict[str, Callable[[Reproduction], Rows]]
    training: TrainingFigure | None = None
    draw: Callable[[Tables, str], Figure] | None = None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A schedule, its seeds, and the folder of the reproduction."""

    profile: Profile
    seeds: tuple[int, ...]
    out: Path

    @property
    def runs(self) -> Path:
        return self.out / "runs"

    def seeds_of(self, artefact: Artefact) -> tuple[int, ...]:
        """Returns the seeds of an artefact: the bound needs one run, everything else one per seed."""
        return self.seeds[:1] if artefact.name == "bound" else self.seeds

    def campaign(self, artefacts: Sequence[Artefact]) -> Campaign:
        """Returns their runs, each once: several side by side, each on one core; a single missing one on all cores.

        Side by side is cheaper: workers start once, and trained models need not be sent.
        """
        once: dict[str, CampaignRun] = {}
        for artefact in artefacts:
            if artefact.training is not None:
                for run in artefact.training.runs(self.profile, self.seeds_of(artefact)):
                    once.setdefault(run.folder_name, run)
        one_by_one = Campaign(tuple(once.values()), self.runs)
        at_a_time = min(num_cores(), len(one_by_one.missing()))
        if at_a_time <= 1:
            return one_by_one
        within = [dataclasses.replace(run, scenario=run.scenario.with_values(WITHIN)) for run in one_by_one.runs]
        return Campaign(within, self.runs, EngineSection(name="processes", workers=at_a_time))

    def write(self, artefact: Artefact) -> list[Path]:
        """Writes tables and figures of an artefact whose runs are finished; returns the files."""
        written = []
        for name, make in artefact.tables.items():
            path = self.out / f"{name}.csv"
            rows = make(self)
            write_rows(path, rows)
            written.append(path)
            if 0 < len(rows) <= _MOST_LINES:
                written.append(_write_latex(self.out / f"{name}.tex", artefact.title, rows))
        if artefact.draw is None:
            return written
        tables = {name: read_rows(self.out / f"{name}.csv") for name in artefact.tables}
        presets = values(tables[artefact.name], "preset") if artefact.training and artefact.name != "bound" else [None]
        for preset in presets:
            mine = {name: _of_preset(rows, preset) for name, rows in tables.items()}
            stem = artefact.name if len(presets) == 1 else f"{artefact.name}-{preset}"
            caption = artefact.title
            if artefact.training is not None:
                caption += f" · {preset or ''} · {self.profile.note}"
            paths = figure_files(self.out / stem)
            save_figure(artefact.draw(mine, caption), *paths)
            written += paths
        return written


def _write_latex(path: Path, title: str, rows: Rows) -> Path:
    """Writes rows as a table for LaTeX: numbers to four digits, the headings as in the CSV file."""
    headings = list(rows[0])
    words = [name for name in headings if any(isinstance(row[name], str) for row in rows)]
    cells = [[_cell(row[name]) for name in headings] for row in rows]
    about = f"% {title}. Needs \\usepackage{{booktabs}}."
    text = "\n".join([about, *tabular(headings, cells, words=words)]) + "\n"
    write_text_atomic(path, text, follow_link=False)
    return path


def _cell(value: Any) -> str:
    if value is None or value == "":
        return MISSING
    if isinstance(value, str):
        return value
    return number(float(value) if abs(value) > _ROUNDING else 0.0, ".4g")


def _of_preset(rows: Rows, preset: str | None) -> Rows:
    return rows if preset is None or not rows or "preset" not in rows[0] else select(rows, preset=preset)


def _curves(figure: TrainingFigure) -> Callable[[Reproduction], Rows]:
    return lambda reproduction: figure.rows(reproduction.profile, reproduction.seeds, reproduction.runs)


def _to_target(figure: TrainingFigure) -> Callable[[Reproduction], Rows]:
    return lambda reproduction: to_target.target_rows(
        figure, reproduction.profile, reproduction.seeds, reproduction.runs
    )


def _trained(
    figure: TrainingFigure,
    draw: Callable[[Tables, str], Figure],
    more: Mapping[str, Callable[[Reproduction], Rows]] | None = None,
    needs: tuple[str, ...] = (),
) -> Artefact:
    """Returns a figure that is made of runs: the table of its curves, and more tables."""
    tables = {figure.name: _curves(figure), **(more or {})}
    return Artefact(name=figure.name, title=figure.title, tables=tables, training=figure, draw=draw, needs=needs)


def _bound_rows(reproduction: Reproduction) -> Rows:
    preset = reproduction.profile.presets[-1]
    scenario = next(
        s for p, _, _, s in bound.FIGURE.scenarios(reproduction.profile, reproduction.seeds[:1]) if p == preset
    )
    batches = -(-reproduction.profile.samples_per_device // scenario.train.batch_size)
    records = RunFolder(run_path(reproduction.runs, scenario)).records()
    return bound.rows(
        records,
        learning_rate=scenario.train.learning_rate,
        local_steps=batches * scenario.train.local_epochs,
        num_weights=shape_of(scenario).num_weights,
        departures=departures_of(scenario, records),
    )


def _table2_rows(reproduction: Reproduction) -> Rows:
    cells = table2.table2(range(PLACEMENTS))
    return [{**dataclasses.asdict(cell), "deviation": cell.deviation} for cell in cells]


ARTEFACTS: dict[str, Artefact] = {
    artefact.name: artefact
    for artefact in (
        Artefact(name="table1", title="Table I: parameters", tables={"table1": lambda _: table1.rows()}),
        Artefact(name="table2", title="Table II: latency of a round", tables={"table2": _table2_rows}),
        _trained(fig2.FIGURE, fig2.draw),
        _trained(fig3.FIGURE, fig3.draw, {"fig3_ratios": lambda _: fig3.ratio_rows()}),
        _trained(fig4.FIGURE, fig4.draw, {"fig4_target": _to_target(fig4.FIGURE)}),
        _trained(fair.FIGURE, fair.draw),
        _trained(fig5.FIGURE, fig5.draw),
        Artefact(
            name="fig6",
            title="Fig. 6: bandwidth and pruning against CPU clock",
            tables={"fig6": lambda _: fig6.rows()},
            draw=fig6.draw,
        ),
        _trained(
            frozen.FIGURE,
            frozen.draw,
            {"frozen_target": _to_target(frozen.COMPARED)},
            needs=("fig2", "fig3", "fig4", "fig5"),
        ),
        Artefact(
            name="bound",
            title=bound.FIGURE.title,
            tables={"bound": _bound_rows},
            training=bound.FIGURE,
            draw=bound.draw,
        ),
        Artefact(name="errata", title="Errata", tables={"errata": lambda _: errata.rows()}),
    )
}


# The tables that are shown as text, not as figures.
SHOWN_TABLES: dict[str, str] = {
    "table1": ARTEFACTS["table1"].title,
    "table2": ARTEFACTS["table2"].title,
    "fig4_target": "Fig. 4: time, bits and joules to an accuracy",
    "frozen_target": "The same with frozen weights",
    "errata": ARTEFACTS["errata"].title,
}


def judged(folder: Path) -> list[dict[str, Any]]:
    """Judges every claim whose tables lie in `folder`, from these files alone."""
    tables: dict[str, Rows] = {path.stem: read_rows(path) for path in sorted(folder.glob("*.csv"))}
    found: list[dict[str, Any]] = []
    for claim in CLAIMS:
        if all(tables.get(name) for name in claim.tables):
            found.extend(_judgements(claim, tables))
    return found


def _judgements(claim: PaperClaim, tables: Tables) -> Iterator[dict[str, Any]]:
    presets = values(tables[claim.tables[0]], "preset") if claim.by_preset else [""]
    for preset in presets:
        yield {
            "claim": claim.name,
            "where": claim.where,
            "text": claim.text,
            "tables": list(claim.tables),
            "preset": preset,
            **claim.judgement(tables, preset).as_json(),
        }


def write_claims(folder: Path) -> list[dict[str, Any]]:
    """Judges what can be judged and writes claims.json."""
    found = judged(folder)
    write_text_atomic(
        folder / "claims.json",
        json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        follow_link=False,
    )
    if found:
        kept = {"where": "where", "claim": "text", "preset": "preset", "verdict": "verdict", "why": "reason"}
        rows = [{name: str(one.get(key, "")) for name, key in kept.items()} for one in found]
        _write_latex(folder / "claims.tex", "Claims of the paper and their verdicts", rows)
    return found
