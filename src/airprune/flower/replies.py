"""Keeps the answers of clients in files, so that a run that was killed is repeated up to there without them.

A server's program cannot be saved in the midst of its work. It is run again from its beginning, and gets for every
exchange the answers that its clients gave: one file for each exchange, with the clients' states and measured times.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from airprune import files
from airprune.errors import WorkFailed
from airprune.flower import contents
from airprune.flower.client import Answer
from airprune.flower.counting import Counted
from airprune.runs import checkpoint


class Replies:
    """The files of one run, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _file(self, exchange: int) -> Path:
        return self._folder / f"{exchange:06d}.safetensors"

    def read(self, exchange: int, said: str) -> dict[int, Answer] | None:
        """Returns the answers of an exchange by device; None if there are none.

        Args:
          said: the digest of its messages, which must be those that were answered.
        """
        path = self._file(exchange)
        if not os.path.lexists(path):
            return None
        arrays, facts = checkpoint.read(path)
        if facts["said"] != said:
            raise WorkFailed(
                f"{path} has answers to other messages than the app sends now, so that the run cannot be resumed: the "
                "app's server has randomness of its own, beyond the seeds of Python, numpy and torch; start over."
            )
        return {int(device): _read(row, arrays) for device, row in facts["answers"]}

    def write(self, exchange: int, said: str, answers: Mapping[int, Answer]) -> None:
        """Keeps the answers of an exchange."""
        arrays: dict[str, np.ndarray] = {}
        rows = [[device, _written(answer, arrays)] for device, answer in answers.items()]
        files.make_folder(self._folder)
        checkpoint.write(self._file(exchange), arrays, {"said": said, "answers": rows})

    def remove(self) -> None:
        """Deletes all files: the run has ended."""
        files.remove_folder(self._folder)


def _written(answer: Answer, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        "content": None if answer.content is None else contents.write(answer.content, "reply", arrays),
        "state": contents.write(answer.state, "state", arrays),
        "cpu_s": answer.cpu_s,
        "counts": [one.as_dict() for one in answer.counts],
        "trouble": answer.trouble,
    }


def _read(row: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
    return Answer(
        content=None if row["content"] is None else contents.read(row["content"], arrays),
        state=contents.read(row["state"], arrays),
        cpu_s=row["cpu_s"],
        counts=tuple(Counted(**one) for one in row["counts"]),
        trouble=row["trouble"],
    )
