"""An edge before a round and after it: client selection, the plan, and the server optimiser.

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
from airprune.planning.exclusion import without_blockers
from airprune.planning.limits import full_band_rate_at
from airprune.planning.schemes.air_budget import AirBudget
from airprune.planning.tradeoff import rate_of_share
from airprune.rounds.method import tier_name
from airprune.rounds.planning_context import (
    PlannedRound,
    PlanningContext,
    plan_problem,
    select_only,
    time_beside_s,
)
from airprune.rounds.relayed import Positions, for_groups, relay_of, whole_bits, whole_s, without_uplink
from airprune.wireless.device_speed.work import SecondPass

Array = np.ndarray
Values = dict[str, Array]


def select_and_plan(
    context: PlanningContext,
    candidates: Candidates,
    cpu_hz: Array,
    round_index: int,
    kappa: float = FIRST_KAPPA,
    *,
    positions_m: Positions | None = None,
) -> PlannedRound:
    """Selects devices, plans, and counts whole weights. Devices that block their edge are excluded from the plan.

    Args:
      cpu_hz: f_n of the candidates.
      kappa: how much fewer bits slow learning down, if the deadline is to tune itself.
      positions_m: for topologies whose devices talk to each other.
    """
    charges = context.charges(round_index)
    selected, problem, plan = selected_plan(context, candidates, cpu_hz, charges, kappa)
    chosen = select_only(candidates, selected)
    relay = relay_of(context, chosen, problem, charges, positions_m)
    if relay is not None:
        return _plan_relayed(context, chosen, problem, cpu_hz[selected], charges, relay)
    return _planned_round(context, chosen, problem, plan, cpu_hz[selected], charges)


def _planned_round(
    context: PlanningContext, chosen: Candidates, problem: PlanProblem, plan: Plan, cpu_hz: Array, charges: Charges
) -> PlannedRound:
    first = plan
    plan, in_plan = _without_blockers(context, chosen, problem, first)
    has_plan = np.isin(problem.edge_ids, plan.problem.edge_ids)  # the other edges sit out this round

    keep = np.zeros(len(chosen.device), dtype=np.int64)
    keep[in_plan] = context.method.masking.num_kept(plan.kept_fc_weights, context.shape)
    if charges.second_pass is not None and plan.cpu_hz is None and plan.power_w is None:
        keep[in_plan] = _widest_in_time(context, plan, keep[in_plan], charges, charges.second_pass)
    share = np.full(len(chosen.device), np.nan)
    share[in_plan] = plan.bandwidth_share
    rate_bps = None  # r_n at the block and the power that the scheme has chosen, if it has, or with interference
    if plan.power_w is not None:
        rate_bps = full_band_rate_at(plan.problem, plan.power_w)
    elif plan.block is not None or problem.interference is not None:
        rate_bps = plan.problem.full_band_rate_bps
    code = None if plan.code is None else _as_planned(plan.code, in_plan, 0.0).astype(np.int64)
    top = float(context.shape.num_layers - 1)
    steps, first_trained, last_trained = (
        None if chosen_work is None else _as_planned(chosen_work, in_plan, otherwise).astype(np.int64)
        for chosen_work, otherwise in ((plan.local_steps, 1.0), (plan.first_trained, 0.0), (plan.last_trained, top))
    )
    has_work = plan.local_steps is not None
    return PlannedRound(
        device=chosen.device,
        edge=chosen.edge,
        full_band_rate_bps=_as_planned(rate_bps, in_plan, problem.full_band_rate_bps),
        cpu_hz=_as_planned(plan.cpu_hz, in_plan, cpu_hz),
        in_plan=in_plan,
        share=share,
        keep=keep,
        bits=context.upload_bits(keep, charges, code, first_trained, last_trained),
        deadline_s=float(np.max(problem.deadline_s)),
        tunes_itself=context.plan.deadline_s == "auto",
        charges=charges,
        edges=problem.edge_ids,
        status=_of_edges(plan.status, has_plan, first.status),
        shadow_price=_of_edges(plan.shadow_price, has_plan, np.full(len(has_plan), np.nan)),
        power_w=None if plan.power_w is None else _as_planned(plan.power_w, in_plan, np.nan),
        code=code,
        local_steps=steps,
        first_trained=first_trained,
        last_trained=last_trained,
        compute_s=_as_planned(plan.compute_s, in_plan, 0.0) if has_work else None,
        bits_per_weight=None if plan.bits_per_weight is None else _as_planned(plan.bits_per_weight, in_plan, np.nan),
    )


def _widest_in_time(
    context: PlanningContext, plan: Plan, keep: Array, charges: Charges, second_pass: SecondPass
) -> Array:
    """The most prunable weights with which each device meets its deadline; `keep` where its share is for those.

    The planner's line is never below what a second pass takes, so a larger sub-model may fit than it knows.
    """
    problem, best = plan.problem, keep.copy()
    (more, least), fixed = second_pass.line, context.shape.fixed_weights
    one_pass_s = problem.seconds_per_weight / (1.0 + more)
    rate_bps = rate_of_share(problem, plan.bandwidth_share)
    for kept, second in second_pass.sub_models:
        over_s = one_pass_s * (more * kept + least - second)
        compute_s = problem.seconds_per_weight * (fixed + kept) + problem.extra_seconds - over_s
        sent = np.full(len(keep), kept)
        with np.errstate(divide="ignore"):
            total_s = compute_s + context.upload_bits(sent, charges, plan.code) / rate_bps
        best = np.where(total_s <= problem.deadline_s, np.maximum(best, kept), best)
    return best


def _as_planned(chosen: Array | None, in_plan: Array, otherwise: Array | float) -> Array:
    """Returns the scheme's choice for the devices in the plan, and `otherwise` for the rest."""
    values = np.array(np.broadcast_to(otherwise, in_plan.shape), dtype=np.float64)
    if chosen is not None:
        values[in_plan] = chosen
    return values


def _of_edges(planned: Array, has_plan: Array, otherwise: Array) -> Array:
    """Returns the values of a plan for the edges that it has, and `otherwise` for the rest."""
    if has_plan.all():
        return planned
    values = otherwise.copy()
    values[has_plan] = planned
    return values


def selected_plan(
    context: PlanningContext, candidates: Candidates, cpu_hz: Array, charges: Charges, kappa: float
) -> tuple[Array, PlanProblem, Plan]:
    """Returns (selected, their problem, its plan); plans again for as long as the selection drops a device."""
    selection, scheme = context.method.selection, context.method.scheme
    selected = selection.before(candidates)
    while True:
        chosen = select_only(candidates, selected)
        problem = plan_problem(context, chosen, cpu_hz[selected], charges)
        if context.plan.deadline_s == "auto":
            beside_s = time_beside_s(context, chosen)
            deadline_s = scheme.best_deadline_s(problem, beside_s)
            if deadline_s is None:
                fair = isinstance(scheme, AirBudget) and scheme.fair
                deadline_s = auto_deadline_s(problem, scheme.plan, kappa, fair=fair, beside_s=beside_s)
            problem = replace(problem, deadline_s=deadline_s)
        deadlines_s = context.method.topology.deadlines(problem)
        if deadlines_s is not None:
            problem = replace(problem, deadline_s=deadlines_s)
        plan = scheme.plan(problem)
        stays = selection.after(chosen, plan)
        if stays is None or stays.all():
            return selected, problem, plan
        selected = selected.copy()
        selected[np.flatnonzero(selected)[~stays]] = False


def _without_blockers(
    context: PlanningContext, chosen: Candidates, problem: PlanProblem, plan: Plan
) -> tuple[Plan, Array]:
    """Returns (plan, in_plan). Infeasible edges are planned again without the devices that block them.

    An edge all of whose devices block it has no device in the plan; if no edge has one, the round fails.
    """
    if context.plan.infeasible != "drop":
        _raise_if_failed(plan, chosen, chosen.device)
    plan, in_plan = without_blockers(context.method.scheme, problem, plan)
    return _raise_if_failed(plan, chosen, chosen.device[in_plan]), in_plan


def _raise_if_failed(plan: Plan, chosen: Candidates, device: Array) -> Plan:
    """Raises with the devices' names in their table, else with their numbers in the network."""
    if not plan.failed.any():
        return plan
    names = [chosen.device_names[n] for n in device] if chosen.device_names else device
    return plan.raise_if_failed(device_names=names, edge_names=chosen.edge_names)


def _plan_relayed(
    context: PlanningContext, chosen: Candidates, problem: PlanProblem, cpu_hz: Array, charges: Charges, relay: Relay
) -> PlannedRound:
    """Plans a round in which some devices upload for others.

    Who uploads is planned with the time that is left when the slowest group with whole models is through. An edge with
    no plan for that does without groups.
    """
    if not relay.uploads.any():
        return without_uplink(context, chosen, problem, cpu_hz, charges, relay)
    least_s = problem.seconds_per_weight * problem.smallest_model_weights + problem.extra_seconds
    while not relay.is_idle:
        over_s = relay.over_s(whole_s(problem), whole_bits(context, problem, charges), chosen.edge)
        waits_s = np.maximum(over_s - least_s, 0.0)
        after = replace(problem, extra_seconds=problem.extra_seconds + waits_s).subset(relay.uploads)
        plan = context.method.scheme.plan(after)
        stuck = np.isin(chosen.edge, after.edge_ids[plan.failed]) & (over_s > 0.0)
        if not stuck.any():
            heads = _planned_round(
                context, select_only(chosen, relay.uploads), after, plan, cpu_hz[relay.uploads], charges
            )
            return for_groups(context, chosen, heads, cpu_hz, charges, relay)
        relay = relay.without(stuck)
    return _planned_round(context, chosen, problem, context.method.scheme.plan(problem), cpu_hz, charges)


def prepare_masks(
    context: PlanningContext, planned: PlannedRound, view: RoundView, values: Values
) -> tuple[PlannedRound, Values]:
    """Returns the round with what the masking shares with all devices, and what each sends if that decides it."""
    masking = context.method.masking
    shared, values = masking.prepare(view, values)
    planned = replace(
        planned, mask=shared, charges=context.without_shared_mask(planned.charges, shared, view.round_index)
    )
    keep, counts = planned.keep, masking.counts(view, shared)
    if counts is not None:
        keep = keep.copy()
        keep[planned.in_plan] = counts
    if counts is not None or context.plan.framing:
        bits = context.upload_bits(keep, planned.charges, planned.code, planned.first_trained, planned.last_trained)
        planned = replace(planned, keep=keep, bits=bits)
    return planned, values


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
    """Applies the server optimiser: returns a parent's next model from the combined one, and its slots.

    `values` are the slots of this parent alone. Steps are for what is trained. Buffers behind it, such as running
    variances, are taken as combined: a step beyond them could make a variance negative.
    """
    prefix = tier_name(tier, "")
    own = {name.removeprefix(prefix): array for name, array in values.items() if name.startswith(prefix)}
    with np.errstate(over="ignore", invalid="ignore"):  # that training diverges shows in the model
        model, moved = step.move(previous, combined, held, own)
    if num_parameters < len(model) and model is not combined:
        model = model.copy()
        model[num_parameters:] = combined[num_parameters:]
    return model, {prefix + slot: array for slot, array in moved.items()}
