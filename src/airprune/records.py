"""What a run writes down: one record per edge round and per global round, as plain data.

Records hold nothing that depends on the wall clock or the machine, so that a resumed run repeats them to the byte. The
order of the fields is the order of the keys in records.jsonl. What each key means is told once, in `measures`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, ClassVar, TypeVar, get_type_hints

from airprune.json_types import (
    Unreadable,
    counts,
    maybe_number,
    maybe_whole,
    number_list,
    text_list,
    whole,
    whole_list,
)

RECORDS_VERSION = 2
"""Of the records that this package writes. 1 had edge and global records only; a run folder that tells none has 1."""


@dataclass(frozen=True, kw_only=True)
class EdgeCoverage:
    """How the prunable weights of one edge were kept: Γ* (the fewest keepers of a kept weight), and kept by nobody."""

    edge: int
    min_count: int
    num_uncovered: int


class _Record:
    """Writing, for all kinds. A field with a default is left out where it has no value; NaN is written as null."""

    kind: ClassVar[str]
    extra: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The record as records.jsonl has it."""
        written: dict[str, Any] = {"kind": self.kind}
        for name, (_, is_optional) in _FIELDS[type(self)].items():
            value = getattr(self, name)
            if value is not None or not is_optional:
                written[name] = _plain(value)
        return written | self.extra


@dataclass(frozen=True, kw_only=True)
class EdgeRecord(_Record):
    """One edge round of all active edges.

    None stands for no value, e.g. the loss of a device that was left out; lists hold no NaN. Rounds count from 1,
    devices and edges from 0.

    Attributes:
      edge_id: the edges that ran.  [num_edges], as the other lists up to `coverage`
      uploaded_weights … train_loss: of this round, over all edges.
      device: who was considered.  [num_devices], as the lists after it
      gradient_sq_max, gradient_noise_sq, smoothness: with diagnostics only.  [num_devices]
      test_loss, test_accuracy: of the edges' average, if judged after every edge round; NaN if it is no number.
      downlink_bits: sent to the devices, where that is charged for.
      asked: how many devices were asked to take part, where not all are.
      extra: keys that this version does not know, as they were read.
    """

    kind: ClassVar[str] = "edge"

    global_round: int
    edge_round: int
    edge_id: tuple[int, ...]
    edge_latency_s: tuple[float | None, ...]
    edge_status: tuple[str, ...]
    shadow_price: tuple[float | None, ...]
    coverage: tuple[EdgeCoverage, ...]
    uploaded_weights: int | None
    uploaded_bits: float | None
    energy_j: float | None
    mean_pruning_ratio: float | None
    left_out: dict[str, int]
    num_samples: int | None
    train_loss: float | None
    device: tuple[int, ...]
    edge: tuple[int, ...]
    fate: tuple[str, ...]
    bandwidth_share: tuple[float | None, ...]
    pruning_ratio: tuple[float | None, ...]
    kept_weights: tuple[int, ...]
    compute_s: tuple[float | None, ...]
    uplink_s: tuple[float | None, ...]
    device_energy_j: tuple[float | None, ...]
    loss: tuple[float | None, ...]
    pruning_error_sq: tuple[float | None, ...]
    gradient_sq_max: tuple[float | None, ...] | None = None
    gradient_noise_sq: tuple[float | None, ...] | None = None
    smoothness: tuple[float | None, ...] | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    downlink_bits: float | None = None
    asked: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GlobalRecord(_Record):
    """One global round: what it took, what was spent since the start, and how good the model is.

    Attributes:
      latency_s: of this round; `time_s` is the clock after it.
      uploaded_weights, uploaded_bits, energy_j, num_samples: since the start.
      mean_pruning_ratio, train_loss, participants, left_out: of this round.
      test_loss, test_accuracy: of the global model, if it was judged; NaN if it is no number.
      gradient_sq: ‖∇F‖², with diagnostics only.
      downlink_bits, asked, extra: as in `EdgeRecord`; bits since the start.
    """

    kind: ClassVar[str] = "global"

    global_round: int
    latency_s: float | None
    time_s: float | None
    uploaded_weights: int | None
    uploaded_bits: float | None
    energy_j: float | None
    num_samples: int | None
    mean_pruning_ratio: float | None
    train_loss: float | None
    participants: int | None
    left_out: int | None
    test_loss: float | None = None
    test_accuracy: float | None = None
    gradient_sq: float | None = None
    downlink_bits: float | None = None
    asked: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NodeRecord(_Record):
    """One round of the nodes of one level between edges and cloud, in trees deeper than two levels.

    Attributes:
      level: how many links below the cloud; edges have records of their own.
      node_round: its number within the round of the parents, from 1.
      node: who ran.  [num_nodes]
      latency_s: how long each waited for its children.  [num_nodes]
    """

    kind: ClassVar[str] = "node"

    global_round: int
    level: int
    node_round: int
    node: tuple[int, ...]
    latency_s: tuple[float | None, ...]
    uploaded_bits: float | None = None
    downlink_bits: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)


Record = EdgeRecord | GlobalRecord | NodeRecord
_R = TypeVar("_R", bound=Record)

_KINDS_SINCE: dict[str, tuple[type[Record], int]] = {
    "edge": (EdgeRecord, 1),
    "global": (GlobalRecord, 1),
    "node": (NodeRecord, 2),
}
# Without these a record cannot be placed; whatever else is missing has no value.
_PLACES = ("global_round", "edge_round", "level", "node_round")


def record_from(found: Any, version: int = RECORDS_VERSION) -> Record | None:
    """The record that a JSON value holds; None if it is none, of an unknown kind, or has a value of a wrong type.

    A later version's records are read as far as they are known: keys may have come, but none has changed.
    """
    kind = found.get("kind") if isinstance(found, dict) else None
    cls, since = _KINDS_SINCE.get(kind, (None, 0)) if isinstance(kind, str) else (None, 0)
    if cls is None or version < since:
        return None
    try:
        return _read(cls, found)
    except Unreadable:
        return None


def record_in(line: bytes | str, version: int = RECORDS_VERSION) -> Record | None:
    """The record of one line of records.jsonl; None for one still being written, or spoilt."""
    try:
        return record_from(json.loads(line), version)
    except (ValueError, RecursionError):
        return None


def records_version(environment: Mapping[str, Any]) -> int:
    """The version that a run folder's environment.json tells; 1 if none."""
    version = environment.get("records_version")
    return version if type(version) is int and version >= 1 else 1


def _read(cls: type[_R], found: Mapping[str, Any]) -> _R:
    known = _FIELDS[cls]
    values: dict[str, Any] = {}
    for name, (read, is_optional) in known.items():
        if name in found:
            values[name] = _optional(read, found[name]) if is_optional else read(found[name])
        elif name in _PLACES:
            raise Unreadable
        elif not is_optional:
            values[name] = read(_NOTHING.get(read))
    extra = {key: value for key, value in found.items() if key not in known and key != "kind"}
    return cls(**values, extra=extra)


def _optional(read: Callable[[Any], Any], value: Any) -> Any:
    """An optional number that is there but null was measured and is no number, unlike one that is not there."""
    if value is None:
        return math.nan if read is maybe_number else None
    return read(value)


def _coverage(values: Any) -> tuple[EdgeCoverage, ...]:
    if type(values) is not list:
        raise Unreadable
    rows = []
    for value in values:
        if type(value) is not dict or not value.keys() >= {"edge", "min_count", "num_uncovered"}:
            raise Unreadable
        edge, min_count, num_uncovered = (whole(value[name]) for name in ("edge", "min_count", "num_uncovered"))
        rows.append(EdgeCoverage(edge=edge, min_count=min_count, num_uncovered=num_uncovered))
    return tuple(rows)


_READERS: dict[Any, Callable[[Any], Any]] = {
    int: whole,
    int | None: maybe_whole,
    float | None: maybe_number,
    tuple[int, ...]: whole_list,
    tuple[float | None, ...]: number_list,
    tuple[float | None, ...] | None: number_list,
    tuple[str, ...]: text_list,
    tuple[EdgeCoverage, ...]: _coverage,
    dict[str, int]: counts,
}
# What stands for a key that is not there, where that is not null.
_NOTHING: dict[Callable[[Any], Any], Any] = {
    whole_list: [],
    number_list: [],
    text_list: [],
    _coverage: [],
    counts: {},
}
# Class → field → (how it is read, whether it is left out where it has no value).
_FIELDS: dict[type, dict[str, tuple[Callable[[Any], Any], bool]]] = {
    cls: {
        entry.name: (_READERS[get_type_hints(cls)[entry.name]], entry.default is not MISSING)
        for entry in fields(cls)
        if entry.name != "extra"
    }
    for cls in (EdgeRecord, GlobalRecord, NodeRecord)
}


def _plain(value: Any) -> Any:
    """A field's value as JSON has it."""
    if isinstance(value, tuple):
        return [asdict(entry) for entry in value] if value and isinstance(value[0], EdgeCoverage) else list(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


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

    def add(
        self,
        *,
        uploaded_weights: int,
        uploaded_bits: float,
        energy_j: float,
        left_out: int,
        num_samples: int,
        loss_sum: float,
        ratio_sum: float,
        num_devices: int,
    ) -> None:
        """Counts one edge round; `loss_sum` is over its samples, `ratio_sum` over the devices that took part."""
        self.uploaded_weights += uploaded_weights
        self.uploaded_bits += uploaded_bits
        self.energy_j += energy_j
        self.left_out += left_out
        self.num_samples += num_samples
        self.round_loss_sum += loss_sum
        self.round_samples += num_samples
        self.round_ratio_sum += ratio_sum
        self.round_devices += num_devices
        self.round_left_out += left_out

    def start_global_round(self) -> None:
        self.round_loss_sum = self.round_ratio_sum = 0.0
        self.round_samples = self.round_devices = self.round_left_out = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
