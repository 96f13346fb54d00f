"""A league's folder: its runs, their order, and the files it writes.

runs/<hash>/               every run once, however many tables need it; interrupted ones resume
played.jsonl               the measurements of each finished run; enough for another league to go on from
league.csv                 one row per track and method, numbers in full
league.tex                 the standings for a paper
league-A.png, .pdf, .svg   a track's figure
league.html                one report with everything
league.json                the same for the web page and for programs
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from airprune.errors import UsageError
from airprune.methods.registration import files_used_by
from airprune.results.figures.curves import figure_files, save_figure
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.studies.campaign import MAX_RUNS, CampaignRun
from airprune.studies.league.document import DOCUMENT, document_of, figure_name
from airprune.studies.league.figure import league_figure
from airprune.studies.league.finished import FinishedRun
from airprune.studies.league.ledger import LEDGER, Line, write_ledger
from airprune.studies.league.lineup import Entry, Lineup, lineup
from airprune.studies.league.runs import RunStore, ranked_runs, tuning_runs
from airprune.studies.league.standings import Result, Standings, standings
from airprune.studies.league.tables import write_csv, write_latex
from airprune.studies.league.tracks import Track, deadline_s
from airprune.studies.league.tuning import Knobs
from airprune.tables import write_text_atomic


@dataclass(frozen=True, kw_only=True)
class League:
    """A league: its tracks, methods and seeds, and its folder.

    Attributes:
      base: the scenario that tracks change.
      note: the schedule in words; on every figure.
      methods: named ones, or None for all that usually take part.
      recorded: runs that other leagues have finished, by folder name.
    """

    base: Scenario
    note: str
    tracks: tuple[Track, ...]
    methods: tuple[str, ...] | None
    seeds: tuple[int, ...]
    is_tuned: bool
    out: Path
    engine: Any
    recorded: Mapping[str, Line] = field(default_factory=dict)

    def check(self) -> None:
        """Refuses what cannot be run before anything is written."""
        if RunFolder(self.out).has_run:
            raise UsageError(f"{self.out} holds a single run; choose another folder for a league with --out.")
        self.base.check_names()
        deadline_s(self.base)
        wanted = sum(len(mine.entries) for mine in self.lineups.values()) * len(self.seeds)
        if wanted > MAX_RUNS:
            raise UsageError(f"The league needs {wanted:,} runs; at most {MAX_RUNS:,}. Give fewer seeds or methods.")

    @property
    def store(self) -> RunStore:
        return RunStore(self.out / "runs", self.engine, self.recorded)

    @cached_property
    def lineups(self) -> dict[str, Lineup]:
        """The methods and reference lines by track."""
        return {track.name: lineup(self.base, track, self.methods) for track in self.tracks}

    def _entries(self) -> Iterator[tuple[Track, Entry]]:
        for track in self.tracks:
            for entry in self.lineups[track.name].entries:
                yield track, entry

    def tuning_runs(self) -> list[CampaignRun]:
        """Returns the runs that come first and choose every method's learning rates."""
        if not self.is_tuned:
            return []
        return [run for track, entry in self._entries() for _, runs in tuning_runs(track, entry) for run in runs]

    def ranked_runs(self) -> list[CampaignRun]:
        """Returns the runs that are ranked, once the tuning runs are over."""
        return [
            run
            for track, entry in self._entries()
            for run in ranked_runs(track, entry, self._knobs(track, entry), self.seeds)
        ]

    def untuned_runs(self) -> list[CampaignRun]:
        """Returns the same runs with the scenario's learning rate, to be shown beside the tuned ones."""
        if not self.is_tuned:
            return []
        return [run for track, entry in self._entries() for run in ranked_runs(track, entry, None, self.seeds)]

    def _knobs(self, track: Track, entry: Entry) -> Knobs | None:
        return self.store.best_knobs(track, entry) if self.is_tuned else None

    def standings(self, troubles: Mapping[str, str]) -> list[Standings]:
        """Returns the tables of the finished runs; `troubles` says, by folder, why a run failed."""
        return [
            standings(
                track,
                [self._result(track, entry, troubles) for entry in self.lineups[track.name].entries],
                seeds=self.seeds,
                horizon_s=track.horizon_s(self.base),
                absent=self.lineups[track.name].absent,
            )
            for track in self.tracks
        ]

    def _result(self, track: Track, entry: Entry, troubles: Mapping[str, str]) -> Result:
        knobs = self._knobs(track, entry)
        runs = ranked_runs(track, entry, knobs, self.seeds)
        failed = [troubles[run.folder_name] for run in runs if run.folder_name in troubles]
        return Result(
            entry=entry,
            runs=self._finished(runs),
            knobs=knobs,
            num_tuned=len(tuning_runs(track, entry)) if self.is_tuned else 0,
            untuned=self._finished(ranked_runs(track, entry, None, self.seeds)) if self.is_tuned else {},
            trouble=failed[0] if failed else "",
        )

    def _finished(self, runs: Sequence[CampaignRun]) -> dict[int, FinishedRun]:
        found = {run.scenario.seed: self.store.finished(run) for run in runs}
        return {seed: one for seed, one in found.items() if one is not None}

    def so_far(self, runs: Iterable[CampaignRun]) -> League:
        """Returns the same league, whose note says how many of these runs are finished if not all."""
        once = {run.folder_name: run for run in runs}
        num_finished = sum(self.store.line(run) is not None for run in once.values())
        if num_finished == len(once):
            return self
        return dataclasses.replace(self, note=f"{self.note}; so far {num_finished:,} of {len(once):,} runs")

    def record(self, runs: Iterable[CampaignRun]) -> None:
        """Writes the ledger: those of these runs that are finished."""
        lines = {run.folder_name: self.store.line(run) for run in runs if not files_used_by(run.scenario)}
        write_ledger(self.out / LEDGER, [line for line in lines.values() if line is not None])

    def write(self, found: Sequence[Standings], claims: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Writes tables, figures and report; returns the document that all of them are made from."""
        from airprune.studies.league.page import write_page

        document = document_of(
            found,
            claims,
            note=self.note,
            scenario=self.base.name,
            seeds=self.seeds,
            is_tuned=self.is_tuned,
        )
        write_csv(self.out / "league.csv", found)
        write_latex(self.out / "league.tex", found, note=self.note)
        for one in found:
            figure = league_figure(one, caption=f"Track {one.track.name}, {one.track.title} · {self.note}")
            save_figure(figure, *figure_files(self.out / figure_name(one.track.name)))
        write_page(self.out, document)
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_text_atomic(self.out / DOCUMENT, text, follow_link=False)  # last: a reader that sees it finds the rest
        return document
