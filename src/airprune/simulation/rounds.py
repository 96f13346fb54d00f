"""Algorithm 1: hierarchical federated learning with model pruning, line for line, over a tree of any depth.

Rounds count from 0 in code and from 1 in records. All randomness is addressed by seed, stream, round and device, so a
run that starts from a `RunState` continues as if it had never stopped.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from airprune.components.component import Owner
from airprune.engines.base import MAX_TRIES, Engine
from airprune.errors import WorkFailed
from airprune.methods.aggregation import Aggregation
from airprune.methods.masking.base import FREE, RoundView
from airprune.methods.registration import is_own
from airprune.methods.selection.base import Candidates, Outcome, Selection
from airprune.methods.topology.base import HISTORY, Topology
from airprune.randomness import rng_for
from airprune.rounds.device import Streams
from airprune.rounds.edge import close_round, open_round, prepared_round
from airprune.rounds.messages import Broadcast
from airprune.rounds.opened import OpenRound
from airprune.rounds.personal import SLOTS
from airprune.rounds.training.chunks import UNION, EdgeGroup, EdgeResult, Failure, TrainTask, chunks_of
from airprune.rounds.training.worker import TEST_PART, OwnTest
from airprune.simulation import divergence
from airprune.simulation.clock import Events, Fate, TimedRound, time_round, with_unions
from airprune.simulation.experiment import Experiment
from airprune.simulation.recording import (
    by_device,
    count_edge_round,
    count_root_round,
    edge_record,
    global_record,
    mean_loss,
    node_record,
)
from airprune.simulation.state import RunState
from airprune.simulation.world import World
from airprune.wireless.latency import global_round_latency_s

Array = np.ndarray
_log = logging.getLogger("airprune")


Watch = Callable[[TimedRound, Sequence[EdgeResult]], None]


def run_rounds(
    experiment: Experiment, engine: Engine, state: RunState, *, watch: Watch | None = None, world: World | None = None
) -> Iterator[dict[str, Any]]:
    """Runs Algorithm 1 from `state` to the end; yields one record per edge round and per global round.

    `state` is up to date whenever a record is yielded. If training diverges, its global round is the last; it is closed
    at once and not evaluated, and `state.diverged` says why.

    Args:
      watch: shown each edge round as planned and as it came out.
      world: what the run meets; by default all is simulated.
    """
    world = World() if world is None else world
    tree = state.tree
    reported: set[int] = set()  # devices whose failure the user has read
    while not experiment.has_ended(state):  # line 2
        if not any(state.counters):
            _send_down(state, experiment.method.topology.top)  # line 3: everybody starts from w_G
        while True:
            yield from _middle_rounds(experiment, state, world)  # only in trees deeper than the paper's
            if state.counters[0] >= tree.max_rounds(0) or state.diverged:  # line 4
                break
            yield _edge_round(experiment, engine, state, world, reported, watch)  # lines 5–15
        yield _global_round(experiment, engine, state, world)  # line 17


def _edge_round(
    experiment: Experiment, engine: Engine, state: RunState, world: World, reported: set[int], watch: Watch | None
) -> dict[str, Any]:
    """Plans, trains and averages one edge round of the edges that are not done yet."""
    tree = state.tree
    edges = np.flatnonzero(tree.active(tree.depth - 1, state.counters))
    candidates, interrupted = experiment.candidates(state, edges)
    cpu_hz = experiment.network.cpu_hz[candidates.device]
    candidates, cpu_hz = world.candidates(experiment, state, candidates, cpu_hz)
    opened = open_round(
        experiment.terms_at(state).bounded(state.values),
        candidates,
        cpu_hz,
        candidates.round_index,
        experiment.kappa(state),
        positions_m=experiment.positions_m,
    )
    opened, view = _with_mask(experiment, state, opened)
    timed = time_round(experiment.terms_at(state), opened, _events(experiment, state, opened, interrupted))
    timed, lag = _only_due(experiment, state, timed)

    opened = timed.opened
    starts = _distinct_pairs(opened.edge[timed.takes_part], lag[timed.takes_part])
    present = [int(edge) for edge in np.unique(opened.edge[timed.takes_part])]
    groups = [(edge, began, _group(experiment, state, timed, lag, edge, began)) for edge, began in starts]
    results = world.edge_round(experiment, engine, state, timed, groups)  # lines 5–15, Eq. (12)
    divergence.note_after_edge_round(experiment, state, results)
    if state.held is not None:
        for result in results:
            state.held |= result.held
    if not state.diverged:
        _report_sums(experiment, state, view, results)
    _check_bits(experiment, timed, results)
    _learn_from_codes(experiment, state, opened, results)
    timed = _without_failed(_as_sent(experiment, timed, results), results, reported)
    _tell_selection(experiment, state, candidates, timed, results)
    experiment.note_median(state, timed)
    if watch is not None:
        watch(timed, results)

    latency_s = np.full(experiment.network.num_edges, np.nan)
    latency_s[opened.edges] = timed.edge_latency_s
    state.latency_s[-1].append(latency_s.tolist())
    count_edge_round(state.totals, timed, results)
    experiment.count_received(state, opened.edge, timed.uploaded_bits)
    sample = experiment.recorded(state, len(opened.device))
    state.counters[-1] += 1
    shown_lag = lag if experiment.method.topology.overrides(Topology.due) else None
    record = edge_record(state, timed, present, results, len(candidates.device), shown_lag, sample)
    if experiment.scenario.rounds.evaluate_every == "edge":
        record |= accuracy_of(experiment, engine, state, now=True)
    return record


def _distinct_pairs(edge: Array, lag: Array) -> list[tuple[int, int]]:
    """Returns every (edge, lag) that occurs once, in ascending order.

    By one integer per pair: where numpy compares rows, it turns Ctrl-C into a TypeError.
    """
    span = int(lag.max(initial=0)) + 1
    return [divmod(key, span) for key in np.unique(edge * span + lag).tolist()]


def _with_mask(experiment: Experiment, state: RunState, opened: OpenRound) -> tuple[OpenRound, RoundView]:
    """The round with what the masking prepared for everybody."""
    streams = Streams(experiment.scenario.seed, state.global_round, experiment.step_index(state))
    view = RoundView(
        round_index=experiment.round_index(state),
        global_round=state.global_round,
        edge_round=state.edge_round,
        shape=experiment.shape,
        model=state.global_state,
        now=lambda: experiment.combined_now(state)[0],
        num_rounds=experiment.num_rounds,
        device=opened.device[opened.planned],
        keep=opened.keep[opened.planned],
        rng=lambda: rng_for(experiment.scenario.seed, "masking", state.global_round, *state.counters),
        device_rng=lambda device: streams.masking[device],
        run_rng=lambda: rng_for(experiment.scenario.seed, "masking"),
    )
    opened, state.values = prepared_round(experiment.terms, opened, view, state.values)
    return opened, view


def _only_due(experiment: Experiment, state: RunState, timed: TimedRound) -> tuple[TimedRound, Array]:
    """(the round of the devices that deliver now, how many rounds ago each began), where not all begin together."""
    topology, opened = experiment.method.topology, timed.opened
    together = timed, np.zeros(len(opened.device), dtype=np.int64)
    if not topology.overrides(Topology.due):
        return together
    history = state.values[HISTORY]
    history[:, 1:] = history[:, :-1].copy()
    history[:, 0] = state.edge_states
    latency_s = np.where(timed.fate == Fate.LATE, np.nan, timed.total_s)  # who is late does not hold up the others
    due = topology.due(latency_s, opened.edge, opened.deadline_s, experiment.round_index(state))
    if due is None:
        return together
    place = np.searchsorted(opened.edges, opened.edge)
    period_s = timed.edge_latency_s.copy()
    period_s[place] = due.period_s
    delivers = due.delivers | ~opened.planned
    return dataclasses.replace(timed.only(delivers), edge_latency_s=period_s), due.lag[delivers]


def _events(experiment: Experiment, state: RunState, opened: OpenRound, interrupted: Array | None) -> Events:
    events = Events.drawn(
        experiment.scenario.events,
        opened.device,
        experiment.network.num_devices,
        seed=experiment.scenario.seed,
        global_round=state.global_round,
        edge_round=experiment.step_index(state),
    )
    if interrupted is None:
        return events
    return dataclasses.replace(events, dropped=events.dropped | interrupted[opened.device])


def _group(
    experiment: Experiment, state: RunState, timed: TimedRound, lag: Array, edge: int, started: int
) -> EdgeGroup:
    """The work of one edge: the devices that will make it, in runs of a chunk's worth of samples.

    Of devices that began at different times, those that began `started` rounds ago.
    """
    scenario, opened, method = experiment.scenario, timed.opened, experiment.method
    positions = np.flatnonzero(timed.takes_part & (opened.edge == edge) & (lag == started))
    received = state.edge_states[edge].copy()
    if started:
        received = state.values[HISTORY][edge, started].astype(received.dtype)
    learning_rate, steps = experiment.learning_rate(state), experiment.local_steps(state)
    tasks = [
        TrainTask(
            devices=tuple(opened.device[chunk].tolist()),
            keep=tuple(opened.keep[chunk].tolist()),
            weights=tuple(method.edge.weights(experiment.data_sizes[opened.device[chunk]]).tolist()),
            code=None if opened.code is None else tuple(opened.code[chunk].tolist()),
            group=None if opened.relay is None else tuple(opened.device[opened.relay.head[chunk]].tolist()),
            local_steps=None if steps is None else tuple(steps[opened.device[chunk]].tolist()),
            learning_rate=learning_rate,
            global_round=state.global_round,
            edge_round=experiment.step_index(state),
            round_index=experiment.round_index(state),
            store=state.store,
        )
        for chunk in chunks_of(positions, experiment.mean_samples_seen)
    ]
    return EdgeGroup(
        shared=Broadcast(
            model=received,
            mask=opened.mask,
            values={name: state.values[name] for name in method.objective.broadcast},
        ),
        tasks=tuple(tasks),
        travels=state.store is not None or is_own(method.edge),  # whose sums strangers cannot read
        aggregation=method.edge.at_rate(learning_rate),
        prunable=experiment.shape.prunable,
        drop_failing=scenario.engine.on_device_failure == "drop-device",
        store=state.store,
        served_weight=_served_weight(experiment, state, edge) if method.edge.overrides(Aggregation.absent) else None,
        min_contributors=scenario.aggregation.min_contributors,
    )


def _served_weight(experiment: Experiment, state: RunState, edge: int) -> float:
    """Σ c_n of all devices of an edge, asked or not."""
    samples = experiment.data_sizes[experiment.stations.serving(state.values) == edge]
    return float(experiment.method.edge.weights(samples).sum())


def _report_sums(experiment: Experiment, state: RunState, view: RoundView, results: list[EdgeResult]) -> None:
    """Hands what devices reported, summed in the order of the edges, to masking and objective.

    What the masking removes for good becomes zero everywhere.
    """
    masking, objective = experiment.method.masking, experiment.method.objective
    sums: dict[str, Array] = {}
    for result in results:
        for name, array in result.reports.items():
            if not name.startswith(UNION):
                sums[name] = sums[name] + array if name in sums else array
    view = dataclasses.replace(view, train_loss=mean_loss(results))
    state.values = masking.update(view, state.values, sums)
    state.values = objective.update(state.values, sums)
    stays = masking.stays(state.values)
    if stays is not None:
        state.models[:, experiment.shape.prunable] *= stays


def _tell_selection(
    experiment: Experiment, state: RunState, candidates: Candidates, timed: TimedRound, results: list[EdgeResult]
) -> None:
    """What came of those asked, for the selection's memory and for a cloud that weighs edges by whom they heard."""
    opened, arrived, selection = timed.opened, timed.takes_part, experiment.method.selection
    experiment.note_heard(state, opened.edge[arrived], opened.device[arrived])
    if not selection.overrides(Selection.observe):
        return
    outcome = Outcome(
        candidates=candidates,
        device=opened.device,
        edge=opened.edge,
        num_samples=experiment.data_sizes[opened.device],
        arrived=arrived,
        latency_s=timed.total_s,
        loss=by_device(timed, results)["loss"],
    )
    state.values = state.values | selection.observe(outcome)


def _check_bits(experiment: Experiment, timed: TimedRound, results: list[EdgeResult]) -> None:
    """A device that sends more than it was planned and timed for would make every number of the round a lie."""
    opened, counted = timed.opened, timed.opened.bits - timed.opened.charges.beside_bits
    if experiment.scenario.plan.framing:
        counted = experiment.terms.unframed.upload_bits(opened.keep, FREE, opened.code)
    for result in results:
        place = np.searchsorted(opened.device, result.statistics.device)
        charged = counted[place]
        over = result.statistics.sent_bits > charged * (1.0 + 1e-12)
        if over.any():
            n = int(np.argmax(over))
            raise WorkFailed(
                f"Device {result.statistics.device[n]} sent {result.statistics.sent_bits[n]:,.0f} bits but was charged "
                f"{charged[n]:,.0f}: masking {experiment.method.masking.name!r} or compression "
                f"{experiment.method.compression.name!r} counts wrongly."
            )


def _learn_from_codes(
    experiment: Experiment, state: RunState, opened: OpenRound, results: Sequence[EdgeResult]
) -> None:
    """What the round's codes lost, for deadlines that tune themselves."""
    if opened.bits_per_weight is None or not results:
        return
    device = np.concatenate([result.statistics.device for result in results])
    error = np.concatenate([result.statistics.code_error for result in results])
    experiment.learn_kappa(state, opened.bits_per_weight[np.searchsorted(opened.device, device)], error)


def _as_sent(experiment: Experiment, timed: TimedRound, results: list[EdgeResult]) -> TimedRound:
    """The round with what groups of devices have really sent, which is known only when all have chosen."""
    opened, prunable = timed.opened, experiment.shape.prunable_weights
    if opened.relay is None or opened.carried_weights is None or not opened.relay.uploads.any():
        return timed
    sent = {name: array for result in results for name, array in result.reports.items() if name.startswith(UNION)}
    union = opened.carried_weights - experiment.shape.fixed_weights
    for name, array in sent.items():
        head = np.searchsorted(opened.device, int(name.removeprefix(UNION)))
        union = np.where(opened.relay.head == head, np.count_nonzero(array), union)
    return timed if np.all(union == prunable) else with_unions(experiment.terms, timed, union)


def _without_failed(timed: TimedRound, results: list[EdgeResult], reported: set[int]) -> TimedRound:
    """The round as it came out: devices whose training failed for good, or that were lost, are in no average."""
    failures = [failure for result in results for failure in result.failures]
    if not failures:
        return timed
    fate = timed.fate.astype(object)
    fate[np.searchsorted(timed.opened.device, [failure.device for failure in failures])] = [f.fate for f in failures]
    told = [failure for failure in failures if failure.fate == Fate.FAILED and not failure.diverged]
    _report_failures(told, reported)
    arrived = fate == Fate.OK
    return dataclasses.replace(timed, fate=fate.astype(str), uploaded_bits=np.where(arrived, timed.uploaded_bits, 0.0))


def _report_failures(failures: list[Failure], reported: set[int]) -> None:
    """Each device's trouble once, where Python's logging sends it: by default to stderr."""
    for failure in failures:
        if failure.device not in reported:
            reported.add(failure.device)
            _log.error("Device %d failed %d times and is left out:\n%s", failure.device, MAX_TRIES, failure.trouble)


def _middle_rounds(experiment: Experiment, state: RunState, world: World) -> Iterator[dict[str, Any]]:
    """Nodes between edges and cloud whose children have run all their rounds combine them and send the result down."""
    tree = state.tree
    for level in range(tree.depth - 1, 0, -1):
        if not state.counters[level] or (state.counters[level] < tree.max_rounds(level) and not state.diverged):
            continue
        closing = tree.active(level - 1, state.counters[:level])
        combined = experiment.combined(state, level, world.out(state))
        state.models[tree.nodes(level - 1)][closing] = combined[closing]
        latency_s = _latency_s(experiment, state, level)
        state.latency_s[level - 1].append(np.where(closing, latency_s, np.nan).tolist())
        state.latency_s[level] = []
        state.counters[level] = 0
        state.counters[level - 1] += 1
        _send_down(state, level - 1)
        nodes = np.flatnonzero(closing)
        yield node_record(state, level - 1, state.counters[level - 1], nodes, latency_s[closing])


def _latency_s(experiment: Experiment, state: RunState, level: int) -> Array:
    """How long each parent of a level's nodes waits for the slowest child: its rounds, then its link.  [num_parents]"""
    part = state.tree.levels[level]
    rows = np.array(state.latency_s[level], dtype=np.float64).reshape(-1, part.num_nodes)
    link_s = experiment.backhaul.bits / part.rate_bps
    if np.any(link_s > 0.0):
        took_part = ~np.isnan(rows).all(axis=0)
        rows = np.vstack([rows, np.where(took_part, link_s, np.nan)])
    parents = state.tree.nodes(level - 1)
    return np.array([global_round_latency_s(rows[:, part.parent == p]) for p in range(parents.stop - parents.start)])


def _send_down(state: RunState, level: int) -> None:
    """Every node below a level takes the model of its ancestor there."""
    for below in range(level + 1, state.tree.depth):
        parents = state.models[state.tree.nodes(below - 1)]
        state.models[state.tree.nodes(below)] = parents[state.tree.levels[below].parent]


def _global_round(experiment: Experiment, engine: Engine, state: RunState, world: World) -> dict[str, Any]:
    """Line 17: the cloud combines its children, Eq. (13), moves, and judges the result."""
    combined = experiment.combined(state, 0, world.out(state))[0]
    own = {name: state.values[name] for name in experiment.slot_names(Owner.CLOUD)}
    step = experiment.method.cloud_step
    trained = experiment.shape.num_parameters
    state.models[0], own = close_round(
        step, "cloud_step", state.global_state, combined, state.held, own, num_parameters=trained
    )
    state.values |= own
    divergence.note_after_global_round(experiment, state)
    state.values = experiment.method.objective.close(state.values, experiment.network.num_devices)
    latency_s = float(_latency_s(experiment, state, 0)[0])
    metrics: dict[str, Any] = {}
    root = experiment.root_round(state)
    if root is not None:
        latency_s += root.latency_s
        metrics = count_root_round(state.totals, root)
    if experiment.method.topology.overrides(Topology.relay):
        metrics |= {"d2d_bits": state.totals.d2d_bits, "d2d_energy_j": state.totals.d2d_energy_j}
    state.totals.time_s += latency_s
    if experiment.scenario.rounds.evaluate_every != "never":
        metrics |= accuracy_of(experiment, engine, state)
    if state.diverged:
        metrics["diverged"] = state.diverged
    elif tests := experiment.held_tests(state):
        parts = engine.map("evaluate_held", experiment.judged(state)[0], tests)
        if experiment.judged_by.is_accuracy:
            metrics["device_accuracy"] = sum(correct for _, correct in parts) / len(experiment.dataset.test_y)
    if experiment.scenario.diagnostics.gradients and not state.diverged:
        metrics["gradient_sq"] = _gradient_sq(experiment, engine, state.global_state)
    record = global_record(state, latency_s, metrics)
    experiment.learn_loss(state, record["train_loss"])
    state.global_round += 1
    state.counters[0] = 0
    state.latency_s[0] = []
    if state.held is not None:
        state.held[:] = False
    state.totals.start_global_round()
    return record


def accuracy_of(experiment: Experiment, engine: Engine, state: RunState, *, now: bool = False) -> dict[str, float]:
    """Loss and metric of the models' mean prediction on the test set, its parts judged in parallel and added in order.

    The models are `experiment.judged`'s.

    A loss or metric whose sums over parts do not add up gets the predictions of all parts at once. Where devices have
    layers of their own, the means over devices, each judged on samples like its own, at once. NaN if training diverged.
    """
    judged = experiment.judged_by
    if state.diverged:
        return {"test_loss": math.nan} | ({} if judged.metric is None else {judged.key: math.nan})
    models = experiment.judged(state, now=now)
    if state.store is not None and experiment.shape.num_personal:
        tests = [
            OwnTest(
                memory={name: rows[0] for name, rows in state.store.take([n]).items() if name in SLOTS}, samples=own
            )
            for n, own in enumerate(experiment.own_tests)
        ]
        parts, size = list(engine.map("evaluate_own", models[0], tests)), sum(len(test.samples) for test in tests)
    else:
        targets, size = experiment.dataset.test_y, len(experiment.dataset.test_y)
        starts = range(0, size, TEST_PART)
        if judged.adds_up:
            parts = list(engine.map("evaluate", models, starts))
        else:
            from airprune.rounds.training.judging_by_torch import totals_of_arrays

            outputs = list(engine.map("predict", models, starts))
            parts = [totals_of_arrays(outputs, targets, judged, like=models)]
    found = {"test_loss": sum(loss for loss, _ in parts) / size}
    if judged.metric is not None:
        found[judged.key] = sum(score for _, score in parts) / size
    return found


def _gradient_sq(experiment: Experiment, engine: Engine, model_state: Array) -> float:
    """‖∇F(w_q)‖², F being the mean loss on the test set; the left side of Eq. (22), before 1/W."""
    size = len(experiment.dataset.test_y)
    parts = engine.map("test_gradient", model_state, range(0, size, TEST_PART))
    gradient = sum(parts) / size
    return float(np.square(gradient).sum())
