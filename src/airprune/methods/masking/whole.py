"""No masks: a device holds, trains and sends the whole model, or the part of its layers that a plan says."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from airprune.components.component import ModelShape
from airprune.methods.masking.base import WHOLE, DeviceView, Masking, SubModel, Values


class Whole(Masking):
    """The whole model."""

    name = "whole"
    summary = "no masks: whole models, or the upper layers where the scheme plans parts"
    source = "own"
    fully_open: ClassVar = {}
    by_data: ClassVar[bool] = False
    whole_units: ClassVar[bool] = True

    frozen_bits: Annotated[int, Field(ge=2, le=16)] | None = Field(
        default=None,
        description="bits per weight of layers that a plan freezes, while a device trains others; none: as received",
    )

    def bounds(self, shape: ModelShape, values: Values) -> tuple[int, int]:
        """Nothing is pruned: a device that cannot send the whole model is excluded, unless parts are planned."""
        return shape.prunable_weights, shape.prunable_weights

    def choose(self, view: DeviceView) -> SubModel:
        return WHOLE if self.frozen_bits is None else SubModel(frozen_bits=self.frozen_bits)
