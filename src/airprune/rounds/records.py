"""The records of a run: one per edge round and per global round, as plain data.

Records hold nothing that depends on the wall clock or the machine, so that a resumed run repeats them to the byte. Each
field says what it means and what one value of it belongs to; the docs are made from that. Units are in the names; how a
value is shown is in `measures`. Rounds count from 1, devices and edges from 0. None stands for no value, e.g.
the loss of a device that was excluded; lists hold no NaN.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple

from airprune.json_types import EdgeCoverage, JsonRecord, Unreadable

RECORDS_VERSION = 2
"""Format of the records that this package writes. 1 has edge and global records only; folders without one have 1."""

Numbers = tuple[float | None, ...]


class Per(StrEnum):
    """The object that one value of a field belongs to."""

    ROUND = "round"
    EDGE = "edge"
    DEVICE = "device"
    NODE = "node"
    QUARTILE = "quartile"
    THIS_ROUND = "this round"
    SINCE_START = "since the start"
    MODEL = "model"


class About(NamedTuple):
    """A field's description in the docs."""

    per: Per
    meaning: str


_WITH_DIAGNOSTICS = "of Theorem 1; with `diagnostics.gradients`"
_DOWNLINK = "what was sent to the devices, where that is charged for"
_ENERGY = "of all planned devices: compute and transmission; reception and idling where they are charged"
_STATION_ENERGY = "radiated by stations for that; not in `energy_j`"
_D2D = "what devices sent to each other, where they do"
_D2D_ENERGY = "the part of `energy_j` that this took"
_SELECTED = "number of selected devices, where not all are"
_QUARTILES = "least, quarter, median, three quarters and most over the devices that took part; with `records.devices`"


@dataclass(frozen=True, kw_only=True)
class EdgeRecord(JsonRecord):
    """One edge round of all active edges. Lists per edge follow `edge_id`, lists per device follow `device`."""

    kind: ClassVar[str] = "edge"
    required: ClassVar[tuple[str, ...]] = ("global_round", "edge_round")

    global_round: Annotated[int, About(Per.ROUND, "which global round")]
    edge_round: Annotated[int, About(Per.ROUND, "which edge round of it")]
    edge_id: Annotated[tuple[int, ...], About(Per.EDGE, "the edges that ran this round")]
    edge_latency_s: Annotated[Numbers, About(Per.EDGE, "how long each waited, Eq. (16), after its downlink if charged")]
    edge_status: Annotated[
        tuple[str, ...],
        About(
            Per.EDGE,
            "`ok`; `late` if it waited longer than the deadline, downlink apart; "
            "`outside-box` if its plan cannot be used",
        ),
    ]
    shadow_price: Annotated[Numbers, About(Per.EDGE, "λ: how much the scheme's objective falls per unit of bandwidth")]
    coverage: Annotated[
        tuple[EdgeCoverage, ...],
        About(
            Per.EDGE,
            "`edge`; `min_count`, the fewest devices that kept a weight that any device kept; "
            "`num_uncovered`, weights kept by no device, or by fewer than `aggregation.min_contributors`",
        ),
    ]
    uploaded_weights: Annotated[int | None, About(Per.ROUND, "weights that reached the edges; biases do not count")]
    uploaded_bits: Annotated[float | None, About(Per.ROUND, "the same in bits, with mask bits if they are charged")]
    energy_j: Annotated[float | None, About(Per.ROUND, _ENERGY)]
    mean_pruning_ratio: Annotated[float | None, About(Per.ROUND, "over the devices that took part")]
    left_out: Annotated[
        dict[str, int],
        About(Per.ROUND, "devices `blocked` by the planner, `truncated` over the air, `dropped`, `late`, `failed`"),
    ]
    num_samples: Annotated[int | None, About(Per.ROUND, "samples trained on, each once per epoch")]
    train_loss: Annotated[float | None, About(Per.ROUND, "mean over devices")]
    device: Annotated[tuple[int, ...], About(Per.DEVICE, "its index")]
    edge: Annotated[tuple[int, ...], About(Per.DEVICE, "the edge that serves it")]
    fate: Annotated[tuple[str, ...], About(Per.DEVICE, "`ok`, `blocked`, `truncated`, `dropped`, `late` or `failed`")]
    bandwidth_share: Annotated[Numbers, About(Per.DEVICE, "b_n")]
    pruning_ratio: Annotated[Numbers, About(Per.DEVICE, "ρ_n after rounding to whole weights")]
    kept_weights: Annotated[tuple[int, ...], About(Per.DEVICE, "prunable weights kept")]
    compute_s: Annotated[Numbers, About(Per.DEVICE, "Eq. (9), stragglers included; none for blocked devices")]
    uplink_s: Annotated[Numbers, About(Per.DEVICE, "Eq. (11); none for blocked devices")]
    device_energy_j: Annotated[
        Numbers, About(Per.DEVICE, "compute and transmission; reception and idling where they are charged")
    ]
    loss: Annotated[Numbers, About(Per.DEVICE, "mean training loss over its minibatches")]
    pruning_error_sq: Annotated[Numbers, About(Per.DEVICE, "‖w − w ⊙ m‖², for D² of Assumption 2")]
    gradient_sq_max: Annotated[Numbers | None, About(Per.DEVICE, f"for φ² {_WITH_DIAGNOSTICS}")] = None
    gradient_noise_sq: Annotated[Numbers | None, About(Per.DEVICE, f"for σ̂² {_WITH_DIAGNOSTICS}")] = None
    smoothness: Annotated[Numbers | None, About(Per.DEVICE, f"for L {_WITH_DIAGNOSTICS}")] = None
    test_loss: Annotated[
        float | None, About(Per.ROUND, 'of the edges\' average; with `rounds.evaluate_every = "edge"`')
    ] = None
    test_accuracy: Annotated[float | None, About(Per.ROUND, "of the same")] = None
    downlink_bits: Annotated[float | None, About(Per.ROUND, _DOWNLINK)] = None
    downlink_s: Annotated[
        Numbers | None, About(Per.EDGE, "how long that took, a part of `edge_latency_s`; with `radio.downlink`")
    ] = None
    station_energy_j: Annotated[float | None, About(Per.ROUND, _STATION_ENERGY)] = None
    asked: Annotated[int | None, About(Per.ROUND, _SELECTED)] = None
    deadline_s: Annotated[float | None, About(Per.ROUND, 'T_th, with `plan.deadline_s = "auto"`')] = None
    bits_per_weight: Annotated[
        Numbers | None, About(Per.DEVICE, "of its compression level, where the scheme chooses levels")
    ] = None
    code_error: Annotated[
        Numbers | None, About(Per.DEVICE, "share of the update's energy that compression lost, likewise")
    ] = None
    local_steps: Annotated[
        tuple[int, ...] | None, About(Per.DEVICE, "minibatch steps, where the scheme chooses them; 0 if blocked")
    ] = None
    first_trained: Annotated[
        tuple[int, ...] | None, About(Per.DEVICE, "the lowest layer that it trained and sent, likewise; 0: all of them")
    ] = None
    last_trained: Annotated[
        tuple[int, ...] | None,
        About(Per.DEVICE, "the highest layer that it trained and sent, where it is chosen"),
    ] = None
    d2d_bits: Annotated[float | None, About(Per.ROUND, _D2D)] = None
    d2d_energy_j: Annotated[float | None, About(Per.ROUND, _D2D_ENERGY)] = None
    relay_s: Annotated[
        Numbers | None, About(Per.DEVICE, "from its training to its uplink, or its head's, where devices relay")
    ] = None
    lag: Annotated[
        Numbers | None, About(Per.DEVICE, "rounds since the model it began with, where that is not this round's")
    ] = None
    exchange_s: Annotated[
        Numbers | None,
        About(
            Per.EDGE,
            "keys and shares of secure sums, or lengths of updates that are summed over the air; a part of "
            "`edge_latency_s`; with aggregation `secure-sum` or `over-the-air`",
        ),
    ] = None
    exchange_bits: Annotated[
        float | None, About(Per.ROUND, "what devices sent of them, a part of `uploaded_bits`; likewise")
    ] = None
    mean_error_sq: Annotated[
        Numbers | None,
        About(Per.EDGE, "expected squared error of the mean by receiver noise, over all weights; with `over-the-air`"),
    ] = None
    attackers: Annotated[
        tuple[int, ...] | None, About(Per.ROUND, "those of its devices that uploaded and are attackers, with `attack`")
    ] = None
    suspected: Annotated[
        tuple[int, ...] | None,
        About(Per.ROUND, "devices whose updates were not finite or far too long, if any; with `aggregation.rollback`"),
    ] = None
    rolled_back: Annotated[
        tuple[int, ...] | None,
        About(Per.ROUND, "edges that kept their model since the average exploded, if any; likewise"),
    ] = None
    sampled_of: Annotated[
        int | None,
        About(Per.ROUND, "devices of the round, of which the lists hold a random sample; with `records.devices`"),
    ] = None
    pruning_ratio_quartiles: Annotated[Numbers | None, About(Per.QUARTILE, f"of ρ_n: {_QUARTILES}")] = None
    latency_quartiles_s: Annotated[
        Numbers | None, About(Per.QUARTILE, "until an update has reached its edge, likewise")
    ] = None
    loss_quartiles: Annotated[Numbers | None, About(Per.QUARTILE, "of the training losses, likewise")] = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GlobalRecord(JsonRecord):
    """One global round: what it took, what was spent since the start, and how good the model is."""

    kind: ClassVar[str] = "global"
    required: ClassVar[tuple[str, ...]] = ("global_round",)

    global_round: Annotated[int, About(Per.ROUND, "which round")]
    latency_s: Annotated[float | None, About(Per.THIS_ROUND, "the slowest edge's E edge rounds")]
    time_s: Annotated[float | None, About(Per.SINCE_START, "simulated time; of a deployment, planned time")]
    uploaded_weights: Annotated[
        int | None, About(Per.SINCE_START, "weights that reached the edges; biases do not count")
    ]
    uploaded_bits: Annotated[
        float | None, About(Per.SINCE_START, "the same in bits, with mask bits if they are charged")
    ]
    energy_j: Annotated[float | None, About(Per.SINCE_START, _ENERGY)]
    num_samples: Annotated[int | None, About(Per.SINCE_START, "samples trained on")]
    mean_pruning_ratio: Annotated[float | None, About(Per.THIS_ROUND, "mean over its devices and edge rounds")]
    train_loss: Annotated[float | None, About(Per.THIS_ROUND, "mean over its samples")]
    participants: Annotated[int | None, About(Per.THIS_ROUND, "devices that took part, counted once per edge round")]
    left_out: Annotated[int | None, About(Per.THIS_ROUND, "devices that did not, counted likewise")]
    test_loss: Annotated[
        float | None, About(Per.MODEL, 'of the global model on the test set, unless `rounds.evaluate_every = "never"`')
    ] = None
    test_accuracy: Annotated[float | None, About(Per.MODEL, "of the same")] = None
    gradient_sq: Annotated[float | None, About(Per.MODEL, "‖∇F‖² on the test set, with `diagnostics.gradients`")] = None
    device_accuracy: Annotated[
        float | None,
        About(Per.MODEL, "of what the median device holds of it, with `diagnostics.sub_models`"),
    ] = None
    downlink_bits: Annotated[float | None, About(Per.SINCE_START, _DOWNLINK)] = None
    downlink_s: Annotated[
        float | None, About(Per.SINCE_START, "how long that took: the slowest edge's in each edge round")
    ] = None
    station_energy_j: Annotated[float | None, About(Per.SINCE_START, _STATION_ENERGY)] = None
    asked: Annotated[int | None, About(Per.THIS_ROUND, _SELECTED)] = None
    d2d_bits: Annotated[float | None, About(Per.SINCE_START, _D2D)] = None
    d2d_energy_j: Annotated[float | None, About(Per.SINCE_START, _D2D_ENERGY)] = None
    backhaul_bits: Annotated[
        float | None,
        About(
            Per.SINCE_START,
            "between edges and cloud, or among edges, where the topology decides it; both ways with `radio.downlink`",
        ),
    ] = None
    aggregator: Annotated[
        int | None, About(Per.THIS_ROUND, "the edge that averaged in the cloud's place, if one did")
    ] = None
    suspected: Annotated[
        tuple[int, ...] | None,
        About(
            Per.THIS_ROUND,
            "edges, or nodes below the cloud, whose updates were not finite or far too long, if any; "
            "with `aggregation.rollback`",
        ),
    ] = None
    rolled_back: Annotated[
        bool | None, About(Per.THIS_ROUND, "true if the cloud kept its model since the combined one exploded")
    ] = None
    diverged: Annotated[
        str | None,
        About(Per.MODEL, "where training diverged: which models are not finite numbers; the run's last record"),
    ] = None
    stopped: Annotated[
        str | None, About(Per.MODEL, "why the run ended before its last round, with `stop`; the run's last record")
    ] = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NodeRecord(JsonRecord):
    """One round of the nodes of one level between edges and cloud, in trees deeper than two levels."""

    kind: ClassVar[str] = "node"
    required: ClassVar[tuple[str, ...]] = ("global_round", "level", "node_round")

    global_round: Annotated[int, About(Per.ROUND, "which global round")]
    level: Annotated[int, About(Per.ROUND, "how many links below the cloud")]
    node_round: Annotated[int, About(Per.ROUND, "its number within the parents' round")]
    node: Annotated[tuple[int, ...], About(Per.NODE, "the nodes that ran this round")]
    latency_s: Annotated[Numbers, About(Per.NODE, "how long each waited for its children")]
    uploaded_bits: Annotated[float | None, About(Per.ROUND, "what the children sent")] = None
    downlink_bits: Annotated[float | None, About(Per.ROUND, "what was sent to the children")] = None
    rolled_back: Annotated[
        tuple[int, ...] | None,
        About(Per.ROUND, "nodes that kept their model since the combined one exploded, if any; `aggregation.rollback`"),
    ] = None
    extra: dict[str, Any] = field(default_factory=dict)


Record = EdgeRecord | GlobalRecord | NodeRecord

# Kind → (class, the version that brought it).
_KINDS: dict[str, tuple[type[Record], int]] = {
    "edge": (EdgeRecord, 1),
    "global": (GlobalRecord, 1),
    "node": (NodeRecord, 2),
}


def record_from(found: Any, version: int = RECORDS_VERSION, *, only: frozenset[str] | None = None) -> Record | None:
    """The record that a JSON value holds; None if it is none, of an unknown kind, or has a value of a wrong type.

    A later version's records are read as far as they are known: keys may have come, but none has changed.

    Args:
      only: the fields to read, besides those that say which round it is; others are as if they were not there.
    """
    kind = found.get("kind") if isinstance(found, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    cls, since = _KINDS[kind]
    try:
        return cls.read(found, only=only) if version >= since else None
    except Unreadable:
        return None


def record_in(
    line: bytes | str, version: int = RECORDS_VERSION, *, only: frozenset[str] | None = None
) -> Record | None:
    """The record of one line of records.jsonl; None for one still being written, or damaged."""
    try:
        return record_from(json.loads(line), version, only=only)
    except (ValueError, RecursionError):
        return None


def records_version(environment: Mapping[str, Any]) -> int:
    """The version that a run folder's environment.json tells; 1 if none."""
    version = environment.get("records_version")
    return version if type(version) is int and version >= 1 else 1


@dataclass
class Totals:
    """Totals of a run so far, and within the current global round.

    Attributes:
      time_s: simulated seconds of all finished global rounds.
      uploaded_weights, uploaded_bits, energy_j: since the start.
      left_out: devices that were blocked, truncated, dropped or late, counted once per edge round, since the start.
      num_samples: samples trained on since the start.
      d2d_bits, d2d_energy_j: what devices sent to each other since the start, and its part of `energy_j`.
      backhaul_bits: above the edges since the start, where the topology decides it or the downlink is charged.
      downlink_bits, downlink_s, station_energy_j: of charged downlinks since the start; time of the slowest edges.
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
    d2d_bits: float = 0.0
    d2d_energy_j: float = 0.0
    backhaul_bits: float = 0.0
    downlink_bits: float = 0.0
    downlink_s: float = 0.0
    station_energy_j: float = 0.0

    def start_global_round(self) -> None:
        self.round_loss_sum = self.round_ratio_sum = 0.0
        self.round_samples = self.round_devices = self.round_left_out = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
