"""Algorithm 1: hierarchical federated learning with model pruning, line for line, over a tree of any depth.

Rounds count from 0 in code and from 1 in records. All randomness is addressed by seed, stream, round and device, so a
run that starts from a `RunState` continues as if it had never stopped. Devices and edges are the environment's:
simulated, replayed or real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.components.component import Owner
from airprune.engines.base import Engine
from airprune.methods.outcome import GlobalOutcome
from airprune.rounds.cloud import (
    combined,
    count_links,
    latency_s,
    middle_rounds,
    root_round,
    send_down,
    waited_s,
    with_last_good,
)
from airprune.rounds.edge import close_round
from airprune.rounds.evaluation import accuracy_of, global_metrics
from airprune.rounds.experiment import Experiment
from airprune.rounds.parts import BEST, why_stop
from airprune.rounds.plan_round import plan_round
from airprune.rounds.recording import (
    count_edge_round,
    count_root_round,
    downlink_totals,
    edge_record,
    global_record,
    verdict_fields,
)
from airprune.rounds.settling import note_divergence_at_cloud, note_divergence_at_edges, note_suspects, settle
from airprune.rounds.state import RunState
from airprune.rounds.sums import EdgeResult
from airprune.rounds.timing import TimedRound
from airprune.rounds.training.chunks import groups_of

if TYPE_CHECKING:
    from airprune.simulation.environment import Environment

Watch = Callable[[TimedRound, Sequence[EdgeResult]], None]
Record = dict[str, Any]


def run_rounds(
    run: Experiment, engine: Engine, state: RunState, environment: Environment, *, watch: Watch | None = None
) -> Iterator[Record]:
    """Runs Algorithm 1 from `state` to the end; yields one record per edge round and per global round.

    `state` is up to date whenever a record is yielded. If training diverges, its global round is the last; it is closed
    at once and not evaluated, and `state.diverged` says why.

    Args:
      watch: shown each edge round as planned and as it came out.
    """
    while not run.has_ended(state):  # line 2
        if not any(state.counters):
            send_down(state, run.method.topology.top)  # line 3: all devices start from w_G
        while True:
            yield from middle_rounds(run, state, environment)  # only in trees deeper than the paper's
            if state.counters[0] >= state.tree.max_rounds(0) or state.diverged:  # line 4
                break
            yield edge_round(run, engine, state, environment, watch)  # lines 5–15
        yield global_round(run, engine, state, environment)  # line 17


def edge_round(
    run: Experiment, engine: Engine, state: RunState, environment: Environment, watch: Watch | None = None
) -> Record:
    """Plans, trains and averages one edge round of the edges that are not done yet."""
    at = run.place(state)
    served = run.served(at, state)
    candidates, cpu_hz = environment.candidates(run, state, *run.candidates(at, state, served))
    plan, state.values = plan_round(run, at, state, served, candidates, cpu_hz)  # Eqs. (9)–(11), (25)–(29)
    groups = groups_of(run, at, state, plan)
    results = environment.play(run, engine, state, plan.timed, groups)  # lines 5–9 on devices, 10–15 at edges

    note_divergence_at_edges(run, state, results)
    note_suspects(run, plan.present, results)
    timed, outcome = settle(run, at, plan, candidates, results)
    for part in run.own_parts if state.diverged else run.parts:
        state.values |= part.after_edge_round(outcome, state.values)
    state.close_edge_round(timed, results)
    if not state.diverged:
        state.remove_for_good(run.method.masking.stays(state.values), run.shape.prunable)
    power_w = run.radio.downlink_power_w
    count_edge_round(state.totals, timed, results, station_power_w=power_w)
    if watch is not None:
        watch(timed, results)
    record = edge_record(
        state,
        timed,
        plan.present,
        results,
        len(candidates.device),
        plan.shown_lag,
        run.recorded(at, timed),
        power_w,
        run.attack,
    )
    if run.scenario.rounds.evaluate_every == "edge":
        record |= accuracy_of(run, engine, state, now=True)
    return record


def global_round(run: Experiment, engine: Engine, state: RunState, environment: Environment) -> Record:
    """Line 17: the cloud combines its children, Eq. (13), moves, and the result is evaluated."""
    out = environment.out(state)
    (model,), (verdict,) = with_last_good(run, state, 0, combined(run, state, 0, out), out)
    own = {name: state.values[name] for name in run.slot_names(Owner.CLOUD)}
    trained = run.shape.num_parameters
    state.models[0], own = close_round(
        run.method.cloud_step,
        "cloud_step",
        state.global_state,
        model,
        np.zeros(len(model), dtype=bool) if verdict.rolled_back else state.held,
        own,
        num_parameters=trained,
    )
    state.values |= own
    note_divergence_at_cloud(run, state)
    took_s = float(latency_s(run, state, 0)[0])
    metrics: Record = verdict_fields(verdict)
    if (root := root_round(run, state)) is not None:
        took_s += root.latency_s
        metrics |= count_root_round(state.totals, root)
    elif count_links(run, state, 0) is not None:
        metrics["backhaul_bits"] = state.totals.backhaul_bits
    if run.radio.charges_downlink:
        metrics |= downlink_totals(state.totals)
    state.totals.time_s += took_s
    metrics |= global_metrics(run, engine, state)
    record = global_record(state, took_s, metrics)
    outcome = GlobalOutcome(
        num_devices=run.network.num_devices,
        train_loss=record["train_loss"],
        waited_s=waited_s(state, took_s),
        record=record,
    )
    for part in run.parts:
        state.values |= part.after_global_round(outcome, state.values)
    if not state.diverged and (reason := why_stop(run.scenario.stop, record, state.values.get(BEST))):
        state.stopped = reason
        record["stopped"] = reason
    state.close_global_round()
    return record
