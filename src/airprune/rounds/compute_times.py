"""Compute time of a device in an edge round, as a line in the weights it keeps: a_n W_ρ + x_n.

Planner, simulated clock and energies all ask here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from airprune.errors import InvalidValue
from airprune.wireless.device_speed.boards import BOARDS
from airprune.wireless.device_speed.work import ModelWork, SecondPass
from airprune.wireless.latency import compute_time_s, seconds_per_weight

if TYPE_CHECKING:
    from airprune.components.component import ModelShape
    from airprune.methods.masking import Masking
    from airprune.scenario import Scenario
    from airprune.scenario.sections import ClockSection

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class ComputeTimes:
    """T_cmp = P_n (c (W_ρ + d (W − W_ρ)) + c_0) / f_n, Eq. (9) with c_0 = d = 0 and P = T.

    Attributes:
      passes: P_n: T iterations of the paper, or sample passes, of every device of the network.  [num_devices]
      cycles_per_weight: c, of a kept weight in one pass.
      fixed_cycles: c_0, of one pass, whatever is kept.
      dense_share: d, the share of c that a weight costs which is not kept.
      num_weights: W.
      probe_cycles: of one probe minibatch on the whole model.
      gradient_share: the share of c that a weight costs which is not kept but whose gradient is computed.
      probe_takes_energy: the paper's clock has never charged a probe's energy, and stays as it is.
      slowdown: measured over counted seconds of every device of the network; None if not measured.
    """

    passes: Array
    cycles_per_weight: float
    num_weights: int
    probe_cycles: float
    fixed_cycles: float = 0.0
    dense_share: float = 0.0
    gradient_share: float = 1 / 3
    probe_takes_energy: bool = True
    slowdown: Array | None = None

    def as_measured(self, whole_model_s: Array, cpu_hz: Array) -> ComputeTimes:
        """Returns the times with all of a device's scaled to its time to train the whole model for one edge round.

        Args:
          whole_model_s: NaN for devices without a measurement.  [num_devices]
          cpu_hz: their clocks meanwhile.  [num_devices]
        """
        clock_hz = self.clock_for(np.arange(len(self.passes)), whole_model_s)
        return replace(self, slowdown=np.where(np.isnan(whole_model_s), 1.0, cpu_hz / clock_hz))

    def clock_for(self, device: Array, whole_model_s: Array) -> Array:
        """f_n at which these devices take so long to train the whole model for one edge round; NaN stays NaN."""
        cycles = self.training_s(np.array(float(self.num_weights)), device, np.ones(len(device)))
        if np.any((cycles == 0.0) & ~np.isnan(whole_model_s)):
            way_out = "A measured time is spread over weights as counted ones are"
            raise InvalidValue("Scenario.plan.cycles_per_weight", "must be > 0 with measured times", 0, way_out)
        return cycles / whole_model_s

    def line(
        self,
        device: Array,
        cpu_hz: Array,
        *,
        probe: bool = False,
        dense_gradients: bool = False,
        second_pass: SecondPass | None = None,
        fixed_weights: int = 0,
    ) -> tuple[Array, Array]:
        """Returns (a_n, x_n) of these devices at these clocks; a probe and gradients of all weights add to x_n.

        With a second pass the line is never below the clock's time, and meets it at the smallest sub-model.

        Args:
          fixed_weights: that are in every pass.
        """
        dense = self._dense(dense_gradients)
        slope_s = seconds_per_weight(
            local_iterations=self._passes(device), cycles_per_weight=self.cycles_per_weight, cpu_hz=cpu_hz
        )
        extra_s = slope_s * (dense * self.num_weights) + self._fixed_s(device, cpu_hz)
        slope_s = slope_s * (1.0 - dense)
        if second_pass is not None:
            more, least = second_pass.line
            extra_s = 2.0 * extra_s + slope_s * (least + (1.0 - more) * fixed_weights)
            slope_s = slope_s * (1.0 + more)
        return slope_s, extra_s + self.probe_s(device, cpu_hz) if probe else extra_s

    def training_s(self, weights: Array, device: Array, cpu_hz: Array, *, dense_gradients: bool = False) -> Array:
        """T_cmp without a probe."""
        trained = weights + self._dense(dense_gradients) * (self.num_weights - weights)
        moving_s = compute_time_s(
            trained,
            local_iterations=self._passes(device),
            cycles_per_weight=self.cycles_per_weight,
            cpu_hz=cpu_hz,
        )
        return moving_s + self._fixed_s(device, cpu_hz)

    def _dense(self, dense_gradients: bool) -> float:
        return max(self.dense_share, self.gradient_share) if dense_gradients else self.dense_share

    def probe_s(self, device: Array, cpu_hz: Array) -> Array:
        """One minibatch on the whole model, which the paper leaves out."""
        probe_s = self.probe_cycles / cpu_hz
        return probe_s if self.slowdown is None else probe_s * self.slowdown[device]

    def _fixed_s(self, device: Array, cpu_hz: Array) -> Array:
        return self._passes(device) * self.fixed_cycles / cpu_hz

    def _passes(self, device: Array) -> Array:
        return self.passes[device] if self.slowdown is None else self.passes[device] * self.slowdown[device]


def compute_times(
    scenario: Scenario,
    masking: Masking,
    *,
    shape: ModelShape,
    num_samples: Array,
    cpu_hz: Array,
    work: Callable[[], ModelWork],
    seconds_per_sample: Array | None = None,
) -> ComputeTimes:
    """Returns compute times by `scenario.clock`, scaled for devices that were measured themselves.

    Args:
      num_samples, cpu_hz: of all devices of the network.
      work: the model's FLOPs, counted only if needed.
      seconds_per_sample: of training the whole model, by device; NaN where it was not measured.
    """
    times = _counted_times(scenario, masking, shape=shape, num_samples=num_samples, cpu_hz=cpu_hz, work=work)
    if seconds_per_sample is None:
        return times
    return times.as_measured(seconds_per_sample * scenario.train.samples_seen(num_samples), cpu_hz)


def _counted_times(
    scenario: Scenario,
    masking: Masking,
    *,
    shape: ModelShape,
    num_samples: Array,
    cpu_hz: Array,
    work: Callable[[], ModelWork],
) -> ComputeTimes:
    clock = scenario.clock
    if clock.compute == "paper":
        return _papers(scenario, masking, shape, len(num_samples))
    counted = work()
    speed = flops_per_cycle(clock, counted, cpu_hz)
    per_weight, fixed = _split(counted, shape, saved=_saved_flops(clock, masking, counted))
    batch = np.minimum(scenario.train.batch_size, num_samples).max(initial=1)
    return ComputeTimes(
        passes=scenario.train.samples_seen(np.asarray(num_samples, dtype=np.float64)),
        cycles_per_weight=per_weight / speed,
        fixed_cycles=fixed / speed,
        num_weights=shape.num_weights,
        gradient_share=counted.prunable_weight_gradients / counted.prunable if counted.prunable else 0.0,
        probe_cycles=float(batch) * counted.flops_per_sample / speed,
    )


def _papers(scenario: Scenario, masking: Masking, shape: ModelShape, num_devices: int) -> ComputeTimes:
    """Eq. (9); a probe is one more iteration on the whole model."""
    cycles = scenario.plan.cycles_per_weight
    return ComputeTimes(
        passes=np.full(num_devices, float(scenario.plan.local_iterations)),
        cycles_per_weight=cycles,
        num_weights=shape.num_weights,
        fixed_cycles=cycles * shape.personal_weights,
        dense_share=masking.dense_compute,
        probe_cycles=cycles * (shape.num_weights + shape.personal_weights),
        probe_takes_energy=False,
    )


def flops_per_cycle(clock: ClockSection, work: ModelWork, cpu_hz: Array) -> float:
    """Returns the FLOP/s that a device sustains: given, of its board, or as measured."""
    if clock.compute == "measured":
        assert clock.seconds_per_sample is not None and clock.at_hz is not None  # the section has checked it
        timed = clock.flops_per_sample
        if timed is not None and timed != work.flops_per_sample:
            rule = f"must be the model's own {work.flops_per_sample:,.0f}"
            way_out = "Time this model with `airprune profile`, or set it to none"
            raise InvalidValue("Scenario.clock.flops_per_sample", rule, f"{timed:,.0f}", way_out)
        return work.flops_per_sample / (clock.seconds_per_sample * clock.at_hz)
    if clock.flops_per_cycle is not None:
        return clock.flops_per_cycle
    assert clock.board is not None  # the section has checked it
    board = BOARDS[clock.board]
    if np.max(cpu_hz) > board.cpu_hz * (1.0 + 1e-9):
        rule = f"must be at most {board.cpu_hz:g}, the clock of a {board.name}"
        way_out = f"Set network.cpu_hz={board.cpu_hz:g}; for one that runs faster, give clock.flops_per_cycle instead"
        raise InvalidValue("Scenario.network.cpu_hz", rule, f"{np.max(cpu_hz):g}", way_out)
    return board.flops_per_cycle(cores=clock.cores, efficiency=clock.efficiency)


def _saved_flops(clock: ClockSection, masking: Masking, work: ModelWork) -> float:
    """FLOPs per sample that would be saved if every prunable weight were pruned.

    Scattered zeros save nothing on dense hardware: there, only masks of whole units do. A masking that keeps pruned
    weights in the forward pass (`dense_compute`) saves at most weight gradients; 2/3 stands for all of them.
    """
    if clock.savings == "units" and not masking.whole_units:
        return 0.0
    dense = masking.dense_compute
    return work.prunable if dense == 0.0 else work.prunable_weight_gradients * min(1.0, 3.0 * (1.0 - dense))


def _split(work: ModelWork, shape: ModelShape, *, saved: float) -> tuple[float, float]:
    """Returns (FLOPs per kept weight, FLOPs whatever is kept): c W + c_0, right for the whole model and for ρ = 1.

    Between the two, each prunable layer is taken to keep the same share. c_0 must not be negative, which it would be
    where fixed weights are looked up rather than multiplied (embeddings): then less is saved than could be.
    """
    if shape.prunable_weights == 0 or saved == 0.0:
        return 0.0, work.flops_per_sample
    per_weight = min(saved / shape.prunable_weights, work.flops_per_sample / shape.num_weights)
    return per_weight, max(0.0, work.flops_per_sample - per_weight * shape.num_weights)
