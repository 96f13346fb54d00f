"""Several schemes (or any variants of a scenario) over several seeds: the same network, samples and fading for each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import airprune
from airprune.errors import UnknownName, UsageError
from airprune.results.report.reading import variant_order
from airprune.results.time_to_target import Evaluation, evaluations_in
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.studies.campaign import Campaign, CampaignRun
from airprune.tables import write_text_atomic


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A named scenario of a comparison."""

    name: str
    scenario: Scenario

    def run(self, seed: int) -> CampaignRun:
        return CampaignRun(
            label=f"{self.name}, seed {seed}",
            scenario=self.scenario.with_("seed", seed),
            folder_name=f"{self.folder_name}-seed{seed}",
        )

    def folder(self, out: Path, seed: int) -> RunFolder:
        return RunFolder.below(out, f"{self.folder_name}-seed{seed}")

    @property
    def folder_name(self) -> str:
        return self.name.replace(" ", "-").replace("/", "-")


def scheme_variants(scenario: Scenario, schemes: Sequence[str]) -> list[Variant]:
    return [Variant(name=scheme, scenario=scenario.with_("plan.scheme", scheme)) for scheme in schemes]


def method_variants(scenario: Scenario, methods: Sequence[str]) -> list[Variant]:
    return [Variant(name=method, scenario=scenario.with_("method", method)) for method in methods]


def checked(variants: Sequence[Variant]) -> list[Variant]:
    """Returns the variants; refuses none, and two with one folder."""
    if not variants or len({variant.folder_name for variant in variants}) != len(variants):
        got = ", ".join(variant.name for variant in variants)
        raise UsageError(f"schemes, methods and also must name at least one variant, each once, got {got or 'none'}.")
    return list(variants)


def check_reference(owner: str, reference: str | None, variants: Sequence[Variant]) -> None:
    """Refuses a reference that is not one of the variants."""
    names = [variant.name for variant in variants]
    if reference is not None and reference not in names:
        raise UnknownName(owner, str(reference)[:60], names)


def note_variants(variants: Sequence[Variant], out: Path) -> None:
    """Records the order of the variants, before those of earlier comparisons in the folder."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out} cannot be used as a folder of runs: {error.strerror}.") from None
    names = dict.fromkeys([*(variant.folder_name for variant in variants), *variant_order(out)])
    note = {"airprune": airprune.__version__, "variants": list(names)}
    write_text_atomic(out / "comparison.json", json.dumps(note, indent=1) + "\n", follow_link=False)


def campaign(variants: Sequence[Variant], seeds: Sequence[int], out: Path, **given: Any) -> Campaign:
    """Returns all runs, one after the other; `given` are further arguments of `run`."""
    return Campaign([variant.run(seed) for seed in seeds for variant in variants], out, given=given)


def curves(variants: Sequence[Variant], seeds: Sequence[int], out: Path) -> dict[str, list[list[dict[str, Any]]]]:
    """Reads the global-round records by variant, one list per seed."""
    return {
        variant.name: [
            [record for record in variant.folder(out, seed).records() if record["kind"] == "global"] for seed in seeds
        ]
        for variant in variants
    }


def evaluations(variants: Sequence[Variant], seeds: Sequence[int], out: Path) -> dict[str, dict[int, list[Evaluation]]]:
    """Reads every test of the model, by variant and seed."""
    return {variant.name: {seed: evaluations_in(variant.folder(out, seed)) for seed in seeds} for variant in variants}
