"""Adds up the uploads that counted, Eq. (12), takes the edge's own step, in the simulator's order, and reports it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from airprune.components.component import ModelShape
from airprune.deployment.bounds import most_loss
from airprune.deployment.digests import Bytes
from airprune.deployment.packing import ReportArrays, Station
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import Outcome
from airprune.deployment.run_definition import RunDefinition
from airprune.deployment.secure.opening import Opening, common_mask, terms_of
from airprune.deployment.uploads import Expected, upload_from_bytes
from airprune.methods.secure.cohort import SecureCohort
from airprune.rounds.edge import close_round
from airprune.rounds.messages import Broadcast, Upload
from airprune.rounds.optimisers import gradients_in_update
from airprune.rounds.sums import DeviceStatistics, EdgeResult, Failure, chunk_sum, edge_sum, finish_sum
from airprune.rounds.training.chunks import TrainTask
from airprune.rounds.wire import shared_mask_of
from airprune.runs.measured import recorded_fate

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class OrderedRound:
    """One edge round as an edge was ordered to run it: the devices, their budgets, and the model to start from."""

    work: RunDefinition
    round: pb.EdgeRound
    broadcast: Broadcast
    model_digest: str

    @cached_property
    def shared_mask(self) -> Array | None:
        """The mask that uploads need not repeat; of secure sums, the one that all must have."""
        work, mask = self.work, self.broadcast.mask
        if work.hides:
            return common_mask(mask, work.shape)
        return shared_mask_of(work.method.masking, mask, self.round.round_index, work.codec)

    @cached_property
    def cohort(self) -> SecureCohort | None:
        """The planned devices of a secure sum."""
        return self.work.cohort(tuple(self.round.cohort)) if self.work.hides else None

    @cached_property
    def orders(self) -> dict[int, pb.DeviceOrders]:
        """Orders by device."""
        return {orders.device: orders for orders in self.round.orders}

    def expected(self, device: int) -> Expected:
        orders = self.orders[device]
        return Expected(
            keep=orders.keep,
            code=orders.code if orders.HasField("code") else None,
            model_digest=bytes.fromhex(self.model_digest),
            max_bytes=orders.max_bytes,
            reports=self.work.reports,
            most_loss=most_loss(self.work.scenario, self.work.num_classes),
            part=(orders.first_trained, orders.last_trained if orders.HasField("last_trained") else None),
            hides=self.work.hides,
        )

    def decoded(self, device: int, data: Bytes) -> Upload:
        """Decodes a device's upload; raises BadUpload if it is not what was ordered."""
        received, expected = self.broadcast.model, self.expected(device)
        return upload_from_bytes(data, received, self.work.codec, expected=expected, shared_mask=self.shared_mask)

    @property
    def tasks(self) -> tuple[TrainTask, ...]:
        """Devices in their order, in the chunks in which a simulation adds them up."""
        orders, sizes = self.round.orders, self.round.chunk_sizes
        parts = [orders[start:stop] for start, stop in pairwise(accumulate(sizes, initial=0))]
        return tuple(
            TrainTask(
                devices=tuple(one.device for one in part),
                keep=tuple(one.keep for one in part),
                weights=tuple(one.weight for one in part),
                first_trained=tuple(one.first_trained for one in part),
                work=self._work(part),
                learning_rate=self.round.learning_rate,
                global_round=self.round.global_round,
                edge_round=self.round.edge_round,
                round_index=self.round.round_index,
                measured=self.work.scenario.aggregation.rollback is not None,
            )
            for part in parts
        )

    def _work(self, orders: Sequence[pb.DeviceOrders]) -> tuple[float, ...] | None:
        """Returns ‖a_n‖₁ of devices, if they count by it: their weights are then the samples that they train on."""
        if not self.work.method.edge.by_work:
            return None
        train = self.work.scenario.train
        steps = train.steps([one.weight for one in orders])
        if all(one.HasField("local_steps") for one in orders):
            steps = np.array([one.local_steps for one in orders])
        return tuple(gradients_in_update(train.optimizer, train.momentum, steps).tolist())


def closed_round(
    ordered: OrderedRound,
    uploads: Mapping[int, Bytes | Upload],
    outcomes: Mapping[int, Outcome],
    station: Station,
    opening: Opening | None = None,
) -> tuple[EdgeResult, Station]:
    """Returns the round's result and the edge's model after it.

    Args:
      uploads: those that counted, decoded or not.
      opening: of a secure sum; None if it cannot be opened, and the edge keeps its model.
    """
    work, round_, received = ordered.work, ordered.round, ordered.broadcast.model
    cohort, min_contributors = ordered.cohort, work.scenario.aggregation.min_contributors
    if cohort is not None:
        min_contributors = max(min_contributors, cohort.threshold)
        if opening is not None:
            terms = terms_of(work, round_.round_index, round_.learning_rate, ordered.model_digest)
            cohort = opening.cohort(cohort, work.codec, ordered.shared_mask, terms)
    aggregation = work.method.edge.at_rate(round_.learning_rate)
    sums = (
        chunk_sum(
            aggregation,
            work.shape,
            received,
            replace(task, cohort=cohort),
            _arrived(ordered, task, uploads, outcomes),
        )
        for task in ordered.tasks
    )
    result = finish_sum(
        edge_sum(sums),
        received,
        aggregation,
        work.shape.prunable,
        served_weight=round_.served_weight if round_.HasField("served_weight") else None,
        min_contributors=min_contributors,
        rollback=work.scenario.aggregation.rollback,
    )
    step = work.method.edge_step
    own, trained = dict(station.slots), work.shape.num_parameters
    model, slots = close_round(
        step, "edge_step", station.model, result.combined, result.held, own, num_parameters=trained
    )
    return result, Station(model=model, slots=slots)


def _arrived(
    ordered: OrderedRound, task: TrainTask, uploads: Mapping[int, Bytes | Upload], outcomes: Mapping[int, Outcome]
) -> Iterator[Upload | Failure]:
    """Yields the upload or the failure of each device of a chunk, in their order."""
    for device in task.devices:
        if device not in uploads:
            outcome = outcomes[device]
            yield Failure(device, outcome.reason, recorded_fate(outcome.fate))
        else:
            upload = uploads[device]
            yield upload if isinstance(upload, Upload) else ordered.decoded(device, upload)


def report_of(round_: pb.EdgeRound, **known: Any) -> pb.EdgeReport:
    """Returns the report about a round, with what else is known."""
    return pb.EdgeReport(
        run=round_.run,
        global_round=round_.global_round,
        edge_round=round_.edge_round,
        round_index=round_.round_index,
        **known,
    )


def outcome_messages(
    outcomes: Iterable[Outcome],
    rtt_s: Mapping[int, float],
    under_way: Mapping[int, pb.Outcome],
    exchange_bytes: Mapping[int, int],
) -> list[pb.Outcome]:
    """Returns the outcomes as they travel, with what is known of uploads that are still under way."""
    messages = []
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
            exchange_bytes=exchange_bytes.get(outcome.device, 0),
        )
        if outcome.num_bytes:
            one.started_s = outcome.arrived_s - outcome.uplink_s
        one.MergeFrom(under_way.get(outcome.device, pb.Outcome()))
        messages.append(one)
    return messages


def no_sums(shape: ModelShape, station: Station) -> ReportArrays:
    """Returns the arrays of a round without selected devices: only the model travels."""
    return ReportArrays(
        station=station,
        held=np.zeros(shape.num_state, dtype=bool),
        kept_by=np.zeros(shape.prunable_weights, dtype=np.int64),
        statistics=DeviceStatistics.of([]),
        reports={},
    )
