"""Keeps on disk what a device must not forget: its persistent state, and the uploads it may have to send again.

A device trains from the memory after its last upload that counted, and which one that was its orders say. It cannot
know by itself: a receipt may be lost, or the edge may die after the receipt and before the average. So each result is
kept with the memory that comes after it, until later orders build on it or on one before it:

    result = ledger.answer_to(…)                    # asked before: the same bytes, no training
    if result is None:
        memory = ledger.memory_after(last_counted)
        result = Result(…)                          # trained from it
        ledger = ledger.with_result(result)
        ledger.save(path)                           # before the upload
    …                                               # upload result.upload

A process that is killed before `save` trains again from the same memory, to the same bytes; one that is killed after it
sends them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from airprune.deployment.edge_state import read_state
from airprune.deployment.round_machine import RoundKey
from airprune.errors import WorkFailed
from airprune.runs import checkpoint

# Of a result, what is plain JSON.
_FACTS = ("round_index", "last_counted", "asked", "compute_s")


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """The result of training by some orders.

    Attributes:
      round_index: of the edge round since the start of the run.
      last_counted: round_index of the result whose memory it started from, as its orders said; -1: none.
      asked: digest of all else that the orders ask for and the result depends on: model, budget, code, learning rate.
      upload: its bytes.
      compute_s: how long the training took; of planned local steps, without what comes after them.
      memory: the device's slots after it.
    """

    key: RoundKey
    round_index: int
    last_counted: int
    asked: str
    upload: bytes
    compute_s: float
    memory: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceLedger:
    """The results of one device in one run, oldest first."""

    run: str
    results: tuple[Result, ...] = ()

    def answer_to(self, key: RoundKey, *, last_counted: int, asked: str) -> Result | None:
        """Returns the result for these very orders, if they came before."""
        wanted = (key, last_counted, asked)
        return next((r for r in self.results if (r.key, r.last_counted, r.asked) == wanted), None)

    def memory_after(self, last_counted: int) -> Mapping[str, Array] | None:
        """Returns the slots to train from: empty before anything counted, None if they are lost."""
        if last_counted < 0:
            return {}
        return next((r.memory for r in self.results if r.round_index == last_counted), None)

    def with_result(self, result: Result, *, max_results: int = 2) -> DeviceLedger:
        """Returns the ledger with this result; results after the one that it builds on did not count, and are dropped.

        Args:
          max_results: how many are kept: at least the last that counted and the one that may. With one for each edge
            round of a global round and one more, a global round that is ordered again from its start is answered with
            the same bytes.
        """
        base = [r for r in self.results if r.round_index <= result.last_counted]
        return replace(self, results=(*base, result)[-max_results:])

    def to_plain(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and facts, as a checkpoint holds them."""
        arrays: dict[str, Array] = {}
        for place, result in enumerate(self.results):
            arrays[f"{place}/upload"] = np.frombuffer(result.upload, np.uint8)
            arrays |= {f"{place}/memory/{name}": array for name, array in result.memory.items()}
        rows = [{name: getattr(result, name) for name in _FACTS} for result in self.results]
        keys = [[result.key.global_round, result.key.edge_round] for result in self.results]
        return arrays, {"run": self.run, "rounds": keys, "results": rows}

    @staticmethod
    def from_plain(arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> DeviceLedger:
        results = []
        for place, (rounds, row) in enumerate(zip(facts["rounds"], facts["results"], strict=True)):
            prefix = f"{place}/memory/"
            memory = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
            upload = arrays[f"{place}/upload"].tobytes()
            results.append(Result(key=RoundKey(facts["run"], *rounds), upload=upload, memory=memory, **row))
        return DeviceLedger(run=facts["run"], results=tuple(results))

    def save(self, path: Path) -> None:
        """Writes the file in one step: a process that is killed here leaves it as it was or as it is to be."""
        checkpoint.write(path, *self.to_plain())

    @staticmethod
    def load(path: Path, *, run: str) -> DeviceLedger:
        """Reads the file; returns an empty one if there is none."""
        if not path.exists():
            return DeviceLedger(run=run)
        ledger = DeviceLedger.from_plain(*read_state(path, "device"))
        if ledger.run != run:
            raise WorkFailed(f"{path} is of run {ledger.run!r}, not of {run!r}; give each run a file of its own.")
        return ledger
