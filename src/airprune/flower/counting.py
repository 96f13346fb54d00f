"""Finds the compute time of a call of a client, which is a black box: counted, measured, or from a table."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from airprune.errors import InvalidValue, UsageError
from airprune.rounds.compute_times import flops_per_cycle
from airprune.wireless.device_speed.work import ModelWork
from airprune.wireless.latency import compute_time_s

if TYPE_CHECKING:
    from airprune.scenario import Scenario
    from airprune.wireless.network import Network

Rule = Literal["auto", "measured", "counted", "table", "paper"]
RULES: dict[str, str] = {
    "auto": "of the fleet table where it has times, counted where the app counts and the clock is flops, else measured",
    "measured": "measured CPU time of each call, scaled to the device's clock",
    "counted": "counted FLOPs of each call, at the speed of the clock",
    "table": "seconds per sample of the fleet table",
    "paper": "Eq. (9) with the weights of the messages",
}


@dataclass(frozen=True)
class Counted:
    """The training of one call: sample passes, and FLOPs of each."""

    samples: float
    flops_per_sample: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


# Where a call's counts go; None outside of a call by airprune, where counting does nothing.
CALL: ContextVar[list[Counted] | None] = ContextVar("airprune.flower.call", default=None)


def counted(model: Any, samples: Any, epochs: float = 1) -> None:
    """Registers what a client's call trains, so that its compute time is counted; call it in `train`, once or more.

    Without airprune around the app it does nothing.

    Args:
      model: the torch module that is trained.
      samples: the data: a data set or loader of (inputs, …), or an array or tensor of inputs.
      epochs: passes over them.
    """
    found = CALL.get()
    if found is None:
        return
    sample, number = _first(samples)
    found.append(
        Counted(float(number) * epochs, _flops(repr(model), sample.shape, str(sample.dtype), _Held(model, sample)))
    )


class _Held:
    """A model and a sample that a cache does not look at: their kind and shapes are its keys."""

    def __init__(self, model: Any, sample: np.ndarray) -> None:
        self.model, self.sample = model, sample

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=32)
def _flops(kind: str, shape: tuple[int, ...], dtype: str, held: _Held) -> float:
    import copy

    from airprune.wireless.device_speed.flops import count_work  # needs torch

    return count_work(copy.deepcopy(held.model), held.sample, ()).flops_per_sample


def _first(samples: Any) -> tuple[np.ndarray, int]:
    """Returns (one input, the number of samples)."""
    samples = getattr(samples, "dataset", samples)  # of a loader
    if not hasattr(samples, "__len__") or len(samples) == 0:
        raise UsageError("counted.samples must have a length > 0; give the data set, its loader or the inputs.")
    first = samples[0]
    if isinstance(first, dict):
        first = next(iter(first.values()))
    elif isinstance(first, tuple | list):
        first = first[0]
    return np.asarray(first), len(samples)


def at_hz(scenario: Scenario) -> float:
    """Returns the CPU frequency of this machine: `clock.at_hz`, or what the system reports; else 3 GHz."""
    from airprune.runs.timing import clock_hz

    return scenario.clock.at_hz or clock_hz() or 3e9


@dataclass(frozen=True)
class ComputeClock:
    """Turns what is known of a call into seconds on its device."""

    scenario: Scenario
    network: Network
    rule: Rule

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise InvalidValue("flower.compute", f"must be one of {', '.join(RULES)}", repr(self.rule))
        if self.rule == "table" and self.network.seconds_per_sample is None:
            rule = "needs a fleet table with seconds per sample"
            raise InvalidValue("flower.compute", rule, "'table' without one", "Give --fleet FILE or network.table")
        if self.rule == "counted" and self.scenario.clock.compute != "flops":
            rule = 'needs clock.compute = "flops", the speed of the devices'
            way_out = "Example: clock.compute=flops clock.board=raspberry-pi-4 network.cpu_hz=1.5e9"
            raise InvalidValue("flower.compute", rule, f"clock.compute {self.scenario.clock.compute!r}", way_out)

    def seconds(
        self, device: int, *, cpu_s: float, counts: list[Counted], samples: int, num_weights: int, trains: bool
    ) -> tuple[float, str]:
        """Returns (compute time on the device, the rule that it follows).

        Args:
          cpu_s: CPU time of the call on this machine.
          counts: what the app has counted of it.
          samples: that its reply names.
          num_weights: of the model in the message.
          trains: whether the message is to train; calls that are not have no counts and no place in Eq. (9).
        """
        cpu_hz = float(self.network.cpu_hz[device])
        passes = sum(one.samples for one in counts) or samples * self.scenario.train.local_epochs
        table = self.network.seconds_per_sample
        if self.rule in ("auto", "table") and table is not None and trains and passes and not np.isnan(table[device]):
            return float(table[device]) * passes, "table"
        if self.rule == "paper":
            plan = self.scenario.plan
            seconds = compute_time_s(
                num_weights if trains else 0,
                local_iterations=plan.local_iterations,
                cycles_per_weight=plan.cycles_per_weight,
                cpu_hz=cpu_hz,
            )
            return float(seconds), "paper"
        if counts and self.scenario.clock.compute == "flops" and self.rule in ("auto", "counted"):
            flops = sum(one.samples * one.flops_per_sample for one in counts)
            return flops / (self._flops_per_cycle() * cpu_hz), "counted"
        if trains and self.rule == "counted":
            raise UsageError(
                "flower.compute is counted, but the app counts nothing: call airprune.flower.counted(model, samples, "
                "epochs) in its train function, or choose --compute measured."
            )
        return cpu_s * self._at_hz / cpu_hz, "measured"

    @property
    def _at_hz(self) -> float:
        assert self.scenario.clock.at_hz is not None  # a run sets it when it starts
        return self.scenario.clock.at_hz

    def expected_s(self, num_weights: int) -> np.ndarray | None:
        """Returns the compute times that are known before any call; None if they are not.  [num_devices]"""
        if self.rule != "paper":
            return None
        return np.array(
            [
                self.seconds(device, cpu_s=0.0, counts=[], samples=0, num_weights=num_weights, trains=True)[0]
                for device in range(self.network.num_devices)
            ]
        )

    def _flops_per_cycle(self) -> float:
        nothing = ModelWork(layers=(), uncertain=())
        return flops_per_cycle(self.scenario.clock, nothing, self.network.cpu_hz)
