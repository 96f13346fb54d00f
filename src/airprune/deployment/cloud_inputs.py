"""Makes the inputs of a round's plan from what members say, such that there is a plan: nothing else is recorded."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

import numpy as np

from airprune.deployment.bounds import MOST_TIMES_MEDIAN, most_rate_bps, within_class
from airprune.deployment.cloud_estimates import beside_s, part_costs, with_measurements_at_joining
from airprune.deployment.histories import planned_speeds
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.replay import met_candidates
from airprune.errors import AirpruneError, WorkFailed
from airprune.methods.selection.base import Candidates
from airprune.rounds.edge import select_and_plan
from airprune.rounds.experiment import Experiment
from airprune.rounds.state import RunState
from airprune.runs.measured import PlannedInputs

Array = np.ndarray
# Devices that are online: number of the edge, and what was measured.
Present = Mapping[int, tuple[int, pb.Presence.Device]]
_log = logging.getLogger("airprune")


class InputMaker:
    """Makes inputs, within bounds.

    Args:
      names: of all devices.
      measures, measures_uplink: see `CloudSettings`.
    """

    def __init__(self, names: tuple[str, ...], *, measures: bool, measures_uplink: bool) -> None:
        self._names, self._measures, self._measures_uplink = names, measures, measures_uplink
        self._said: set[str] = set()

    def inputs(
        self, experiment: Experiment, state: RunState, candidates: Candidates, present: Present, *, restarts: bool
    ) -> PlannedInputs:
        """Returns the inputs of a round; raises WorkFailed if it has no plan with any of the devices.

        Where measurements leave all of them together without a plan, edges and then devices that have none even alone
        are excluded from the round.
        """
        present = self._believed(present)

        def made(devices: Present) -> PlannedInputs:
            return self._made(experiment, state, candidates, devices, restarts=restarts)

        def trouble_of(devices: Present) -> str:
            return plan_trouble(experiment, state, candidates, made(devices))

        if not self._measures or not (trouble := trouble_of(present)):
            return made(present)
        kept: Present = {}
        for edge in sorted({number for number, _ in present.values()}):
            group = {device: found for device, found in present.items() if found[0] == edge}
            kept = with_plan(kept, group, lambda devices: not trouble_of(devices))
        if not kept:
            raise WorkFailed(f"No device has a plan for this round, with what is measured: {trouble}")
        excluded = ", ".join(self._names[device] for device in sorted({*present} - {*kept}))
        _log.warning("This round goes on without %s, with which it has no plan: %s", excluded, trouble)
        return made(kept)

    def _believed(self, present: Present) -> Present:
        """Returns the devices with speeds that can be."""
        if not self._measures:
            return present
        said = {device: one for device, (_, one) in present.items() if one.seconds_per_sample > 0.0}
        seconds = {device: one.seconds_per_sample for device, one in said.items()}
        bounded = within_class(seconds, {device: f"{one.kernel} {one.machine}" for device, one in said.items()})
        believed = dict(present)
        for device, value in bounded.items():
            self._say_once(
                f"A sample takes {self._names[device]} {seconds[device]:.3g} s, as it reports, more than "
                f"{MOST_TIMES_MEDIAN:g} times off the median of its class; plans take {value:.3g} s."
            )
            edge, one = present[device]
            changed = pb.Presence.Device()
            changed.CopyFrom(one)
            changed.seconds_per_sample = value
            believed[device] = edge, changed
        return believed

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said and len(self._said) < 4 * len(self._names):
            self._said.add(sentence)
            _log.warning("%s", sentence)

    def _made(
        self, experiment: Experiment, state: RunState, candidates: Candidates, present: Present, *, restarts: bool
    ) -> PlannedInputs:
        device = np.array(sorted(present), dtype=np.int64)
        rates_bps = candidates.full_band_rate_bps[np.searchsorted(candidates.device, device)]
        seconds, beside, costs = None, None, None
        if self._measures:
            estimates = with_measurements_at_joining(state, {d: measured for d, (_, measured) in present.items()})
            on_time, num_parts = experiment.scenario.plan.on_time, 2 if self._measures_uplink else 1
            measured_bps, seconds_s = (
                of_all[device] for of_all in planned_speeds(state, estimates, on_time, num_parts=num_parts)
            )
            if self._measures_uplink:
                limited_bps = self._within_capacity(experiment, device, measured_bps)
                rates_bps = np.where(np.isnan(measured_bps), rates_bps, limited_bps)
            seconds = tuple(None if math.isnan(s) else s for s in seconds_s.tolist())
            beside, local_work = beside_s(state), experiment.context.local_work
            if local_work is not None:
                costs = part_costs([measured for _, measured in present.values()], local_work)
        return PlannedInputs(
            round=experiment.round_index(state),
            global_round=state.global_round + 1,
            edge_round=experiment.step_index(state) + 1,
            device=tuple(device.tolist()),
            edge=tuple(present[d][0] for d in device.tolist()),
            full_band_rate_bps=tuple(rates_bps.tolist()),
            seconds_per_sample=seconds,
            restarts=restarts or None,
            extra_s=None if beside is None else tuple(beside[device].tolist()),
            part_cost=None if costs is None else tuple(costs[0].tolist()),
            part_saved=None if costs is None else tuple(costs[1].tolist()),
        )

    def _within_capacity(self, experiment: Experiment, device: Array, rates_bps: Array) -> Array:
        """Returns measured rates, at most what the scenario's bandwidth carries."""
        bandwidth_hz = experiment.scenario.radio.bandwidth_hz
        most_bps = most_rate_bps(bandwidth_hz)
        for n in device[rates_bps > most_bps].tolist():
            self._say_once(
                f"The uplink of {self._names[n]} is faster than radio.bandwidth_hz = {bandwidth_hz:g} carries; plans "
                f"take {most_bps:.3g} bit/s."
            )
        return np.minimum(rates_bps, most_bps)


def with_plan(kept: Present, group: Present, has_plan: Callable[[Present], bool]) -> Present:
    """Returns `kept` and what of a group can be added, found by halving: one of many devices costs few plans."""
    if has_plan(both := {**kept, **group}):
        return both
    if len(group) <= 1:
        return kept
    devices, half = list(group.items()), len(group) // 2
    for part in (devices[:half], devices[half:]):
        kept = with_plan(kept, dict(part), has_plan)
    return kept


def plan_trouble(experiment: Experiment, state: RunState, candidates: Candidates, inputs: PlannedInputs) -> str:
    """Returns why a round with these inputs has no plan; empty if it has one. Changes nothing."""
    at = experiment.place(state)
    try:
        with np.errstate(all="ignore"):
            met, cpu_hz = met_candidates(experiment, candidates, inputs)
            select_and_plan(
                at.context.bounded(state.values),
                met,
                cpu_hz,
                at.round_index,
                experiment.kappa(state),
                positions_m=experiment.positions_m,
            )
    except (AirpruneError, ArithmeticError, ValueError, IndexError) as error:
        return str(error) or type(error).__name__
    return ""
