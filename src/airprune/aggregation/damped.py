"""Between the masked mean and `fill`: a weight moves the less, the fewer children sent it.

    next = previous + s^power · (masked mean − previous),   s = the share of the children that sent the weight

power = 0 is the masked mean of Eq. (12), which lets one device of five move a weight as far as all five would; on
unlike data that overshoots. power = 1 is `fill`, which counts the others as unchanged; on like data that is too timid.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from airprune.aggregation.base import Aggregation
from airprune.aggregation.masked_sum import MaskedSum
from airprune.settings.section import Section

Array = np.ndarray


class DampedOptions(Section):
    """Options of `damped`."""

    owner: ClassVar[str] = "Scenario.aggregation.damped"

    power: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.5, description="0: each weight over those who sent it, 1: as if the others had sent it unchanged"
    )


def finish(options: DampedOptions, total: MaskedSum, previous: Array) -> Array:
    """Where everybody sent a weight, exactly the masked mean."""
    if total.all_weight <= 0.0:
        return previous
    mean = total.mean(previous)
    damping = (total.weight / total.all_weight) ** options.power
    before = previous.astype(np.float64)
    return np.where(damping < 1.0, before + damping * (mean - before), mean).astype(previous.dtype)


AGGREGATION = Aggregation(
    name="damped",
    summary="the masked mean, approached the more slowly the fewer children sent a weight",
    source="own; between Eq. (12) and FedDrop's average",
    Options=DampedOptions,
    finish=finish,
    fully_open={"power": 0.0},
)
