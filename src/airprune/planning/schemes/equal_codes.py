"""Gives equal shares and whole models; every device sends at the largest compression level that meets the deadline.

This is how compressors without a bandwidth rule meet a deadline: with b = 1/N_k a device has b r (T_th − x − a W) bits
for its message, which are so many entries of top-k or random-k, so many levels of a quantiser. No device prunes. A
device for which not even the smallest level fits blocks its edge. Without levels, `equal-resolved` decides.
"""

from __future__ import annotations

import numpy as np

from airprune.planning.plan import Status
from airprune.planning.problem import PlanProblem
from airprune.planning.schemes.base import Allocation, equal_share_latency_s, equal_shares
from airprune.planning.schemes.equal_resolved import EqualResolved


class EqualCodes(EqualResolved):
    """Gives every device the largest compression level that fits."""

    name = "equal-codes"
    summary = "equal shares, whole models; each device at the largest compression level that meets the deadline"
    fits_codes = True

    def allocate(self, problem: PlanProblem) -> Allocation:
        if problem.codes is None:
            return super().allocate(problem)
        codes, share = problem.codes, equal_shares(problem)
        weights = np.floor(problem.largest_model_weights + 1e-9).astype(np.int64)  # as `Plan.kept_fc_weights` counts
        upload_s = problem.time_for_weights_s - problem.seconds_per_weight * problem.largest_model_weights
        spare_bits = share * problem.full_band_rate_bps * upload_s - problem.fixed_bits
        code = codes.largest(weights, spare_bits)
        groups, blocking = problem.groups, code < 0
        why = np.where(groups.any(upload_s <= 0.0), Status.INFEASIBLE_COMPUTE.value, Status.INFEASIBLE_BANDWIDTH.value)
        return Allocation(
            share=share,
            ratio=problem.min_pruning_ratio.copy(),
            status=np.where(groups.any(blocking), why, Status.OK.value),
            shadow_price=np.nan,
            min_deadline_s=equal_share_latency_s(problem, problem.largest_model_weights),
            bits_per_weight=codes.bits_per_weight(code, weights),
            code=code,
            blocking=blocking,
        )
