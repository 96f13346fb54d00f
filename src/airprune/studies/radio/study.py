"""The runs of the study: arms on all rungs, trained once where they learn the same, and their results in one file.

runs/<hash>/      trained runs; interrupted ones resume
played.jsonl      the trained runs as a ledger, from which a study goes on without their folders
plans.json        deadlines and timetables, which need no training
radio.json        results of all arms whose runs are finished: page, figure and verdicts are made from it
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from airprune.files import read_bytes
from airprune.scenario import Scenario
from airprune.studies.league.league_run import LeagueRun
from airprune.studies.league.ledger import LEDGER, Ledger, write_ledger
from airprune.studies.league.runs import RunStore
from airprune.studies.radio.plan_claims import Planned, planned
from airprune.studies.radio.pressure import mean_ratio, pressed_deadline_s
from airprune.studies.radio.promises import PROMISES
from airprune.studies.radio.rungs import FAIR, LEARNS_PLANS, PAPERS, RUNGS, SCHEDULE, TUNED, Rung, scenario_on
from airprune.studies.radio.timetable import Timetable, or_endless, timetable
from airprune.studies.radio.training_claims import VARIANTS
from airprune.tables import write_text_atomic

PLANS, RESULTS = "plans.json", "radio.json"
_LONGEST = 50_000_000
_PRUNING = (PAPERS, FAIR)
# The order of the trainings: what most depends on the radio comes first.
_IN_TURN = (("paper", "mcs", "fading"), ("csi", "promise"), tuple(RUNGS))


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A method on a rung, with one seed."""

    rung: Rung
    method: str
    seed: int

    @property
    def label(self) -> str:
        return f"radio {self.rung.name} {self.method}, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """Results of an arm.

    Attributes:
      learned: the trained run whose models it has.
      accuracy, time_s: after every global round.
      mean_ratio, max_ratio, blocked_share, on_time_share: as in a `Timetable`.
    """

    rung: str
    method: str
    seed: int
    deadline_s: float
    learned: str
    accuracy: tuple[float, ...]
    time_s: tuple[float, ...]
    mean_ratio: float
    max_ratio: float
    blocked_share: float
    on_time_share: float


@dataclass
class RadioStudy:
    """A study and its folder.

    Attributes:
      recorded: finished runs that are not in the folder, from a ledger of a league or of a study.
    """

    out: Path
    seeds: Sequence[int] = SCHEDULE.seeds
    methods: Sequence[str] = tuple(TUNED)
    recorded: Ledger = field(default_factory=Ledger)

    @cached_property
    def store(self) -> RunStore:
        return RunStore(self.out / "runs", None, self.recorded)

    @cached_property
    def plans(self) -> dict[str, Any]:
        """Deadlines by rung, and timetables by the scenario's hash."""
        path = self.out / PLANS
        if path.is_file():
            return {"planned": {}, **json.loads(read_bytes(path, max_bytes=_LONGEST))}
        return {"deadlines": {}, "timetables": {}, "planned": {}}

    def save_plans(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        write_text_atomic(self.out / PLANS, json.dumps(self.plans, indent=1) + "\n", follow_link=False)

    def deadline_s(self, rung: Rung) -> float:
        """Returns the deadline of a rung, over all seeds of the schedule whichever are run."""
        name = rung.pressed_as or rung.name
        paper = SCHEDULE.scenario().plan.deadline_s
        assert isinstance(paper, float)
        known = self.plans["deadlines"]
        if name not in known:
            ratio = mean_ratio({}, SCHEDULE.seeds)(paper)
            pressed = pressed_deadline_s(RUNGS[name].settings, SCHEDULE.seeds, ratio)
            known[name] = paper if name == "paper" else pressed
            self.save_plans()
        return round(float(known[name]) * rung.stretch, 8)

    def planned(self, rung: Rung) -> Planned:
        """Returns the plans of all edge rounds of a rung, in numbers."""
        known = self.plans["planned"]
        if rung.name not in known:
            known[rung.name] = asdict(planned(rung, self.deadline_s(rung), SCHEDULE.seeds))
            self.save_plans()
        return Planned(**known[rung.name])

    def scenario(self, arm: Arm) -> Scenario:
        deadline_s = None if arm.rung.name == "paper" else self.deadline_s(arm.rung)
        return scenario_on(arm.rung.settings, arm.method, arm.seed, deadline_s)

    def timetable(self, arm: Arm) -> Timetable:
        """Returns the clock of an arm, without training it."""
        scenario, known = self.scenario(arm), self.plans["timetables"]
        if scenario.hash not in known:
            known[scenario.hash] = asdict(timetable(scenario))
        return Timetable(**known[scenario.hash])

    def trained_arm(self, arm: Arm) -> Arm:
        """Returns the first arm of the same method and seed that learns the same, itself at the latest."""
        if arm.method in LEARNS_PLANS:
            return arm
        mine = self.timetable(arm).learning
        for rung in RUNGS.values():
            if "radio.reuse" in rung.settings and rung.name != arm.rung.pressed_as:  # takes long to plan
                continue
            other = Arm(rung=rung, method=arm.method, seed=arm.seed)
            if self.timetable(other).learning == mine:
                return other
        return arm

    def run_of(self, arm: Arm) -> LeagueRun:
        scenario = self.scenario(arm)
        return LeagueRun(
            label=arm.label,
            scenario=scenario,
            folder_name=scenario.hash[:16],
            method=arm.method,
            knobs=TUNED[arm.method],
        )

    def arms(self) -> Iterator[Arm]:
        """Yields all arms in the order in which they are run: those first that the study is about, seed by seed."""
        others = [method for method in self.methods if method not in (*_PRUNING, *LEARNS_PLANS)]
        pruning = [method for method in self.methods if method in _PRUNING]
        done: set[str] = set()
        for names in _IN_TURN:
            mine = [RUNGS[name] for name in names if name not in done]
            yield from (Arm(rung=r, method=m, seed=s) for s in self.seeds for r in mine for m in pruning)
            done |= set(names)
        for methods in (others, LEARNS_PLANS):
            for seed in self.seeds:
                for rung in RUNGS.values():
                    yield from (Arm(rung=rung, method=one, seed=seed) for one in methods if one in self.methods)
        for seed in self.seeds:
            yield from (Arm(rung=rung, method=FAIR, seed=seed) for rung in PROMISES.values())
        more = [rung for variants in VARIANTS.values() for rung in variants.values() if rung.name not in RUNGS]
        if PAPERS in self.methods:
            yield from (Arm(rung=rung, method=PAPERS, seed=seed) for seed in self.seeds for rung in more)

    def missing(self) -> Iterator[LeagueRun]:
        """Yields the trainings that are missing, each once; an arm is planned only when it is its turn."""
        seen = set()
        for arm in self.arms():
            run = self.run_of(self.trained_arm(arm))
            if run.folder_name not in seen and self.store.line(run) is None:
                self.save_plans()
                yield run
            seen.add(run.folder_name)
        self.save_plans()

    def results(self) -> list[ArmResult]:
        """Returns the results of all arms whose training is finished."""
        return [found for arm in self.arms() if (found := self._result(arm)) is not None]

    def _result(self, arm: Arm) -> ArmResult | None:
        run = self.run_of(self.trained_arm(arm))
        finished = self.store.finished(run)
        if finished is None:
            return None
        names: dict[str, Any] = {"rung": arm.rung.name, "method": arm.method, "seed": arm.seed}
        accuracy = tuple(test.test_accuracy for test in finished.tests)
        shared = {**names, "learned": run.folder_name, "deadline_s": self.deadline_s(arm.rung), "accuracy": accuracy}
        if arm.method in LEARNS_PLANS:
            statistics = finished.conduct
            return ArmResult(
                **shared,
                time_s=tuple(or_endless(test.time_s) for test in finished.tests),
                mean_ratio=statistics.mean_ratio,
                max_ratio=statistics.max_ratio,
                blocked_share=0.0,
                on_time_share=1.0 - statistics.late_share,
            )
        clock = asdict(self.timetable(arm))
        del clock["learning"]
        return ArmResult(**shared, **clock)

    def write(self) -> list[ArmResult]:
        """Writes the results and the ledger of their runs."""
        found = self.results()
        self.save_plans()
        document: Mapping[str, Any] = {
            "schedule": SCHEDULE.note,
            "rungs": {name: rung.title for name, rung in {**RUNGS, **PROMISES}.items()},
            "deadlines_s": self.plans["deadlines"],
            "planned": self.plans["planned"],
            "results": [asdict(one) | {"time_s": [_as_recorded(end) for end in one.time_s]} for one in found],
        }
        write_text_atomic(self.out / RESULTS, json.dumps(document, indent=None) + "\n", follow_link=False)
        write_ledger(self.out / LEDGER, self.store.used.values())
        return found


def _as_recorded(time_s: float) -> float | None:
    return time_s if math.isfinite(time_s) else None


def read_results(path: Path) -> list[ArmResult]:
    """Reads results that a study wrote."""
    document = json.loads(read_bytes(path, max_bytes=_LONGEST))
    return [
        ArmResult(
            **{**one, "accuracy": tuple(one["accuracy"]), "time_s": tuple(or_endless(end) for end in one["time_s"])}
        )
        for one in document["results"]
    ]


def read_planned(path: Path) -> dict[str, Planned]:
    """Reads the plans of every rung that a study wrote."""
    document = json.loads(read_bytes(path, max_bytes=_LONGEST))
    return {name: Planned(**found) for name, found in document["planned"].items()}
