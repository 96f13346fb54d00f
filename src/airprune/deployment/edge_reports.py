"""What an edge reports of a round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from airprune.components.component import ModelShape
from airprune.deployment.packing import ReportArrays, Station
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import Outcome
from airprune.rounds.sums import DeviceStatistics


def report_of(round_: pb.EdgeRound, **known: Any) -> pb.EdgeReport:
    """The report about a round, with what else is known."""
    return pb.EdgeReport(
        run=round_.run,
        global_round=round_.global_round,
        edge_round=round_.edge_round,
        round_index=round_.round_index,
        **known,
    )


def told_outcomes(
    outcomes: Iterable[Outcome], rtt_s: Mapping[int, float], under_way: Mapping[int, pb.Outcome]
) -> list[pb.Outcome]:
    """As they travel; of late uploads that are under way, what is known of them."""
    told = []
    for outcome in outcomes:
        one = pb.Outcome(
            device=outcome.device,
            fate=str(outcome.fate),
            reason=outcome.reason,
            arrived_s=outcome.arrived_s,
            compute_s=outcome.compute_s,
            uplink_s=outcome.uplink_s,
            bytes=outcome.num_bytes,
            rtt_s=rtt_s.get(outcome.device, 0.0),
            digest=outcome.digest,
        )
        if outcome.num_bytes:
            one.started_s = outcome.arrived_s - outcome.uplink_s
        one.MergeFrom(under_way.get(outcome.device, pb.Outcome()))
        told.append(one)
    return told


def no_sums(shape: ModelShape, station: Station) -> ReportArrays:
    """Of a round in which nobody was asked: only the model travels."""
    return ReportArrays(
        station=station,
        held=np.zeros(shape.num_state, dtype=bool),
        kept_by=np.zeros(shape.prunable_weights, dtype=np.int64),
        statistics=DeviceStatistics.of([]),
        reports={},
    )
