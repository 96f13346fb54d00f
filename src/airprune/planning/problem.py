"""Holds the joint problem of Eqs. (25)–(29) as data: the input of a planner before an edge round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from airprune.checks import array_of, instance, quantity
from airprune.errors import InvalidValue
from airprune.planning.compression_levels import Codes, Ladder
from airprune.planning.edges import EdgeGroups
from airprune.planning.interference import Interference
from airprune.planning.limits import DeviceLimits
from airprune.planning.turns import Turns
from airprune.planning.work_model import WorkModel, one_or
from airprune.wireless.latency import kept_weights

Array = np.ndarray

# The largest ratio of plans that are to be trained, in scenarios, commands and pages: 1 would remove the classifier.
CLASSIFIER_CAP = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """The devices of a problem as a run knows them, for schemes that remember.  Arrays [num_devices]

    Attributes:
      device: their numbers in the network.
      num_samples: D_n.
      round_index: edge rounds since the start of the run.
      memory: the scheme's slots, of the whole network; read-only.
    """

    device: Any
    num_samples: Any
    round_index: int = 0
    memory: Mapping[str, Array] = field(default_factory=dict)

    def subset(self, kept: Any) -> Seen:
        """Returns some of the devices."""
        return replace(self, device=self.device[kept], num_samples=self.num_samples[kept])


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanProblem:
    """Devices, their edges and the deadline of one edge round.

    Minimise Σ c_n ρ_n over (b, ρ), separately for every edge k, subject to

        a_n W_n(ρ) + x_n + (q̂ W_n(ρ) + e_n) / (b_n r_n) ≤ T_th   Eq. (26), with W_n(ρ) of Eq. (6)
        Σ_{n on k} b_n ≤ 1,  0 ≤ b_n ≤ 1                          Eqs. (27), (28): one bandwidth per edge
        ρ_min ≤ ρ_n ≤ ρ_max                                       Eq. (29), with bounds a user may tighten

    Differs from Eq. (26) by the seconds x_n and the bits e_n that no pruning saves; both are 0 unless given.
    Scalars broadcast; every array has shape [num_devices] and the same order.

    Attributes:
      full_band_rate_bps: r_n = B log2(1 + g_n p_n / σ²), Eq. (10) at b = 1. Zero means out of reach.
      seconds_per_weight: a_n = T C_n / f_n, the compute time one weight costs. Zero means compute is free.
      edge: integer id of the edge serving each device; by default all share one.
      bits_per_weight: q̂. Zero only where fixed bits are sent: a compressor with a fixed number of values.
      conv_weights: W_conv, or whatever else is never pruned; `fixed_weights` is the same.
      fc_weights: W_fully, or whatever else is pruned by the ratio ρ; `prunable_weights` is the same.
      deadline_s: T_th.
      max_pruning_ratio: ρ_max. Eq. (29) has 1, which lets a plan remove the whole classifier; scenarios have 0.95.
      min_pruning_ratio: ρ_min.
      slice_bandwidth_hz: B, where a device's whole power lies on its slice: b_n r_n above is then
        b_n B log2(1 + γ_n / b_n) with γ_n = 2^(r_n/B) − 1; None: linear. Schemes with `takes_slices` plan with it.
      objective_weight: c_n > 0, how much a device's pruning counts, e.g. its data size. The paper has 1 for all.
      fixed_bits: e_n, uplink bits that do not grow with the weights: a mask, the scales of a quantiser.
      extra_seconds: x_n, compute time that does not grow with the weights: a probe on the whole model.
      mimo_group: devices with the same number, on the same edge, send at once (MU-MIMO): a share is then one of the
        time of its group, and Eq. (27) is Σ over groups of the largest b_n ≤ 1; None: every device sends alone.
      interference: links to other stations of the same bandwidth; rates above are then those without interference.
      limits: clock, power and energy, for schemes that choose them; the others do not read it.
      ladder: compression levels and their errors, for schemes that choose them; the cheapest is `bits_per_weight`.
      codes: compression levels by size alone, likewise; the smallest is `bits_per_weight`.
      block_rate_bps: r_n with the gain of each block of the bandwidth, for schemes that assign blocks: a device with
        one of S blocks sends at an S-th of it.  [num_devices, num_blocks]
      sizes: prunable weights of the sub-models among which a scheme may choose, ascending; None: any number.
        [num_sizes]
      work: trained parts and local steps, for schemes that choose them.
      seen: numbers, data sizes and memory of the devices, where a run plans; None for a problem by itself.
    """

    full_band_rate_bps: Any
    seconds_per_weight: Any
    edge: Any = 0
    bits_per_weight: Any = 64.0
    conv_weights: Any = 18_720
    fc_weights: Any = 25_168
    deadline_s: Any = 0.030
    max_pruning_ratio: Any = 1.0
    min_pruning_ratio: Any = 0.0
    objective_weight: Any = 1.0
    fixed_bits: Any = 0.0
    extra_seconds: Any = 0.0
    slice_bandwidth_hz: Any = None
    mimo_group: Any = None
    interference: Interference | None = None
    limits: DeviceLimits | None = None
    ladder: Ladder | None = None
    codes: Codes | None = None
    block_rate_bps: Any = None
    sizes: Any = None
    work: WorkModel | None = None
    seen: Seen | None = None

    def __post_init__(self) -> None:
        names = [one.name for one in fields(self) if one.name not in _NOT_ARRAYS]
        given = {name: getattr(self, name) for name in names}
        arrays = {name: _checked(name, value) for name, value in given.items()}
        num_devices = _common_length(arrays)
        for name, array in arrays.items():
            object.__setattr__(self, name, _read_only(array, num_devices))
        if bool(np.any(self.min_pruning_ratio > self.max_pruning_ratio)):
            n = int(np.argmax(self.min_pruning_ratio > self.max_pruning_ratio))
            raise InvalidValue(
                "PlanProblem.min_pruning_ratio",
                "must be ≤ max_pruning_ratio",
                f"{self.min_pruning_ratio[n]:g} > {self.max_pruning_ratio[n]:g} for device {n}",
            )
        if bool(np.any(sends_nothing := (self.bits_per_weight == 0.0) & (self.fixed_bits == 0.0))):
            raise InvalidValue(
                "PlanProblem.bits_per_weight",
                "must be > 0 where fixed_bits is 0",
                f"0 for device {int(np.argmax(sends_nothing))}",
            )

        for name, kind in _KINDS.items():
            if getattr(self, name) is not None:
                instance(f"PlanProblem.{name}", getattr(self, name), kind)
        if self.limits is not None:
            object.__setattr__(self, "limits", self.limits.for_devices(self.full_band_rate_bps))
        if self.slice_bandwidth_hz is not None:
            band = quantity("PlanProblem.slice_bandwidth_hz", self.slice_bandwidth_hz, above=0.0)
            if band.ndim and band.shape != (num_devices,):
                rule = f"must be a number or have one entry for each of {num_devices} devices"
                raise InvalidValue("PlanProblem.slice_bandwidth_hz", rule, f"shape {band.shape}")
            object.__setattr__(self, "slice_bandwidth_hz", _read_only(band, num_devices))
        if self.mimo_group is not None:
            group = array_of("PlanProblem.mimo_group", self.mimo_group, "must hold whole numbers", kinds="iu")
            if group.shape != (num_devices,):
                rule = f"must have one entry for each of {num_devices} devices"
                raise InvalidValue("PlanProblem.mimo_group", rule, f"shape {group.shape}")
            object.__setattr__(self, "mimo_group", _read_only(group.astype(np.int64), num_devices))
        if self.block_rate_bps is not None:
            rates = quantity("PlanProblem.block_rate_bps", self.block_rate_bps, at_least=0.0)
            if rates.ndim != 2 or len(rates) != num_devices:
                rule = f"must have one row for each of {num_devices} devices"
                raise InvalidValue("PlanProblem.block_rate_bps", rule, f"shape {rates.shape}")
            object.__setattr__(self, "block_rate_bps", rates)

        if self.sizes is not None:
            object.__setattr__(self, "sizes", _checked_sizes(self.sizes, float(np.min(self.fc_weights))))

    def subset(self, kept: Any) -> PlanProblem:
        """Returns the problem of some of its devices: a mask, or their positions in the new order."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NOT_ARRAYS}
        arrays = {name: one_or(array, kept) for name, array in given.items()} | {"edge": self.edge[kept]}
        limits = None if self.limits is None else self.limits.subset(kept)
        blocks = None if self.block_rate_bps is None else self.block_rate_bps[kept]
        return PlanProblem(
            **arrays,
            slice_bandwidth_hz=None if self.slice_bandwidth_hz is None else one_or(self.slice_bandwidth_hz, kept),
            mimo_group=None if self.mimo_group is None else self.mimo_group[kept],
            interference=None if self.interference is None else self.interference.subset(kept),
            limits=limits,
            ladder=self.ladder,
            codes=self.codes,
            block_rate_bps=blocks,
            sizes=self.sizes,
            work=None if self.work is None else self.work.subset(kept),
            seen=None if self.seen is None else self.seen.subset(kept),
        )

    def on_blocks(self, block: Any) -> PlanProblem:
        """Returns the problem with each device at the gain of its block; at its own gain where `block` is −1."""
        if self.block_rate_bps is None:
            return self
        rates = self.block_rate_bps[np.arange(self.num_devices), block]
        return replace(self, full_band_rate_bps=np.where(block < 0, self.full_band_rate_bps, rates))

    @property
    def num_devices(self) -> int:
        return len(self.full_band_rate_bps)

    @cached_property
    def groups(self) -> EdgeGroups:
        """Returns the devices grouped by edge."""
        return EdgeGroups.of(self.edge)

    @cached_property
    def turns(self) -> Turns | None:
        """Returns the devices grouped by who sends at once; None if every device sends alone."""
        return None if self.mimo_group is None else Turns.of(self.edge, self.mimo_group)

    def spent(self, share: Array) -> Array:
        """Returns what the shares take of each edge's bandwidth or time, the left side of Eq. (27).  [num_edges]"""
        return self.groups.sum(share) if self.turns is None else self.turns.spent(share)

    @property
    def edge_ids(self) -> Array:
        """Returns the ids of the edges, ascending: the order of every per-edge array of a plan.  [num_edges]"""
        return self.groups.ids

    @property
    def fixed_weights(self) -> Array:
        """Returns the weights that are never pruned: `conv_weights` under a name that holds for any model."""
        return self.conv_weights

    @property
    def prunable_weights(self) -> Array:
        """Returns the weights that may be pruned: `fc_weights` under a name that holds for any model."""
        return self.fc_weights

    @cached_property
    def time_for_weights_s(self) -> Array:
        """Returns T_th − x, the time that the deadline leaves for training and sending weights; may be negative."""
        return self.deadline_s - self.extra_seconds if self.extra_seconds.any() else self.deadline_s

    @property
    def smallest_model_weights(self) -> Array:
        """Returns W(ρ_max), the fewest weights that a device trains and uploads, Eq. (6)."""
        return kept_weights(self.max_pruning_ratio, conv_weights=self.conv_weights, fc_weights=self.fc_weights)

    @property
    def largest_model_weights(self) -> Array:
        """Returns W(ρ_min), the most weights that a device trains and uploads, Eq. (6)."""
        return kept_weights(self.min_pruning_ratio, conv_weights=self.conv_weights, fc_weights=self.fc_weights)


_KINDS: dict[str, type] = {
    "interference": Interference,
    "limits": DeviceLimits,
    "ladder": Ladder,
    "codes": Codes,
    "work": WorkModel,
    "seen": Seen,
}
_NOT_ARRAYS = (*_KINDS, "slice_bandwidth_hz", "mimo_group", "block_rate_bps", "sizes")
_RATIOS = ("max_pruning_ratio", "min_pruning_ratio")
# Beyond any device, radio or model; the planner multiplies up to five such numbers and squares some.
_LARGEST = 1e30
# A double counts them one by one up to here.
_MOST_WEIGHTS = 2.0**53
_RATIO = {"at_least": 0.0, "at_most": 1.0}
_RULES: dict[str, dict[str, Any]] = {
    "full_band_rate_bps": {"at_least": 0.0},
    "seconds_per_weight": {"at_least": 0.0},
    "bits_per_weight": {"at_least": 0.0},
    "conv_weights": {"at_least": 0.0},
    "fc_weights": {"at_least": 0.0},
    "deadline_s": {"above": 0.0, "way_out": "Example: deadline_s=0.03 for 30 ms."},
    "max_pruning_ratio": _RATIO,
    "min_pruning_ratio": _RATIO,
    "objective_weight": {"above": 0.0},
    "fixed_bits": {"at_least": 0.0},
    "extra_seconds": {"at_least": 0.0},
}


def _common_length(arrays: dict[str, Array]) -> int:
    lengths: dict[int, str] = {}
    for name, array in arrays.items():
        if array.ndim > 1:
            raise InvalidValue(f"PlanProblem.{name}", "must be a number or a one-dimensional array", array.shape)
        if array.ndim == 1:
            lengths.setdefault(array.size, name)
    if len(lengths) > 1:
        shown = ", ".join(f"{name} has {size}" for size, name in lengths.items())
        raise InvalidValue("PlanProblem", "needs arrays of one length, one entry per device", shown)
    num_devices = next(iter(lengths), 1)
    if num_devices == 0:
        raise InvalidValue("PlanProblem", "needs at least one device", "0")
    return num_devices


def _checked(name: str, value: Any) -> Array:
    """Returns the array if it is within its bounds, and its products and squares fit a double."""
    if name == "edge":
        return _checked_edge(value)
    field = f"PlanProblem.{name}"
    checked = quantity(field, value, **_RULES[name])
    largest = _MOST_WEIGHTS if name in ("conv_weights", "fc_weights") else _LARGEST
    if name in _RATIOS:
        return checked
    tiny = (checked != 0.0) & (checked < 1.0 / _LARGEST)
    if "above" not in _RULES[name] and bool(np.any(tiny)):
        checked, tiny = np.where(tiny, 0.0, checked), False  # as good as nothing
    absurd = tiny | (checked > largest)
    if bool(np.any(absurd)):
        rule = f"must be {f'from {1 / _LARGEST:g} to' if 'above' in _RULES[name] else 'at most'} {largest:g}"
        raise InvalidValue(field, rule, f"{float(checked.flat[int(np.argmax(absurd))]):g}")
    return checked


def _checked_sizes(value: Any, most: float) -> Array:
    sizes = np.atleast_1d(quantity("PlanProblem.sizes", value, at_least=0.0, at_most=most))
    if sizes.ndim != 1 or not len(sizes) or np.any(np.diff(sizes) <= 0.0):
        raise InvalidValue("PlanProblem.sizes", "must ascend", sizes.tolist(), "Example: sizes=[1_000, 2_000]")
    return sizes


def _checked_edge(value: Any) -> Array:
    array = array_of("PlanProblem.edge", value, "must hold integer ids", kinds="iu")
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InvalidValue("PlanProblem.edge", f"must hold ids ≤ {np.iinfo(np.int64).max}", int(array.max()))
    return array.astype(np.int64)


def _read_only(array: Array, num_devices: int) -> Array:
    view = np.broadcast_to(array, (num_devices,))
    view.flags.writeable = False
    return view
