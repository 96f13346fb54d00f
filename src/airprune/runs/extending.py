"""`extend`: gives a finished run more global rounds, so that it goes on as if it had had them from the start.

The trained model of the shorter run stays beside as final-<rounds>.safetensors. A kill at any moment loses nothing: the
same call again finishes what it began.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from airprune import files
from airprune.errors import UsageError
from airprune.rounds.parts import BEST
from airprune.rounds.state import VALUES
from airprune.runs import checkpoint
from airprune.runs.layout import Provenance, RunFolder, settings_digest
from airprune.runs.lines import sentence_if_unwritable
from airprune.runs.lock import locked
from airprune.scenario import Scenario

_MAY_CHANGE = ("rounds.global_rounds", "stop.")


def extend(folder: RunFolder, scenario: Scenario) -> None:
    """Makes a finished run one of `scenario`, which may differ in its rounds and its early stopping only."""
    if not folder.has_run:
        raise UsageError(f"{folder.path} holds no run to extend; start one without --extend.")
    before = folder.scenario()
    for key, mine, wanted in before.diff(scenario):
        if not key.startswith(_MAY_CHANGE) and key not in ("name", "method") and not key.startswith("engine."):
            raise UsageError(
                f"{folder.path} can be extended in rounds.global_rounds and stop alone: {key} is {mine!r} there, "
                f"{wanted!r} here; give the run's own settings."
            )
    with locked(folder.path), sentence_if_unwritable(folder.path):
        arrays, facts = checkpoint.read(folder.checkpoint_file, inside=folder.path)
        run, text = Provenance.of(facts, folder.checkpoint_file), scenario.to_toml()
        if run.settings != settings_digest(text):  # else a call before this one was killed on the way
            _check(folder, run, before, scenario)
            if os.path.lexists(folder.final_file):
                kept = folder.path / f"final-{facts['state']['global_round']}.safetensors"
                folder.final_file.replace(kept)
            later = replace(run, scenario=scenario.hash, settings=settings_digest(text), has_ended=False)
            facts["state"].pop("stopped", None)
            if scenario.stop.watches_metric:
                arrays.setdefault(VALUES + BEST, np.array([np.nan, 0.0]))
            facts["run"] = later.as_dict()
            checkpoint.write(folder.checkpoint_file, arrays, facts, inside=folder.path)
        with files.replacing(folder.scenario_file, partial="scenario.partial") as file:
            file.write(text.encode())


def _check(folder: RunFolder, run: Provenance, before: Scenario, scenario: Scenario) -> None:
    if folder.divergence:
        raise UsageError(f"{folder.path} diverged and cannot be extended; start again with a lower learning rate.")
    if not run.has_ended:
        raise UsageError(f"{folder.path} has not finished yet; continue it with --resume, then extend it.")
    if scenario.rounds.global_rounds < before.rounds.global_rounds:
        rule = f"must be at least {before.rounds.global_rounds}, the rounds of the run that is extended"
        raise UsageError(f"Scenario.rounds.global_rounds {rule}, got {scenario.rounds.global_rounds}.")
