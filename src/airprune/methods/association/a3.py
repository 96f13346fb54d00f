"""Handover by measurement: 3GPP's event A3, a neighbour that is better than the serving station by a hysteresis."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from airprune.components.component import ModelShape, Owner, Slot, per_device
from airprune.methods.association.base import Association, AssociationView, Served, Values
from airprune.settings.section import Count
from airprune.units import db_to_ratio

# Numbers of stations are kept from 1 on: 0 is a device that has not been served yet.
_SERVING, _COUNT = "a3.serving", "a3.rounds"


class A3(Association):
    """Hands a device over once another station has been better by the hysteresis for some edge rounds.

    Gains are large-scale: path loss and shadowing, as a station averages them over fading. All devices start with the
    edge that the network has for them.
    """

    name = "a3"
    summary = "handover to a station that is better by a hysteresis (event A3)"
    source = "3GPP TS 38.331, event A3"
    when = "edge"
    fully_open: ClassVar = {"hysteresis_db": 1000.0}

    hysteresis_db: float = Field(
        default=3.0, ge=0, le=1000, description="dB by which a neighbour must be better than the serving station"
    )
    rounds: Count = Field(default=1, description="edge rounds in a row for which it must be (time to trigger)")
    update: Literal["carried", "lost"] = Field(
        default="carried", description="a moving device takes part at its new edge, or loses its upload of this round"
    )

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The serving station of each device, and for how many edge rounds a neighbour has been better."""
        return (
            Slot(name=_SERVING, owner=Owner.RUN, shape=per_device, dtype="<i8"),
            Slot(name=_COUNT, owner=Owner.RUN, shape=per_device, dtype="<i8"),
        )

    def decide(self, view: AssociationView, values: Values) -> tuple[Served, Values]:
        serving = np.where(values[_SERVING] == 0, view.network.edge, values[_SERVING] - 1)
        device = np.arange(len(serving))
        gains = view.gains()
        best = gains.argmax(axis=1)
        better = gains[device, best] > gains[device, serving] * db_to_ratio(self.hysteresis_db)
        count = np.where(better, values[_COUNT] + 1, 0)
        moves = count >= self.rounds
        serving = np.where(moves, best, serving)
        served = Served(edge=serving, gain=gains[device, serving], interrupted=moves if self.update == "lost" else None)
        return served, values | {_SERVING: serving + 1, _COUNT: np.where(moves, 0, count)}
