"""A learning rate that rises linearly at first, then follows another schedule."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field, field_validator

from airprune.errors import InvalidValue
from airprune.methods.schedules.base import Progress, Schedule
from airprune.settings.section import Positive, Ratio, Text


class WarmUp(Schedule):
    """start_ratio + (1 − start_ratio) t / length for t < length; then another schedule of the units that are left."""

    name = "warm-up"
    summary = "rises linearly over the first units, then follows another schedule"
    source = "Goyal et al. 2017"

    length: Positive = Field(default=3.0, description="units of train.schedule_unit until the whole learning rate")
    start_ratio: Ratio = Field(default=0.1, description="factor of the learning rate at the start")
    then: Text = Field(default="constant", description="schedule after the warm-up, with its default options")

    @field_validator("then")
    @classmethod
    def _known(cls, name: str) -> str:
        from airprune.methods.schedules import SCHEDULES

        if name not in SCHEDULES:
            raise SCHEDULES.unknown(name, f"{cls.owner}.then")
        if name == cls.name:
            raise InvalidValue(f"{cls.owner}.then", "must be another schedule", repr(name), 'Example: then = "cosine"')
        return name

    def factor(self, at: Progress) -> float:
        if at.done < self.length:
            return self.start_ratio + (1.0 - self.start_ratio) * at.done / self.length
        from airprune.methods.schedules import SCHEDULES

        left = max(at.total - self.length, 1.0)
        return SCHEDULES[self.then]().factor(replace(at, done=at.done - self.length, total=left))
