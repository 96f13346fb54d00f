"""Measures what averaging A and B apart does to adapters: mean(B) mean(A) is not mean(B A).

The difference is the covariance of the devices' A and B: mean(B A) − mean(B) mean(A) = mean((B − mean B) (A − mean A)).
It is 0 where all devices have the same A or the same B.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airprune.errors import InvalidValue
from airprune.runs.round_trace import RoundTrace

Array = np.ndarray

_A, _B = "lora_A", "lora_B"


@dataclass(frozen=True, kw_only=True)
class AdapterBias:
    """The bias of one adapter at one edge in one edge round.

    Attributes:
      adapter: name of the layer that it belongs to.
      bias: ‖mean(B) mean(A) − mean(B A)‖, Frobenius.
      change: ‖mean(B A) − B₀ A₀‖, the change that exact averaging would have made of what the devices received.
    """

    edge: int
    adapter: str
    bias: float
    change: float

    @property
    def share(self) -> float:
        """The bias over the change; NaN where nothing has changed."""
        return self.bias / self.change if self.change else float("nan")


def product_bias(first: Array, second: Array, weight: Array) -> Array:
    """Returns mean(B) mean(A) − mean(B A).  [outputs, inputs]

    Args:
      first: A of every device.  [num_devices, rank, inputs]
      second: B of every device.  [num_devices, outputs, rank]
      weight: c_n of the average.  [num_devices]
    """
    share = weight / weight.sum()
    apart = np.einsum("n,nor->or", share, second) @ np.einsum("n,nri->ri", share, first)
    return np.asarray(apart - np.einsum("n,nor,nri->oi", share, second, first))


def adapter_bias(trace: RoundTrace) -> tuple[AdapterBias, ...]:
    """Returns the bias of every adapter at every edge that received uploads; of `airprune.trace_round`."""
    if not isinstance(trace, RoundTrace):
        rule = "must be a trace of a round"
        raise InvalidValue("adapter_bias.trace", rule, type(trace).__name__, "Example: ap.trace_round(scenario)")
    names = [
        name for name in trace.tensor_name.tolist() if f"{_A}." in name and name.replace(_A, _B) in trace.tensor_name
    ]
    if not names:
        rule = f"must be of a model with adapters, layers {_A} and {_B}"
        raise InvalidValue("adapter_bias.trace", rule, "none", 'Example: ap.Scenario.preset("adapters")')
    found = []
    for edge in np.unique(trace.edge[trace.group >= 0]).tolist():
        rows = np.flatnonzero((trace.edge == edge) & (trace.group >= 0))
        devices = [trace.named(_model_of(trace, row)) for row in rows.tolist()]
        before = trace.named(trace.received(int(rows[0])).astype(np.float64))
        for name in names:
            first, second = (np.stack([one[own] for one in devices]) for own in (name, name.replace(_A, _B)))
            rank = first.shape[1]
            first, second = first.reshape(len(rows), rank, -1), second.reshape(len(rows), -1, rank)
            mean = np.einsum("n,nor,nri->oi", trace.weight[rows] / trace.weight[rows].sum(), second, first)
            start = before[name.replace(_A, _B)].reshape(-1, rank) @ before[name].reshape(rank, -1)
            found.append(
                AdapterBias(
                    edge=edge,
                    adapter=name.partition(f".{_A}")[0],
                    bias=float(np.linalg.norm(product_bias(first, second, trace.weight[rows]))),
                    change=float(np.linalg.norm(mean - start)),
                )
            )
    return tuple(found)


def _model_of(trace: RoundTrace, row: int) -> Array:
    """Returns the model that a device ends with: what it sent, what it kept as received, zero where it holds none."""
    model = trace.received(row).astype(np.float64)
    prunable = slice(*trace.prunable.tolist())
    kept = np.where(trace.held[row], model[prunable], 0.0)
    model[prunable] = np.where(trace.sent[row], trace.upload[row][prunable], kept)
    return model
