"""Weights & Biases, offline unless WANDB_MODE says otherwise; `wandb sync FOLDER` uploads a run later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airprune.extras import needed
from airprune.sinks.base import Sink


class WeightsAndBiases(Sink):
    """Project and entity are those of WANDB_PROJECT and WANDB_ENTITY; `settings` go to `wandb.init`."""

    name = "wandb"
    _run: Any

    def __init__(self, folder: str | Path | None = None, **settings: Any) -> None:
        super().__init__(folder)
        self._settings = settings

    def open(self, folder: Path, title: str, parameters: Mapping[str, str]) -> None:
        wandb = needed("wandb", extra="wandb", what="The logger wandb")
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(**{"dir": str(folder), "name": title, "config": dict(parameters), **self._settings})
        for name, pattern in (("global_round", "*"), ("edge/round", "edge/*")):
            self._run.define_metric(name)
            self._run.define_metric(pattern, step_metric=name)

    def write(self, numbers: Mapping[str, float], *, step: int, step_name: str) -> None:
        self._run.log({step_name: step, **numbers})

    def close(self, *, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)
