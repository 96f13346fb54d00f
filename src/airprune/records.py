"""What a run writes down: one plain dictionary per edge round and per global round.

Records hold nothing that depends on the wall clock or the machine, so that a resumed run repeats them to the byte.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.federation.work import EdgeAverage
from airprune.round_plan import Fate, RoundPlan

if TYPE_CHECKING:
    from airprune.rounds import State

Array = np.ndarray


@dataclass
class Totals:
    """What a run has spent so far, and within the current global round.

    Attributes:
      time_s: simulated seconds of all finished global rounds.
      uploaded_weights, uploaded_bits, energy_j: since the start.
      left_out: devices that were blocked, dropped or late, counted once per edge round, since the start.
      num_samples: samples trained on since the start.
      round_loss_sum, round_samples, round_ratio_sum, round_devices, round_left_out: of this global round.
    """

    time_s: float = 0.0
    uploaded_weights: int = 0
    uploaded_bits: float = 0.0
    energy_j: float = 0.0
    left_out: int = 0
    num_samples: int = 0
    round_loss_sum: float = 0.0
    round_samples: int = 0
    round_ratio_sum: float = 0.0
    round_devices: int = 0
    round_left_out: int = 0

    def add_round(self, plan: RoundPlan, averages: Sequence[EdgeAverage]) -> None:
        """Counts one edge round."""
        took_part = plan.takes_part
        num_left_out = int(np.count_nonzero(~took_part))
        samples = sum(int(edge.statistics.num_samples.sum()) for edge in averages)
        self.uploaded_bits += float(plan.uploaded_bits.sum())
        self.uploaded_weights += uploaded_weights(averages)
        self.energy_j += float(plan.energy_j.sum())
        self.left_out += num_left_out
        self.num_samples += samples
        self.round_left_out += num_left_out
        self.round_samples += samples
        self.round_loss_sum += sum(float((s.statistics.loss * s.statistics.num_samples).sum()) for s in averages)
        self.round_ratio_sum += float(plan.ratio[took_part].sum())
        self.round_devices += int(np.count_nonzero(took_part))

    def start_global_round(self) -> None:
        self.round_loss_sum = self.round_ratio_sum = 0.0
        self.round_samples = self.round_devices = self.round_left_out = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def uploaded_weights(averages: Sequence[EdgeAverage]) -> int:
    """Weights that reached the edges: the paper's communication cost. Biases and buffers do not count."""
    return sum(int(edge.statistics.uploaded_weights.sum()) for edge in averages)


def edge_record(
    state: State, plan: RoundPlan, averages: Sequence[EdgeAverage], coverage: list[dict[str, Any]]
) -> dict[str, Any]:
    """One edge round of all active edges. Per-device lists share the order of `device`; None means not applicable."""
    trained = _by_device(plan, averages)
    record = {
        "kind": "edge",
        "global_round": state.global_round + 1,
        "edge_round": state.edge_round,
        "edge_id": plan.edges.tolist(),
        "edge_latency_s": plan.edge_latency_s.tolist(),
        "edge_status": plan.status.tolist(),
        "shadow_price": _plain(plan.shadow_price),
        "coverage": coverage,
        "uploaded_weights": uploaded_weights(averages),
        "uploaded_bits": float(plan.uploaded_bits.sum()),
        "energy_j": float(plan.energy_j.sum()),
        "mean_pruning_ratio": _mean(plan.ratio[plan.takes_part]),
        "left_out": {fate.value: int(np.count_nonzero(plan.fate == fate)) for fate in Fate if fate is not Fate.OK},
        "num_samples": sum(int(edge.statistics.num_samples.sum()) for edge in averages),
        "train_loss": _mean(trained["loss"][plan.takes_part]),
        "device": plan.device.tolist(),
        "edge": plan.edge.tolist(),
        "fate": plan.fate.tolist(),
        "bandwidth_share": _plain(plan.share),
        "pruning_ratio": _plain(plan.ratio),
        "kept_weights": plan.keep.tolist(),
        "compute_s": _plain(plan.compute_s),
        "uplink_s": _plain(plan.uplink_s),
        "device_energy_j": _plain(plan.energy_j),
        "loss": _plain(trained["loss"]),
        "pruning_error_sq": _plain(trained["pruning_error_sq"]),
    }
    for name in ("gradient_sq_max", "gradient_noise_sq", "smoothness"):
        if np.isfinite(trained[name]).any():
            record[name] = _plain(trained[name])
    return record


def global_record(state: State, latency_s: float, metrics: dict[str, Any]) -> dict[str, Any]:
    """One global round: what it took, what was spent since the start, and how good the model is."""
    totals = state.totals
    return {
        "kind": "global",
        "global_round": state.global_round + 1,
        "latency_s": latency_s,
        "time_s": totals.time_s,
        "uploaded_weights": totals.uploaded_weights,
        "uploaded_bits": totals.uploaded_bits,
        "energy_j": totals.energy_j,
        "num_samples": totals.num_samples,
        "mean_pruning_ratio": totals.round_ratio_sum / totals.round_devices if totals.round_devices else None,
        "train_loss": totals.round_loss_sum / totals.round_samples if totals.round_samples else None,
        "participants": totals.round_devices,
        "left_out": totals.round_left_out,
        **metrics,
    }


def _by_device(plan: RoundPlan, averages: Sequence[EdgeAverage]) -> dict[str, Array]:
    """Statistics of the trained devices laid out in the plan's order, NaN for the others."""
    names = ("loss", "gradient_sq_max", "gradient_noise_sq", "smoothness", "pruning_error_sq")
    columns = {name: np.full(len(plan.device), np.nan) for name in names}
    for edge in averages:
        place = np.searchsorted(plan.device, edge.statistics.device)
        for name in names:
            columns[name][place] = getattr(edge.statistics, name)
    return columns


def _plain(values: Array) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _mean(values: Array) -> float | None:
    return float(np.mean(values)) if len(values) else None
