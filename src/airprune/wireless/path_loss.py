"""Path loss models by name: the paper's log-distance law and 3GPP TR 38.901's cells and halls, in dB as published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from airprune.checks import FloatArray

if TYPE_CHECKING:
    from airprune.wireless.channel import Radio

_LIGHT_M_PER_S = 3.0e8  # TR 38.901 rounds it, and so do its breakpoints
ENVIRONMENT_HEIGHT_M = 1.0  # h_E; for UMa only while devices stay below 13 m


@dataclass(frozen=True, kw_only=True)
class PathLoss:
    """A path loss model: two median losses and the chance of each.

    Attributes:
      los_db, nlos_db: (ground distance in m, base height in m, radio) -> median loss in dB, with and
        without line of sight.
      los_probability: ground distance in m -> chance of line of sight.
      shadowing_std_db: (with, without line of sight).
      base_height_m: where the model puts the base station unless the radio says otherwise.
      min_distance_m: nearer devices are treated as being here, as the formula is not valid below. Beyond
        their upper limit (5 km in TR 38.901) formulas are extrapolated.
    """

    los_db: Callable[[FloatArray, float, Radio], FloatArray]
    nlos_db: Callable[[FloatArray, float, Radio], FloatArray]
    los_probability: Callable[[FloatArray], FloatArray]
    shadowing_std_db: tuple[float, float]
    base_height_m: float
    min_distance_m: float


def _log_distance_db(distance_m: FloatArray, base_height_m: float, radio: Radio) -> FloatArray:
    """128.1 + 37.6 log10(d in km): the 2 GHz macro cell, whatever the radio's carrier and heights."""
    return 128.1 + 37.6 * np.log10(distance_m / 1e3)


def _dual_slope_db(
    distance_m: FloatArray, base_height_m: float, radio: Radio, *, intercept: float, slope: float, bend: float
) -> FloatArray:
    """Line of sight in TR 38.901: `slope` dB per decade up to the breakpoint, 40 beyond it.

    PL1 = intercept + slope log10(d_3D) + 20 log10(f_GHz),
    PL2 = intercept + 40 log10(d_3D) + 20 log10(f_GHz) - bend log10(d'_BP^2 + (h_BS - h_UT)^2),
    d'_BP = 4 (h_BS - h_E)(h_UT - h_E) f / c. They meet at d'_BP because bend = (40 - slope) / 2.
    """
    rise = base_height_m - radio.device_height_m
    reach = (base_height_m - ENVIRONMENT_HEIGHT_M) * (radio.device_height_m - ENVIRONMENT_HEIGHT_M)
    breakpoint_m = 4.0 * reach * radio.carrier_hz / _LIGHT_M_PER_S
    decades = np.log10(np.hypot(distance_m, rise))
    near = slope * decades
    far = 40.0 * decades - bend * np.log10(breakpoint_m**2 + rise**2)
    return intercept + np.where(distance_m <= breakpoint_m, near, far) + 20.0 * np.log10(radio.carrier_hz / 1e9)


def _umi_los_db(distance_m: FloatArray, base_height_m: float, radio: Radio) -> FloatArray:
    return _dual_slope_db(distance_m, base_height_m, radio, intercept=32.4, slope=21.0, bend=9.5)


def _umi_nlos_db(distance_m: FloatArray, base_height_m: float, radio: Radio) -> FloatArray:
    """max(PL_LOS, 22.4 + 35.3 log10(d_3D) + 21.3 log10(f_GHz) - 0.3 (h_UT - 1.5))."""
    decades = np.log10(np.hypot(distance_m, base_height_m - radio.device_height_m))
    loss = 22.4 + 35.3 * decades + 21.3 * np.log10(radio.carrier_hz / 1e9) - 0.3 * (radio.device_height_m - 1.5)
    return np.maximum(_umi_los_db(distance_m, base_height_m, radio), loss)


def _uma_los_db(distance_m: FloatArray, base_height_m: float, radio: Radio) -> FloatArray:
    return _dual_slope_db(distance_m, base_height_m, radio, intercept=28.0, slope=22.0, bend=9.0)


def _uma_nlos_db(distance_m: FloatArray, base_height_m: float, radio: Radio) -> FloatArray:
    """max(PL_LOS, 13.54 + 39.08 log10(d_3D) + 20 log10(f_GHz) - 0.6 (h_UT - 1.5))."""
    decades = np.log10(np.hypot(distance_m, base_height_m - radio.device_height_m))
    loss = 13.54 + 39.08 * decades + 20.0 * np.log10(radio.carrier_hz / 1e9) - 0.6 * (radio.device_height_m - 1.5)
    return np.maximum(_uma_los_db(distance_m, base_height_m, radio), loss)


def _factory_los_db(distance_m: FloatArray, base_height_m: float, radio: Radio) -> FloatArray:
    """31.84 + 21.5 log10(d_3D) + 19 log10(f_GHz)."""
    decades = np.log10(np.hypot(distance_m, base_height_m - radio.device_height_m))
    return 31.84 + 21.5 * decades + 19.0 * np.log10(radio.carrier_hz / 1e9)


def _factory_nlos_db(*laws: tuple[float, float]) -> Callable[[FloatArray, float, Radio], FloatArray]:
    """max(PL_LOS, intercept + slope log10(d_3D) + 20 log10(f_GHz)) over the laws, (intercept, slope) each."""

    def loss_db(distance_m: FloatArray, base_height_m: float, radio: Radio) -> FloatArray:
        decades = np.log10(np.hypot(distance_m, base_height_m - radio.device_height_m))
        loss = _factory_los_db(distance_m, base_height_m, radio)
        for intercept, slope in laws:
            loss = np.maximum(loss, intercept + slope * decades + 20.0 * np.log10(radio.carrier_hz / 1e9))
        return loss

    return loss_db


def _clutter(size_m: float, density: float, clearance: float = 1.0) -> Callable[[FloatArray], FloatArray]:
    """Table 7.4.2-1, InF: exp(-d / k), k = -size clearance / ln(1 - density).

    `clearance` is 1 for stations within the clutter, else (h_BS - h_UT) / (h_c - h_UT).
    """
    scale_m = -size_m * clearance / np.log(1.0 - density)
    return lambda distance_m: np.exp(-distance_m / scale_m)


def _los_probability(scale_m: float) -> Callable[[FloatArray], FloatArray]:
    """Table 7.4.2-1: 1 up to 18 m, then 18/d + exp(-d/scale)(1 - 18/d); C' = 0 below 13 m height."""

    def probability(distance_m: FloatArray) -> FloatArray:
        near = np.minimum(18.0 / distance_m, 1.0)
        return near + np.exp(-distance_m / scale_m) * (1.0 - near)

    return probability


def _variants(
    name: str,
    los_db: Callable[[FloatArray, float, Radio], FloatArray],
    nlos_db: Callable[[FloatArray, float, Radio], FloatArray],
    *,
    los_probability: Callable[[FloatArray], FloatArray],
    shadowing_std_db: tuple[float, float],
    base_height_m: float,
    min_distance_m: float = 10.0,
) -> dict[str, PathLoss]:
    """Returns the model that samples line of sight, and the two that have it always or never."""
    sampled = PathLoss(
        los_db=los_db,
        nlos_db=nlos_db,
        los_probability=los_probability,
        shadowing_std_db=shadowing_std_db,
        base_height_m=base_height_m,
        min_distance_m=min_distance_m,
    )
    return {
        name: sampled,
        f"{name}-los": replace(sampled, los_probability=np.ones_like),
        f"{name}-nlos": replace(sampled, los_probability=np.zeros_like),
    }


def _factory(
    name: str,
    *laws: tuple[float, float],
    nlos_std_db: float,
    clutter: Callable[[FloatArray], FloatArray],
    base_height_m: float,
) -> dict[str, PathLoss]:
    """Returns a factory hall of TR 38.901, valid from 1 to 600 m."""
    return _variants(
        name,
        _factory_los_db,
        _factory_nlos_db(*laws),
        los_probability=clutter,
        shadowing_std_db=(4.3, nlos_std_db),
        base_height_m=base_height_m,
        min_distance_m=1.0,
    )


_SPARSE_LOW, _DENSE_LOW, _SPARSE_HIGH, _DENSE_HIGH = (33.0, 25.5), (18.6, 35.7), (32.4, 23.0), (33.63, 21.9)


# TR 38.901, Tables 7.4.1-1 and 7.4.2-1: UMi is the street canyon, UMa the roof-top macro cell, InF the factory hall
# with sparse or dense clutter and low or high stations: sizes, densities and heights of the clutter are those of its
# calibration (10 m, 20 %, 2 m where sparse; 2 m, 60 %, 6 m where dense), with devices at 1.5 m and stations at 8 m.
PATH_LOSS: dict[str, PathLoss] = {
    "log-distance": PathLoss(
        los_db=_log_distance_db,
        nlos_db=_log_distance_db,
        los_probability=np.ones_like,
        shadowing_std_db=(0.0, 0.0),
        base_height_m=25.0,
        min_distance_m=1.0,
    ),
    **_variants(
        "umi",
        _umi_los_db,
        _umi_nlos_db,
        los_probability=_los_probability(36.0),
        shadowing_std_db=(4.0, 7.82),
        base_height_m=10.0,
    ),
    **_variants(
        "uma",
        _uma_los_db,
        _uma_nlos_db,
        los_probability=_los_probability(63.0),
        shadowing_std_db=(4.0, 6.0),
        base_height_m=25.0,
    ),
    **_factory("inf-sl", _SPARSE_LOW, nlos_std_db=5.7, clutter=_clutter(10.0, 0.2), base_height_m=1.5),
    **_factory("inf-dl", _SPARSE_LOW, _DENSE_LOW, nlos_std_db=7.2, clutter=_clutter(2.0, 0.6), base_height_m=1.5),
    **_factory("inf-sh", _SPARSE_HIGH, nlos_std_db=5.9, clutter=_clutter(10.0, 0.2, 6.5 / 0.5), base_height_m=8.0),
    **_factory("inf-dh", _DENSE_HIGH, nlos_std_db=4.0, clutter=_clutter(2.0, 0.6, 6.5 / 4.5), base_height_m=8.0),
}
