"""Records made from what a round has come to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.engines.work import EdgeAverage
from airprune.json_types import EdgeCoverage
from airprune.records import EdgeRecord, GlobalRecord, Totals
from airprune.round_plan import Fate, RoundPlan

if TYPE_CHECKING:
    from airprune.rounds import State

Array = np.ndarray

_STATISTICS = ("loss", "gradient_sq_max", "gradient_noise_sq", "smoothness", "pruning_error_sq")
_DIAGNOSTICS = ("gradient_sq_max", "gradient_noise_sq", "smoothness")


def count_edge_round(totals: Totals, plan: RoundPlan, averages: Sequence[EdgeAverage]) -> None:
    """Adds one edge round to the totals."""
    took_part = plan.takes_part
    totals.add(
        uploaded_weights=uploaded_weights(averages),
        uploaded_bits=float(plan.uploaded_bits.sum()),
        energy_j=float(plan.energy_j.sum()),
        left_out=int(np.count_nonzero(~took_part)),
        num_samples=_num_samples(averages),
        loss_sum=sum(float((edge.statistics.loss * edge.statistics.num_samples).sum()) for edge in averages),
        ratio_sum=float(plan.ratio[took_part].sum()),
        num_devices=int(np.count_nonzero(took_part)),
    )


def uploaded_weights(averages: Sequence[EdgeAverage]) -> int:
    """Weights that reached the edges: the paper's communication cost. Biases and buffers do not count."""
    return sum(int(edge.statistics.uploaded_weights.sum()) for edge in averages)


def edge_record(
    state: State, plan: RoundPlan, averages: Sequence[EdgeAverage], coverage: list[dict[str, Any]]
) -> dict[str, Any]:
    """One edge round of all active edges."""
    trained = _by_device(plan, averages)
    diagnosed: dict[str, Any] = {
        name: _numbers(trained[name]) for name in _DIAGNOSTICS if np.isfinite(trained[name]).any()
    }
    return EdgeRecord(
        global_round=state.global_round + 1,
        edge_round=state.edge_round,
        edge_id=tuple(plan.edges.tolist()),
        edge_latency_s=_numbers(plan.edge_latency_s),
        edge_status=tuple(plan.status.tolist()),
        shadow_price=_numbers(plan.shadow_price),
        coverage=tuple(EdgeCoverage(**entry) for entry in coverage),
        uploaded_weights=uploaded_weights(averages),
        uploaded_bits=float(plan.uploaded_bits.sum()),
        energy_j=float(plan.energy_j.sum()),
        mean_pruning_ratio=_mean(plan.ratio[plan.takes_part]),
        left_out={fate.value: int(np.count_nonzero(plan.fate == fate)) for fate in Fate if fate is not Fate.OK},
        num_samples=_num_samples(averages),
        train_loss=_mean(trained["loss"][plan.takes_part]),
        device=tuple(plan.device.tolist()),
        edge=tuple(plan.edge.tolist()),
        fate=tuple(plan.fate.tolist()),
        bandwidth_share=_numbers(plan.share),
        pruning_ratio=_numbers(plan.ratio),
        kept_weights=tuple(plan.keep.tolist()),
        compute_s=_numbers(plan.compute_s),
        uplink_s=_numbers(plan.uplink_s),
        device_energy_j=_numbers(plan.energy_j),
        loss=_numbers(trained["loss"]),
        pruning_error_sq=_numbers(trained["pruning_error_sq"]),
        **diagnosed,
    ).to_json()


def global_record(state: State, latency_s: float, metrics: dict[str, Any]) -> dict[str, Any]:
    """One global round; `metrics` are the optional fields of a `GlobalRecord`."""
    totals = state.totals
    return GlobalRecord(
        global_round=state.global_round + 1,
        latency_s=latency_s,
        time_s=totals.time_s,
        uploaded_weights=totals.uploaded_weights,
        uploaded_bits=totals.uploaded_bits,
        energy_j=totals.energy_j,
        num_samples=totals.num_samples,
        mean_pruning_ratio=totals.round_ratio_sum / totals.round_devices if totals.round_devices else None,
        train_loss=totals.round_loss_sum / totals.round_samples if totals.round_samples else None,
        participants=totals.round_devices,
        left_out=totals.round_left_out,
        **metrics,
    ).to_json()


def _num_samples(averages: Sequence[EdgeAverage]) -> int:
    return sum(int(edge.statistics.num_samples.sum()) for edge in averages)


def _by_device(plan: RoundPlan, averages: Sequence[EdgeAverage]) -> dict[str, Array]:
    """Statistics of the trained devices laid out in the plan's order, NaN for the others."""
    columns = {name: np.full(len(plan.device), np.nan) for name in _STATISTICS}
    for edge in averages:
        place = np.searchsorted(plan.device, edge.statistics.device)
        for name in _STATISTICS:
            columns[name][place] = getattr(edge.statistics, name)
    return columns


def _numbers(values: Array) -> tuple[float | None, ...]:
    return tuple(value if math.isfinite(value) else None for value in values.tolist())


def _mean(values: Array) -> float | None:
    return float(np.mean(values)) if len(values) else None
