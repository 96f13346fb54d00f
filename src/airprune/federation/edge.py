"""An edge before a round and after it: who is asked, what each may send, and the model that comes of it.

Nothing here trains, waits or knows a clock: a simulation and a deployment call the same functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from airprune.channel import Radio
from airprune.components import ModelShape
from airprune.compression.base import Wire
from airprune.compute.times import ComputeTimes
from airprune.errors import InvalidValue
from airprune.federation.method import Chosen, Method, tier_name
from airprune.masking.base import Charges, RoundView
from airprune.planning import Codes, Ladder, Plan, PlanProblem
from airprune.planning.deadline import FIRST_KAPPA, auto_deadline_s
from airprune.planning.limits import DeviceLimits, full_band_rate_at
from airprune.planning.plan import Status
from airprune.schemes import plan as plan_by
from airprune.selection.base import Candidates
from airprune.topology.relay import Relay, RelayView

if TYPE_CHECKING:
    from airprune.scenario import PlanSection

Array = np.ndarray
Values = dict[str, Array]

# Where devices of these numbers stand.
Positions = Callable[[Array], Array]

# Stands in a problem until its deadline is found.
_ANY_DEADLINE_S = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """What opening and closing a round needs of the scenario; never changes during a run."""

    plan: PlanSection
    radio: Radio
    method: Method
    shape: ModelShape
    wire: Wire
    compute: ComputeTimes
    max_pruning_ratio: float
    min_pruning_ratio: float

    def bounded(self, values: Values) -> Terms:
        """With pruning ratios between those of the smallest and of the largest sub-model that the masking has now."""
        if not self.method.masking.has("bounds"):
            return self
        fewest, most = self.method.masking("bounds", self.shape, values)
        lowest = max(self.min_pruning_ratio, 1.0 - most / self.shape.prunable_weights)
        highest = min(self.max_pruning_ratio, 1.0 - fewest / self.shape.prunable_weights)
        return replace(self, min_pruning_ratio=lowest, max_pruning_ratio=max(lowest, highest))

    def charges(self, round_index: int) -> Charges:
        """What a device pays beside its weights: for its mask, the objective, and what the selection wants to know."""
        charged: Charges = self.method.masking("charges", round_index, self.shape, self.wire.value_bits)
        beside = self.objective_bits + self.method.selection.component.report_bits
        return replace(charged, always_bits=charged.always_bits + beside) if beside else charged

    @cached_property
    def objective_bits(self) -> float:
        """What the objective sends beside every update."""
        objective = self.method.objective
        return (
            float(objective("upload_bits", self.shape, self.wire.value_bits)) if objective.has("upload_bits") else 0.0
        )

    def upload_bits(self, keep: Array, charges: Charges, code: Array | None = None) -> Array:
        """What devices send that keep so many prunable weights: exactly what the encoder will count."""
        if code is not None:
            bits = np.zeros(len(keep))
            for rung in np.unique(code).tolist():
                of_rung = replace(self, wire=replace(self.wire, code=rung))
                bits[code == rung] = of_rung.upload_bits(keep[code == rung], charges)
            return bits
        counts, place = np.unique(keep, return_inverse=True)
        sent = self.shape.fixed_weights + counts
        bits = np.array([self.method.compression("bits", self.wire, int(n)) for n in sent.tolist()], dtype=np.float64)
        bits = bits + charges.beside_bits + np.where(counts < self.shape.prunable_weights, charges.uplink_bits, 0.0)
        return bits[place]

    @cached_property
    def ladder(self) -> Ladder | None:
        """The codes among which the scheme may choose."""
        compression = self.method.compression
        if not compression.has("ladder"):
            return None
        codes = compression("ladder", self.wire)
        return Ladder([code.bits_per_weight for code in codes], [code.error for code in codes])

    @cached_property
    def codes(self) -> Codes | None:
        """The codes of which the scheme may take the largest that fits."""
        compression = self.method.compression
        if not compression.has("codes"):
            return None
        return Codes(
            numbers=compression("codes", self.wire),
            bits=lambda code, weights: compression("bits", replace(self.wire, code=code), weights),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenRound:
    """One edge round of some edges as planned.  Per-device arrays follow `device`

    Attributes:
      device: the devices that are asked, ascending.
      edge: who serves each.
      full_band_rate_bps, cpu_hz: of each, as the plan uses them.
      planned: whether it is in the plan; the others made their edge infeasible and are blocked.
      share: b_n; NaN for blocked devices.
      keep: whole prunable weights that it holds or sends.
      bits: what it will send.
      deadline_s: T_th of this round; `tunes_itself` if it was found for this round.
      power_w: transmit power, if the scheme has chosen one.
      code, bits_per_weight: which code it sends with and what that costs, if the scheme has chosen.
      charges: what the masking costs beside the weights.
      mask: what the masking prepared for everybody.
      edges, status, shadow_price: of the plan, per edge.
      relay: what the devices do among themselves before the uplink, if they do.
      carried_weights, carried_bits: what then goes up for each device's group; as for one device where there is none.
    """

    device: Array
    edge: Array
    full_band_rate_bps: Array
    cpu_hz: Array
    planned: Array
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
    mask: Array | None = None
    relay: Relay | None = None
    carried_weights: Array | None = None
    carried_bits: Array | None = None

    @property
    def uplink_bits(self) -> Array:
        """What the uplink that each device's update takes carries in all."""
        return self.bits if self.carried_bits is None else self.carried_bits


def open_round(
    terms: Terms,
    candidates: Candidates,
    cpu_hz: Array,
    round_index: int,
    kappa: float = FIRST_KAPPA,
    *,
    positions_m: Positions | None = None,
) -> OpenRound:
    """Asks, plans, and counts whole weights. Devices that block their edge are left out of the plan.

    Args:
      cpu_hz: f_n of the candidates.
      kappa: how much fewer bits slow learning down, if the deadline is to tune itself.
      positions_m: for topologies whose devices talk to each other.
    """
    charges = terms.charges(round_index)
    asked, problem, plan = _selected_plan(terms, candidates, cpu_hz, charges, kappa)
    chosen = asked_only(candidates, asked)
    relay = _relay(terms, chosen, problem, charges, positions_m)
    if relay is not None:
        return _open_relayed(terms, chosen, problem, cpu_hz[asked], charges, relay)
    return _opened(terms, chosen, problem, plan, cpu_hz[asked], charges)


def _opened(
    terms: Terms, chosen: Candidates, problem: PlanProblem, plan: Plan, cpu_hz: Array, charges: Charges
) -> OpenRound:
    plan, planned = _without_blockers(terms, problem, plan)

    keep = np.zeros(len(chosen.device), dtype=np.int64)
    keep[planned] = terms.method.masking("weights", plan.kept_fc_weights, terms.shape)
    share = np.full(len(chosen.device), np.nan)
    share[planned] = plan.bandwidth_share
    code = None if plan.code is None else _as_planned(plan.code, planned, 0.0).astype(np.int64)
    return OpenRound(
        device=chosen.device,
        edge=chosen.edge,
        full_band_rate_bps=_as_planned(_rate_bps(plan), planned, problem.full_band_rate_bps),
        cpu_hz=_as_planned(plan.cpu_hz, planned, cpu_hz),
        planned=planned,
        share=share,
        keep=keep,
        bits=terms.upload_bits(keep, charges, code),
        deadline_s=float(np.max(problem.deadline_s)),
        tunes_itself=terms.plan.deadline_s == "auto",
        charges=charges,
        edges=problem.edge_ids,
        status=plan.status,
        shadow_price=plan.shadow_price,
        power_w=None if plan.power_w is None else _as_planned(plan.power_w, planned, np.nan),
        code=code,
        bits_per_weight=None if plan.bits_per_weight is None else _as_planned(plan.bits_per_weight, planned, np.nan),
    )


def _as_planned(chosen: Array | None, planned: Array, otherwise: Array | float) -> Array:
    """What the scheme has chosen for the devices of its plan."""
    values = np.array(np.broadcast_to(otherwise, planned.shape), dtype=np.float64)
    if chosen is not None:
        values[planned] = chosen
    return values


def _rate_bps(plan: Plan) -> Array | None:
    """r_n at the block and the power that the scheme has chosen; None if it has chosen neither."""
    if plan.power_w is None:
        return None if plan.block is None else plan.problem.full_band_rate_bps
    return full_band_rate_at(plan.problem, plan.power_w)


def _selected_plan(
    terms: Terms, candidates: Candidates, cpu_hz: Array, charges: Charges, kappa: float
) -> tuple[Array, PlanProblem, Plan]:
    """(who is asked, their problem, its plan): planned again for as long as the selection lets somebody go."""
    selection = terms.method.selection
    asked = selection("before", candidates)
    while True:
        chosen = asked_only(candidates, asked)
        problem = plan_problem(terms, chosen, cpu_hz[asked], charges)
        if terms.plan.deadline_s == "auto":
            fair = bool(getattr(terms.method.scheme.options, "fair", False))
            deadline_s = auto_deadline_s(problem, lambda changed: plan_as_set(terms, changed), kappa, fair=fair)
            problem = replace(problem, deadline_s=deadline_s)
        if terms.method.topology.has("deadlines"):
            problem = replace(problem, deadline_s=terms.method.topology("deadlines", problem))
        plan = plan_as_set(terms, problem)
        stays = selection("after", chosen, plan) if selection.has("after") else None
        if stays is None or stays.all():
            return asked, problem, plan
        asked = asked.copy()
        asked[np.flatnonzero(asked)[~stays]] = False


def asked_only(candidates: Candidates, asked: Array) -> Candidates:
    if asked.all():
        return candidates
    arrays = ("device", "edge", "full_band_rate_bps", "num_samples")
    return replace(candidates, **{name: getattr(candidates, name)[asked] for name in arrays})


def plan_problem(terms: Terms, candidates: Candidates, cpu_hz: Array, charges: Charges) -> PlanProblem:
    """Eqs. (25)–(29) with what this method sends and computes: one function says the bits, here and on the clock."""
    plan, shape = terms.plan, terms.shape
    per_weight_bits, fixed_bits = terms.method.compression("line", terms.wire)
    scheme = terms.method.scheme.component
    ladder = terms.ladder if scheme.chooses_codes else None
    codes = terms.codes if scheme.fits_codes else None
    if ladder is not None:
        per_weight_bits = float(ladder.bits_per_weight[0])
    if codes is not None:
        per_weight_bits, fixed_bits = codes.bits(codes.numbers[0], shape.num_weights) / shape.num_weights, 0.0
    per_weight_s, extra_s = terms.compute.line(
        candidates.device, cpu_hz, probe=charges.probe, dense_gradients=charges.dense_gradients
    )
    return PlanProblem(
        full_band_rate_bps=candidates.full_band_rate_bps,
        seconds_per_weight=per_weight_s,
        edge=candidates.edge,
        bits_per_weight=per_weight_bits,
        fixed_bits=fixed_bits + charges.uplink_bits + charges.always_bits,
        extra_seconds=extra_s,
        conv_weights=shape.fixed_weights,
        fc_weights=shape.prunable_weights,
        deadline_s=_ANY_DEADLINE_S if plan.deadline_s == "auto" else plan.deadline_s,
        max_pruning_ratio=terms.max_pruning_ratio,
        min_pruning_ratio=terms.min_pruning_ratio,
        limits=device_limits(terms, cpu_hz) if has_limits(terms) else None,
        ladder=ladder,
        codes=codes,
        block_rate_bps=_block_rates_bps(terms, candidates),
    )


def _block_rates_bps(terms: Terms, candidates: Candidates) -> Array | None:
    """For a scheme that assigns blocks: as many as the edge with the most devices has."""
    scheme = terms.method.scheme
    if not scheme.has("blocks") or candidates.block_rates_bps is None:
        return None
    _, counts = np.unique(candidates.edge, return_counts=True)
    return candidates.block_rates_bps(candidates.device, scheme("blocks", int(counts.max())))


def has_limits(terms: Terms) -> bool:
    return terms.method.scheme.component.needs_limits or terms.plan.max_energy_j is not None


def device_limits(terms: Terms, cpu_hz: Array) -> DeviceLimits:
    """Clock and power up to the device's own, and the scenario's energy budget."""
    budget = terms.plan.max_energy_j
    return DeviceLimits(
        cpu_hz_max=cpu_hz,
        power_w_max=terms.radio.transmit_power_w,
        bandwidth_hz=terms.radio.bandwidth_hz,
        energy_j=np.inf if budget is None else budget,
    )


def plan_as_set(terms: Terms, problem: PlanProblem) -> Plan:
    """By the scheme of the scenario, with its options."""
    scheme = terms.method.scheme
    return plan_by(problem, scheme.name, scheme.options)


def _without_blockers(terms: Terms, problem: PlanProblem, plan: Plan) -> tuple[Plan, Array]:
    """(plan, which devices are in it). Infeasible edges are planned again without the devices that block them."""
    planned = np.ones(problem.num_devices, dtype=bool)
    if not plan.failed.any():
        return plan, planned
    planned &= ~plan.blocking_devices
    if terms.plan.infeasible != "drop" or not problem.groups.any(planned).all():
        plan.raise_if_failed()
    return plan_as_set(terms, problem.subset(planned)).raise_if_failed(), planned


def _relay(
    terms: Terms, chosen: Candidates, problem: PlanProblem, charges: Charges, positions_m: Positions | None
) -> Relay | None:
    """What the devices do among themselves; None if nothing."""
    topology = terms.method.topology
    if not topology.has("relay"):
        return None

    def positions() -> Array:
        if positions_m is None:
            rule = f"topology {topology.name!r} needs to know where devices stand"
            raise InvalidValue("Network", rule, "a table with snr_db", "Give distance_m or places")
        return positions_m(chosen.device)

    view = RelayView(
        edge=chosen.edge,
        full_band_rate_bps=chosen.full_band_rate_bps,
        compute_s=_whole_s(problem),
        model_bits=_whole_bits(terms, problem, charges),
        radio=terms.radio,
        positions_m=positions,
    )
    relay: Relay = topology("relay", view)
    return None if relay.is_idle else relay


def _whole_s(problem: PlanProblem) -> Array:
    """How long each device trains if it keeps every weight."""
    whole: Array = problem.seconds_per_weight * (problem.fixed_weights + problem.prunable_weights)
    return whole + problem.extra_seconds


def _whole_bits(terms: Terms, problem: PlanProblem, charges: Charges) -> Array:
    return terms.upload_bits(np.full(problem.num_devices, terms.shape.prunable_weights), charges)


def _open_relayed(
    terms: Terms, chosen: Candidates, problem: PlanProblem, cpu_hz: Array, charges: Charges, relay: Relay
) -> OpenRound:
    """The round in which some upload for others.

    Who uploads is planned with the time that is left when the slowest group with whole models is through. An edge with
    no plan for that does without groups.
    """
    if not relay.uploads.any():
        return _without_uplink(terms, chosen, problem, cpu_hz, charges, relay)
    least_s = problem.seconds_per_weight * problem.smallest_model_weights + problem.extra_seconds
    while not relay.is_idle:
        over_s = relay.over_s(_whole_s(problem), _whole_bits(terms, problem, charges), chosen.edge)
        waits_s = np.maximum(over_s - least_s, 0.0)
        after = replace(problem, extra_seconds=problem.extra_seconds + waits_s).subset(relay.uploads)
        plan = plan_as_set(terms, after)
        stuck = np.isin(chosen.edge, after.edge_ids[plan.failed]) & (over_s > 0.0)
        if not stuck.any():
            heads = _opened(terms, asked_only(chosen, relay.uploads), after, plan, cpu_hz[relay.uploads], charges)
            return _for_groups(terms, chosen, heads, cpu_hz, charges, relay)
        relay = relay.without(stuck)
    return _opened(terms, chosen, problem, plan_as_set(terms, problem), cpu_hz, charges)


def _for_groups(
    terms: Terms, chosen: Candidates, heads: OpenRound, cpu_hz: Array, charges: Charges, relay: Relay
) -> OpenRound:
    """The round of all devices from that of those who upload.

    A head sends the union of its group's weights, each with the number of devices that kept it. So that the union
    fits whatever they choose, the devices of a pruned group keep an equal part of what the head may send.
    """
    place = np.searchsorted(np.flatnonzero(relay.uploads), relay.head)
    size, prunable = relay.group_size, terms.shape.prunable_weights
    keep = heads.keep[place]
    is_pruned_group = (size > 1) & (keep < prunable)
    count_bits, value_bits = _count_bits(size), terms.wire.value_bits
    part = np.floor(keep * value_bits / (value_bits + count_bits) / size).astype(np.int64)
    part = np.asarray(terms.method.masking("weights", part, terms.shape))
    keep = np.where(is_pruned_group, part, keep)
    union = np.where(is_pruned_group, size * part, keep)  # at the most

    def spread(values: Array, others: Array | float) -> Array:
        return np.where(relay.uploads, values[place], others)

    opened = replace(
        heads,
        device=chosen.device,
        edge=chosen.edge,
        full_band_rate_bps=spread(heads.full_band_rate_bps, chosen.full_band_rate_bps),
        cpu_hz=spread(heads.cpu_hz, cpu_hz),
        planned=heads.planned[place],
        share=spread(heads.share, np.nan),
        keep=keep,
        bits=terms.upload_bits(keep, charges),
        power_w=None if heads.power_w is None else spread(heads.power_w, np.nan),
        relay=relay,
    )
    return with_unions(terms, opened, union)


def with_unions(terms: Terms, opened: OpenRound, union: Array) -> OpenRound:
    """The round in which the group of each device sends so many prunable weights, with counts unless it sends all."""
    assert opened.relay is not None  # else there are no groups
    size = opened.relay.group_size
    counted = (size > 1) & (union < terms.shape.prunable_weights)
    return replace(
        opened,
        carried_weights=terms.shape.fixed_weights + union,
        carried_bits=terms.upload_bits(union, opened.charges) + np.where(counted, _count_bits(size) * union, 0.0),
    )


def _count_bits(size: Array) -> Array:
    """Of a number from 0 to the size of a group."""
    return np.ceil(np.log2(size + 1))


def _without_uplink(
    terms: Terms, chosen: Candidates, problem: PlanProblem, cpu_hz: Array, charges: Charges, relay: Relay
) -> OpenRound:
    """Devices that end up with the average themselves: no band to share, so nothing to plan and nothing to prune."""
    nothing = np.zeros(len(chosen.device))
    return OpenRound(
        device=chosen.device,
        edge=chosen.edge,
        full_band_rate_bps=chosen.full_band_rate_bps,
        cpu_hz=cpu_hz,
        planned=np.ones(len(chosen.device), dtype=bool),
        share=nothing + np.nan,
        keep=np.full(len(chosen.device), terms.shape.prunable_weights),
        bits=_whole_bits(terms, problem, charges),
        deadline_s=float(np.max(problem.deadline_s)),
        tunes_itself=False,
        charges=charges,
        edges=problem.edge_ids,
        status=np.full(len(problem.edge_ids), str(Status.OK)),
        shadow_price=np.full(len(problem.edge_ids), np.nan),
        relay=relay,
        carried_weights=nothing.astype(np.int64),
        carried_bits=nothing,
    )


def prepared_round(terms: Terms, opened: OpenRound, view: RoundView, values: Values) -> tuple[OpenRound, Values]:
    """The round with what the masking tells all devices, and what each of them sends if the masking decides it."""
    masking, told = terms.method.masking, None
    if masking.has("prepare"):
        told, values = masking("prepare", view, values)
        opened = replace(opened, mask=told)
    if masking.has("counts"):
        keep = opened.keep.copy()
        keep[opened.planned] = masking("counts", view, told)
        opened = replace(opened, keep=keep, bits=terms.upload_bits(keep, opened.charges, opened.code))
    return opened, values


def close_round(
    step: Chosen, tier: str, previous: Array, combined: Array, held: Array | None, values: Values
) -> tuple[Array, Values]:
    """A parent's next model from the combined one, and its slots; `values` are those of this parent alone."""
    own = {slot: values[tier_name(tier, slot)] for slot in _names(values, tier)}
    model, moved = step("move", previous, combined, held, own)
    return model, {tier_name(tier, slot): array for slot, array in moved.items()}


def _names(values: Values, tier: str) -> list[str]:
    prefix = tier_name(tier, "")
    return [name.removeprefix(prefix) for name in values if name.startswith(prefix)]
