"""Measurements of a deployment, beside the records: inputs of each edge round's plan, and outcomes of the devices.

`inputs.jsonl` has a line per edge round, written before devices get orders; `measured.jsonl` has one per device and
edge round, written when the round is over. A resumed run writes its rounds anew, so their lines are cut off first.
Readers skip lines that are damaged or still being written.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from airprune import files
from airprune.errors import WorkFailed
from airprune.json_types import JsonRecord, Unreadable
from airprune.runs.layout import RunFolder
from airprune.runs.lines import Lines, json_object, sentence_if_unwritable

Numbers = tuple[float | None, ...]
FATES = ("ok", "late", "dropped", "failed", "refused")


def recorded_fate(fate: str) -> str:
    """Returns the outcome as a run's records have it, where a refused upload counts as failed."""
    return "failed" if fate == "refused" else str(fate)


@dataclass(frozen=True, kw_only=True)
class PlannedInputs(JsonRecord):
    """The inputs of an edge round's plan. Lists follow `device`.

    Attributes:
      round: edge rounds since the start of the run, from 0.
      global_round, edge_round: as records count them, from 1.
      device, edge: the devices that were present, ascending, and their edges.
      full_band_rate_bps: r_n.
      seconds_per_sample: of training the whole model; None: as the scenario's clock says.
      num_samples: D_n; None: as the scenario partitions them.
      restarts: True if all edges had gone away, so that all of them start from the cloud's model.
      extra_s: where work is planned, what a round takes each device beside its training; None: nothing.
      part_cost, part_saved: where trained parts are planned, their costs as in `planning.WorkModel`, from the whole
        model to the least part; None: as counted.
    """

    required: ClassVar[tuple[str, ...]] = (
        "round",
        "device",
        "edge",
        "full_band_rate_bps",
        "global_round",
        "edge_round",
    )

    round: int
    global_round: int
    edge_round: int
    device: tuple[int, ...]
    edge: tuple[int, ...]
    full_band_rate_bps: Numbers
    seconds_per_sample: Numbers | None = None
    num_samples: Numbers | None = None
    restarts: bool | None = None
    extra_s: Numbers | None = None
    part_cost: Numbers | None = None
    part_saved: Numbers | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, found: Any, *, only: frozenset[str] | None = None) -> PlannedInputs:
        inputs = super().read(found, only=only)
        lists = (
            inputs.edge,
            inputs.full_band_rate_bps,
            inputs.seconds_per_sample,
            inputs.num_samples,
            inputs.extra_s,
        )
        if any(values is not None and len(values) != len(inputs.device) for values in lists):
            raise Unreadable
        return inputs


@dataclass(frozen=True, kw_only=True)
class MeasuredRow(JsonRecord):
    """One device in one edge round; None where a value is unknown.

    Attributes:
      round, global_round, edge_round: as in `PlannedInputs`.
      fate: one of `FATES`; `reason` is a sentence where it is not ok.
      share, rate_bps, full_band_rate_bps: b_n, the planned b_n r_n, and r_n.
      compute_s, uplink_s, bytes: as measured, beside what was planned.
      arrived_s: since the orders were sent; `deadline_s` likewise.
      started_s: when the upload began to arrive. Of one that was late, `uplink_s` and `bytes` may be of a part of it:
        then nothing has `arrived_s`.
      digest: of the upload, hex.
      edge_out: True if its edge went away, so that its model does not count in this global round.
      served_by: name of its edge.
      orders_digest: of all orders of the edge; see `packing.order_digest`.
      model_digest: of the edge's model and memory after the round.
      local_steps, first_trained, last_trained: the planned work, where the scheme plans it.
      extra_s: the part of `planned_compute_s` that is planned for other things than training.
      exchange_bytes: of the keys and shares of a secure sum, as they came.
    """

    required: ClassVar[tuple[str, ...]] = ("round", "global_round", "edge_round", "edge", "device", "fate")

    round: int
    global_round: int
    edge_round: int
    edge: int
    device: int
    name: str | None
    fate: str
    reason: str | None
    share: float | None
    rate_bps: float | None
    full_band_rate_bps: float | None
    planned_compute_s: float | None
    compute_s: float | None
    planned_uplink_s: float | None
    uplink_s: float | None
    planned_bytes: int | None
    bytes: int | None
    rtt_s: float | None
    arrived_s: float | None
    deadline_s: float | None
    num_samples: int | None
    digest: str | None
    edge_out: bool | None = None
    served_by: str | None = None
    orders_digest: str | None = None
    model_digest: str | None = None
    started_s: float | None = None
    local_steps: int | None = None
    first_trained: int | None = None
    last_trained: int | None = None
    extra_s: float | None = None
    exchange_bytes: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def compute_ratio(self) -> float | None:
        """Measured over planned."""
        return _ratio(self.compute_s, self.planned_training_s)

    @property
    def planned_training_s(self) -> float | None:
        """Planned seconds of the training alone."""
        if self.planned_compute_s is None or self.extra_s is None:
            return self.planned_compute_s
        return self.planned_compute_s - self.extra_s

    @property
    def uplink_ratio(self) -> float | None:
        """Likewise; None if not all of the upload came."""
        return None if self.arrived_s is None else _ratio(self.uplink_s, self.planned_uplink_s)


def _ratio(measured: float | None, planned: float | None) -> float | None:
    return None if measured is None or not planned or planned <= 0 or measured < 0 else measured / planned


class MeasuredTime:
    """Sums the edge rounds' seconds, each from its orders to its last upload, or to the deadline that one missed."""

    def __init__(self) -> None:
        self._round: int | None = None
        self._before_s = 0.0
        self._round_s = 0.0

    def add(self, row: MeasuredRow) -> None:
        """Adds a row; rows come round by round, as they are written."""
        end_s = row.deadline_s if row.fate == "late" else row.arrived_s
        if end_s is None:
            return
        if row.round != self._round:
            self._round, self._before_s, self._round_s = row.round, self._before_s + self._round_s, 0.0
        self._round_s = max(self._round_s, end_s)

    @property
    def total_s(self) -> float | None:
        """None if no row had a time."""
        total_s = self._before_s + self._round_s
        return total_s if self._round is not None and math.isfinite(total_s) else None


def measured_s(rows: Iterable[MeasuredRow]) -> float | None:
    """Returns the `MeasuredTime` of all these rows."""
    time = MeasuredTime()
    for row in rows:
        time.add(row)
    return time.total_s


class MeasuredLog:
    """Writes both files of a run folder, from the edge round with this number on; later lines are cut off.

    Inputs of this round stay if it is planned with the very same again: nodes may have begun it with them, so that a
    process that is killed here must not lose them.
    """

    def __init__(self, folder: RunFolder, *, next_round: int) -> None:
        self._before = _length_before(folder.inputs_file, next_round)
        self._inputs = Lines(folder.inputs_file, _length_before(folder.inputs_file, next_round + 1))
        self._measured = Lines(folder.measured_file, _length_before(folder.measured_file, next_round))
        with sentence_if_unwritable(folder.path):
            self._inputs.cut()
            self._measured.cut()
            with files.open_to_read(folder.inputs_file) as file:
                file.seek(self._before)
                self._kept = file.read()
        self._folder = folder.path

    def planned(self, inputs: PlannedInputs) -> None:
        """Writes a round's inputs before its orders are sent: without them it cannot be replayed."""
        line, kept, self._kept = _line(inputs), self._kept, b""
        if kept == line:
            return
        with sentence_if_unwritable(self._folder):
            if kept:
                self._inputs.num_bytes = self._before
                self._inputs.cut()
            self._inputs.append(line)

    def measured(self, rows: Sequence[MeasuredRow]) -> None:
        with sentence_if_unwritable(self._folder):
            self._measured.append(b"".join(map(_line, rows)))


def _line(record: JsonRecord) -> bytes:
    return json.dumps(record.to_json(), allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _length_before(path: Path, next_round: int) -> int:
    """Returns the length of the file without the lines of this round and later ones, and without damaged ones."""
    length = 0
    for line in _lines(path):
        number = (json_object(line) or {}).get("round")
        if not line.endswith(b"\n") or type(number) is not int or number >= next_round:
            break
        length += len(line)
    return length


R = TypeVar("R", bound=JsonRecord)


def read_measured(folder: RunFolder) -> list[MeasuredRow]:
    return list(_read(MeasuredRow, _lines(folder.measured_file)))


def read_inputs(folder: RunFolder) -> dict[int, PlannedInputs]:
    """Reads the inputs by the number of the edge round."""
    return {inputs.round: inputs for inputs in _read(PlannedInputs, _lines(folder.inputs_file))}


def row_in(line: bytes) -> MeasuredRow | None:
    """Reads one line of measured.jsonl; None for one still being written, or damaged."""
    return next(_read(MeasuredRow, [line]), None)


def inputs_in(line: bytes) -> PlannedInputs | None:
    """Reads one line of inputs.jsonl, likewise."""
    return next(_read(PlannedInputs, [line]), None)


def _read(kind: type[R], lines: Iterable[bytes]) -> Iterator[R]:
    for line in lines:
        with contextlib.suppress(Unreadable):
            yield kind.read(json_object(line) or {})


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with files.open_to_read(path) as file:
            yield from file
    except FileNotFoundError:
        return
    except OSError as error:
        raise WorkFailed(f"{path} cannot be read: {error.strerror}.") from None
