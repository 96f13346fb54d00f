"""Repeats a deployment in simulation: devices online, inputs of plans and outcomes are as they were.

Masks, training and sums are computed again. It ends in the deployment's model and records, bit for bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from airprune.deployment.about import about_file, read_about
from airprune.errors import UsageError, WorkFailed
from airprune.methods.selection.base import Candidates, known_rates
from airprune.planning import MeasuredWork
from airprune.rounds.experiment import Experiment
from airprune.rounds.state import RunState
from airprune.rounds.timing import DeviceOutcome
from airprune.runs.layout import RunFolder
from airprune.runs.measured import MeasuredRow, PlannedInputs, read_inputs, read_measured, recorded_fate
from airprune.simulation import Environment

Array = np.ndarray


def met_candidates(experiment: Experiment, candidates: Candidates, inputs: PlannedInputs) -> tuple[Candidates, Array]:
    """Returns (the devices that were online, with measured rates; the clocks that make measured compute times).

    A deployment plans with what this gives, and so does its replay: the same file, the same bits.

    Args:
      candidates: as the scenario's network has them.
    """
    device = np.array(inputs.device, dtype=np.int64)
    num_samples = experiment.data_sizes[device]
    if inputs.num_samples is not None:
        num_samples = np.array(inputs.num_samples, dtype=num_samples.dtype)
    cpu_hz = experiment.network.cpu_hz[device]
    if inputs.seconds_per_sample is not None:
        per_sample_s = np.array(inputs.seconds_per_sample, dtype=np.float64)  # None becomes NaN
        whole_model_s = per_sample_s * experiment.scenario.train.samples_seen(num_samples)
        cpu_hz = np.where(np.isnan(per_sample_s), cpu_hz, experiment.compute.clock_for(device, whole_model_s))
    work = None
    if inputs.extra_s is not None or inputs.part_cost is not None:
        times = {name: getattr(inputs, name) for name in ("extra_s", "part_cost", "part_saved")}
        arrays = {name: None if time is None else np.array(time, dtype=np.float64) for name, time in times.items()}
        work = MeasuredWork(**arrays)
    met = dataclasses.replace(
        candidates,
        work=work,
        device=device,
        edge=np.array(inputs.edge, dtype=np.int64),
        rates_bps=known_rates(device, np.array(inputs.full_band_rate_bps, dtype=np.float64)),
        num_samples=num_samples,
    )
    return met, cpu_hz


class Replayed(Environment):
    """Replays what a deployment met, out of its run folder."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._inputs = read_inputs(folder)
        if not self._inputs:
            raise UsageError(f"{folder.path} has no inputs.jsonl; give the run folder of `airprune deploy cloud`.")
        if (privacy := folder.scenario().privacy).noise_multiplier and privacy.noise_from == "device":
            raise UsageError(
                f'{folder.path} has noise that only its devices knew (privacy.noise_from = "device"), so it cannot be '
                "replayed; `airprune deploy verify` repeats its sums."
            )

    def check(self, experiment: Experiment) -> None:
        """Refuses samples of the devices' own, which a simulation does not have: it would train on others."""
        recorded, scenario = self._folder.scenario(), experiment.scenario
        if any(getattr(recorded, key) != getattr(scenario, key) for key in ("seed", "data", "network")):
            return  # other samples are what the change is about
        sizes = read_about(self._folder).get("num_samples", []) if about_file(self._folder).exists() else []
        for device, (theirs, ours) in enumerate(zip(sizes, experiment.data_sizes.tolist(), strict=False)):
            if theirs != ours:
                raise UsageError(
                    f"{self._folder.path} was trained on samples of its devices' own ({theirs:,} of device {device}, "
                    f"to which the scenario assigns {ours:,}), so it cannot be simulated here; `airprune deploy "
                    "verify` repeats its sums."
                )

    def candidates(
        self, experiment: Experiment, state: RunState, candidates: Candidates, cpu_hz: Array
    ) -> tuple[Candidates, Array]:
        number = experiment.round_index(state)
        inputs = self._inputs.get(number)
        if inputs is None or not self._has_ended(number):
            done = state.global_round
            way_out = f"or replay with rounds.global_rounds={done}" if done else "then replay it"
            raise WorkFailed(
                f"{self._folder.path} has not finished edge round {state.edge_round + 1} of global round {done + 1}; "
                f"let the deployment go on, {way_out}."
            )
        check_fits(self._folder, experiment, inputs)
        if inputs.restarts:
            state.edge_states[:] = state.global_state
        return met_candidates(experiment, candidates, inputs)

    def lost(self, round_index: int) -> Mapping[int, str]:
        fates = {row.device: row.fate for row in self._rows.get(round_index, [])}
        return {device: recorded_fate(fate) for device, fate in fates.items() if fate != DeviceOutcome.OK}

    def out(self, state: RunState) -> Array | None:
        edges = self._edges_out.get(state.global_round + 1)
        return None if edges is None else np.isin(np.arange(len(state.edge_states)), sorted(edges))

    def _has_ended(self, number: int) -> bool:
        """True if the round has ended; one without selected devices leaves no rows."""
        return number in self._rows or number < max(self._inputs) or self._folder.is_finished

    @cached_property
    def _rows(self) -> dict[int, list[MeasuredRow]]:
        found: dict[int, list[MeasuredRow]] = {}
        for row in read_measured(self._folder):
            found.setdefault(row.round, []).append(row)
        return found

    @cached_property
    def _edges_out(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for number, rows in sorted(self._rows.items()):
            inputs = self._inputs.get(number)
            if inputs is not None and inputs.restarts:
                found.pop(inputs.global_round, None)
            for row in rows:
                if row.edge_out:
                    found.setdefault(row.global_round, set()).add(row.edge)
        return found


def _fits_parts(experiment: Experiment, inputs: PlannedInputs) -> bool:
    """True if costs of trained parts can be those of the scenario's."""
    cost, saved, work = inputs.part_cost, inputs.part_saved, experiment.context.local_work
    if cost is None or saved is None:
        return cost is saved
    if work is None or not len(cost) == len(saved) == len(work.first_trained):
        return False
    costs, savings = (np.array(values, dtype=np.float64) for values in (cost, saved))  # None becomes NaN
    falls = work.last_trained is not None or bool(np.all(np.diff(costs) <= 0.0))
    return falls and bool(np.all((savings >= 0.0) & (savings <= costs)))


def check_fits(folder: RunFolder, experiment: Experiment, inputs: PlannedInputs) -> None:
    """Refuses inputs that do not fit the network: a file that was changed, or another scenario's."""
    network = experiment.network
    fits = (
        list(inputs.device) == sorted(set(inputs.device))
        and all(0 <= device < network.num_devices for device in inputs.device)
        and all(0 <= edge < network.num_edges for edge in inputs.edge)
        and all(rate is not None and rate > 0 for rate in inputs.full_band_rate_bps)
        and all(value is None or value > 0 for value in (*(inputs.seconds_per_sample or ()),))
        and all(value is not None and value > 0 for value in (*(inputs.num_samples or ()),))
        and all(value is not None and value >= 0 for value in (*(inputs.extra_s or ()),))
        and _fits_parts(experiment, inputs)
    )
    if not fits:
        raise WorkFailed(
            f"{folder.inputs_file} does not fit the scenario in edge round {inputs.round}: {network.num_devices} "
            f"devices on {network.num_edges} edges; replay with the deployment's own scenario."
        )
