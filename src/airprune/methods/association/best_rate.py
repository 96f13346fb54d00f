"""Every device at the station with the best channel, path loss and shadowing together."""

from __future__ import annotations

from typing import Any

from airprune.methods.association.base import Association, AssociationView, Served, Values, by_largest


def decide(options: Any, view: AssociationView, values: Values) -> tuple[Served, Values]:
    return by_largest(view.gains()), values


ASSOCIATION = Association(name="best-rate", summary="every device at the station with the best channel", decide=decide)
