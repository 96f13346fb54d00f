"""TensorBoard: an event file, `tensorboard --logdir runs` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airprune.extras import needed
from airprune.sinks.base import Sink


class TensorBoard(Sink):
    name = "tensorboard"
    _writer: Any

    def open(self, folder: Path, title: str, parameters: Mapping[str, str]) -> None:
        needed("tensorboard", extra="tensorboard", what="The logger tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(log_dir=str(folder))
        table = "\n".join(f"| {key} | {value.replace('|', '/')} |" for key, value in parameters.items())
        self._writer.add_text("scenario", f"| key | value |\n|---|---|\n{table}")

    def write(self, numbers: Mapping[str, float], *, step: int, step_name: str) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self, *, finished: bool) -> None:
        self._writer.close()
