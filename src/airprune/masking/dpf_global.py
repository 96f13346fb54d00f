"""Dynamic pruning with feedback at the cloud: all devices hold the largest weights of its model, chosen in every round.

Weights outside the mask keep their values at the cloud and come back when others have become smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.masking.base import Masking, RoundView, Values, as_prepared
from airprune.masking.common import hold, sizes_now, unless_whole
from airprune.pruning.masks import choose_mask

Array = np.ndarray


def prepare(options: Any, view: RoundView, values: Values) -> tuple[Array | None, Values]:
    """As many as the tightest device can carry."""
    return unless_whole(choose_mask(sizes_now(view), keep=int(view.keep.min()), layers=view.shape.layers)), values


MASKING = Masking(
    name="dpf-global",
    summary="all devices hold the largest weights of the cloud's model, chosen again in every round",
    source="after Lin et al.; the federated form is own",
    choose=hold,
    prepare=prepare,
    counts=as_prepared,
)
