"""A chunk trained in sight: what each of its devices did, and the sum of its edge, for a trace of the round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from airprune.components.component import ModelShape
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.rounds.messages import Upload
from airprune.rounds.sums import ChunkSum, EdgeResult
from airprune.rounds.training.chunks import EdgeGroup, TrainTask

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceTrace:
    """One device's round, in arrays of its own.

    Attributes:
      weight: c_n in the edge's average.
      minibatches: the samples of every local step.
      held, moves, sent: as in `SubModel`.  Each [num_prunable] bool
      state: its model as the edge decodes it.  [num_state]
      loss: mean training loss over the minibatches.
    """

    device: int
    weight: float
    minibatches: Sequence[Array]
    held: Array
    moves: Array
    sent: Array
    state: Array
    loss: float

    @classmethod
    def of(
        cls, device: int, weight: float, upload: Upload, minibatches: Sequence[Array], shape: ModelShape
    ) -> DeviceTrace:
        """Copies an upload that still lies in the device's process."""
        assert upload.sub_model is not None

        def mask(chosen: Array | None) -> Array:
            return np.ones(shape.prunable_weights, dtype=bool) if chosen is None else np.array(chosen, dtype=bool)

        return cls(
            device=device,
            weight=weight,
            minibatches=minibatches,
            held=mask(upload.sub_model.held),
            moves=mask(upload.sub_model.moves),
            sent=mask(upload.mask),
            state=upload.state.copy(),
            loss=upload.loss,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ObservedGroup(EdgeGroup):
    """An `EdgeGroup` that keeps what its devices did and their sum; the result is the same to the bit.

    Attributes:
      devices: in the order of the sum; those without an upload are missing.
      sums: one, once the round has been run.
    """

    method: str = "trace"
    travels: bool = True
    devices: list[DeviceTrace] = field(default_factory=list)
    sums: list[MaskedSum] = field(default_factory=list)

    @classmethod
    def of(cls, group: EdgeGroup) -> ObservedGroup:
        own: dict[str, Any] = {part.name: getattr(group, part.name) for part in fields(EdgeGroup)}
        return cls(**own | {"method": "trace", "travels": True})

    def arrived(self, task: TrainTask, part: tuple[ChunkSum, list[DeviceTrace]]) -> ChunkSum:  # type: ignore[override]
        """Keeps the devices' part; parts arrive in the order of the chunks."""
        total, devices = part
        self.devices.extend(devices)
        return super().arrived(task, total)

    def finish(self, part: ChunkSum) -> EdgeResult:
        if part.total is not None:
            self.sums.append(part.total.copy())
        return super().finish(part)
