"""A league's folder: what is played, in which order, and what is written.

runs/<hash>/               every run once, however many tables need it; interrupted ones resume
played.jsonl               what was measured of each finished run; enough for another league to go on from
league.csv                 one row per division and entrant, numbers in full
league.tex                 the standings for a paper
league-A.png, .pdf, .svg   a division's picture
league.html                one page with everything
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
from airprune.results.figures.curves import picture_files, save_figure
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.studies.campaign import MAX_RUNS
from airprune.studies.league.divisions import Division, deadline_s
from airprune.studies.league.document import DOCUMENT, document_of, picture_name
from airprune.studies.league.figure import league_figure
from airprune.studies.league.ledger import LEDGER, Line, write_ledger
from airprune.studies.league.lineup import Entrant, Lineup, lineup
from airprune.studies.league.measured import Played
from airprune.studies.league.playing import LeagueRun, RunStore, matches, trial_matches
from airprune.studies.league.standings import Result, Standings, standings
from airprune.studies.league.tables import write_csv, write_latex
from airprune.studies.league.tuning import Trial
from airprune.tables import write_text_atomic


@dataclass(frozen=True, kw_only=True)
class League:
    """What is played.

    Attributes:
      base: the scenario that divisions change.
      note: how much is run, in words; on every picture.
      methods: named ones, or None for all that usually play.
      recorded: runs that other leagues have finished, by folder name.
    """

    base: Scenario
    note: str
    divisions: tuple[Division, ...]
    methods: tuple[str, ...] | None
    seeds: tuple[int, ...]
    is_tuned: bool
    out: Path
    engine: Any
    recorded: Mapping[str, Line] = field(default_factory=dict)

    def check(self) -> None:
        """Refuses what cannot be played before anything is written."""
        if RunFolder(self.out).has_run:
            raise UsageError(f"{self.out} holds a single run; choose another folder for a league with --out.")
        self.base.check_names()
        deadline_s(self.base)
        wanted = sum(len(mine.entrants) for mine in self.lineups.values()) * len(self.seeds)
        if wanted > MAX_RUNS:
            raise UsageError(f"The league asks for {wanted:,} runs; at most {MAX_RUNS:,}. Give fewer seeds or methods.")

    @property
    def pitch(self) -> RunStore:
        return RunStore(self.out / "runs", self.engine, self.recorded)

    @cached_property
    def lineups(self) -> dict[str, Lineup]:
        """By division."""
        return {division.name: lineup(self.base, division, self.methods) for division in self.divisions}

    def _entrants(self) -> Iterator[tuple[Division, Entrant]]:
        for division in self.divisions:
            for entrant in self.lineups[division.name].entrants:
                yield division, entrant

    def trials(self) -> list[LeagueRun]:
        """What is run first, to choose everybody's knobs by."""
        if not self.is_tuned:
            return []
        return [
            run
            for division, entrant in self._entrants()
            for _, runs in trial_matches(division, entrant)
            for run in runs
        ]

    def matches(self) -> list[LeagueRun]:
        """The runs that count, once the trials are over."""
        return [
            run
            for division, entrant in self._entrants()
            for run in matches(division, entrant, self._choice(division, entrant), self.seeds)
        ]

    def untuned(self) -> list[LeagueRun]:
        """The same with the learning rate of all, to stand beside."""
        if not self.is_tuned:
            return []
        return [run for division, entrant in self._entrants() for run in matches(division, entrant, None, self.seeds)]

    def _choice(self, division: Division, entrant: Entrant) -> Trial | None:
        return self.pitch.choice(division, entrant) if self.is_tuned else None

    def standings(self, troubles: Mapping[str, str]) -> list[Standings]:
        """From what has been run; `troubles` says, by folder, why a run failed."""
        return [
            standings(
                division,
                [self._result(division, entrant, troubles) for entrant in self.lineups[division.name].entrants],
                seeds=self.seeds,
                horizon_s=division.horizon_s(self.base),
                absent=self.lineups[division.name].absent,
            )
            for division in self.divisions
        ]

    def _result(self, division: Division, entrant: Entrant, troubles: Mapping[str, str]) -> Result:
        trial = self._choice(division, entrant)
        runs = matches(division, entrant, trial, self.seeds)
        failed = [troubles[run.folder_name] for run in runs if run.folder_name in troubles]
        return Result(
            entrant=entrant,
            runs=self._played(runs),
            trial=trial,
            num_trials=len(trial_matches(division, entrant)) if self.is_tuned else 0,
            untuned=self._played(matches(division, entrant, None, self.seeds)) if self.is_tuned else {},
            trouble=failed[0] if failed else "",
        )

    def _played(self, runs: Sequence[LeagueRun]) -> dict[int, Played]:
        found = {run.scenario.seed: self.pitch.played(run) for run in runs}
        return {seed: one for seed, one in found.items() if one is not None}

    def so_far(self, runs: Iterable[LeagueRun]) -> League:
        """The same league, whose note says how many of these runs have been played if not all."""
        once = {run.folder_name: run for run in runs}
        num_played = sum(self.pitch.line(run) is not None for run in once.values())
        if num_played == len(once):
            return self
        return dataclasses.replace(self, note=f"{self.note}; so far {num_played:,} of {len(once):,} runs")

    def record(self, runs: Iterable[LeagueRun]) -> None:
        """Writes the ledger: these runs as far as they are finished."""
        lines = {run.folder_name: self.pitch.line(run) for run in runs if not files_used_by(run.scenario)}
        write_ledger(self.out / LEDGER, [line for line in lines.values() if line is not None])

    def write(self, found: Sequence[Standings], claims: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """Tables, pictures, page; the document that all of them tell."""
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
            caption = f"Division {one.division.name}, {one.division.title} · {self.note}"
            picture = league_figure(one, caption=caption)
            save_figure(picture, *picture_files(self.out / picture_name(one.division.name)))
        write_page(self.out, document)
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_text_atomic(self.out / DOCUMENT, text, follow_link=False)  # last: whoever sees it finds the rest
        return document
