"""Comparisons and sweeps from Python, as `airprune compare` and `airprune sweep` run them.

Both keep their runs in a folder. Called again they do only what is missing there; `load_runs` and the commands read it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from airprune.checks import instance, path_of
from airprune.errors import InvalidValue, WorkFailed
from airprune.extras import needed
from airprune.results.findings import Arm, findings
from airprune.results.frames import Level, load_runs
from airprune.results.latex import differences_latex, summary_latex, target_latex
from airprune.results.rows import TOTAL, cumulative
from airprune.results.statistics import Estimate, diverged_words, num_diverged, paired_differences, summary
from airprune.results.time_to_target import Runs, ToTarget, default_target, reference_among, to_target
from airprune.runs.callbacks import GivenCallback
from airprune.runs.naming import value_text
from airprune.scenario import Scenario
from airprune.scenario.scenario import checked_scenario
from airprune.settings.toml_text import literal
from airprune.studies.campaign import Row, Sweep, SweepFolder
from airprune.studies.comparison import (
    Variant,
    campaign,
    check_reference,
    checked,
    curves,
    evaluations,
    method_variants,
    note_variants,
    scheme_variants,
)
from airprune.tables import write_text_atomic
from airprune.text import counted, shown

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from airprune.results.figures.curves import PaperColumn


class Line(NamedTuple):
    """One variant of a study.

    Attributes:
      values: the columns that name it.
      names: the same as text.
      label: the same as text, with a note if runs diverged.
    """

    values: Mapping[str, Any]
    names: Sequence[str]
    label: Sequence[str]
    estimates: Mapping[str, Estimate]
    to_target: ToTarget | None


@dataclass(frozen=True, kw_only=True)
class Study:
    """Results of many runs, read from their folder.

    Attributes:
      target: the accuracy that costs are given for: as given, of the scenario, or reached by all runs; None if no model
        was ever tested.
    """

    out: Path
    target: float | None

    def lines(self) -> list[Line]:
        """Returns the variants in order."""
        raise NotImplementedError

    def frame(self, level: Level = "global") -> pandas.DataFrame:
        """Returns the rounds of all runs, as `load_runs` does."""
        return load_runs(self.out, level=level)

    def table(self) -> pandas.DataFrame:
        """Returns a row per variant: mean and half-width of the 95 % interval, named as in `load_runs`."""
        pandas = needed("pandas", extra="analysis", what="table()")
        return pandas.DataFrame([_row(line) for line in self.lines()])

    def latex(self) -> str:
        """Returns both tables, for a paper that uses booktabs."""
        lines = self.lines()
        keys = list(lines[0].values) if lines else []
        parts = [summary_latex(keys, ((line.label, line.estimates) for line in lines))]
        if self.target is not None:
            reached = ((line.names, line.to_target) for line in lines if line.to_target is not None)
            parts.append(target_latex(keys, reached, self.target))
        return "\n".join(parts)

    def write_latex(self) -> Path:
        """Writes both tables to tables.tex; returns its path."""
        path = self.out / "tables.tex"
        write_text_atomic(path, self.latex(), follow_link=False)
        return path


@dataclass(frozen=True, kw_only=True)
class Comparison(Study):
    """Variants over seeds.

    Attributes:
      estimates: of each variant's last global round, by measure; none of one that diverged.
      to_target: time, bits, joules and rounds of each variant until the target; empty without a target.
      diverged: the number of seeds on which a variant has diverged; without those that have not.
      reference: the variant that the others are compared with; None for a single variant.
      differences: of each other variant's last global round to the reference's, paired by seed.
    """

    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    estimates: Mapping[str, Mapping[str, Estimate]]
    to_target: Mapping[str, ToTarget]
    diverged: Mapping[str, int] = field(default_factory=dict)
    reference: str | None = None
    differences: Mapping[str, Mapping[str, Estimate]] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        variants: Sequence[Variant],
        seeds: Sequence[int],
        out: Path,
        *,
        target: float | None = None,
        reference: str | None = None,
    ) -> Comparison:
        """Reads the folder of a comparison whose runs are done; the reference is the first without pruning or given."""
        tests, rounds = evaluations(variants, seeds, out), curves(variants, seeds, out)
        target = _target(target, variants[0].scenario, tests)
        if reference is None:
            reference = reference_among({variant.name: variant.scenario.plan.scheme for variant in variants})
        return cls(
            out=out,
            variants=tuple(variants),
            seeds=tuple(seeds),
            estimates=summary(rounds),
            target=target,
            to_target={} if target is None else to_target(tests, target, reference=reference),
            diverged={name: num for name, runs in rounds.items() if (num := num_diverged(runs))},
            reference=reference,
            differences={} if reference is None else paired_differences(rounds, reference),
        )

    def latex(self) -> str:
        """Returns the tables of a study, and the paired differences to the reference."""
        if self.reference is None:
            return super().latex()
        rows = (([self.label(name)], found) for name, found in self.differences.items())
        return f"{super().latex()}\n{differences_latex(['variant'], rows, self.reference)}"

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
        return findings([arm for arm in arms if arm is not None], self.reference)

    @property
    def learning_rates(self) -> dict[str, float]:
        """Each variant's learning rate, where they are not all the same; else empty."""
        rates = {variant.name: variant.scenario.train.learning_rate for variant in self.variants}
        return rates if len(set(rates.values())) > 1 else {}

    def label(self, name: str) -> str:
        """Returns a variant's name, with a note if runs of it diverged."""
        num = self.diverged.get(name)
        return f"{name} ({diverged_words(num, len(self.seeds))})" if num else name

    def lines(self) -> list[Line]:
        """Returns the variants in the order of the comparison."""
        return [
            Line({"variant": name}, [name], [self.label(name)], found, self.to_target.get(name))
            for name, found in self.estimates.items()
        ]

    def frame(self, level: Level = "global") -> pandas.DataFrame:
        """Returns the rounds of these variants and seeds alone, as `load_runs` does."""
        found = super().frame(level)
        mine = {variant.folder(self.out, seed).path.name for variant in self.variants for seed in self.seeds}
        return found[found["run"].isin(mine)].reset_index(drop=True)

    def figure(self, *, paper: PaperColumn | None = None) -> Figure:
        """Draws loss and accuracy against rounds, time and bits, the legend in the order of the variants."""
        from airprune.results.figures.curves import comparison_figure

        title = f"{self.variants[0].scenario.name}, {counted(len(self.seeds), 'seed')}"
        found = curves(self.variants, self.seeds, self.out)
        return comparison_figure(found, title=title, target=self.target, paper=paper)


@dataclass(frozen=True, kw_only=True)
class SweepResult(Study):
    """Every combination of a sweep.

    Attributes:
      keys: the swept keys, besides seeds.
      rows: one per combination, in order.
      failed: why runs failed, by label.
    """

    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    failed: Mapping[str, str]

    @classmethod
    def read(
        cls, folder: SweepFolder, *, target: float | None = None, failed: Mapping[str, str] | None = None
    ) -> SweepResult:
        """Reads the folder of a sweep."""
        target = _target(target, folder.sweep.runs[0].scenario, folder.evaluations())
        rows = tuple(folder.rows(target))
        return cls(out=folder.path, keys=folder.sweep.keys, rows=rows, failed=failed or {}, target=target)

    def lines(self) -> list[Line]:
        """Returns the combinations in order."""
        named = [([value_text(value) for value in row.values.values()], row) for row in self.rows]
        return [Line(row.values, names, names, row.estimates, row.to_target) for names, row in named]

    def figure(self, *, paper: PaperColumn | None = None) -> Figure | None:
        """Draws accuracy and costs against the swept value; None if nothing was swept but seeds."""
        from airprune.results.figures.sweep import sweep_figure

        return sweep_figure(self.rows, self.target, paper=paper)


def _target(given: float | None, scenario: Scenario, tests: Mapping[str, Runs]) -> float | None:
    if given is None:
        given = scenario.rounds.target_accuracy
    return default_target(tests.values()) if given is None else given


def compare(
    scenario: Scenario,
    *,
    schemes: Sequence[str] = (),
    methods: Sequence[str] = (),
    also: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path = "runs/compare",
    target: float | None = None,
    reference: str | None = None,
    callbacks: Sequence[GivenCallback] = (),
    **given: Any,
) -> Comparison:
    """Runs schemes, methods and variants of your own on the same network, samples and fading; finished runs are kept.

    Args:
      also: variants by name, each a change of the scenario: `{"short": {"plan.deadline_s": 0.02}}`.
      target: the accuracy that time, bits and joules are given for.
      reference: the variant that the others are compared with; by default the first that does not prune.
      callbacks: as of `run`; loggers by name, so that each run has its own.
      given: `model`, `dataset` and what else `run` takes, for every run.
    """
    scenario, out = checked_scenario("compare.scenario", scenario), path_of("compare.out", out)
    changed = {} if also is None else instance("compare.also", also, Mapping)
    own = [Variant(name=name, scenario=scenario.with_values(changes)) for name, changes in changed.items()]
    schemes, methods = _names("compare.schemes", schemes), _names("compare.methods", methods)
    variants = checked([*scheme_variants(scenario, schemes), *method_variants(scenario, methods), *own])
    seeds = _seeds("compare.seeds", seeds)
    check_reference("compare.reference", reference, variants)
    note_variants(variants, out)
    runs = campaign(variants, seeds, out, callbacks=callbacks, **given)
    for _ in runs.outcomes(runs.missing()):
        pass
    return Comparison.read(variants, seeds, out, target=target, reference=reference)


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


def _row(line: Line) -> dict[str, Any]:
    row = dict(line.values)
    for measure, estimate in line.estimates.items():
        name = f"{TOTAL}{measure}" if measure in cumulative() else measure
        row |= {name: estimate.mean, f"{name}_half_width_95": estimate.half_width}
    if line.to_target is not None:
        costs_by_name = line.to_target.costs
        row |= {"target_accuracy": line.to_target.target, "reached": next(iter(costs_by_name.values())).num_reached}
        for name, costs in costs_by_name.items():
            found = costs.as_json()
            row |= {name: found["mean"], f"{name}_half_width_95": found["half_width_95"]}
            row[f"{name}_median"] = found["median"]
    return row
