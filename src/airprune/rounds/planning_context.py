"""The planning of a round: the scenario's choices, and the problem of the selected devices."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from airprune.components.component import ModelShape
from airprune.errors import InvalidValue
from airprune.methods.compression.base import Wire
from airprune.methods.masking.base import Charges
from airprune.methods.selection.base import Candidates
from airprune.methods.topology.relay import Relay
from airprune.planning import Codes, Ladder, MeasuredWork, PlanProblem, Seen, WorkModel
from airprune.planning.limits import DeviceLimits
from airprune.rounds.compute_times import ComputeTimes
from airprune.rounds.method import Method
from airprune.rounds.reserve import Reserve
from airprune.rounds.wire import Codec, shared_mask_of
from airprune.rounds.work import LocalWork
from airprune.wireless.channel import Radio, downlink_rate_bps
from airprune.wireless.latency import broadcast_time_s, unicast_time_s

if TYPE_CHECKING:
    from airprune.scenario import ClockSection, PlanSection

Array = np.ndarray
Values = dict[str, Array]
# At the most, to fill the last byte of an update.
PADDING_BITS = 7.0
# Shares of weights that differ by less are equal.
_NEAR = 1e-9
# Stands in a problem until its deadline is found.
_ANY_DEADLINE_S = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanningContext:
    """Settings that rounds are planned and timed with; they never change during a run.

    With `plan.framing`, uploads are charged byte for byte as they travel: `8 * upload_size` beside what is reported.

    Attributes:
      link_share_s: time per edge round of the links above each edge; None where the downlink is free.  [num_edges]
      reserve: what plans count on to keep the promise of `plan.on_time`.
    """

    plan: PlanSection
    clock: ClockSection
    radio: Radio
    method: Method
    shape: ModelShape
    wire: Wire
    compute: ComputeTimes
    max_pruning_ratio: float
    min_pruning_ratio: float
    float64: bool = False
    link_share_s: Array | None = None
    local_work: LocalWork | None = None
    reserve: Reserve = field(default_factory=Reserve)

    @cached_property
    def codec(self) -> Codec:
        """Format of the links between devices and edges."""
        return Codec(compression=self.method.compression, wire=self.wire, shape=self.shape, float64=self.float64)

    @cached_property
    def has_limits(self) -> bool:
        """True if the scheme is to keep to limits of clock, power and energy."""
        return self.method.scheme.needs_limits or self.plan.max_energy_j is not None

    @property
    def unframed(self) -> PlanningContext:
        """The same context with uploads charged by what their encoder counts."""
        return replace(self, plan=self.plan.model_copy(update={"framing": False}))

    def bounded(self, values: Values) -> PlanningContext:
        """Returns the context with ratios within those of the masking's smallest and largest sub-models now."""
        bounds = self.method.masking.bounds(self.shape, values)
        if bounds is None:
            return self
        fewest, most = bounds
        lowest = max(self.min_pruning_ratio, 1.0 - most / self.shape.prunable_weights)
        highest = min(self.max_pruning_ratio, 1.0 - fewest / self.shape.prunable_weights)
        return replace(self, min_pruning_ratio=lowest, max_pruning_ratio=max(lowest, highest))

    def charges(self, round_index: int) -> Charges:
        """Returns what a device is charged beside its weights: for its mask, the objective and the selection.

        With framing, for all that frames an update too; and a mask, until it is known that all devices share one.
        """
        charged = self.method.masking.charges(round_index, self.shape, self.wire.value_bits)
        beside = (
            self.radio.report_bits
            + self.objective_bits
            + self.method.selection.upload_bits(self.shape, self.wire.value_bits)
        )
        if self.plan.framing:
            beside += 8.0 * self.codec.frame_bytes
            charged = replace(charged, uplink_bits=8.0 * self.codec.mask_bytes, index_bits=np.inf)
        return replace(charged, always_bits=charged.always_bits + beside) if beside else charged

    def sounding_s(self, edge: Array) -> Array:
        """Returns the time in which all selected devices of each device's edge send their pilots, one by one.

        Args:
          edge: of the selected devices.
        """
        _, place, count = np.unique(edge, return_inverse=True, return_counts=True)
        return self.radio.pilot_s * count[place]

    def without_shared_mask(self, charges: Charges, shared: Array | None, round_index: int) -> Charges:
        """Returns the charges of a round in which all devices know `shared`: none pays to repeat a shared mask."""
        if not self.plan.framing or shared_mask_of(self.method.masking, shared, round_index, self.codec) is None:
            return charges
        return replace(charges, uplink_bits=0.0)

    @cached_property
    def objective_bits(self) -> float:
        """Bits that the objective sends beside every update."""
        return float(self.method.objective.upload_bits(self.shape, self.wire.value_bits))

    @property
    def whole_model_bits(self) -> float:
        """Bits of a whole model on the downlink, with what the objective sends beside it."""
        return self.shape.num_weights * self.wire.value_bits + self.objective_bits

    def broadcast_bits(self, largest: Array) -> Array:
        """Returns the bits of each edge's message to devices that keep so many prunable weights at most."""
        missing = self.shape.prunable_weights - self.method.masking.broadcast_weights(self.shape, largest)
        return np.asarray(self.whole_model_bits - missing * self.wire.value_bits)

    def upload_bits(
        self,
        keep: Array,
        charges: Charges,
        code: Array | None = None,
        first_trained: Array | None = None,
        last_trained: Array | None = None,
    ) -> Array:
        """Upload of devices that keep so many prunable weights: exactly what the encoder will count, or will send.

        Args:
          first_trained: the lowest layer that each trains; those above 0 send all weights from there on, and no others.
          last_trained: the highest layer that each trains; None: the top.
        """
        if first_trained is not None:
            bits = self.upload_bits(keep, charges, code)
            layers = self.shape.num_layers
            block = first_trained * layers + (layers - 1 if last_trained is None else last_trained)
            for number in np.unique(block[block != layers - 1]).tolist():
                at, part = block == number, divmod(number, layers)
                num_sent = self.shape.weights_above(*part)
                codes = np.full(len(keep), -1) if code is None else code
                by_code = {
                    c: self.update_bits(self.wire.code if code is None else c, num_sent)
                    for c in np.unique(codes[at]).tolist()
                }
                beside_bits = charges.beside_bits
                if self.plan.framing:  # biases and buffers of frozen layers are not sent either
                    beside_bits -= 8.0 * self.codec.frozen_bytes(part)
                bits[at] = [by_code[c] + beside_bits for c in codes[at].tolist()]
            return bits
        if code is not None:
            bits = np.zeros(len(keep))
            for level in np.unique(code).tolist():
                at_level = replace(self, wire=replace(self.wire, code=level))
                bits[code == level] = at_level.upload_bits(keep[code == level], charges)
            return bits
        counts, place = np.unique(keep, return_inverse=True)
        sent = self.shape.fixed_weights + counts
        bits = np.array([self.update_bits(self.wire.code, n) for n in sent.tolist()], dtype=np.float64)
        is_part = counts < self.shape.prunable_weights
        bits = bits + charges.beside_bits + np.where(is_part, charges.mask_bits(counts), 0.0)
        return bits[place]

    def training_s(self, keep: Array, device: Array, cpu_hz: Array, charges: Charges) -> Array:
        """Compute time of devices that keep so many prunable weights, without a probe."""
        fixed, dense = self.shape.fixed_weights, charges.dense_gradients
        once_s = self.compute.training_s(fixed + keep, device, cpu_hz, dense_gradients=dense)
        if charges.second_pass is None:
            return once_s
        return once_s + self.compute.training_s(
            fixed + charges.second_pass.weights(keep), device, cpu_hz, dense_gradients=dense
        )

    def update_bits(self, code: int | None, num_sent: int) -> float:
        """Bits of the update alone."""
        if self.plan.framing:
            return 8.0 * self.codec.update_bytes(num_sent, code)
        return float(self.method.compression.message_bits(self.codec.coded(code), num_sent))

    @cached_property
    def line(self) -> tuple[float, float]:
        """(bits per sent weight, fixed bits) of the update alone, never below `update_bits`."""
        if not self.plan.framing:
            per_weight_bits, fixed_bits = self.method.compression.line(self.wire)
            return per_weight_bits, fixed_bits
        per_weight_bits, fixed_bits = self.method.compression.line(self.codec.stored)
        return per_weight_bits, fixed_bits + PADDING_BITS

    @cached_property
    def ladder(self) -> Ladder | None:
        """The codes among which the scheme may choose."""
        codes = self.method.compression.ladder(self.codec.stored if self.plan.framing else self.wire)
        if codes is None:
            return None
        return Ladder([code.bits_per_weight for code in codes], [code.error for code in codes])

    @property
    def sizes(self) -> Array | None:
        """Prunable weights of the sub-models among which the scheme may choose, within the bounds on ratios."""
        sizes = self.method.masking.sizes(self.shape)
        if sizes is None:
            return None
        kept_share = sizes / self.shape.prunable_weights
        inside = (kept_share >= 1.0 - self.max_pruning_ratio - _NEAR) & (
            kept_share <= 1.0 - self.min_pruning_ratio + _NEAR
        )
        return np.asarray(sizes[inside]) if inside.any() else None

    @cached_property
    def codes(self) -> Codes | None:
        """The codes of which the scheme may take the largest that fits."""
        numbers = self.method.compression.codes(self.wire)
        return None if numbers is None else Codes(numbers=numbers, bits=self.update_bits)


def select_only(candidates: Candidates, selected: Array) -> Candidates:
    if selected.all():
        return candidates
    arrays = ("device", "edge", "num_samples")
    work = None if candidates.work is None else candidates.work.subset(selected)
    return replace(candidates, work=work, **{name: getattr(candidates, name)[selected] for name in arrays})


def plan_problem(context: PlanningContext, candidates: Candidates, cpu_hz: Array, charges: Charges) -> PlanProblem:
    """Eqs. (25)–(29) with what this method sends and computes: one function says the bits, here and on the clock."""
    plan, shape = context.plan, context.shape
    per_weight_bits, fixed_bits = context.line
    scheme = context.method.scheme
    ladder = context.ladder if scheme.chooses_codes else None
    codes = context.codes if scheme.fits_codes else None
    if ladder is not None:
        per_weight_bits = float(ladder.bits_per_weight[0])
    if codes is not None:
        per_weight_bits, fixed_bits = codes.bits(codes.numbers[0], shape.num_weights) / shape.num_weights, 0.0
    per_weight_s, extra_s = context.compute.line(
        candidates.device,
        cpu_hz,
        probe=charges.probe,
        dense_gradients=charges.dense_gradients,
        second_pass=charges.second_pass,
        fixed_weights=shape.fixed_weights,
    )
    per_weight_s, extra_s = context.reserve.slowdown * per_weight_s, context.reserve.slowdown * extra_s
    block_rate_bps = None
    blocks = scheme.blocks(int(np.bincount(candidates.edge).max(initial=0)))  # None if it assigns none
    if blocks is not None and candidates.block_rates_bps is not None:
        block_rate_bps = candidates.block_rates_bps(candidates.device, blocks)
    group, rate_bps = None, candidates.full_band_rate_bps
    if candidates.at_once is not None:
        group, rate_bps = candidates.at_once(candidates.device)
    if context.radio.pilots:
        extra_s = extra_s + context.sounding_s(candidates.edge)
    return PlanProblem(
        full_band_rate_bps=rate_bps,
        seconds_per_weight=per_weight_s,
        edge=candidates.edge,
        bits_per_weight=per_weight_bits,
        fixed_bits=fixed_bits + charges.uplink_bits + charges.always_bits,
        extra_seconds=extra_s,
        conv_weights=shape.fixed_weights,
        fc_weights=shape.prunable_weights,
        deadline_s=_ANY_DEADLINE_S if plan.deadline_s == "auto" else plan.deadline_s,
        max_pruning_ratio=context.max_pruning_ratio,
        min_pruning_ratio=context.min_pruning_ratio,
        slice_bandwidth_hz=context.radio.slice_bandwidth_hz,
        mimo_group=group,
        interference=None if candidates.interference is None else candidates.interference(candidates.device),
        limits=device_limits(context, cpu_hz) if context.has_limits else None,
        ladder=ladder,
        codes=codes,
        block_rate_bps=block_rate_bps,
        sizes=context.sizes if scheme.chooses_sizes else None,
        work=_work_model(context, candidates, cpu_hz, charges),
        objective_weight=context.method.weighting.weights(
            replace(candidates, plans_work=context.local_work is not None)
        ),
        seen=Seen(
            device=candidates.device,
            num_samples=candidates.num_samples,
            round_index=candidates.round_index,
            memory=candidates.memory,
        ),
    )


def _work_model(context: PlanningContext, candidates: Candidates, cpu_hz: Array, charges: Charges) -> WorkModel | None:
    """Returns the work among which the scheme chooses, if it does."""
    if context.local_work is None:
        return None
    device = candidates.device
    whole = np.full(len(device), context.shape.prunable_weights)
    return context.local_work.model(
        candidates.num_samples,
        context.training_s(whole, device, cpu_hz, charges),
        context.compute.probe_s(device, cpu_hz) if charges.probe else 0.0,
        candidates.round_index,
        device,
        candidates.work or MeasuredWork(),
    )


def time_beside_s(context: PlanningContext, candidates: Candidates) -> Array | float:
    """Returns what a round takes beside compute and uplink at each device's edge: downlink and links.

    0 where the downlink is free.  [num_devices]
    """
    if context.link_share_s is None:
        return 0.0
    ids, place = np.unique(candidates.edge, return_inverse=True)
    time_s, bits = unicast_time_s, context.whole_model_bits
    if context.radio.downlink == "broadcast":
        most = round((1.0 - context.min_pruning_ratio) * context.shape.prunable_weights)
        time_s, bits = broadcast_time_s, float(context.broadcast_bits(np.array([most]))[0])
    power_w = None if candidates.power_w is None else candidates.power_w(candidates.device)
    rate_bps = downlink_rate_bps(candidates.full_band_rate_bps, context.radio, power_w)
    reached = rate_bps > 0.0
    down_s = time_s(bits, rate_bps[reached], place[reached], num_edges=len(ids))
    beside_s: Array = down_s[place] + context.link_share_s[candidates.edge]
    return beside_s


def device_limits(context: PlanningContext, cpu_hz: Array) -> DeviceLimits:
    """Clock and power up to the device's own, and the scenario's energy budget."""
    scheme = context.method.scheme
    if scheme.needs_limits and not context.radio.knows_fading:
        rule = f"must be 1 with scheme {scheme.name!r}, which chooses powers by the true gains"
        raise InvalidValue("Scenario.radio.csi_correlation", rule, context.radio.csi_correlation)
    if scheme.needs_limits and context.radio.rate != "shannon":
        rule = f"must be shannon with scheme {scheme.name!r}, which chooses powers by Eq. (10)"
        raise InvalidValue("Scenario.radio.rate", rule, context.radio.rate, 'Or set plan.scheme = "optimal"')
    if scheme.needs_limits and context.radio.power_p0_w is not None:
        rule = f"must be none with scheme {scheme.name!r}, which chooses powers itself"
        raise InvalidValue("Scenario.radio.power_p0_dbm", rule, "a power control", 'Or set plan.scheme = "optimal"')
    budget = context.plan.max_energy_j
    return DeviceLimits(
        cpu_hz_max=cpu_hz,
        power_w_max=context.radio.transmit_power_w,
        bandwidth_hz=context.radio.bandwidth_hz,
        energy_j=np.inf if budget is None else budget,
        effective_capacitance=context.clock.effective_capacitance * context.clock.energy_cores,
        amplifier_efficiency=context.radio.amplifier_efficiency,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedRound:
    """One edge round of some edges as planned.  Per-device arrays follow `device`

    Attributes:
      device: the selected devices, ascending.
      edge: the edge that serves each.
      full_band_rate_bps, cpu_hz: of each, as the plan uses them.
      true_rate_bps: r_n as the link has it, where plans do not know it exactly.
      in_plan: True for devices in the plan; the others made their edge infeasible and are blocked.
      share: b_n; NaN for blocked devices.
      keep: whole prunable weights that it holds or sends.
      bits: what it will send.
      deadline_s: T_th of this round; `tunes_itself` if it was found for this round.
      power_w: transmit power, if the scheme has chosen one.
      local_steps, first_trained: minibatch steps and the lowest layer that it trains, if the scheme has chosen them.
      last_trained: the highest layer that it trains, if the scheme has chosen it too; None: the top.
      compute_s: compute time of that work, if so.
      code, bits_per_weight: which code it sends with and what that costs, if the scheme has chosen.
      charges: what the masking costs beside the weights.
      mask: what the masking prepared for all devices.
      edges, status, shadow_price: of the plan, per edge.
      relay: what the devices do among themselves before the uplink, if they do.
      snr: g_n p / σ² of each, where devices send at once over the air.
      truncated: which of them have too bad a channel for that, and are excluded.
      carried_weights, carried_bits: what then goes up for each device's group; as for one device where there is none.
    """

    device: Array
    edge: Array
    full_band_rate_bps: Array
    cpu_hz: Array
    in_plan: Array
    share: Array
    keep: Array
    bits: Array
    deadline_s: float
    tunes_itself: bool
    charges: Charges
    edges: Array
    status: Array
    shadow_price: Array
    power_w: Array | None = None
    code: Array | None = None
    bits_per_weight: Array | None = None
    local_steps: Array | None = None
    first_trained: Array | None = None
    last_trained: Array | None = None
    compute_s: Array | None = None
    mask: Array | None = None
    relay: Relay | None = None
    carried_weights: Array | None = None
    carried_bits: Array | None = None
    true_rate_bps: Array | None = None
    snr: Array | None = None
    truncated: Array | None = None

    @property
    def uplink_bits(self) -> Array:
        """Bits that the uplink of each device's update carries in all."""
        return self.bits if self.carried_bits is None else self.carried_bits
