"""The paper's objective: the mean loss over the device's own samples, Eq. (7)."""

from __future__ import annotations

from airprune.methods.objectives.base import Objective


class Plain(Objective):
    """The loss alone, Eq. (7)."""

    name = "plain"
    summary = "the loss alone, Eq. (7)"
    source = "the paper"
