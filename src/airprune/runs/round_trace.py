"""`RoundTrace`: all arrays of one edge round, to be compared with code of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airprune.checks import path_of
from airprune.files import atomic_file
from airprune.models.layout import Part
from airprune.scenario import Scenario
from airprune.text import counted

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoundTrace:
    """One edge round of a run: what every device received, did and sent, and what edges and cloud made of it.

    Models are flat vectors: `named` gives their tensors. Arrays per device follow `device` and have a row for every
    selected device. The rows of one that uploads nothing (see `outcome`) are NaN, false or empty.

    Attributes:
      global_round, edge_round: counted from 1, as in records.
      learning_rate: η of the round.
      deadline_s: T_th of the round.
      tensor_name, tensor_start, tensor_shape: of every tensor of the model, its name, its first entry in the flat
        vector, and its shape, filled up with zeros. A tensor with four dimensions lies in the vector with its second
        one last.  [num_tensors], [num_tensors], [num_tensors, most_dimensions]
      is_weight: which entries are weights as Eq. (4) counts them; biases and buffers are not.  [num_state] bool
      prunable: first entry of the prunable weights, and the entry after the last.  [2]
      sample, x, y: the visited training samples: number in the data set, input, target.  [num_visited, …]
      device: the selected devices, ascending.  [num_devices]
      edge: the edge that serves each.
      group: its row in the arrays per group; −1 if it uploads nothing.
      outcome: ok, blocked, dropped, late or failed, as in records.
      bandwidth_share: b_n.
      pruning_ratio: ρ_n after rounding to whole weights.
      kept_weights: prunable weights that it may hold or send.
      upload_bits: what it sends, or would have sent.
      compute_s, uplink_s: its simulated times.
      weight: c_n in the average of its edge.
      loss: mean training loss over its minibatches.
      held, moves, sent: which prunable weights it holds (the others are zero, Eq. (5)), trains and sends; for the
        paper's method they are one mask m_n.  Each [num_devices, num_prunable] bool
      upload: its model as the edge decodes it, zero where nothing is sent.  [num_devices, num_state]
      holding, num_holding: numbers of the samples of all devices, one device after the other, and how many each has;
        see `samples_of`.
      visited, minibatch_size, num_minibatches: numbers of the samples in the order in which local steps visit them,
        the size of every minibatch, and how many minibatches each device has; see `minibatches_of`.
      memory_before, memory_after: persistent state of the devices by slot, if the method has any.
      group_edge, group_lag: a group is the devices of one edge that start from the same model: one per edge that
        receives an upload, or several where devices began that many rounds ago.  [num_groups]
      group_received: w_k, the model that the group starts from.  [num_groups, num_state]
      group_sum, group_weight: Σ c_n w_n ⊙ m_n and Σ c_n m_n of Eq. (12).  [num_groups, num_state] float64
      edge_before, edge_after: models of all edges before and after the round.  [num_edges, num_state]
      edge_combined: Eq. (12), before the edge's server optimiser; NaN without an upload.  [num_edges, num_state]
      edge_kept_by: how many devices sent each prunable weight.  [num_edges, num_prunable]
      edge_weight: c_k in the average above the edges.  [num_edges]
      cloud_before: w_G as of the last global round.  [num_state]
      cloud_after: w_G after Eq. (13), if this round is the last of its global round; else None.  [num_state]
      broadcast: arrays that all devices receive beside the model, by name; `mask` is the masking's.
    """

    scenario: Scenario
    global_round: int
    edge_round: int
    learning_rate: float
    deadline_s: float

    tensor_name: Array
    tensor_start: Array
    tensor_shape: Array
    is_weight: Array
    prunable: Array

    sample: Array
    x: Array
    y: Array

    device: Array
    edge: Array
    group: Array
    outcome: Array
    bandwidth_share: Array
    pruning_ratio: Array
    kept_weights: Array
    upload_bits: Array
    compute_s: Array
    uplink_s: Array
    weight: Array
    loss: Array
    held: Array
    moves: Array
    sent: Array
    upload: Array
    holding: Array
    num_holding: Array
    visited: Array
    minibatch_size: Array
    num_minibatches: Array
    memory_before: Mapping[str, Array]
    memory_after: Mapping[str, Array]

    group_edge: Array
    group_lag: Array
    group_received: Array
    group_sum: Array
    group_weight: Array

    edge_before: Array
    edge_combined: Array
    edge_kept_by: Array
    edge_after: Array
    edge_weight: Array

    cloud_before: Array
    cloud_after: Array | None = None
    broadcast: Mapping[str, Array]

    def named(self, vector: Array) -> dict[str, Array]:
        """Returns the tensors of a flat vector as views, in the shapes of the torch module and under its names."""
        parts = zip(self.tensor_name.tolist(), self.tensor_start.tolist(), self.tensor_shape.tolist(), strict=True)
        return {name: Part(name, start, tuple(filter(None, shape))).view(vector) for name, start, shape in parts}

    def received(self, row: int) -> Array:
        """Returns the model that the device of this row starts from; one that uploads nothing has none.  [num_state]"""
        group = int(self.group[row])
        return np.full_like(self.cloud_before, np.nan) if group < 0 else self.group_received[group]

    def samples_of(self, row: int) -> Array:
        """Returns the numbers of the samples of the device of this row."""
        return _split(self.holding, self.num_holding)[row]

    def minibatches_of(self, row: int) -> list[Array]:
        """Returns the numbers of the samples of every local step of the device of this row, in their order."""
        stop = int(self.num_minibatches[: row + 1].sum())
        return _split(self.visited, self.minibatch_size)[stop - int(self.num_minibatches[row]) : stop]

    def samples(self, numbers: Array) -> tuple[Array, Array]:
        """Returns (x, y) of visited samples, given their numbers in the data set."""
        rows = np.searchsorted(self.sample, numbers)
        return self.x[rows], self.y[rows]

    def arrays(self) -> dict[str, Array]:
        """Returns all fields as arrays, as in a saved file: the scenario as TOML, those by name as `field/name`."""
        return dict(self._arrays())

    def _arrays(self) -> Iterator[tuple[str, Array]]:
        for field in dataclasses.fields(self):
            value: Any = getattr(self, field.name)
            if isinstance(value, Mapping):
                yield from ((f"{field.name}/{name}", array) for name, array in value.items())
            elif value is not None:
                yield field.name, np.asarray(value.to_toml() if isinstance(value, Scenario) else value)

    def save(self, path: str | Path) -> Path:
        """Writes `arrays` as a compressed file for `numpy.load`, without pickle; returns its path."""
        file = path_of("RoundTrace.save.path", path, what="a file", way_out="Example: trace.npz")
        with atomic_file(file) as stream:
            np.savez_compressed(stream, **self.arrays())  # type: ignore[arg-type]
        return file

    def __repr__(self) -> str:
        """Names the round and its size."""
        uploads = int(np.count_nonzero(self.group >= 0))
        words = (
            f"global round {self.global_round}, edge round {self.edge_round}",
            f"{counted(uploads, 'upload')} of {counted(len(self.device), 'device')}",
            counted(len(self.edge_before), "edge"),
            f"models of {self.is_weight.size:,} entries in {self.upload.dtype}",
            *([] if self.cloud_after is None else ["with the cloud's average"]),
        )
        return f"RoundTrace({self.scenario.name!r}, {', '.join(words)})"


def _split(values: Array, sizes: Array) -> list[Array]:
    return np.split(values, np.cumsum(sizes)[:-1]) if len(sizes) else []
