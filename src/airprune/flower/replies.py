"""Keeps the answers of clients in files, so that a run that was killed is repeated up to there without them.

A server's program cannot be saved in the midst of its work. It is run again from its beginning, and gets for every
exchange the answers that its clients gave: one file for each exchange, with the clients' states and measured times.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airprune import files
from airprune.errors import WorkFailed
from airprune.flower import contents
from airprune.flower.client import Answer
from airprune.flower.counting import Counted


class Replies:
    """The files of one run, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _file(self, exchange: int) -> Path:
        return self._folder / f"{exchange:06d}.replies"

    def read(self, exchange: int, said: str) -> dict[int, Answer] | None:
        """Returns the answers of an exchange by device; None if there are none.

        Args:
          said: the digest of its messages, which must be those that were answered.
        """
        path = self._file(exchange)
        if not os.path.lexists(path):
            return None
        try:
            with files.open_to_read(path) as file:
                facts = json.loads(file.readline())
                payload = file.read()
        except (OSError, ValueError):
            facts, payload = {}, b""
        if facts.get("sha256") != hashlib.sha256(payload).hexdigest():
            raise WorkFailed(f"{path} is damaged, so that the run cannot be resumed; start over in another folder.")
        if facts["said"] != said:
            raise WorkFailed(
                f"{path} has answers to other messages than the app sends now, so that the run cannot be resumed: the "
                "app's server has randomness of its own, beyond the seeds of Python, numpy and torch; start over."
            )
        return {int(device): _read(row, memoryview(payload)) for device, row in facts["answers"]}

    def write(self, exchange: int, said: str, answers: Mapping[int, Answer]) -> None:
        """Keeps the answers of an exchange: a line of JSON, then the bytes of all arrays."""
        payload = contents.Payload()
        rows = [[device, _written(answer, payload)] for device, answer in answers.items()]
        line = json.dumps({"said": said, "sha256": payload.sha256, "answers": rows}) + "\n"
        files.make_folder(self._folder)
        with files.replacing(self._file(exchange), partial="partial") as file:
            file.write(line.encode())
            for part in payload.parts:
                file.write(part)

    def remove(self) -> None:
        """Deletes all files: the run has ended."""
        files.remove_folder(self._folder)


def _written(answer: Answer, payload: contents.Payload) -> dict[str, Any]:
    return {
        "content": None if answer.content is None else contents.write(answer.content, payload),
        "state": contents.write(answer.state, payload),
        "cpu_s": answer.cpu_s,
        "counts": [one.as_dict() for one in answer.counts],
        "trouble": answer.trouble,
    }


def _read(row: dict[str, Any], payload: memoryview) -> Answer:
    return Answer(
        content=None if row["content"] is None else contents.read(row["content"], payload),
        state=contents.read(row["state"], payload),
        cpu_s=row["cpu_s"],
        counts=tuple(Counted(**one) for one in row["counts"]),
        trouble=row["trouble"],
    )
