"""The paper's selection: every device takes part in every round."""

from __future__ import annotations

from airprune.methods.selection.base import Selection, everyone

SELECTION = Selection(name="everyone", summary="all devices, in every round", source="the paper", before=everyone)
