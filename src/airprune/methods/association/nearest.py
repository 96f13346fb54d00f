"""Every device at the nearest station."""

from __future__ import annotations

import numpy as np

from airprune.methods.association.base import Association, AssociationView, Served, Values


class Nearest(Association):
    """Associates by distance."""

    name = "nearest"
    summary = "association with the nearest edge"

    def decide(self, view: AssociationView, values: Values) -> tuple[Served, Values]:
        network = view.network
        if network.topology == "flat":
            return Served(edge=network.edge, gain=view.own_gain), values
        away = network.device_position_m[:, None, :] - network.edge_position_m[None, :, :]
        edge = np.hypot(away[..., 0], away[..., 1]).argmin(axis=1)
        return view.served_by(edge), values
