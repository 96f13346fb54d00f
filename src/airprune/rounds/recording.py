"""Records made from what a round has come to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from airprune.json_types import EdgeCoverage
from airprune.methods.topology.base import RootRound
from airprune.rounds.attacks import Attack
from airprune.rounds.records import EdgeRecord, GlobalRecord, NodeRecord, Totals
from airprune.rounds.rollback import Verdict
from airprune.rounds.state import RunState
from airprune.rounds.sums import EdgeResult
from airprune.rounds.timing import DeviceOutcome, TimedRound

Array = np.ndarray

_STATISTICS = ("code_error", "loss", "gradient_sq_max", "gradient_noise_sq", "smoothness", "pruning_error_sq")
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_DIAGNOSTICS = ("gradient_sq_max", "gradient_noise_sq", "smoothness")


def count_edge_round(
    totals: Totals, timed: TimedRound, results: Sequence[EdgeResult], *, station_power_w: float = 0.0
) -> None:
    """Adds one edge round to the totals; stations send with `station_power_w`."""
    took_part, num_samples = timed.takes_part, _num_samples(results)
    left_out = int(np.count_nonzero(~took_part))
    totals.uploaded_weights += uploaded_weights(timed, results)
    totals.uploaded_bits += float(timed.uploaded_bits.sum())
    totals.energy_j += float(timed.energy_j.sum())
    totals.left_out += left_out
    totals.num_samples += num_samples
    totals.round_loss_sum += _loss_sum(results)
    totals.round_samples += num_samples
    totals.round_ratio_sum += float(timed.ratio[took_part].sum())
    totals.round_devices += int(np.count_nonzero(took_part))
    totals.round_left_out += left_out
    if timed.d2d_bits is not None and timed.d2d_energy_j is not None:
        totals.d2d_bits += float(timed.d2d_bits.sum())
        totals.d2d_energy_j += float(timed.d2d_energy_j.sum())
    if timed.downlink_s is not None and timed.downlink_bits is not None:
        totals.downlink_bits += float(timed.downlink_bits.sum())
        totals.downlink_s += float(timed.downlink_s.max(initial=0.0))
        totals.station_energy_j += station_power_w * float(timed.downlink_s.sum())


def count_root_round(totals: Totals, root: RootRound) -> dict[str, Any]:
    """Adds what a topology's own round at the root takes; the fields of a `GlobalRecord` that tell of it."""
    totals.backhaul_bits += root.backhaul_bits
    totals.uploaded_weights += root.uploaded_weights
    totals.uploaded_bits += root.uploaded_bits
    totals.energy_j += root.energy_j
    totals.downlink_bits += root.downlink_bits
    totals.downlink_s += root.downlink_s
    totals.station_energy_j += root.station_energy_j
    totals.d2d_bits += root.d2d_bits
    totals.d2d_energy_j += root.d2d_energy_j
    return {"backhaul_bits": totals.backhaul_bits, "aggregator": root.aggregator}


def uploaded_weights(timed: TimedRound, results: Sequence[EdgeResult]) -> int:
    """Weights that reached the edges: the paper's communication cost. Biases and buffers do not count."""
    planned = timed.planned
    if planned.relay is not None and planned.carried_weights is not None:
        return int(planned.carried_weights[timed.takes_part & planned.relay.uploads].sum())
    return sum(int(edge.statistics.uploaded_weights.sum()) for edge in results)


def edge_record(
    state: RunState,
    timed: TimedRound,
    present: Sequence[int],
    results: Sequence[EdgeResult],
    num_devices: int,
    lag: Array | None = None,
    sample: Array | None = None,
    station_power_w: float = 0.0,
    attack: Attack | None = None,
) -> dict[str, Any]:
    """Returns the record of one edge round; `num_devices` were candidates, and devices began `lag` rounds ago.

    Args:
      sample: places of the devices that the lists are to hold, ascending; None: all.
    """
    planned, whole = timed.planned, by_device(timed, results)
    shown = slice(None) if sample is None else sample
    trained = {name: column[shown] for name, column in whole.items()}
    optional: dict[str, Any] = {
        name: _numbers(trained[name]) for name in _DIAGNOSTICS if np.isfinite(trained[name]).any()
    }
    if planned.bits_per_weight is not None:
        optional["bits_per_weight"] = _numbers(planned.bits_per_weight[shown])
        optional["code_error"] = _numbers(trained["code_error"])
    if planned.local_steps is not None and planned.first_trained is not None:
        optional["local_steps"] = tuple(np.where(planned.in_plan, planned.local_steps, 0)[shown].tolist())
        optional["first_trained"] = tuple(planned.first_trained[shown].tolist())
        if planned.last_trained is not None:
            optional["last_trained"] = tuple(planned.last_trained[shown].tolist())
    if planned.tunes_itself:
        optional["deadline_s"] = planned.deadline_s
    if len(planned.device) < num_devices:
        optional["asked"] = len(planned.device)
    if timed.relay_s is not None and timed.d2d_bits is not None and timed.d2d_energy_j is not None:
        optional["d2d_bits"] = float(timed.d2d_bits.sum())
        optional["d2d_energy_j"] = float(timed.d2d_energy_j.sum())
        optional["relay_s"] = _numbers(timed.relay_s[shown])
    if timed.downlink_s is not None and timed.downlink_bits is not None:
        optional["downlink_bits"] = float(timed.downlink_bits.sum())
        optional["downlink_s"] = _numbers(timed.downlink_s)
        optional["station_energy_j"] = station_power_w * float(timed.downlink_s.sum())
    if timed.exchange_s is not None and timed.exchange_bits is not None:
        optional["exchange_s"] = _numbers(timed.exchange_s)
        optional["exchange_bits"] = float(timed.exchange_bits.sum())
    if planned.snr is not None:
        sent = {edge: result.sent for edge, result in zip(present, results, strict=True) if result.sent is not None}
        errors = [sent[edge].mean_error_sq if edge in sent else np.nan for edge in planned.edges.tolist()]
        optional["mean_error_sq"] = _numbers(np.array(errors))
    if lag is not None:
        optional["lag"] = tuple(lag[shown].tolist())
    if attack is not None:
        here = timed.takes_part[shown]
        optional["attackers"] = tuple(attack.among(planned.device[shown][here]))
    suspected = sorted(device for result in results for device in result.suspected)
    rolled_back = [edge for edge, result in zip(present, results, strict=True) if result.rolled_back]
    if suspected:
        optional["suspected"] = tuple(suspected)
    if rolled_back:
        optional["rolled_back"] = tuple(rolled_back)
    if sample is not None:
        optional |= _summary(timed, whole["loss"])
    return EdgeRecord(
        global_round=state.global_round + 1,
        edge_round=state.edge_round,
        edge_id=tuple(planned.edges.tolist()),
        edge_latency_s=_numbers(timed.edge_round_s),
        edge_status=tuple(map(str, timed.edge_status.tolist())),
        shadow_price=_numbers(planned.shadow_price),
        coverage=tuple(
            EdgeCoverage(
                edge=int(edge), min_count=result.coverage.min_count, num_uncovered=result.coverage.num_uncovered
            )
            for edge, result in zip(present, results, strict=True)
        ),
        uploaded_weights=uploaded_weights(timed, results),
        uploaded_bits=float(timed.uploaded_bits.sum()),
        energy_j=float(timed.energy_j.sum()),
        mean_pruning_ratio=_mean(timed.ratio[timed.takes_part]),
        left_out={
            word.value: int(np.count_nonzero(timed.outcome == word))
            for word in DeviceOutcome
            if word is not DeviceOutcome.OK and (word is not DeviceOutcome.TRUNCATED or planned.truncated is not None)
        },
        num_samples=_num_samples(results),
        train_loss=_mean(whole["loss"][timed.takes_part]),
        device=tuple(planned.device[shown].tolist()),
        edge=tuple(planned.edge[shown].tolist()),
        fate=tuple(timed.outcome[shown].tolist()),
        bandwidth_share=_numbers(planned.share[shown]),
        pruning_ratio=_numbers(timed.ratio[shown]),
        kept_weights=tuple(planned.keep[shown].tolist()),
        compute_s=_numbers(timed.compute_s[shown]),
        uplink_s=_numbers(timed.uplink_s[shown]),
        device_energy_j=_numbers(timed.energy_j[shown]),
        loss=_numbers(trained["loss"]),
        pruning_error_sq=_numbers(trained["pruning_error_sq"]),
        **optional,
    ).to_json()


def _summary(timed: TimedRound, loss: Array) -> dict[str, Any]:
    """Returns the summary that stands in a record for the devices that its lists exclude."""
    took_part = timed.takes_part
    return {
        "sampled_of": len(took_part),
        "pruning_ratio_quartiles": _quartiles(timed.ratio[took_part]),
        "latency_quartiles_s": _quartiles(timed.total_s[took_part]),
        "loss_quartiles": _quartiles(loss[took_part]),
    }


def _quartiles(values: Array) -> tuple[float | None, ...]:
    """Least, quarter, median, three quarters, most; empty if there are no values."""
    return _numbers(np.quantile(values, _QUARTERS)) if len(values) else ()


def node_record(
    state: RunState,
    level: int,
    node_round: int,
    nodes: Array,
    latency_s: Array,
    link_bits: tuple[float, float] | None = None,
    rolled_back: Sequence[int] = (),
) -> dict[str, Any]:
    """One round of the nodes of a level between edges and cloud; `link_bits` up from and down to their children."""
    up_bits, down_bits = link_bits or (None, None)
    return NodeRecord(
        global_round=state.global_round + 1,
        level=level + 1,
        node_round=node_round,
        node=tuple(nodes.tolist()),
        latency_s=_numbers(latency_s),
        uploaded_bits=up_bits,
        downlink_bits=down_bits,
        rolled_back=tuple(rolled_back) or None,
    ).to_json()


def downlink_totals(totals: Totals) -> dict[str, Any]:
    """Returns the fields of a `GlobalRecord` about charged downlinks."""
    return {name: getattr(totals, name) for name in ("downlink_bits", "downlink_s", "station_energy_j")}


def verdict_fields(verdict: Verdict) -> dict[str, Any]:
    """Returns the fields of a `GlobalRecord` about an exploding model; none if all is well."""
    found: dict[str, Any] = {"suspected": verdict.suspected} if verdict.suspected else {}
    return found | ({"rolled_back": True} if verdict.rolled_back else {})


def global_record(state: RunState, latency_s: float, metrics: dict[str, Any]) -> dict[str, Any]:
    """One global round; `metrics` are optional fields of a `GlobalRecord`, or others under their own names."""
    totals = state.totals
    known = {field.name for field in fields(GlobalRecord)}
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
        **{name: value for name, value in metrics.items() if name in known},
        extra={name: value for name, value in metrics.items() if name not in known},
    ).to_json()


def mean_loss(results: Sequence[EdgeResult]) -> float:
    """Training loss per sample of an edge round; NaN if no device trained."""
    count = _num_samples(results)
    return _loss_sum(results) / count if count else math.nan


def _loss_sum(results: Sequence[EdgeResult]) -> float:
    return sum(float((edge.statistics.loss * edge.statistics.num_samples).sum()) for edge in results)


def _num_samples(results: Sequence[EdgeResult]) -> int:
    return sum(int(edge.statistics.num_samples.sum()) for edge in results)


def by_device(timed: TimedRound, results: Sequence[EdgeResult]) -> dict[str, Array]:
    """Statistics of the trained devices laid out in the round's order, NaN for the others."""
    device = timed.planned.device
    columns = {name: np.full(len(device), np.nan) for name in _STATISTICS}
    for edge in results:
        place = np.searchsorted(device, edge.statistics.device)
        for name in _STATISTICS:
            columns[name][place] = getattr(edge.statistics, name)
    return columns


def _numbers(values: Array) -> tuple[float | None, ...]:
    if np.isfinite(values).all():
        return tuple(values.tolist())
    return tuple([value if math.isfinite(value) else None for value in values.tolist()])


def _mean(values: Array) -> float | None:
    return float(np.mean(values)) if len(values) else None
