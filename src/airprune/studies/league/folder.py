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
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from airprune.errors import UsageError
from airprune.results.figures.curves import figure_files, save_figure
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.studies.campaign import MAX_RUNS, CampaignRun
from airprune.studies.league import ablations, claims, tuning
from airprune.studies.league.ablations import AblationResult
from airprune.studies.league.claims import LeagueClaim
from airprune.studies.league.document import DOCUMENT, document_of, figure_name
from airprune.studies.league.effort import Left, Load
from airprune.studies.league.figure import league_figure
from airprune.studies.league.finished import FinishedRun
from airprune.studies.league.league_run import LeagueRun
from airprune.studies.league.ledger import LEDGER, Line, described, write_ledger
from airprune.studies.league.lineup import Entry, Lineup, lineup
from airprune.studies.league.runs import RunStore, ranked_runs
from airprune.studies.league.standings import Result, Standings, standings
from airprune.studies.league.tables import write_csv, write_latex
from airprune.studies.league.tracks import TRACKS, Track, Tuned, deadline_s
from airprune.studies.league.tuning import Knobs, Tuning
from airprune.tables import write_text_atomic

# The track whose tuned values the others start from, and whose scene the claims are judged on.
FIRST = "A"
# With fewer seeds nothing is decided, so none are added for claims.
FEWEST_SEEDS = 5
# So many runs are handed out together, at least: few enough to finish rows one after the other.
BATCH = 16


@dataclass(frozen=True, kw_only=True)
class League:
    """A league: its tracks, methods and seeds, and its folder.

    Attributes:
      base: the scenario that tracks change.
      note: the schedule in words; on every figure.
      methods: named ones, or None for all that usually take part.
      is_tuned: True if every method is tuned first.
      is_beside: True if every tuned method is also run with the scenario's own values.
      claims: those that are judged.
      has_ablations: True if the ablations of `ablations` are run.
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
    is_beside: bool = False
    claims: tuple[LeagueClaim, ...] = ()
    has_ablations: bool = False
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

    @cached_property
    def store(self) -> RunStore:
        return RunStore(self.out / "runs", self.engine, self.recorded)

    @cached_property
    def lineups(self) -> dict[str, Lineup]:
        """The methods and reference lines by track."""
        return {track.name: lineup(self.base, track, self.methods) for track in self.tracks}

    # The order of work

    def cells(self) -> Iterator[tuple[Track, Entry]]:
        """Yields the rows of all tables in the order of work, so that a league that is stopped has whole rows."""
        for track in self.tracks:
            for entry in self.lineups[track.name].entries:
                yield track, entry

    def wanted_by(self, track: Track, entry: Entry) -> list[CampaignRun]:
        """Returns the runs that a row needs next: a step of its tuning, else its ranked runs; none at the end."""
        if (track.name, entry.name) in self._complete:
            return []
        if self.is_tuned and (step := self.tuning_of(track, entry)).knobs is None:
            return list(step.wanted)
        missing = self.store.missing(self._rows_runs(track, entry))
        if not missing:
            self._complete.add((track.name, entry.name))
        return missing

    @cached_property
    def _complete(self) -> set[tuple[str, str]]:
        """The rows whose runs are all there, so that they are not looked up again."""
        return set()

    def _rows_runs(self, track: Track, entry: Entry) -> list[CampaignRun]:
        knobs = self._knobs(track, entry)
        runs = ranked_runs(track, entry, knobs, self.seeds)
        return [*runs, *(ranked_runs(track, entry, None, self.seeds, is_beside=True) if self._has_beside else ())]

    @property
    def _has_beside(self) -> bool:
        return self.is_tuned and self.is_beside

    def wanted(self, *, at_least: int = BATCH) -> list[CampaignRun]:
        """Returns the next runs, of as many rows or claims as it takes to have so many; none once everything is there.

        Claims come after the rows of the first track, with which they share runs.
        """
        found: dict[str, CampaignRun] = {}

        def has_enough(runs: Iterable[CampaignRun]) -> bool:
            found.update({run.folder_name: run for run in runs})
            return len(found) >= at_least

        are_claims_waiting = bool(self.claims)
        for track, entry in self.cells():
            if are_claims_waiting and track is not self.tracks[0]:
                are_claims_waiting = False
                if has_enough(self.wanted_by_claims(at_least=at_least)):
                    return list(found.values())
            if has_enough(self.wanted_by(track, entry)):
                return list(found.values())
        if are_claims_waiting and has_enough(self.wanted_by_claims(at_least=at_least)):
            return list(found.values())
        has_enough(self.wanted_by_ablations())
        return list(found.values())

    def wanted_by_ablations(self) -> list[CampaignRun]:
        """Returns the runs that ablations lack."""
        return ablations.ablation_runs(self.base, self.store) if self.has_ablations else []

    def wanted_by_claims(self, *, at_least: int | None = None) -> list[CampaignRun]:
        """Returns the runs that claims need next; seeds are added until each is decided, unless there are few.

        Args:
          at_least: of as many claims as it takes to have so many; None: of all.
        """
        seeds = self.seeds if len(self.seeds) < FEWEST_SEEDS else None
        return claims.wanted(self.claims, self.base, self.store, seeds=seeds, is_tuned=self.is_tuned, at_least=at_least)

    def open_cells(self) -> list[str]:
        """Returns the rows that are not complete, and the claims if runs are missing for them."""
        found = [f"{track.name} {entry.name}" for track, entry in self.cells() if self.wanted_by(track, entry)]
        if missing := len(self.wanted_by_claims()):
            found.append(f"claims ({missing:,} runs at least)")
        if missing := len(self.wanted_by_ablations()):
            found.append(f"ablations ({missing:,} runs)")
        return found

    def left(self) -> Left:
        """Returns the work that is left, as races usually go; of claims only the runs that are known to be missing."""
        found = Left()
        for track, entry in self.cells():
            key = track.name, entry.name
            if key not in self._parts:
                self._parts[key] = self._left_of(track, entry)
            for num_runs, at_most, load in self._parts[key]:
                found = found.plus(num_runs, at_most, self.store.effort.of(load))
        return found

    def has_run(self, runs: Sequence[CampaignRun]) -> None:
        """Notes that the work left of the rows of these runs has changed."""
        for run in runs:
            if isinstance(run, LeagueRun):
                self._parts.pop((run.track, run.method), None)

    @cached_property
    def _parts(self) -> dict[tuple[str, str], list[tuple[int, int, Load]]]:
        """Kinds of runs that are left of each row: how many, how many at most, and the computation of one."""
        return {}

    def _left_of(self, track: Track, entry: Entry) -> list[tuple[int, int, Load]]:
        full = Load.of(entry.scenario)
        if not self.is_tuned or (step := self.tuning_of(track, entry)).knobs is not None:
            num_ranked = len(self.wanted_by(track, entry))
            return [(num_ranked, num_ranked, full)]
        is_around = track.tuned is Tuned.RATES and self._prior(entry) is not None
        usual = tuning.USUAL_RUNS_AROUND if is_around else tuning.USUAL_RUNS
        left = max(len(step.wanted), usual - len(step.tried))
        most = tuning.MAX_RUNS_TIMED if track.is_timed else tuning.MAX_RUNS
        at_most = max(left, most - len(step.tried))
        num_ranked = len(self.seeds) * (2 if self._has_beside else 1)
        half = Load.of(tuning.tuning_scenario(entry.scenario, {}))
        return [(left, at_most, half), (num_ranked, num_ranked, full)]

    def left_of_claims(self) -> Left:
        """Returns the runs that claims need next; how many follow depends on those."""
        missing = self.wanted_by_claims()
        return Left().plus(
            len(missing), len(missing), self.store.effort.of(Load.of(missing[0].scenario)) if missing else 0
        )

    # Tuning

    def tuning_of(self, track: Track, entry: Entry) -> Tuning:
        """Returns the state of a row's race."""
        prior = None if track.tuned is Tuned.RACE else self._prior(entry)
        return tuning.tuning_of(
            f"{track.name} {entry.name}",
            entry.scenario,
            self.store,
            prior=prior,
            is_kept=track.tuned is Tuned.KEPT,
            track=track.name,
            method=entry.name,
            is_timed=track.is_timed,
        )

    @cached_property
    def _first(self) -> dict[str, Scenario]:
        """The scenarios of the first track by row."""
        if FIRST in self.lineups:
            entries = self.lineups[FIRST].entries
        else:
            names = {entry.name for mine in self.lineups.values() for entry in mine.entries if entry.is_method}
            entries = lineup(self.base, TRACKS[FIRST], sorted(names)).entries
        return {entry.name: entry.scenario for entry in entries}

    def _prior(self, entry: Entry) -> Knobs | None:
        """Returns the values that the first track has chosen for a row; None if it has not, here or in the ledger."""
        if entry.name not in self._first:
            return None
        label, scenario = f"{FIRST} {entry.name}", self._first[entry.name]
        return tuning.tuning_of(label, scenario, self.store, track=FIRST, method=entry.name).knobs

    def _knobs(self, track: Track, entry: Entry) -> Knobs | None:
        return self.tuning_of(track, entry).knobs if self.is_tuned else None

    # Results

    def standings(self) -> list[Standings]:
        """Returns the tables of the finished runs."""
        return [
            standings(
                track,
                [self._result(track, entry) for entry in self.lineups[track.name].entries],
                seeds=self.seeds,
                horizon_s=track.time_s(self.base),
                absent=self.lineups[track.name].absent,
            )
            for track in self.tracks
        ]

    def _result(self, track: Track, entry: Entry) -> Result:
        found = self.tuning_of(track, entry) if self.is_tuned else None
        knobs = None if found is None else found.knobs
        if found is not None and knobs is None:
            return Result(entry=entry, runs={}, is_waiting=True)
        runs = ranked_runs(track, entry, knobs, self.seeds)
        failed = [self.store.troubles[run.folder_name] for run in runs if self.store.has_failed(run)]
        beside = ranked_runs(track, entry, None, self.seeds, is_beside=True) if self._has_beside else []
        return Result(
            entry=entry,
            runs=self._finished(runs),
            knobs=knobs,
            num_tuned=0 if found is None else len(found.tried),
            untuned=self._finished(beside),
            trouble=failed[0] if failed else "",
        )

    def _finished(self, runs: Sequence[CampaignRun]) -> dict[int, FinishedRun]:
        found = {run.scenario.seed: self.store.finished(run) for run in runs}
        return {seed: one for seed, one in found.items() if one is not None}

    def verdicts(self) -> list[dict[str, Any]]:
        """Returns each claim with its verdict."""
        return claims.verdicts(self.claims, self.base, self.store, is_tuned=self.is_tuned)

    def ablations(self) -> list[AblationResult]:
        """Returns the ablations that have a complete seed."""
        return ablations.ablation_results(self.base, self.store) if self.has_ablations else []

    def so_far(self) -> League:
        """Returns the same league, whose note says how many rows are complete if not all are."""
        missing = len(self.open_cells())
        if not missing:
            return self
        words = f"so far {self.store.num_runs:,} runs; {missing:,} rows are not complete"
        return dataclasses.replace(self, note=f"{self.note}; {words}")

    def record(self) -> None:
        """Writes the ledger: every finished run that was looked up."""
        write_ledger(self.out / LEDGER, self.store.used.values())

    def as_json(self) -> dict[str, Any]:
        """Returns what makes the same league again from its ledger."""
        preset, settings = described(self.base)
        return {
            "preset": preset,
            "settings": settings,
            "tracks": [track.name for track in self.tracks],
            "methods": None if self.methods is None else list(self.methods),
            "seeds": list(self.seeds),
            "is_tuned": self.is_tuned,
            "is_beside": self.is_beside,
            "claims": [claim.name for claim in self.claims],
            "has_ablations": self.has_ablations,
        }

    def document(
        self, found: Sequence[Standings], verdicts: Sequence[Mapping[str, Any]] = (), *, dropped: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Returns tables and verdicts as plain data."""
        ablated = [one.as_json() for one in self.ablations()]  # looks its runs up, so that they are counted
        costs_s = [line.cpu_s for line in {line.run: line for line in self.store.used.values()}.values()]
        return document_of(
            found,
            verdicts,
            note=self.note,
            scenario=self.base.name,
            seeds=self.seeds,
            is_tuned=self.is_tuned,
            about={
                "league": self.as_json(),
                "runs": len(costs_s),
                "cpu_hours": math.fsum(cost_s for cost_s in costs_s if cost_s is not None) / 3600.0,
                "dropped": list(dropped),
                "ablations": ablated,
            },
        )

    def write(
        self, found: Sequence[Standings], verdicts: Sequence[Mapping[str, Any]] = (), *, dropped: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Writes tables, figures and report; returns the document that all of them are made from."""
        from airprune.studies.league.page import write_page

        document = self.document(found, verdicts, dropped=dropped)
        write_csv(self.out / "league.csv", found)
        write_latex(self.out / "league.tex", found, note=self.note)
        for one in found:
            figure = league_figure(one, caption=f"Track {one.track.name}, {one.track.title} · {self.note}")
            save_figure(figure, *figure_files(self.out / figure_name(one.track.name)))
        for ablated in self.ablations():
            stem = self.out / ablations.figure_name(ablated.ablation.name)
            save_figure(ablations.figure(ablated), *figure_files(stem))
        write_page(self.out, document)
        text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        write_text_atomic(self.out / DOCUMENT, text, follow_link=False)  # last: a reader that sees it finds the rest
        return document
