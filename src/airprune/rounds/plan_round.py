"""An edge round before any device trains: selected, planned, masked and timed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from airprune.methods.association.base import Served
from airprune.methods.masking.base import RoundView
from airprune.methods.selection.base import Candidates
from airprune.methods.topology.base import HISTORY, DueView, Topology
from airprune.randomness import rng_for
from airprune.rounds.cloud import combined_now
from airprune.rounds.downlink import downlink_of, with_downlink
from airprune.rounds.edge import prepare_masks, select_and_plan
from airprune.rounds.experiment import Experiment
from airprune.rounds.local import Streams
from airprune.rounds.over_the_air import with_lengths, with_truncation
from airprune.rounds.planning_context import PlannedRound
from airprune.rounds.secure import with_exchange
from airprune.rounds.state import Place, RunState
from airprune.rounds.timing import DeviceOutcome, TimedRound, sample_events, time_round

Array = np.ndarray
Values = dict[str, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundPlan:
    """One edge round as it is ordered.

    Attributes:
      timed: who does what until when.
      view: what the masking saw.
      lag: how many rounds ago each device began.  [num_selected]
      shown_lag: the same where not all devices begin together; else None.
    """

    timed: TimedRound
    view: RoundView
    lag: Array
    shown_lag: Array | None = None

    @property
    def present(self) -> list[int]:
        """The edges that hear from at least one device, ascending."""
        return [int(edge) for edge in np.unique(self.timed.planned.edge[self.timed.takes_part])]


def plan_round(
    run: Experiment, at: Place, state: RunState, served: Served, candidates: Candidates, cpu_hz: Array
) -> tuple[RoundPlan, Values]:
    """Plans and times a round; returns it, and the run's slots with what planning changed.

    Args:
      cpu_hz: f_n of the candidates.
    """
    kappa, context = run.kappa(state), at.context
    planned = select_and_plan(
        context.bounded(state.values), candidates, cpu_hz, at.round_index, kappa, positions_m=run.positions_m
    )
    if candidates.true_rates_bps is not None:
        planned = replace(planned, true_rate_bps=candidates.true_rates_bps(planned.device))
    if candidates.power_w is not None:
        planned = replace(planned, power_w=candidates.power_w(planned.device))
    planned = with_truncation(context, planned, candidates)
    view = _view(run, at, state, planned)
    planned, values = prepare_masks(run.context, planned, view, state.values)
    events = sample_events(
        run.scenario.events,
        planned.device,
        run.network.num_devices,
        seed=run.scenario.seed,
        global_round=at.global_round,
        edge_round=at.step,
    )
    if served.interrupted is not None:
        events = replace(events, dropped=events.dropped | served.interrupted[planned.device])
    timed = with_downlink(context, time_round(context, planned, events), candidates)
    timed = with_lengths(context, with_exchange(context, timed, candidates), candidates)
    if not run.method.topology.overrides(Topology.due):
        return RoundPlan(timed=timed, view=view, lag=np.zeros(len(planned.device), dtype=np.int64)), values
    timed, lag, changed = _only_due(run, at, state, values, timed, candidates)
    return RoundPlan(timed=timed, view=view, lag=lag, shown_lag=lag), values | changed


def _view(run: Experiment, at: Place, state: RunState, planned: PlannedRound) -> RoundView:
    """The round as the masking sees it."""
    seed = run.scenario.seed
    streams = Streams(seed, at.global_round, at.step)
    return RoundView(
        round_index=at.round_index,
        global_round=at.global_round,
        edge_round=at.counters[-1],
        shape=run.shape,
        model=state.global_state,
        now=lambda: combined_now(run, state)[0],
        num_rounds=run.num_rounds,
        device=planned.device[planned.in_plan],
        keep=planned.keep[planned.in_plan],
        rng=lambda: rng_for(seed, "masking", at.global_round, *at.counters),
        device_rng=lambda device: streams.masking[device],
        run_rng=lambda: rng_for(seed, "masking"),
    )


def _only_due(
    run: Experiment, at: Place, state: RunState, values: Values, timed: TimedRound, candidates: Candidates
) -> tuple[TimedRound, Array, Values]:
    """Returns (the round of the devices that deliver now, how many rounds ago each began, slots that change).

    The downlink goes to the devices that begin now; the energy of receiving counts when a device delivers.
    """
    planned = timed.planned
    history = values[HISTORY]
    history[:, 1:] = history[:, :-1].copy()
    history[:, 0] = state.edge_states
    # A device that misses the deadline does not hold up the others.
    latency_s = np.where(timed.outcome == DeviceOutcome.LATE, np.nan, timed.total_s)
    shown = DueView(
        device=planned.device,
        edge=planned.edge,
        latency_s=latency_s,
        deadline_s=planned.deadline_s,
        round_index=at.round_index,
    )
    due, changed = run.method.topology.due(shown, values)
    if due is None:
        return timed, np.zeros(len(planned.device), dtype=np.int64), changed
    place = np.searchsorted(planned.edges, planned.edge)
    period_s = timed.edge_latency_s.copy()
    period_s[place] = due.period_s
    delivers = due.delivers | ~planned.in_plan
    if timed.downlink_s is not None:
        down = downlink_of(at.context, planned, candidates, fetches=due.begins)
        timed = replace(timed, downlink_s=down.time_s, downlink_bits=down.bits)
    return replace(timed.only(delivers), edge_latency_s=period_s), due.lag[delivers], changed
