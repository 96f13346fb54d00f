"""Comparisons and sweeps from Python: what `airprune compare` and `airprune sweep` do, without a terminal.

Both keep their runs in a folder. Called again they do only what is missing there; `load_runs` and the commands read it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airprune.checks import instance, path_of
from airprune.errors import InvalidValue, WorkFailed
from airprune.extras import needed
from airprune.results.findings import Arm, findings
from airprune.results.frames import Level, load_runs
from airprune.results.latex import summary_latex, target_latex
from airprune.results.measures import DRAWN
from airprune.results.rows import TOTAL, cumulative
from airprune.results.statistics import Estimate, diverged_words, num_diverged, summary
from airprune.results.time_to_target import ToTarget, default_target, reference_among, to_target
from airprune.runs.callbacks import GivenCallback
from airprune.scenario import Scenario
from airprune.scenario.scenario import checked_scenario
from airprune.settings.toml_text import literal
from airprune.studies.campaign import Row, Sweep, SweepFolder
from airprune.studies.campaign.runs import value_text
from airprune.studies.comparison import (
    Variant,
    campaign,
    checked,
    curves,
    evaluations,
    method_variants,
    note_variants,
    scheme_variants,
)
from airprune.tables import write_text_atomic
from airprune.text import shown

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from airprune.results.figures.curves import PaperColumn


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Variants over seeds, as their folder has them.

    Attributes:
      estimates: of each variant's last global round, by measure; none of one that diverged.
      target: the accuracy that costs are told for: as asked for, of the scenario, or what all runs reach; None if no
        model was ever tested.
      to_target: time, bits, joules and rounds of each variant until then; empty without a target.
      diverged: on how many seeds a variant has diverged; without those that have not.
    """

    out: Path
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    estimates: Mapping[str, Mapping[str, Estimate]]
    target: float | None
    to_target: Mapping[str, ToTarget]
    diverged: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def read(
        cls, variants: Sequence[Variant], seeds: Sequence[int], out: Path, *, target: float | None = None
    ) -> Comparison:
        """From the folder of a comparison whose runs are done."""
        tests, rounds = evaluations(variants, seeds, out), curves(variants, seeds, out)
        if target is None:
            target = variants[0].scenario.rounds.target_accuracy
        if target is None:
            target = default_target(tests.values())
        reference = reference_among({variant.name: variant.scenario.plan.scheme for variant in variants})
        return cls(
            out=out,
            variants=tuple(variants),
            seeds=tuple(seeds),
            estimates=summary(rounds),
            target=target,
            to_target={} if target is None else to_target(tests, target, reference=reference),
            diverged={name: num for name, runs in rounds.items() if (num := num_diverged(runs))},
        )

    def findings(self) -> list[str]:
        """Returns three sentences computed from the runs: what was seen, what it means, where to go on."""
        found = curves(self.variants, self.seeds, self.out)
        arms = [
            Arm.of(
                variant.name,
                variant.scenario,
                {seed: run[-1] for seed, run in zip(self.seeds, found[variant.name], strict=True) if run},
            )
            for variant in self.variants
            if variant.name not in self.diverged
        ]
        return findings([arm for arm in arms if arm is not None])

    @property
    def learning_rates(self) -> dict[str, float]:
        """Each variant's learning rate, where they are not all the same; else empty."""
        rates = {variant.name: variant.scenario.train.learning_rate for variant in self.variants}
        return rates if len(set(rates.values())) > 1 else {}

    def label(self, name: str) -> str:
        """A variant's name, and whether it diverged."""
        num = self.diverged.get(name)
        return f"{name} ({diverged_words(num, len(self.seeds))})" if num else name

    def frame(self, level: Level = "global") -> pandas.DataFrame:
        """As `load_runs`, of these variants and seeds alone."""
        found = load_runs(self.out, level=level)
        mine = {variant.folder(self.out, seed).path.name for variant in self.variants for seed in self.seeds}
        return found[found["run"].isin(mine)].reset_index(drop=True)

    def table(self) -> pandas.DataFrame:
        """A row per variant: mean and half-width of the 95 % interval, named as in `load_runs`."""
        return _table([({"variant": name}, found, self.to_target.get(name)) for name, found in self.estimates.items()])

    def figure(self, *, paper: PaperColumn | None = None) -> Figure:
        """Loss and accuracy against rounds, time and bits, the legend in the order asked for."""
        from airprune.results.figures.curves import comparison_figure

        found = curves(self.variants, self.seeds, self.out)
        drawn = {name: [[_with_gaps(record) for record in run] for run in runs] for name, runs in found.items()}
        seeds = f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}"
        title = f"{self.variants[0].scenario.name}, {seeds}"
        return comparison_figure(drawn, title=title, target=self.target, paper=paper)

    def latex(self) -> str:
        """Both tables, for a paper that uses booktabs."""
        parts = [summary_latex(["variant"], (([self.label(name)], found) for name, found in self.estimates.items()))]
        if self.target is not None:
            parts.append(
                target_latex(["variant"], (([name], row) for name, row in self.to_target.items()), self.target)
            )
        return "\n".join(parts)

    def write_latex(self) -> Path:
        return _write(self.out / "tables.tex", self.latex())


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """Every combination of a sweep, as its folder has it.

    Attributes:
      keys: what was swept, besides seeds.
      rows: one per combination, in order.
      failed: what became of runs that failed, by label.
      target: as of a `Comparison`.
    """

    out: Path
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    failed: Mapping[str, str]
    target: float | None

    @classmethod
    def read(
        cls, folder: SweepFolder, *, target: float | None = None, failed: Mapping[str, str] | None = None
    ) -> SweepResult:
        if target is None:
            target = folder.sweep.runs[0].scenario.rounds.target_accuracy
        if target is None:
            target = default_target(folder.evaluations().values())
        rows = tuple(folder.rows(target))
        return cls(out=folder.path, keys=folder.sweep.keys, rows=rows, failed=failed or {}, target=target)

    def frame(self, level: Level = "global") -> pandas.DataFrame:
        """As `load_runs`."""
        return load_runs(self.out, level=level)

    def table(self) -> pandas.DataFrame:
        """A row per combination: its values, then mean and half-width of the 95 % interval."""
        return _table([(dict(row.values), row.estimates, row.to_target) for row in self.rows])

    def figure(self, *, paper: PaperColumn | None = None) -> Figure | None:
        """Accuracy and costs against the swept value; None if nothing was swept but seeds."""
        from airprune.results.figures.sweep import sweep_figure

        return sweep_figure(self.rows, self.target, paper=paper)

    def latex(self) -> str:
        named = [([value_text(value) for value in row.values.values()], row) for row in self.rows]
        parts = [summary_latex(self.keys, ((names, row.estimates) for names, row in named))]
        if self.target is not None:
            reached = ((names, row.to_target) for names, row in named if row.to_target is not None)
            parts.append(target_latex(self.keys, reached, self.target))
        return "\n".join(parts)

    def write_latex(self) -> Path:
        return _write(self.out / "tables.tex", self.latex())


def compare(
    scenario: Scenario,
    *,
    schemes: Sequence[str] = (),
    methods: Sequence[str] = (),
    also: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path = "runs/compare",
    target: float | None = None,
    callbacks: Sequence[GivenCallback] = (),
    **given: Any,
) -> Comparison:
    """Runs schemes, methods and variants of your own on the same network, samples and fading; finished runs are kept.

    Args:
      also: variants by name, each a change of the scenario: `{"short": {"plan.deadline_s": 0.02}}`.
      target: the accuracy that time, bits and joules are told for.
      callbacks: as of `run`; loggers by name, so that each run has its own.
      given: `model`, `dataset` and what else `run` takes, for every run.
    """
    scenario, out = checked_scenario("compare.scenario", scenario), path_of("compare.out", out)
    changed = {} if also is None else instance("compare.also", also, Mapping)
    own = [Variant(name=name, scenario=scenario.with_values(changes)) for name, changes in changed.items()]
    schemes, methods = _names("compare.schemes", schemes), _names("compare.methods", methods)
    variants = checked([*scheme_variants(scenario, schemes), *method_variants(scenario, methods), *own])
    seeds = _seeds("compare.seeds", seeds)
    note_variants(variants, out)
    runs = campaign(variants, seeds, out, callbacks=callbacks, **given)
    for _ in runs.outcomes(runs.missing()):
        pass
    return Comparison.read(variants, seeds, out, target=target)


def sweep(
    scenario: Scenario,
    values: Mapping[str, Sequence[Any]],
    *,
    seeds: Sequence[int] = (0,),
    out: str | Path | None = None,
    target: float | None = None,
    workers: int | None = None,
) -> SweepResult:
    """Runs a scenario for every combination of values and seeds, several whole runs at a time; finished ones are kept.

    Args:
      values: by key, e.g. `{"plan.deadline_s": [0.02, 0.03], "plan.scheme": ["optimal", "no-pruning"]}`.
      out: by default runs/NAME-sweep.
      workers: runs at a time; by default as the scenario's engine says.
    """
    scenario, values = checked_scenario("sweep.scenario", scenario), instance("sweep.values", values, Mapping)
    words = [f"{key}={','.join(map(_word, _several(key, found)))}" for key, found in values.items()]
    words.append(f"seed={','.join(map(str, _seeds('sweep.seeds', seeds)))}")
    chosen = Sweep.of(scenario, words)
    if workers is not None:
        engine = scenario.with_("engine.workers", workers).engine
        chosen = dataclasses.replace(chosen, engine=engine)
    folder = SweepFolder(chosen, Path("runs") / f"{scenario.name}-sweep" if out is None else path_of("sweep.out", out))
    with folder.locked():
        ended = folder.outcomes(folder.missing())
        failed = {done.run.label: done.trouble for done in ended if done.trouble is not None}
        result = SweepResult.read(folder, target=target, failed=failed)
        folder.write_table([run for run in chosen.runs if run.label in failed], result.target)
    if len(failed) == len(chosen.runs):
        raise WorkFailed(f"All runs of the sweep failed; the first: {next(iter(failed.values()))}")
    return result


def _seeds(owner: str, seeds: Sequence[int]) -> list[int]:
    found = list(seeds) if isinstance(seeds, Iterable) else [seeds]
    if not found or any(not isinstance(seed, int) for seed in found) or len(set(found)) != len(found):
        raise InvalidValue(owner, "must be whole numbers, each once", found, "Example: seeds=range(5)")
    return found


def _names(owner: str, names: Sequence[str]) -> Sequence[str]:
    if isinstance(names, str) or not isinstance(names, Sequence) or any(not isinstance(name, str) for name in names):
        raise InvalidValue(owner, "must be a list of names", shown(names), 'Example: ["optimal", "no-pruning"]')
    return names


def _several(key: str, values: Any) -> Sequence[Any]:
    if isinstance(values, str) or not isinstance(values, Sequence) or not values:
        raise InvalidValue(f"sweep.values[{key!r}]", "must be a list of values", repr(values), "Example: [0.02, 0.03]")
    return values


def _word(value: Any) -> str:
    return value if isinstance(value, str) and "," not in value else literal(value)


def _with_gaps(record: dict[str, Any]) -> dict[str, Any]:
    """What was not measured, or was not a number, leaves a gap."""
    return record | {measure: float("nan") for measure in DRAWN if record.get(measure) is None}


def _table(rows: Sequence[tuple[dict[str, Any], Mapping[str, Estimate], ToTarget | None]]) -> pandas.DataFrame:
    pandas = needed("pandas", extra="analysis", what="table()")
    found = []
    for names, estimates, reached in rows:
        row = dict(names)
        for measure, estimate in estimates.items():
            name = f"{TOTAL}{measure}" if measure in cumulative() else measure
            row |= {name: estimate.mean, f"{name}_half_width_95": estimate.half_width}
        if reached is not None:
            row |= {"target_accuracy": reached.target, "reached": next(iter(reached.costs.values())).num_reached}
            for name, costs in reached.costs.items():
                told = costs.as_json()
                row |= {name: told["mean"], f"{name}_half_width_95": told["half_width_95"]}
                row[f"{name}_median"] = told["median"]
        found.append(row)
    return pandas.DataFrame(found)


def _write(path: Path, text: str) -> Path:
    write_text_atomic(path, text, follow_link=False)
    return path
