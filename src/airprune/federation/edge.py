"""An edge before a round and after it: who is asked, what each may send, and the model that comes of it.

Nothing here trains, waits or knows a clock: a simulation and a deployment call the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from airprune.channel import Radio
from airprune.components import ModelShape
from airprune.compression.base import Wire
from airprune.compute.times import ComputeTimes
from airprune.federation.method import Chosen, Method, tier_name
from airprune.masking.base import Charges, RoundView
from airprune.planning import Codes, Ladder, Plan, PlanProblem
from airprune.planning.deadline import FIRST_KAPPA, auto_deadline_s
from airprune.planning.limits import DeviceLimits, full_band_rate_at
from airprune.schemes import plan as plan_by
from airprune.selection.base import Candidates

if TYPE_CHECKING:
    from airprune.scenario import PlanSection

Array = np.ndarray
Values = dict[str, Array]

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

    def charges(self, round_index: int) -> Charges:
        charged: Charges = self.method.masking("charges", round_index, self.shape, self.wire.value_bits)
        beside = self.objective_bits
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
        bits = bits + charges.always_bits + np.where(counts < self.shape.prunable_weights, charges.uplink_bits, 0.0)
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


def open_round(
    terms: Terms, candidates: Candidates, cpu_hz: Array, round_index: int, kappa: float = FIRST_KAPPA
) -> OpenRound:
    """Asks, plans, and counts whole weights. Devices that block their edge are left out of the plan.

    Args:
      cpu_hz: f_n of the candidates.
      kappa: how much fewer bits slow learning down, if the deadline is to tune itself.
    """
    charges = terms.charges(round_index)
    asked, problem, plan = _selected_plan(terms, candidates, cpu_hz, charges, kappa)
    chosen = asked_only(candidates, asked)
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
        cpu_hz=_as_planned(plan.cpu_hz, planned, cpu_hz[asked]),
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
    """r_n at the power that the scheme has chosen; None if it has chosen none."""
    return None if plan.power_w is None else full_band_rate_at(plan.problem, plan.power_w)


def _selected_plan(
    terms: Terms, candidates: Candidates, cpu_hz: Array, charges: Charges, kappa: float
) -> tuple[Array, PlanProblem, Plan]:
    """(who is asked, their problem, its plan): planned again for as long as the selection lets somebody go."""
    selection = terms.method.selection
    asked = selection("before", candidates)
    while True:
        chosen = asked_only(candidates, asked)
        problem = _problem(terms, chosen, cpu_hz[asked], charges)
        if terms.plan.deadline_s == "auto":
            fair = bool(getattr(terms.method.scheme.options, "fair", False))
            deadline_s = auto_deadline_s(problem, lambda changed: _plan(terms, changed), kappa, fair=fair)
            problem = replace(problem, deadline_s=deadline_s)
        plan = _plan(terms, problem)
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


def _problem(terms: Terms, candidates: Candidates, cpu_hz: Array, charges: Charges) -> PlanProblem:
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
    per_weight_s, extra_s = terms.compute.line(candidates.device, cpu_hz, probe=charges.probe)
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
        min_pruning_ratio=plan.min_pruning_ratio,
        limits=_limits(terms, cpu_hz) if _has_limits(terms) else None,
        ladder=ladder,
        codes=codes,
    )


def _has_limits(terms: Terms) -> bool:
    return terms.method.scheme.component.needs_limits or terms.plan.max_energy_j is not None


def _limits(terms: Terms, cpu_hz: Array) -> DeviceLimits:
    """Clock and power up to the device's own, and the scenario's energy budget."""
    budget = terms.plan.max_energy_j
    return DeviceLimits(
        cpu_hz_max=cpu_hz,
        power_w_max=terms.radio.transmit_power_w,
        bandwidth_hz=terms.radio.bandwidth_hz,
        energy_j=np.inf if budget is None else budget,
    )


def _plan(terms: Terms, problem: PlanProblem) -> Plan:
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
    return _plan(terms, problem.subset(planned)).raise_if_failed(), planned


def prepare_mask(terms: Terms, view: RoundView, values: Values) -> tuple[Array | None, Values]:
    """What the masking tells all devices of the round."""
    masking = terms.method.masking
    if not masking.has("prepare"):
        return None, values
    prepared: tuple[Array | None, Values] = masking("prepare", view, values)
    return prepared


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
