"""The combinations that a sweep consists of: all scenarios checked before the first one runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airprune.errors import UsageError
from airprune.runs.naming import name_of, value_text
from airprune.scenario import Scenario
from airprune.settings.toml_text import flat
from airprune.studies.campaign.driver import WITHIN, CampaignRun
from airprune.studies.campaign.values import MAX_RUNS, values_by_key


@dataclass(frozen=True, kw_only=True)
class SweptRun(CampaignRun):
    """One run of a sweep.

    Attributes:
      values: of the keys that vary, other than the seed; as the scenario has them, so 0.030 is 0.03.
    """

    values: Mapping[str, Any]

    @classmethod
    def of(cls, values: Mapping[str, Any], scenario: Scenario) -> SweptRun:
        """Returns a run in a folder that is named by the values alone: a sweep that grows finds its old runs."""
        named = " ".join(f"{key}={value_text(value)}" for key, value in values.items())
        return cls(
            label=f"{named or scenario.name}, seed {scenario.seed}",
            scenario=scenario.with_values(WITHIN),
            folder_name=f"{name_of(values, scenario.name)}-seed{scenario.seed}",
            values=values,
        )


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """All runs, in the order of the words given: the last key's values follow each other most closely.

    Attributes:
      keys: those that vary, other than the seed.
      engine: the scenario's engine section, which says where whole runs go.
    """

    keys: tuple[str, ...]
    runs: tuple[SweptRun, ...]
    engine: Any

    @classmethod
    def of(cls, base: Scenario, words: Sequence[str]) -> Sweep:
        """Reads `key=value,value` words; refuses a value that the scenario's own rules refuse in any combination."""
        by_key = values_by_key(words, base)
        count = math.prod(len(values) for values in by_key.values())
        if count > MAX_RUNS:
            raise UsageError(f"The sweep needs {count:,} runs; at most {MAX_RUNS:,}. Give fewer values or seeds.")
        keys = tuple(key for key, values in by_key.items() if len(values) > 1 and key != "seed")
        for key in keys:
            if key in ("name", "data.data_dir", "rounds.target_accuracy") or key.partition(".")[0] == "engine":
                raise UsageError(f"{key} cannot be swept, since results do not depend on it; give it one value.")
        runs, engine = [], base.engine
        for texts in itertools.product(*by_key.values()):
            scenario = base.with_overrides(f"{key}={text}" for key, text in zip(by_key, texts, strict=True))
            given = dict(zip(by_key, texts, strict=True))
            known = flat(scenario.to_dict())
            values = {key: known.get(key, given[key]) for key in keys}  # a whole section is not a key
            engine = scenario.engine
            runs.append(SweptRun.of(values, scenario))
        _refuse_twins(runs)
        for scenario in {run.scenario.data.name: run.scenario for run in runs}.values():
            scenario.check_names()
        return cls(keys=keys, runs=tuple(runs), engine=engine)

    def fixed(self) -> dict[str, Any]:
        """Returns the settings that all runs share and results depend on, by key."""
        values = flat(self.runs[0].scenario.to_dict())
        varies = {"name", "method", "seed", "data.data_dir", "network.table", "rounds.target_accuracy"}
        varies |= {*self.keys, *_brought_by(self.keys)}
        sections = tuple(f"{key}." for key in (*varies, "engine"))
        return {key: value for key, value in values.items() if key not in varies and not key.startswith(sections)}


def _brought_by(keys: Sequence[str]) -> set[str]:
    """Returns the keys that change with a choice: the options of the components, and with a method all choices."""
    fields = Scenario.choice_fields()
    if "method" in keys:
        keys = [*keys, *(f"{section}.{field}" for section, field, _ in fields)]
    chosen = [(section, registry) for section, field, registry in fields if f"{section}.{field}" in keys]
    return {*keys, *(f"{section}.{name}" for section, registry in chosen for name in registry)}


def _refuse_twins(runs: Sequence[SweptRun]) -> None:
    seen: dict[str, SweptRun] = {}
    for run in runs:
        twin = seen.setdefault(run.scenario.hash, run)
        if twin is not run:
            same = "" if twin.label == run.label else f" and as {run.label}"
            raise UsageError(f"The sweep has the same run twice, as {twin.label}{same}; give every value once.")
