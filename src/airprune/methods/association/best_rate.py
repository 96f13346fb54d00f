"""Every device at the station with the best channel, path loss and shadowing together."""

from __future__ import annotations

from airprune.methods.association.base import Association, AssociationView, Served, Values


class BestRate(Association):
    """Associates by channel."""

    name = "best-rate"
    summary = "association with the edge of the best channel"

    def decide(self, view: AssociationView, values: Values) -> tuple[Served, Values]:
        return view.served_by(view.gains().argmax(axis=1)), values
