"""From the received model to the weights a device keeps.

layers      where the prunable weights lie in the flat vector
importance  what a weight is worth, Eqs. (1) and (2)
masks       which single weights stay, Eq. (5), in an exact number
structured  which whole units stay, Eq. (3), as smaller dense layers
units       which rows and columns make a unit, and what narrower models keep
coverage    how many devices kept each weight, Γ* of Theorem 1
"""

from airprune.components.layers import PrunableLayer, PrunableLayers
from airprune.methods.masking.core.coverage import Coverage, coverage_of
from airprune.methods.masking.core.importance import IMPORTANCES, Importance, Probe, importance_named
from airprune.methods.masking.core.masks import SCOPES, choose_mask, kept_count, layer_shares
from airprune.methods.masking.core.structured import (
    StructuredMask,
    choose_units,
    scatter_weights,
    slice_weights,
    structured_count,
    unit_keep_for,
)

__all__ = [
    "PrunableLayer",
    "PrunableLayers",
    "IMPORTANCES",
    "Importance",
    "Probe",
    "importance_named",
    "SCOPES",
    "choose_mask",
    "kept_count",
    "layer_shares",
    "StructuredMask",
    "choose_units",
    "scatter_weights",
    "slice_weights",
    "structured_count",
    "unit_keep_for",
    "Coverage",
    "coverage_of",
]
