"""The paper's association: every device belongs to the edge that the network says, for the whole run."""

from __future__ import annotations

from typing import Any

from airprune.methods.association.base import Association, AssociationView, Served, Values


def decide(options: Any, view: AssociationView, values: Values) -> tuple[Served, Values]:
    return Served(edge=view.network.edge, gain=view.own_gain), values


ASSOCIATION = Association(name="fixed", summary="as the network says", source="the paper", decide=decide)
