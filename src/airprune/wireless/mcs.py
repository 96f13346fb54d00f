"""Rates of a receiver that exists: modulation and coding schemes (MCS) of 5G NR, with block errors and HARQ.

    SNR ─► the highest MCS whose block error rate (BLER) is at most 10 % ─► efficiency η
    r = B η / (1 + 0.1)   a block that fails is sent once more

An MCS of efficiency η needs the SNR (2^η − 1) Γ, where the gap Γ to Shannon's limit is that of its modulation with NR's
LDPC code. A station combines the second transmission of a block with the first, 3 dB more than a working point of 10 %
needs: the expected number of transmissions is 1.1 (later ones are below a thousandth).
"""

from __future__ import annotations

import numpy as np

from airprune.checks import FloatArray
from airprune.units import db_to_ratio

BLER_TARGET = 0.1
TRANSMISSIONS = 1.0 + BLER_TARGET

# 3GPP TS 38.214, Table 5.1.3.1-2 (up to 256-QAM): bits per symbol, and 1024 times the code rates.
_TABLE = {
    2: (120, 193, 308, 449, 602),
    4: (378, 434, 490, 553, 616, 658),
    6: (466, 517, 567, 616, 666, 719, 772, 822, 873),
    8: (682.5, 711, 754, 797, 841, 885, 916.5, 948),
}
# Means over the code rates of each modulation, read off simulated BLER curves at 10 % for code blocks of 2,000 bits.
_GAP_DB = {2: 1.0, 4: 1.3, 6: 2.0, 8: 2.3}

_ROWS = [(bits, rate / 1024.0) for bits, rates in _TABLE.items() for rate in rates]
EFFICIENCY: FloatArray = np.array([bits * rate for bits, rate in _ROWS])
"""Bits per symbol times code rate, of MCS 0 to 27: bit/s/Hz without errors."""
NEEDED_SNR: FloatArray = np.expm1(EFFICIENCY * np.log(2.0)) * db_to_ratio(np.array([_GAP_DB[b] for b, _ in _ROWS]))
"""SNR at which each has a BLER of 10 %."""


def mcs_rate_bps(snr_ratio: FloatArray, bandwidth_hz: float) -> FloatArray:
    """r = B η / 1.1 with the most efficient MCS whose BLER is at most 10 %; 0 below MCS 0's SNR."""
    usable = np.searchsorted(_RISING_SNR, np.asarray(snr_ratio), side="right")
    return bandwidth_hz / TRANSMISSIONS * np.concatenate([[0.0], _BEST])[usable]


def mcs_snr(rate_bps: FloatArray, bandwidth_hz: float) -> FloatArray:
    """The least SNR with which `mcs_rate_bps` gives at least this rate, one of its own; 0 for a rate of 0."""
    level = np.searchsorted(_BEST, np.asarray(rate_bps) * (TRANSMISSIONS / bandwidth_hz) * (1.0 - 1e-9))
    return np.where(np.asarray(rate_bps) > 0.0, _RISING_SNR[np.minimum(level, len(_BEST) - 1)], 0.0)


# An MCS may need more SNR than one with more efficiency and fewer bits per symbol: sorted by SNR, the best so far.
_ORDER = np.argsort(NEEDED_SNR, kind="stable")
_RISING_SNR = NEEDED_SNR[_ORDER]
_BEST = np.maximum.accumulate(EFFICIENCY[_ORDER])
