"""Whether training has diverged: models that are not finite numbers any more, so that no later round could help."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from airprune.rounds.experiment import Experiment
from airprune.rounds.state import RunState
from airprune.rounds.sums import EdgeResult

# Of a list of edges or devices.
_MOST_NAMED = 5


def note_after_edge_round(experiment: Experiment, state: RunState, results: Sequence[EdgeResult]) -> None:
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


def note_after_global_round(experiment: Experiment, state: RunState) -> None:
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
