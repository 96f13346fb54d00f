"""The paper's step: the combined model becomes the parent's."""

from __future__ import annotations

from typing import Any

import numpy as np

from airprune.methods.aggregation.steps.base import Step, Values

Array = np.ndarray


def move(options: Any, previous: Array, combined: Array, held: Array | None, values: Values) -> tuple[Array, Values]:
    return combined, values


STEP = Step(name="replace", summary="the combined model becomes the parent's", source="the paper", move=move)
