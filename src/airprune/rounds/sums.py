"""The sums of Eqs. (12) and (13), as plain functions: what engines spread over workers, and a deployed edge calls.

add_child      how a child enters its parent's sum
chunk_sum      the devices of a chunk, in their order
merge_sums     chunks, in their order
edge_sum       all chunks of an edge, merged as every engine merges them
finish_sum     an edge's model from its sum
mean_of_parts  one edge's model from devices that began at different times
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.components.component import ModelShape
from airprune.engines.base import merged_in_batches
from airprune.methods.aggregation import Aggregation
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.methods.aggregation.over_the_air import AirSum, Sent
from airprune.methods.masking.core.coverage import Coverage, coverage_of
from airprune.rounds.messages import Upload
from airprune.rounds.rollback import Verdict, update_length, verdict_on

if TYPE_CHECKING:
    from airprune.rounds.training.chunks import TrainTask

Array = np.ndarray

# Before a device's number: the report of which prunable weights the group that it uploads for has sent.
UNION = "union/"
# Columns of `DeviceStatistics` that are whole numbers.
WHOLE = ("device", "uploaded_weights", "num_samples")


@dataclass(frozen=True)
class Failure:
    """A device whose training failed every time, and the last traceback, or what became of the worker.

    Where devices are real, `outcome` may be another one than failed.

    Attributes:
      diverged: whether it failed since its model, or what it chooses by, is not finite.
      refused: whether it sent something that its edge refused.
    """

    device: int
    trouble: str
    outcome: str = "failed"
    diverged: bool = False
    refused: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceStatistics:
    """Recorded statistics of the trained devices, in their order.  Each [num_devices]"""

    device: Array
    uploaded_weights: Array
    sent_bits: Array
    code_error: Array
    loss: Array
    num_samples: Array
    gradient_sq_max: Array
    gradient_noise_sq: Array
    smoothness: Array
    pruning_error_sq: Array

    @classmethod
    def of(cls, rows: Sequence[tuple[Any, ...]]) -> DeviceStatistics:
        """Builds the columns from one row per device, in the order of the fields."""
        table = np.array(rows, dtype=np.float64).reshape(len(rows), len(fields(cls)))
        columns = {field.name: column for field, column in zip(fields(cls), table.T, strict=True)}
        for name in WHOLE:
            columns[name] = columns[name].astype(np.int64)
        return cls(**columns)

    @classmethod
    def joined(cls, parts: Sequence[DeviceStatistics]) -> DeviceStatistics:
        if len(parts) == 1:
            return parts[0]
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})


@dataclass(frozen=True, kw_only=True, eq=False)
class ChunkSum:
    """The sum of a chunk, or of several chunks of an edge, and what its devices report and remember.

    Attributes:
      total: of the aggregation; None stands for devices that workers died of.
      reports: arrays summed over devices, by name.
      memory: the devices' slots after the round; gone as soon as the driver has stored them.
      lengths: of the updates, in the order of the devices, if they are measured.
    """

    total: MaskedSum | None
    statistics: DeviceStatistics
    failures: tuple[Failure, ...] = ()
    reports: Mapping[str, Array] = field(default_factory=dict)
    memory: Mapping[str, Array] = field(default_factory=dict)
    lengths: tuple[float, ...] = ()

    def copy(self) -> ChunkSum:
        """Returns a copy with sums of its own, that can be used up."""
        total = None if self.total is None else self.total.copy()
        return replace(self, total=total, reports={name: array.copy() for name, array in self.reports.items()})


def chunk_sum(
    aggregation: Aggregation, shape: ModelShape, received: Array, task: TrainTask, uploads: Iterable[Upload | Failure]
) -> ChunkSum:
    """A chunk's part of the sums of Eq. (12), from the uploads of its devices in their order.

    Args:
      received: the model that they started from.  [num_state]
    """
    total = aggregation.Sum.zeros(shape.num_state, shape.prunable)
    if task.cohort is not None:
        total.begin(task.cohort)
    rows: list[tuple[Any, ...]] = []
    failures, reports = [], dict[str, Array]()
    memory: dict[str, list[Array]] = {name: [] for name in task.memory}
    lengths: list[float] = []
    for number, upload in enumerate(uploads):
        if isinstance(upload, Failure):
            failures.append(upload)
            continue
        device = task.devices[number]
        member = (device, device if task.group is None else task.group[number])
        work = 1.0 if task.work is None else task.work[number]
        frozen = _frozen(shape, upload)
        add_child(aggregation, total, upload.state, upload.mask, task.weights[number], received, member, work, frozen)
        if upload.report or task.group is not None:
            own = {name_in_sums(name, device): array for name, array in upload.report.items()}
            for name, array in {**own, **_sent_by_group(task, number, upload, shape)}.items():
                reports[name] = reports[name] + array if name in reports else array
        for name, kept in memory.items():
            kept.append(upload.memory[name])
        rows.append(_row(device, upload, shape))
        if task.measured:
            sent = _sent(shape, upload) if frozen is None else _sent(shape, upload) & ~frozen
            lengths.append(update_length(upload.state, received, sent))
    return ChunkSum(
        total=total,
        statistics=DeviceStatistics.of(rows),
        failures=tuple(failures),
        reports=reports,
        memory={name: np.stack(kept) for name, kept in memory.items() if kept},
        lengths=tuple(lengths),
    )


def name_in_sums(name: str, device: int) -> str:
    """Returns the name under which the sums have a device's report: with its number, if it is of that device alone."""
    return f"{name}{device}" if name.endswith("/") else name


def _sent_by_group(task: TrainTask, number: int, upload: Upload, shape: ModelShape) -> dict[str, Array]:
    """Returns which prunable weights a device has sent, where another uploads them; sums of booleans are unions."""
    if task.group is None:
        return {}
    sent = np.ones(shape.prunable_weights, dtype=bool) if upload.mask is None else upload.mask
    return {UNION + str(task.group[number]): np.asarray(sent, dtype=bool)}


def _row(device: int, upload: Upload, shape: ModelShape) -> tuple[Any, ...]:
    """Returns a device's row, in the order of the fields of `DeviceStatistics`."""
    sent = upload.num_kept
    if sent is None:
        sent = shape.prunable_weights if upload.mask is None else int(np.count_nonzero(upload.mask))
    frozen = _frozen(shape, upload)
    if frozen is not None:
        sent -= int(np.count_nonzero((shape.is_weight & frozen)[_sent(shape, upload)]))
    return (
        device,
        shape.fixed_weights + sent,
        upload.sent_bits,
        upload.code_error,
        upload.loss,
        upload.num_samples,
        upload.gradient_sq_max,
        upload.gradient_noise_sq,
        upload.smoothness,
        upload.pruning_error_sq,
    )


def _frozen(shape: ModelShape, upload: Upload) -> Array | None:
    """Returns the entries of the layers that a device did not train; None if it trained all.  [num_state] bool"""
    if not upload.first_trained and upload.last_trained is None:
        return None
    return shape.frozen_outside(upload.first_trained, upload.last_trained)


def _sent(shape: ModelShape, upload: Upload) -> Array:
    """True for entries that the mask lets through.  [num_state]"""
    sent = np.ones(shape.num_state, dtype=bool)
    if upload.mask is not None:
        sent[shape.prunable] = upload.mask
    return sent


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeResult:
    """The result of one edge round at one edge.

    Attributes:
      combined: the average, before the edge's own step.  [num_state]
      held: which entries of the state some device sent, or as many as must.  [num_state] bool
      kept_by: how many devices sent each prunable weight; 0 if too few.  [num_prunable]
      suspected: devices whose updates were not finite or far too long, see `rollback`.
      rolled_back: whether the average exploded, so that `combined` is what the devices started from.
      sent: how its devices have sent, if their signals added up on the air.
    """

    combined: Array
    held: Array
    kept_by: Array
    coverage: Coverage
    statistics: DeviceStatistics
    failures: tuple[Failure, ...]
    reports: Mapping[str, Array]
    suspected: tuple[int, ...] = ()
    rolled_back: bool = False
    sent: Sent | None = None


def add_child(
    aggregation: Aggregation,
    total: MaskedSum,
    state: Array,
    mask: Array | None,
    weight: float,
    previous: Array,
    member: tuple[int, int] | None = None,
    work: float = 1.0,
    frozen: Array | None = None,
) -> None:
    """Adds one child to a sum, as the aggregation reads it.

    Args:
      state: its model, zero where `mask` is false.  [num_state]
      previous: the parent's model that it started from.  [num_state]
      member: of a device: its number, and that of the device that uploads for it.
      work: of a device: see `TrainTask.work`.
      frozen: entries that a device left as it received them and does not count for; None if none.  [num_state] bool
    """
    state = as_read(aggregation, state, mask, previous, total.prunable)
    if frozen is not None:
        if mask is not None:  # what is masked does not count already
            frozen = frozen.copy()
            frozen[total.prunable] &= np.asarray(mask, dtype=bool)
        state = np.where(frozen, state.dtype.type(0.0), state)
    if member is None:
        total.add(state, mask, weight)
    else:
        device, master = member
        total.add_member(state, mask, weight, is_master=device == master, master=master, work=work)
    if frozen is not None:
        total.leave_out(frozen, weight)


def as_read(aggregation: Aggregation, state: Array, mask: Array | None, previous: Array, prunable: slice) -> Array:
    """Returns a child's model as the aggregation reads it, zero where `mask` is false.  [num_state]"""
    if aggregation.overrides(Aggregation.read):
        state = aggregation.read(state, previous)
        if mask is not None:
            state[prunable] = np.where(mask, state[prunable], state.dtype.type(0.0))
    return state


def merge_sums(parts: Iterable[ChunkSum]) -> ChunkSum:
    """The parts merged in order, one at a time; the first one's sums are used up."""
    parts = iter(parts)
    first = next(parts)
    total, statistics, failures = first.total, [first.statistics], [*first.failures]
    reports, lengths = dict(first.reports), [*first.lengths]
    for part in parts:
        if total is None:
            total = part.total
        elif part.total is not None:
            total.merge(part.total)
        for name, array in part.reports.items():
            reports[name] = reports[name] + array if name in reports else array
        statistics.append(part.statistics)
        failures += part.failures
        lengths += part.lengths
    joined = DeviceStatistics.joined(statistics)
    return ChunkSum(total=total, statistics=joined, failures=tuple(failures), reports=reports, lengths=tuple(lengths))


def edge_sum(parts: Iterable[ChunkSum]) -> ChunkSum:
    """All chunks of an edge, in their order, merged as every engine merges them."""
    merged: ChunkSum = merged_in_batches(merge_sums, ([part] for part in parts))
    return merged


def finish_sum(
    part: ChunkSum,
    received: Array,
    aggregation: Aggregation,
    prunable: slice,
    *,
    served_weight: float | None = None,
    min_contributors: int = 1,
    rollback: float | None = None,
) -> EdgeResult:
    """Eq. (12): returns the result of an edge round at one edge.

    Args:
      received: the model that its devices started from.  [num_state]
      served_weight: Σ c_n of all devices of the edge, if those count that are not heard from.
      min_contributors: t; a weight that fewer devices kept counts as kept by none.
      rollback: X of `rollback`, given the lengths of the updates; None: never.
    """
    held, verdict, sent = np.zeros(len(received), dtype=bool), Verdict(), None
    if part.total is None or not part.total.all_count:
        kept_by = np.zeros(prunable.stop - prunable.start, dtype=np.int64)
        coverage = coverage_of(kept_by, 0)
        combined = received
    else:
        kept_by, least = part.total.kept_by, min_contributors
        if least > 1:
            kept_by = np.where(kept_by >= least, kept_by, 0)
        held[:] = part.total.all_count >= least if part.total.frozen_count is None else part.total.sent_by >= least
        held[prunable] = kept_by > 0
        coverage = coverage_of(kept_by, part.total.all_count)
        combined = aggregation.finish(part.total, received)
        if isinstance(part.total, AirSum):
            sent = part.total.sent()
        if served_weight is not None:
            combined = aggregation.absent(combined, received, part.total.all_weight / served_weight)
        if least > 1:
            combined = np.where(held, combined, received)
        if rollback is not None:
            verdict = verdict_on(update_length(combined, received, held), part.lengths, rollback)
        if verdict.rolled_back:
            combined, held = received, np.zeros_like(held)
    return EdgeResult(
        combined=combined,
        held=held,
        kept_by=kept_by,
        coverage=coverage,
        statistics=part.statistics,
        failures=part.failures,
        reports=part.reports,
        suspected=tuple(part.statistics.device[list(verdict.suspected)].tolist()),
        rolled_back=verdict.rolled_back,
        sent=sent,
    )


def mean_of_parts(
    parts: Sequence[tuple[int, EdgeResult]], current: Array, starts: Sequence[Array] = (), weights: Array | None = None
) -> EdgeResult:
    """One edge's result from those of devices that began so many rounds ago.

    Without weights the parts count equally, however many devices they have: each entry is the mean over the parts that
    have it. With weights ω the edge moves by what the parts have moved: w ← w + Σ ω (w_part − start), where ω of
    an entry that a part lacks falls to the others. An entry that no device sent stays as it is. A part that began with
    this round, is alone and counts once is the result to the bit.

    Args:
      current: what the edge has.  [num_state]
      starts: the model that each part began with.
      weights: see `Topology.part_weights`.  [num_parts]
    """
    results = [result for _, result in parts]
    if [lag for lag, _ in parts] == [0] and (weights is None or weights[0] == 1.0):
        return results[0]
    held = np.sum([result.held for result in results], axis=0)
    if weights is None:
        total = np.sum([np.where(result.held, result.combined, 0.0) for result in results], axis=0, dtype=np.float64)
        combined = np.divide(total, held, out=current.astype(np.float64), where=held > 0)
    else:
        combined = current.astype(np.float64) + _weighted_moves(results, starts, weights)
    kept_by = np.sum([result.kept_by for result in results], axis=0)
    reports: dict[str, Array] = {}
    for result in results:
        for name, array in result.reports.items():
            reports[name] = reports[name] + array if name in reports else array
    statistics = DeviceStatistics.joined([result.statistics for result in results])
    return EdgeResult(
        combined=combined.astype(current.dtype),
        held=held > 0,
        kept_by=kept_by,
        coverage=coverage_of(kept_by, len(statistics.device)),
        statistics=statistics,
        failures=tuple(failure for result in results for failure in result.failures),
        reports=reports,
        suspected=tuple(sorted(device for result in results for device in result.suspected)),
        rolled_back=any(result.rolled_back for result in results),
    )


def _weighted_moves(results: Sequence[EdgeResult], starts: Sequence[Array], weights: Array) -> Array:
    """Σ ω (w_part − start) of each entry, times Σ ω over Σ ω of the parts that have it.  [num_state]"""
    moved, there = np.zeros(len(starts[0])), np.zeros(len(starts[0]))
    for result, start, weight in zip(results, starts, weights.tolist(), strict=True):
        moved += weight * np.where(result.held, result.combined.astype(np.float64) - start, 0.0)
        there += weight * result.held
    share = np.divide(weights.sum(), there, out=np.zeros_like(there), where=there > 0.0)
    return np.where(there == weights.sum(), moved, moved * share)
