"""The paper's association: every device belongs to the edge that the network says, for the whole run."""

from __future__ import annotations

from airprune.methods.association.base import Association, AssociationView, Served, Values


class Fixed(Association):
    """Leaves every device where the network has it."""

    name = "fixed"
    summary = "the network's own association, fixed for the run"
    source = "the paper"

    def decide(self, view: AssociationView, values: Values) -> tuple[Served, Values]:
        return Served(edge=view.network.edge, gain=view.own_gain), values
