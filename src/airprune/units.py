"""Converts units: the only place that computes with dB, dBm, MHz and ms.

Every other module takes and returns SI values (Hz, W, s, m, bits, plain ratios), with the unit in its names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from airprune.checks import FloatArray, quantity

Number = TypeVar("Number", float, FloatArray)

_DB_LIMIT = 3000.0  # 10^300: beyond it float64 overflows or goes subnormal


def db_to_ratio(db: Number) -> Number:
    """Returns 10^(dB / 10): power ratios, never amplitudes."""
    return _convert("db_to_ratio.db", db, lambda x: 10.0 ** (x / 10.0), at_least=-_DB_LIMIT, at_most=_DB_LIMIT)


def ratio_to_db(ratio: Number) -> Number:
    """Returns 10 log10(ratio)."""
    return _convert("ratio_to_db.ratio", ratio, lambda x: 10.0 * np.log10(x), above=0.0)


def dbm_to_watt(dbm: Number) -> Number:
    """Returns 10^((dBm - 30) / 10); 0 dBm is one milliwatt. Also dBm/Hz to W/Hz."""
    return _convert(
        "dbm_to_watt.dbm", dbm, lambda x: 10.0 ** ((x - 30.0) / 10.0), at_least=-_DB_LIMIT, at_most=_DB_LIMIT
    )


def watt_to_dbm(watt: Number) -> Number:
    """Returns 10 log10(W) + 30."""
    return _convert("watt_to_dbm.watt", watt, lambda x: 10.0 * np.log10(x) + 30.0, above=0.0)


def mhz_to_hz(mhz: Number) -> Number:
    return _convert("mhz_to_hz.mhz", mhz, lambda x: x * 1e6)


def hz_to_mhz(hz: Number) -> Number:
    return _convert("hz_to_mhz.hz", hz, lambda x: x / 1e6)  # 1e-6 is not a float64, 1e6 is


def ms_to_s(ms: Number) -> Number:
    return _convert("ms_to_s.ms", ms, lambda x: x / 1e3)


def s_to_ms(s: Number) -> Number:
    return _convert("s_to_ms.s", s, lambda x: x * 1e3)


def _convert(field: str, value: Any, formula: Callable[[FloatArray], FloatArray], **limits: float | None) -> Any:
    array = quantity(field, value, **limits)  # type: ignore[arg-type]
    result = formula(array)
    return result if array.ndim else float(result)
