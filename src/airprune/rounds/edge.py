"""An edge before a round and after it: who is asked, what each may send, and the model that comes of it.

Nothing here trains, waits or knows a clock: a simulation and a deployment call the same functions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from airprune.methods.aggregation.steps import Step
from airprune.methods.masking.base import Charges, RoundView
from airprune.methods.selection.base import Candidates
from airprune.methods.topology.relay import Relay
from airprune.planning import Plan, PlanProblem
from airprune.planning.deadline import FIRST_KAPPA, auto_deadline_s
from airprune.planning.limits import full_band_rate_at
from airprune.rounds.method import tier_name
from airprune.rounds.planning_context import PlannedRound, PlanningContext, asked_only, plan_as_set, plan_problem
from airprune.rounds.relayed import Positions, for_groups, relay_of, whole_bits, whole_s, without_uplink
from airprune.wireless.device_speed.work import SecondPass

Array = np.ndarray
Values = dict[str, Array]


def open_round(
    terms: PlanningContext,
    candidates: Candidates,
    cpu_hz: Array,
    round_index: int,
    kappa: float = FIRST_KAPPA,
    *,
    positions_m: Positions | None = None,
) -> PlannedRound:
    """Asks, plans, and counts whole weights. Devices that block their edge are left out of the plan.

    Args:
      cpu_hz: f_n of the candidates.
      kappa: how much fewer bits slow learning down, if the deadline is to tune itself.
      positions_m: for topologies whose devices talk to each other.
    """
    charges = terms.charges(round_index)
    asked, problem, plan = _selected_plan(terms, candidates, cpu_hz, charges, kappa)
    chosen = asked_only(candidates, asked)
    relay = relay_of(terms, chosen, problem, charges, positions_m)
    if relay is not None:
        return _open_relayed(terms, chosen, problem, cpu_hz[asked], charges, relay)
    return _opened(terms, chosen, problem, plan, cpu_hz[asked], charges)


def _opened(
    terms: PlanningContext, chosen: Candidates, problem: PlanProblem, plan: Plan, cpu_hz: Array, charges: Charges
) -> PlannedRound:
    plan, planned = _without_blockers(terms, chosen, problem, plan)

    keep = np.zeros(len(chosen.device), dtype=np.int64)
    keep[planned] = terms.method.masking.num_kept(plan.kept_fc_weights, terms.shape)
    if charges.second_pass is not None and plan.cpu_hz is None and plan.power_w is None:
        keep[planned] = _widest_in_time(terms, plan, keep[planned], charges, charges.second_pass)
    share = np.full(len(chosen.device), np.nan)
    share[planned] = plan.bandwidth_share
    code = None if plan.code is None else _as_planned(plan.code, planned, 0.0).astype(np.int64)
    return PlannedRound(
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


def _widest_in_time(
    terms: PlanningContext, plan: Plan, keep: Array, charges: Charges, second_pass: SecondPass
) -> Array:
    """The most prunable weights with which each device meets its deadline; `keep` where its share is for those.

    The planner's line is never below what a second pass takes, so a larger sub-model may fit than it knows.
    """
    problem, best = plan.problem, keep.copy()
    (more, least), fixed = second_pass.line, terms.shape.fixed_weights
    one_pass_s = problem.seconds_per_weight / (1.0 + more)
    rate_bps = plan.bandwidth_share * problem.full_band_rate_bps
    for kept, second in second_pass.sub_models:
        over_s = one_pass_s * (more * kept + least - second)
        compute_s = problem.seconds_per_weight * (fixed + kept) + problem.extra_seconds - over_s
        sent = np.full(len(keep), kept)
        with np.errstate(divide="ignore"):
            total_s = compute_s + terms.upload_bits(sent, charges, plan.code) / rate_bps
        best = np.where(total_s <= problem.deadline_s, np.maximum(best, kept), best)
    return best


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
    terms: PlanningContext, candidates: Candidates, cpu_hz: Array, charges: Charges, kappa: float
) -> tuple[Array, PlanProblem, Plan]:
    """(who is asked, their problem, its plan): planned again for as long as the selection lets somebody go."""
    selection = terms.method.selection
    asked = selection.before(candidates)
    while True:
        chosen = asked_only(candidates, asked)
        problem = plan_problem(terms, chosen, cpu_hz[asked], charges)
        if terms.plan.deadline_s == "auto":
            fair = bool(getattr(terms.method.scheme, "fair", False))
            deadline_s = auto_deadline_s(problem, lambda changed: plan_as_set(terms, changed), kappa, fair=fair)
            problem = replace(problem, deadline_s=deadline_s)
        deadlines_s = terms.method.topology.deadlines(problem)
        if deadlines_s is not None:
            problem = replace(problem, deadline_s=deadlines_s)
        plan = plan_as_set(terms, problem)
        stays = selection.after(chosen, plan)
        if stays is None or stays.all():
            return asked, problem, plan
        asked = asked.copy()
        asked[np.flatnonzero(asked)[~stays]] = False


def _without_blockers(
    terms: PlanningContext, chosen: Candidates, problem: PlanProblem, plan: Plan
) -> tuple[Plan, Array]:
    """(plan, which devices are in it). Infeasible edges are planned again without the devices that block them."""
    planned = np.ones(problem.num_devices, dtype=bool)
    if not plan.failed.any():
        return plan, planned
    planned &= ~plan.blocking_devices
    if terms.plan.infeasible != "drop" or not problem.groups.any(planned).all():
        _raise_if_failed(plan, chosen, chosen.device)
    return _raise_if_failed(plan_as_set(terms, problem.subset(planned)), chosen, chosen.device[planned]), planned


def _raise_if_failed(plan: Plan, chosen: Candidates, device: Array) -> Plan:
    """As people know the devices: by the names of their table, else by their numbers in the network."""
    if not plan.failed.any():
        return plan
    names = [chosen.device_names[n] for n in device] if chosen.device_names else device
    return plan.raise_if_failed(device_names=names, edge_names=chosen.edge_names)


def _open_relayed(
    terms: PlanningContext, chosen: Candidates, problem: PlanProblem, cpu_hz: Array, charges: Charges, relay: Relay
) -> PlannedRound:
    """The round in which some upload for others.

    Who uploads is planned with the time that is left when the slowest group with whole models is through. An edge with
    no plan for that does without groups.
    """
    if not relay.uploads.any():
        return without_uplink(terms, chosen, problem, cpu_hz, charges, relay)
    least_s = problem.seconds_per_weight * problem.smallest_model_weights + problem.extra_seconds
    while not relay.is_idle:
        over_s = relay.over_s(whole_s(problem), whole_bits(terms, problem, charges), chosen.edge)
        waits_s = np.maximum(over_s - least_s, 0.0)
        after = replace(problem, extra_seconds=problem.extra_seconds + waits_s).subset(relay.uploads)
        plan = plan_as_set(terms, after)
        stuck = np.isin(chosen.edge, after.edge_ids[plan.failed]) & (over_s > 0.0)
        if not stuck.any():
            heads = _opened(terms, asked_only(chosen, relay.uploads), after, plan, cpu_hz[relay.uploads], charges)
            return for_groups(terms, chosen, heads, cpu_hz, charges, relay)
        relay = relay.without(stuck)
    return _opened(terms, chosen, problem, plan_as_set(terms, problem), cpu_hz, charges)


def prepared_round(
    terms: PlanningContext, opened: PlannedRound, view: RoundView, values: Values
) -> tuple[PlannedRound, Values]:
    """The round with what the masking tells all devices, and what each of them sends if the masking decides it."""
    masking = terms.method.masking
    told, values = masking.prepare(view, values)
    opened = replace(opened, mask=told, charges=terms.once_told(opened.charges, told, view.round_index))
    keep, counts = opened.keep, masking.counts(view, told)
    if counts is not None:
        keep = keep.copy()
        keep[opened.planned] = counts
    if counts is not None or terms.plan.framing:
        opened = replace(opened, keep=keep, bits=terms.upload_bits(keep, opened.charges, opened.code))
    return opened, values


def close_round(
    step: Step,
    tier: str,
    previous: Array,
    combined: Array,
    held: Array | None,
    values: Values,
    *,
    num_parameters: int,
) -> tuple[Array, Values]:
    """A parent's next model from the combined one, and its slots; `values` are those of this parent alone.

    Steps are for what is trained. Buffers behind it, such as running variances, are taken as combined: a step beyond
    them could make a variance negative.
    """
    own = {slot: values[tier_name(tier, slot)] for slot in _names(values, tier)}
    with np.errstate(over="ignore", invalid="ignore"):  # that training diverges shows in the model
        model, moved = step.move(previous, combined, held, own)
    if num_parameters < len(model) and model is not combined:
        model = model.copy()
        model[num_parameters:] = combined[num_parameters:]
    return model, {tier_name(tier, slot): array for slot, array in moved.items()}


def _names(values: Values, tier: str) -> list[str]:
    prefix = tier_name(tier, "")
    return [name.removeprefix(prefix) for name in values if name.startswith(prefix)]
