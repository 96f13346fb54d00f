"""Path loss models by name: the paper's log-distance law and 3GPP TR 38.901's urban cells, in dB as published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    scale_m: float,
    nlos_std_db: float,
    base_height_m: float,
) -> dict[str, PathLoss]:
    """Returns the model that samples line of sight, and the two that have it always or never."""
    chances: dict[str, Callable[[FloatArray], FloatArray]] = {
        name: _los_probability(scale_m),
        f"{name}-los": np.ones_like,
        f"{name}-nlos": np.zeros_like,
    }
    return {
        variant: PathLoss(
            los_db=los_db,
            nlos_db=nlos_db,
            los_probability=chance,
            shadowing_std_db=(4.0, nlos_std_db),
            base_height_m=base_height_m,
            min_distance_m=10.0,
        )
        for variant, chance in chances.items()
    }


# TR 38.901, Tables 7.4.1-1 and 7.4.2-1: UMi is the street canyon, UMa the roof-top macro cell.
PATH_LOSS: dict[str, PathLoss] = {
    "log-distance": PathLoss(
        los_db=_log_distance_db,
        nlos_db=_log_distance_db,
        los_probability=np.ones_like,
        shadowing_std_db=(0.0, 0.0),
        base_height_m=25.0,
        min_distance_m=1.0,
    ),
    **_variants("umi", _umi_los_db, _umi_nlos_db, scale_m=36.0, nlos_std_db=7.82, base_height_m=10.0),
    **_variants("uma", _uma_los_db, _uma_nlos_db, scale_m=63.0, nlos_std_db=6.0, base_height_m=25.0),
}
