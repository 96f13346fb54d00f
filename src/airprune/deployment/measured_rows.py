"""Makes rows of `measured.jsonl` of an edge's orders and its report: the plan for each device beside its outcome."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from airprune.deployment.packing import RoundArrays, order_digest
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.rounds.timing import DeviceOutcome, TimedRound
from airprune.runs.measured import MeasuredRow

_EDGE_UNREACHABLE = "Its edge was unreachable."


def measured_rows(
    timed: TimedRound,
    edge: int,
    message: pb.EdgeRound,
    payload: bytes,
    report: pb.EdgeReport | None,
    *,
    names: Sequence[str],
    served_by: str,
    extra_s: Mapping[int, float | None],
) -> list[MeasuredRow]:
    """Returns a row for each device of the orders; `report` is None if the edge was unreachable.

    Args:
      names: of all devices.
      served_by: name of the edge's node.
      extra_s: what is planned beside each device's training, where work is planned.
    """
    planned = timed.planned
    orders_digest = order_digest(message, RoundArrays.from_bytes(payload))
    outcomes = {} if report is None else {outcome.device: outcome for outcome in report.outcomes}
    rows = []
    for orders in message.orders:
        place = int(np.searchsorted(planned.device, orders.device))
        outcome = outcomes.get(orders.device, pb.Outcome(fate=str(DeviceOutcome.DROPPED), reason=_EDGE_UNREACHABLE))
        started, came = outcome.HasField("started_s"), outcome.digest != ""
        rows.append(
            MeasuredRow(
                round=message.round_index,
                global_round=message.global_round + 1,
                edge_round=message.edge_round + 1,
                edge=edge,
                device=orders.device,
                name=names[orders.device],
                fate=outcome.fate,
                reason=outcome.reason or None,
                share=float(planned.share[place]),
                rate_bps=orders.rate_bps,
                full_band_rate_bps=float(planned.full_band_rate_bps[place]),
                planned_compute_s=orders.planned_compute_s,
                compute_s=outcome.compute_s if started else None,
                planned_uplink_s=orders.planned_uplink_s,
                uplink_s=outcome.uplink_s if started else None,
                planned_bytes=math.ceil(float(planned.bits[place]) / 8),
                bytes=outcome.bytes if started else None,
                rtt_s=outcome.rtt_s if came and math.isfinite(outcome.rtt_s) else None,
                arrived_s=outcome.arrived_s if came else None,
                deadline_s=message.deadline_s,
                num_samples=None,
                digest=outcome.digest or None,
                edge_out=report is None,
                served_by=served_by,
                orders_digest=orders_digest,
                model_digest=None if report is None else report.model_digest,
                started_s=outcome.started_s if started else None,
                local_steps=orders.local_steps if orders.HasField("local_steps") else None,
                first_trained=orders.first_trained if planned.first_trained is not None else None,
                last_trained=orders.last_trained if orders.HasField("last_trained") else None,
                extra_s=extra_s.get(orders.device),
                exchange_bytes=outcome.exchange_bytes if message.cohort and report is not None else None,
            )
        )
    return rows


def row_of_lost_edge(message: pb.EdgeRound, edge: int, device: int, name: str) -> MeasuredRow:
    """Records that an edge without selected devices is lost with its model; `device` is the first at home there."""
    unknown: dict[str, Any] = dict.fromkeys(field.name for field in fields(MeasuredRow) if field.name != "extra")
    known: dict[str, Any] = {
        "round": message.round_index,
        "global_round": message.global_round + 1,
        "edge_round": message.edge_round + 1,
        "edge": edge,
        "device": device,
        "name": name,
        "fate": str(DeviceOutcome.DROPPED),
        "reason": _EDGE_UNREACHABLE,
        "edge_out": True,
    }
    return MeasuredRow(**{**unknown, **known})
