"""Estimates each device's uplink rate and training speed from measurements, smoothed, with hysteresis.

Plans follow drops at once and rises slowly, because a device that is planned too fast misses the deadline and its
update is lost, while one that is planned too slow is only pruned more. Of each rate (bit/s, samples/s: less is worse):

    observed < 0.9 · value         a drop: the value becomes the observation, so at most one round is missed
    within [0.9, 1 / 0.9] · value  noise: the value stays. Two observations within ±5 % of the truth differ by at most
                                   1.05 / 0.95 < 1 / 0.9, so such noise never moves a plan
    observed > value / 0.9         a rise: believed from the second in a row on; then the value becomes the mean, in
                                   which every observation has weight 0.5 and the older ones the rest, but not more
                                   than what was just observed

A value may thus be 1 / 0.9 times the truth, and a device planned with it would miss the deadline again and again. So
plans take (1 − margin) · value, with a margin of 0.15, while devices send at the value itself: a device above the
threshold of a drop has some time in reserve, for what no plan knows.

**Paced uploads.** A device sends at its share b · r, not as fast as it can. An upload that kept the planned rate shows
r ≥ planned and nothing more. One that was slower shows that its bandwidth share carried less: r = measured / b. (Where
the uplink is the device's own, as a cable's, and not a share of a common bandwidth, it could not carry more with a
larger share either: then b = 1.) So paced uploads can only lower an estimate.

**Probes.** Bytes as fast as they go, three times in a row, of which the median counts: 256 kB each at joining, later
less, after some rounds without a measurement, and at once when a first rise is to be confirmed. A probe is short, and a
busy receiver, a cold window or a link that lets a burst pass make it wrong by half or more, both ways; uploads that
keep their planned rate are better evidence that a device is not slower. So probes can only raise an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from airprune.checks import FloatArray
from airprune.deployment.pacing import link_rate_bps, received_bps

NEW_WEIGHT = 0.5
BAND_RATIO = 0.1
MARGIN_RATIO = 0.15
RISES_TO_BELIEVE = 2

# A paced upload counts as having kept its rate down to this: pacing and clocks are good to 1–3 %.
_KEPT_RATIO = 0.95

PROBE_BYTES = 262_144
PROBES = 3
PROBE_EVERY_ROUNDS = 10
# A probe between rounds: as long as this at the rate that is believed.
_PROBE_S = 0.05
_SMALLEST_PROBE_BYTES = 32_768


@dataclass(frozen=True, kw_only=True, eq=False)
class Smoothed:
    """A rate of every device; NaN where it was never observed.  All [num_devices], float64.

    Attributes:
      value: what plans are made with.
      mean: of the observations, the last one with weight NEW_WEIGHT.
      rises: observations in a row that were above the range of noise.
      age: updates since the last observation.
    """

    value: FloatArray
    mean: FloatArray
    rises: FloatArray
    age: FloatArray

    @classmethod
    def unknown(cls, num_devices: int) -> Smoothed:
        nothing, never = np.full(num_devices, np.nan), np.full(num_devices, np.inf)
        return cls(value=nothing, mean=nothing, rises=np.zeros(num_devices), age=never)

    def updated(self, observed: ArrayLike) -> Smoothed:
        """Returns the estimates after one observation of each device; NaN where there is none."""
        observed = np.asarray(observed, dtype=np.float64)
        is_news = ~np.isnan(observed)
        starts_anew = is_news & ~(observed >= (1 - BAND_RATIO) * self.value)  # a drop, or the first of all
        rises = np.where(observed > self.value / (1 - BAND_RATIO), self.rises + 1, 0.0)
        mean = np.where(starts_anew, observed, (1 - NEW_WEIGHT) * self.mean + NEW_WEIGHT * observed)
        value = np.where(starts_anew | (rises >= RISES_TO_BELIEVE), np.fmin(mean, observed), self.value)
        return Smoothed(
            value=np.where(is_news, value, self.value),
            mean=np.where(is_news, mean, self.mean),
            rises=np.where(is_news, rises, self.rises),
            age=np.where(is_news, 0.0, self.age + 1),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimates:
    """Uplink rates and training speeds of all devices, as far as they are known.

    Attributes:
      uplink: r_n in bit/s, with the whole bandwidth.
      speed: samples trained per second.
    """

    uplink: Smoothed
    speed: Smoothed

    @classmethod
    def unknown(cls, num_devices: int) -> Estimates:
        return cls(uplink=Smoothed.unknown(num_devices), speed=Smoothed.unknown(num_devices))

    def updated(self, *, uplink_bps: ArrayLike, seconds_per_sample: ArrayLike) -> Estimates:
        """Returns the estimates after a round; NaN for a device that was not measured.  [num_devices]"""
        speed = 1 / np.asarray(seconds_per_sample, dtype=np.float64)
        return Estimates(uplink=self.uplink.updated(uplink_bps), speed=self.speed.updated(speed))

    def uplink_bps(self, margin_ratio: float = MARGIN_RATIO) -> FloatArray:
        """Returns the values to plan with; NaN where unknown.  [num_devices]"""
        return (1 - margin_ratio) * self.uplink.value

    def seconds_per_sample(self, margin_ratio: float = MARGIN_RATIO) -> FloatArray:
        """Returns the values to plan with; NaN where unknown.  [num_devices]"""
        return 1 / ((1 - margin_ratio) * self.speed.value)

    def probe_due(self, every: int = PROBE_EVERY_ROUNDS) -> np.ndarray:
        """True where an uplink is unknown, unmeasured for `every` rounds, or to be confirmed.  [num_devices]"""
        return (self.uplink.age >= every) | (self.uplink.rises == 1)

    def probe_bytes(self, device: int) -> int:
        """Returns the size of one probe between rounds."""
        known_bps = np.nan_to_num(self.uplink.value[device], nan=np.inf)
        return int(np.clip(_PROBE_S * known_bps / 8, _SMALLEST_PROBE_BYTES, PROBE_BYTES))

    def raised_by(self, probed_bps: ArrayLike) -> FloatArray:
        """Returns what probes show, as an `uplink_bps` of `updated`; NaN without a probe.  [num_devices]"""
        probed = np.asarray(probed_bps, dtype=np.float64)
        return np.where(np.isnan(probed), np.nan, np.fmax(probed, self.uplink.value))

    def arrays(self) -> dict[str, FloatArray]:
        """Returns all arrays to keep, by name."""
        parts = {"uplink": self.uplink, "speed": self.speed}
        return {
            f"{part}.{field.name}": getattr(parts[part], field.name) for part in parts for field in fields(Smoothed)
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, FloatArray]) -> Estimates:
        """Returns the estimates that `arrays` was made of."""
        uplink, speed = (
            Smoothed(**{field.name: arrays[f"{part}.{field.name}"] for field in fields(Smoothed)})
            for part in ("uplink", "speed")
        )
        return cls(uplink=uplink, speed=speed)


def paced_uplink_bps(measured_bps: ArrayLike, *, planned_bps: ArrayLike, share: ArrayLike) -> FloatArray:
    """Returns the full-band rates that paced uploads show: NaN if the planned rate was kept, else measured / share.

    Args:
      measured_bps, planned_bps: of the link, headers included; NaN for a device that sent nothing.
      share: b_n; 1 where the uplink is the device's own.
    """
    measured, planned = np.asarray(measured_bps, dtype=np.float64), np.asarray(planned_bps, dtype=np.float64)
    return np.where(measured < _KEPT_RATIO * planned, measured / np.asarray(share, dtype=np.float64), np.nan)


def probed_uplink_bps(num_bytes: int, first_s: float, last_s: float) -> float:
    """Returns the link's rate from a probe; NaN if all of it came at once.

    Links let a burst pass that is faster than their rate, so of a few probes in a row the first is too fast.
    """
    rate_bps = link_rate_bps(received_bps(num_bytes, first_s, last_s))
    return rate_bps if np.isfinite(rate_bps) else float("nan")
