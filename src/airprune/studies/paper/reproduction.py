"""A reproduction folder: runs, tidy tables, pictures, claims.

runs/<hash>/         every run once, however many figures need it; interrupted ones resume
fig2.csv …           tidy tables, from which pictures and verdicts are made
fig2.png, .pdf, .svg pictures (one per preset if there are several)
claims.json          what holds, with numbers and reasons
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from airprune.engines.machine import num_cores
from airprune.results.figures.curves import figure_files, save_figure
from airprune.results.tidy import Rows, read_rows, select, values, write_rows
from airprune.runs.layout import RunFolder
from airprune.scenario.model_shape import shape_of
from airprune.scenario.sections import EngineSection
from airprune.studies.campaign import WITHIN, Campaign, CampaignRun
from airprune.studies.paper import bound, errata, fig2, fig3, fig4, fig5, fig6, frozen, table1, table2, to_target
from airprune.studies.paper.claim import PaperClaim, Tables
from airprune.studies.paper.claims import CLAIMS
from airprune.studies.paper.profiles import Profile
from airprune.studies.paper.training import TrainingFigure, run_path
from airprune.tables import write_text_atomic

PLACEMENTS = 40


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """A table or figure of the paper: the runs it needs, the tables it writes and how it is drawn.

    Attributes:
      tables: name → function of the reproduction that makes the rows.
      draw: (tables, caption) → picture of one preset's rows; None for tables.
      needs: artefacts whose tables its claims are judged from, too.
    """

    name: str
    title: str
    tables: dict[str, Callable[[Reproduction], Rows]]
    training: TrainingFigure | None = None
    draw: Callable[[dict[str, Rows], str], Figure] | None = None
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What is reproduced, on which schedule, and where."""

    profile: Profile
    seeds: tuple[int, ...]
    out: Path

    @property
    def runs(self) -> Path:
        return self.out / "runs"

    def seeds_of(self, artefact: Artefact) -> tuple[int, ...]:
        """The bound needs one run; everything else one per seed."""
        return self.seeds[:1] if artefact.name == "bound" else self.seeds

    def campaign(self, artefacts: Sequence[Artefact]) -> Campaign:
        """Their runs, each once: several side by side, each on one core; a single one that is missing on all cores.

        Side by side is cheaper: workers start once, and what devices trained need not travel.
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
        """Tables and pictures of an artefact whose runs are finished; the files written."""
        written = []
        for name, make in artefact.tables.items():
            path = self.out / f"{name}.csv"
            write_rows(path, make(self))
            written.append(path)
        if artefact.draw is None:
            return written
        tables = {name: read_rows(self.out / f"{name}.csv") for name in artefact.tables}
        presets = values(tables[artefact.name], "preset") if artefact.training and artefact.name != "bound" else [None]
        for preset in presets:
            mine = {name: _of_preset(rows, preset) for name, rows in tables.items()}
            stem = artefact.name if len(presets) == 1 else f"{artefact.name}-{preset}"
            caption = (
                artefact.title
                if artefact.training is None
                else f"{artefact.title} · {preset or ''} · {self.profile.note}"
            )
            figure = artefact.draw(mine, caption)
            pictures = figure_files(self.out / stem)
            save_figure(figure, *pictures)
            written += pictures
        return written


def _of_preset(rows: Rows, preset: str | None) -> Rows:
    return rows if preset is None or not rows or "preset" not in rows[0] else select(rows, preset=preset)


def _curves(figure: TrainingFigure) -> Callable[[Reproduction], Rows]:
    return lambda reproduction: figure.rows(reproduction.profile, reproduction.seeds, reproduction.runs)


def _to_target(figure: TrainingFigure) -> Callable[[Reproduction], Rows]:
    return lambda reproduction: to_target.target_rows(
        figure, reproduction.profile, reproduction.seeds, reproduction.runs
    )


def _curves_artefact(figure: TrainingFigure, draw: Callable[..., Figure]) -> Artefact:
    """A figure that is drawn from its curves alone."""
    return Artefact(
        name=figure.name,
        title=figure.title,
        tables={figure.name: _curves(figure)},
        training=figure,
        draw=lambda tables, caption: draw(tables[figure.name], caption=caption),
    )


def _bound_rows(reproduction: Reproduction) -> Rows:
    preset = reproduction.profile.presets[-1]
    scenario = next(
        s for p, _, _, s in bound.FIGURE.scenarios(reproduction.profile, reproduction.seeds[:1]) if p == preset
    )
    batches = -(-reproduction.profile.samples_per_device // scenario.train.batch_size)
    return bound.rows(
        RunFolder(run_path(reproduction.runs, scenario)).records(),
        learning_rate=scenario.train.learning_rate,
        local_steps=batches * scenario.train.local_epochs,
        num_weights=shape_of(scenario).num_weights,
    )


def _table2_rows(reproduction: Reproduction) -> Rows:
    cells = table2.table2(range(PLACEMENTS))
    return [{**dataclasses.asdict(cell), "deviation": cell.deviation} for cell in cells]


ARTEFACTS: dict[str, Artefact] = {
    artefact.name: artefact
    for artefact in (
        Artefact(name="table1", title="Table I: parameters", tables={"table1": lambda _: table1.rows()}),
        Artefact(name="table2", title="Table II: latency of a round", tables={"table2": _table2_rows}),
        _curves_artefact(fig2.FIGURE, fig2.draw),
        Artefact(
            name="fig3",
            title=fig3.FIGURE.title,
            tables={"fig3": _curves(fig3.FIGURE), "fig3_ratios": lambda _: fig3.ratio_rows()},
            training=fig3.FIGURE,
            draw=lambda tables, caption: fig3.draw(tables["fig3"], tables["fig3_ratios"], caption=caption),
        ),
        Artefact(
            name="fig4",
            title=fig4.FIGURE.title,
            tables={"fig4": _curves(fig4.FIGURE), "fig4_target": _to_target(fig4.FIGURE)},
            training=fig4.FIGURE,
            draw=lambda tables, caption: fig4.draw(tables["fig4"], caption=caption),
        ),
        _curves_artefact(fig5.FIGURE, fig5.draw),
        Artefact(
            name="fig6",
            title="Fig. 6: bandwidth and pruning against CPU clock",
            tables={"fig6": lambda _: fig6.rows()},
            draw=lambda tables, caption: fig6.draw(tables["fig6"], caption=caption),
        ),
        Artefact(
            name="frozen",
            title=frozen.FIGURE.title,
            tables={"frozen": _curves(frozen.FIGURE), "frozen_target": _to_target(frozen.COMPARED)},
            training=frozen.FIGURE,
            draw=lambda tables, caption: frozen.draw(tables["frozen"], caption=caption),
            needs=("fig2", "fig3", "fig4", "fig5"),
        ),
        Artefact(
            name="bound",
            title=bound.FIGURE.title,
            tables={"bound": _bound_rows},
            training=bound.FIGURE,
            draw=lambda tables, caption: bound.draw(tables["bound"], caption=caption),
        ),
        Artefact(name="errata", title="Errata", tables={"errata": lambda _: errata.rows()}),
    )
}


# The tables that are shown in words, not as pictures.
SHOWN_TABLES: dict[str, str] = {
    "table1": ARTEFACTS["table1"].title,
    "table2": ARTEFACTS["table2"].title,
    "fig4_target": "Fig. 4: time, bits and joules to an accuracy",
    "frozen_target": "The same with frozen weights",
    "errata": ARTEFACTS["errata"].title,
}


def judged(folder: Path) -> list[dict[str, Any]]:
    """Every claim whose tables lie in `folder`, judged from these files alone."""
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
            **claim.judge(tables, preset).as_json(),
        }


def write_claims(folder: Path) -> list[dict[str, Any]]:
    """Judges what can be judged and writes claims.json."""
    found = judged(folder)
    write_text_atomic(
        folder / "claims.json",
        json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        follow_link=False,
    )
    return found
