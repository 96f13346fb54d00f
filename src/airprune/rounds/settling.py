"""An edge round once its results are there: as it was sent, without the devices that failed, its bits checked."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from airprune.engines.base import MAX_TRIES
from airprune.errors import WorkFailed
from airprune.methods.masking.base import FREE
from airprune.methods.outcome import Outcome
from airprune.methods.selection.base import Candidates
from airprune.rounds.experiment import Experiment
from airprune.rounds.over_the_air import with_sent_power
from airprune.rounds.plan_round import RoundPlan
from airprune.rounds.recording import by_device, mean_loss
from airprune.rounds.state import Place, RunState
from airprune.rounds.sums import UNION, EdgeResult, Failure
from airprune.rounds.timing import DeviceOutcome, TimedRound, with_idle_energy, with_unions

Array = np.ndarray
_log = logging.getLogger("airprune")
# Of a list of edges or devices.
_MOST_NAMED = 5


def settle(
    run: Experiment, at: Place, plan: RoundPlan, candidates: Candidates, results: Sequence[EdgeResult]
) -> tuple[TimedRound, Outcome]:
    """Settles a round: returns its final times, and the outcome that components and parts see."""
    _check_bits(run, plan.timed, results)
    timed = _without_failed(run, _as_sent(run, plan.timed, results), results)
    timed = with_idle_energy(run.context, with_sent_power(run.context, timed, results), plan.lag)
    planned, columns = timed.planned, by_device(timed, results)
    trained = [result.statistics.device for result in results]
    outcome = Outcome(
        candidates=candidates,
        device=planned.device,
        edge=planned.edge,
        num_samples=run.data_sizes[planned.device],
        arrived=timed.takes_part,
        latency_s=timed.total_s,
        loss=columns["loss"],
        round_view=replace(plan.view, train_loss=mean_loss(results)),
        sums=_sums(results),
        keep=planned.keep,
        shared=planned.mask,
        step=at.step,
        starts_global_round=at.starts_global_round,
        uploaded_bits=timed.uploaded_bits,
        bits_per_weight=planned.bits_per_weight,
        code_error=columns["code_error"],
        held=_held(results, run.shape.num_state),
        trained=np.searchsorted(planned.device, np.concatenate(trained)) if trained else np.zeros(0, dtype=np.int64),
    )
    return timed, outcome


def _held(results: Sequence[EdgeResult], num_state: int) -> Array:
    held = np.zeros(num_state, dtype=bool)
    for result in results:
        held |= result.held
    return held


def _sums(results: Sequence[EdgeResult]) -> dict[str, Array]:
    """Sums the devices' reports in the order of the edges."""
    sums: dict[str, Array] = {}
    for result in results:
        for name, array in result.reports.items():
            if not name.startswith(UNION):
                sums[name] = sums[name] + array if name in sums else array
    return sums


def _check_bits(run: Experiment, timed: TimedRound, results: Sequence[EdgeResult]) -> None:
    """A device that sends more than it was planned and timed for would make every number of the round a lie."""
    planned, counted = timed.planned, timed.planned.bits - timed.planned.charges.beside_bits
    if run.scenario.plan.framing:
        counted = run.context.unframed.upload_bits(
            planned.keep, FREE, planned.code, planned.first_trained, planned.last_trained
        )
    for result in results:
        place = np.searchsorted(planned.device, result.statistics.device)
        charged = counted[place]
        over = result.statistics.sent_bits > charged * (1.0 + 1e-12)
        if over.any():
            n = int(np.argmax(over))
            raise WorkFailed(
                f"Device {result.statistics.device[n]} sent {result.statistics.sent_bits[n]:,.0f} bits but was charged "
                f"{charged[n]:,.0f}: masking {run.method.masking.name!r} or compression "
                f"{run.method.compression.name!r} counts wrongly."
            )


def _as_sent(run: Experiment, timed: TimedRound, results: Sequence[EdgeResult]) -> TimedRound:
    """The round with what groups of devices have really sent, which is known only when all have chosen."""
    planned, prunable = timed.planned, run.shape.prunable_weights
    if planned.relay is None or planned.carried_weights is None or not planned.relay.uploads.any():
        return timed
    sent = {name: array for result in results for name, array in result.reports.items() if name.startswith(UNION)}
    union = planned.carried_weights - run.shape.fixed_weights
    for name, array in sent.items():
        head = np.searchsorted(planned.device, int(name.removeprefix(UNION)))
        union = np.where(planned.relay.head == head, np.count_nonzero(array), union)
    return timed if np.all(union == prunable) else with_unions(run.context, timed, union)


def _without_failed(run: Experiment, timed: TimedRound, results: Sequence[EdgeResult]) -> TimedRound:
    """The round as it came out: devices whose training failed for good, or that were lost, are in no average."""
    failures = [failure for result in results for failure in result.failures]
    if not failures:
        return timed
    outcome = timed.outcome.astype(object)
    outcome[np.searchsorted(timed.planned.device, [failure.device for failure in failures])] = [
        f.outcome for f in failures
    ]
    unexpected = [failure for failure in failures if failure.outcome == DeviceOutcome.FAILED and not failure.diverged]
    _report_failures(unexpected, run.reported_failures)
    arrived = outcome == DeviceOutcome.OK
    return replace(timed, outcome=outcome.astype(str), uploaded_bits=np.where(arrived, timed.uploaded_bits, 0.0))


def _report_failures(failures: Sequence[Failure], reported: set[int]) -> None:
    """Logs each device's failure once, through Python's logging: by default to stderr."""
    for failure in failures:
        if failure.device not in reported:
            reported.add(failure.device)
            if failure.refused:
                _log.error("The upload of device %d was refused: %s", failure.device, failure.trouble)
                continue
            _log.error(
                "Device %d failed %d times and is excluded from this round:\n%s",
                failure.device,
                MAX_TRIES,
                failure.trouble,
            )


def note_suspects(run: Experiment, present: Sequence[int], results: Sequence[EdgeResult]) -> None:
    """Logs each suspected device once, and every edge that keeps its model."""
    for edge, result in zip(present, results, strict=True):
        new = [device for device in result.suspected if device not in run.reported_suspects]
        run.reported_suspects.update(new)
        if new:
            _log.warning(
                "%s sent an update that is not finite, or more than %g times as long as the median at edge %d.",
                _named("Device", new),
                run.scenario.aggregation.rollback,
                edge,
            )
        if result.rolled_back:
            _log.warning("Edge %d keeps its model in this round: the average of its devices exploded.", edge)


def note_divergence_at_edges(experiment: Experiment, state: RunState, results: Sequence[EdgeResult]) -> None:
    """Sets `state.diverged` if an edge's model is not finite, or a device could not go on for that reason.

    Called before the edge round is counted.
    """
    edges = np.flatnonzero(~np.isfinite(state.edge_states).all(axis=1))
    stuck = [failure.device for result in results for failure in result.failures if failure.diverged]
    if not len(edges) and not stuck:
        return
    where = f"edge round {state.edge_round + 1} of global round {state.global_round + 1}"
    losses = [(result.statistics.device, result.statistics.loss) for result in results]
    devices = sorted({*stuck, *(int(n) for device, loss in losses for n in device[~np.isfinite(loss)])})
    whose = [_named(kind, found) for kind, found in (("edge", edges.tolist()), ("device", devices)) if found]
    state.diverged = _sentence(experiment, where, f"the models of {' and '.join(whose)} are")


def note_divergence_at_cloud(experiment: Experiment, state: RunState) -> None:
    """Sets `state.diverged` if the cloud's model is not finite; called before the global round is counted."""
    if not state.diverged and not np.isfinite(state.global_state).all():
        state.diverged = _sentence(experiment, f"global round {state.global_round + 1}", "the cloud's model is")


def _sentence(experiment: Experiment, where: str, models_are: str) -> str:
    rate, aggregation = experiment.scenario.train.learning_rate, experiment.scenario.aggregation
    steps = {aggregation.edge_step, aggregation.cloud_step} - {"replace"}
    also = f" or aggregation.{min(steps)}.rate" if steps else ""
    return (
        f"Training diverged in {where}: {models_are} not made of finite numbers any more; "
        f"lower train.learning_rate (now {rate:g}){also}."
    )


def _named(kind: str, numbers: Sequence[int]) -> str:
    """edge 3; devices 0, 1, 2, 3, 4 and 7 more."""
    if len(numbers) == 1:
        return f"{kind} {numbers[0]}"
    more = len(numbers) - _MOST_NAMED
    text = ", ".join(map(str, numbers[:_MOST_NAMED]))
    return f"{kind}s {text}" + (f" and {more:,} more" if more > 0 else "")
