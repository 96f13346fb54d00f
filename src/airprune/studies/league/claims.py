"""Claims of the methods' sources, judged by runs on the scene that each of them needs.

A claim names the sentence of its source, the source's baseline, assumption and measure. Its arms differ in the claimed
thing alone, are tuned as the methods of a track are, and run on more seeds until it is decided. Where the claimed thing
cannot show on any scene here, the claim says so and on which scene it would. Directions count, never published numbers.
`sources` lists the claims.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airprune.errors import AirpruneError
from airprune.methods import METHODS
from airprune.scenario import Scenario
from airprune.settings.toml_text import flat
from airprune.studies.campaign import CampaignRun
from airprune.studies.claims import Claim, Judgement, Verdict
from airprune.studies.claims.decision import SEQUENTIAL, undecided
from airprune.studies.league import tuning
from airprune.studies.league.finished import FinishedRun
from airprune.studies.league.judges import Arms
from airprune.studies.league.league_run import Purpose, league_run
from airprune.studies.league.runs import MEASURED, RunStore

Settings = Mapping[str, Any]
# Keys that two arms may always differ in: a method's name says nothing that its settings do not.
_NAMES = frozenset({"name", "method", "seed"})


def _nothing(base: Scenario) -> Settings:
    return {}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The settings under which a claim is judged.

    Attributes:
      words: a sentence on its particulars.
      settings: changes of the league's scenario, given that scenario.
    """

    words: str
    settings: Callable[[Scenario], Settings] = _nothing

    def scenario(self, base: Scenario) -> Scenario:
        return base.with_values(self.settings(base))


@dataclass(frozen=True, kw_only=True)
class LeagueClaim(Claim[[Arms]]):
    """A statement of a method's source, judged from the runs of all arms.

    Attributes:
      statement: the statement of the source, in our words.
      baseline, assumption, measure: those of the source.
      scene: the settings that all arms share.
      arms: the settings of each arm by name, given the scene's scenario; `method` among them.
      differs: keys, or sections of keys, in which the arms may differ: the claimed thing.
      is_trained: False if the measure is a cost of the schedule that no learning rate changes, so nothing is tuned.
      same_model: keys that change costs but no model, so that an arm is tuned as if they were the league's.
      fixed: keys that the claim is about, so that they are not tuned.
      not_testable: why the claim cannot be tested here, and the scene on which it could; empty if it can.
    """

    statement: str
    baseline: str
    assumption: str
    measure: str
    scene: Scene
    arms: Callable[[Scenario], Mapping[str, Settings]]
    differs: tuple[str, ...]
    is_trained: bool = True
    same_model: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    not_testable: str = ""

    def scenarios(self, base: Scenario) -> dict[str, Scenario]:
        """Returns the arms by name; a method's own settings win over the scene's, as in a track."""
        start = self.scene.scenario(base)
        return {name: start.with_values(settings) for name, settings in self.arms(start).items()}

    @property
    def needs(self) -> tuple[str, ...]:
        """Methods without which it cannot be judged."""
        return tuple(dict.fromkeys(settings["method"] for settings in self.arms(Scenario()).values()))

    def differing(self, base: Scenario) -> list[str]:
        """Returns the keys in which the arms differ, options of the components that they use included."""
        tables = [flat(scenario.to_dict()) for scenario in self.scenarios(base).values()]
        keys = sorted({key for table in tables for key in table} - _NAMES)
        return [key for key in keys if any(table.get(key) != tables[0].get(key) for table in tables)]

    def tuned_scenario(self, arm: Scenario, base: Scenario) -> Scenario:
        """Returns the scenario that an arm is tuned on."""
        mine, usual = flat(arm.to_dict()), flat(base.to_dict())
        return arm.with_values({key: usual.get(key) for key in self.same_model if key in mine})


def applicable(found: Sequence[LeagueClaim], base: Scenario) -> list[LeagueClaim]:
    """Returns the claims whose methods are registered and whose arms are valid on this scenario."""
    return [claim for claim in found if all(name in METHODS for name in claim.needs) and _fits(claim, base)]


def _fits(claim: LeagueClaim, base: Scenario) -> bool:
    try:
        claim.scenarios(base)
    except AirpruneError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Trials:
    """The runs of a claim's arms.

    Attributes:
      by_arm: the runs of each arm, seed by seed.
      tuning: tuning runs that are missing; while there are some, `by_arm` is empty.
      is_tuned: None where no learning rate matters.
    """

    by_arm: Mapping[str, Sequence[CampaignRun]]
    tuning: Sequence[CampaignRun] = ()
    is_tuned: bool | None = None


def trials(
    claim: LeagueClaim, base: Scenario, seeds: Sequence[int], store: RunStore, *, is_tuned: bool = True
) -> Trials:
    """Returns the runs of a claim for these seeds, or the tuning runs that come first."""
    arms = claim.scenarios(base)
    knobs: dict[str, Mapping[str, Any]] = {name: {} for name in arms}
    tunes = is_tuned and claim.is_trained
    missing: list[CampaignRun] = []
    for name, scenario in arms.items() if tunes else ():
        found = tuning.tuning_of(
            f"{claim.name} ({name})", claim.tuned_scenario(scenario, base), store, fixed=claim.fixed
        )
        missing += found.wanted
        knobs[name] = found.knobs or {}
    if missing:
        return Trials(by_arm={}, tuning=missing, is_tuned=tunes)
    return Trials(
        by_arm={
            name: [
                league_run(
                    f"{claim.name} ({name})",
                    scenario.with_values({**knobs[name], **MEASURED}),
                    seed,
                    purpose=Purpose.CLAIM,
                    method=scenario.method,
                    knobs=knobs[name],
                )
                for seed in seeds
            ]
            for name, scenario in arms.items()
        },
        is_tuned=tunes if claim.is_trained else None,
    )


def wanted(
    found: Iterable[LeagueClaim],
    base: Scenario,
    store: RunStore,
    *,
    seeds: Sequence[int] | None = None,
    is_tuned: bool = True,
    at_least: int | None = None,
) -> list[CampaignRun]:
    """Returns the missing runs of the next steps: tuning runs of arms, then a block of seeds. Empty at the end.

    Claim by claim, so that claims that are stopped have whole ones: all of them with 5 seeds, then those that are not
    decided with 10, then with 20. Claims that cannot be tested need no runs.

    Args:
      seeds: run these alone, whether they decide or not; None: 5, then 10, then 20.
      at_least: stop after the claim with which there are so many runs; None: the next step of every claim.
    """
    runs: dict[str, CampaignRun] = {}
    waiting = [claim for claim in found if not claim.not_testable]
    for block in [range(look) for look in SEQUENTIAL.at] if seeds is None else [seeds]:
        undecided = []
        for claim in waiting:
            if at_least is not None and len(runs) >= at_least:
                return list(runs.values())
            step = trials(claim, base, block, store, is_tuned=is_tuned)
            made = [*step.tuning, *(run for mine in step.by_arm.values() for run in mine)]
            missing = [run for run in made if store.finished(run) is None]
            runs |= {run.folder_name: run for run in missing if not store.has_failed(run)}
            if not missing and _judgement(claim, step, store).is_undecided:
                undecided.append(claim)
        waiting = undecided
    return list(runs.values())


def runs_for(
    found: Iterable[LeagueClaim], base: Scenario, store: RunStore, *, is_tuned: bool = True
) -> list[CampaignRun]:
    """Returns the runs that the claims rest on so far, tuning runs included; for the ledger."""
    runs: list[CampaignRun] = []
    for claim in found:
        if claim.not_testable:
            continue
        for name, scenario in claim.scenarios(base).items() if is_tuned and claim.is_trained else ():
            label = f"{claim.name} ({name})"
            runs += tuning.tuning_of(label, claim.tuned_scenario(scenario, base), store, fixed=claim.fixed).tried
        found_runs = trials(claim, base, range(SEQUENTIAL.at[-1]), store, is_tuned=is_tuned).by_arm
        runs += [run for mine in found_runs.values() for run in mine]
    return list({run.folder_name: run for run in runs}.values())


def verdicts(
    found: Iterable[LeagueClaim], base: Scenario, store: RunStore, *, is_tuned: bool = True
) -> list[dict[str, Any]]:
    """Returns each claim with its judgement on the finished runs, as plain data."""
    return [as_json(claim, judgement_of(claim, base, store, is_tuned=is_tuned)) for claim in found]


def as_json(claim: LeagueClaim, judgement: Judgement) -> dict[str, Any]:
    """Returns a claim and its judgement as plain data."""
    about = {key: getattr(claim, key) for key in ("statement", "baseline", "assumption", "measure")}
    return {
        "name": claim.name,
        "where": claim.where,
        "text": claim.text,
        **about,
        "scene": claim.scene.words,
        **judgement.as_json(),
    }


def judgement_of(claim: LeagueClaim, base: Scenario, store: RunStore, *, is_tuned: bool = True) -> Judgement:
    """Returns the judgement of a claim on its finished runs."""
    if claim.not_testable:
        return Judgement(Verdict.NOT_TESTABLE, claim.not_testable)
    found = trials(claim, base, range(SEQUENTIAL.at[-1]), store, is_tuned=is_tuned)
    return _judgement(claim, found, store)


def _judgement(claim: LeagueClaim, found: Trials, store: RunStore) -> Judgement:
    finished = {name: {run.scenario.seed: store.finished(run) for run in runs} for name, runs in found.by_arm.items()}
    judgement = judged(claim, finished)
    untuned = "Untuned: " if found.is_tuned is False else ""
    return dataclasses.replace(judgement, tuned=found.is_tuned, reason=f"{untuned}{judgement.reason}")


def judged(claim: LeagueClaim, finished: Mapping[str, Mapping[int, FinishedRun | None]]) -> Judgement:
    """Judges a claim on the seeds that every arm has finished, in their order up to the first gap."""
    shared: list[int] = []
    for seed in next(iter(finished.values()), {}):
        if any(mine.get(seed) is None for mine in finished.values()):
            break
        shared.append(seed)
    arms = {name: {seed: run for seed in shared if (run := mine[seed]) is not None} for name, mine in finished.items()}
    if not shared:
        return Judgement(Verdict.UNDECIDED, "Not all of its runs have finished.")
    if diverged := [name for name, mine in arms.items() if any(math.isnan(run.accuracy) for run in mine.values())]:
        return Judgement(
            Verdict.UNDECIDED, f"Training diverged: {', '.join(diverged)}.", decision=undecided(len(shared))
        )
    return claim.judge(arms)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The runs that a claim needs beyond those of the standings.

    Attributes:
      tuning: of arms that the standings do not tune, in a usual race; half as long as others.
      first, last: runs of all arms at the first look, and at the last if nothing is decided before.
    """

    name: str
    arms: int
    shared: int
    tuning: int
    first: int
    last: int


def cost(found: Iterable[LeagueClaim], base: Scenario, shared: Collection[str] = ()) -> list[Cost]:
    """Returns the extra runs of every claim; an arm that several claims have counts for the first of them.

    Args:
      shared: hashes of the untuned scenarios, seed 0, that the standings run anyway.
    """
    known = set(shared)
    rows = []
    for claim in found:
        arms = {} if claim.not_testable else claim.scenarios(base)
        own, tuned = 0, 0
        for scenario in arms.values():
            for mine, is_tuning in ((scenario, False), (claim.tuned_scenario(scenario, base), True)):
                key = f"{'tuning ' if is_tuning else ''}{mine.hash}"
                if key in known or (is_tuning and (not claim.is_trained or mine.hash in shared)):
                    continue
                known.add(key)
                own, tuned = (own, tuned + 1) if is_tuning else (own + 1, tuned)
        rows.append(
            Cost(
                name=claim.name,
                arms=len(arms),
                shared=len(arms) - own,
                tuning=tuned * tuning.USUAL_RUNS,
                first=own * SEQUENTIAL.at[0],
                last=len(arms) * SEQUENTIAL.at[-1] - (len(arms) - own) * SEQUENTIAL.at[0],
            )
        )
    return rows


def cost_text(rows: Sequence[Cost]) -> str:
    """Returns the table of extra runs as text."""
    header = ("claim", "arms", "shared", "tuning runs", "runs at 5 seeds", "runs at 20 seeds")
    cells = [
        header,
        *((r.name, *map(str, (r.arms, r.shared, r.tuning, r.first, r.last))) for r in rows),
        ("all", *(str(sum(getattr(r, key) for r in rows)) for key in ("arms", "shared", "tuning", "first", "last"))),
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
