"""What a method costs beside the weights that a device keeps: on the air, and in compute."""

from __future__ import annotations

from typing import Any

from airprune.components.component import ModelShape
from airprune.methods.compression.base import Wire

# Charges that come back every few rounds do so within as many.
_ROUNDS = 60


def extra_cost(method: Any, shape: ModelShape, value_bits: float) -> list[str]:
    """In words, the most of any round; empty if kept weights at `value_bits` each are all that is sent and computed.

    Args:
      method: all choices of a scenario, a `rounds.method.Method`.
    """
    told = [_air(method, shape, value_bits), *_masking(method, shape, value_bits)]
    if beside := method.objective.upload_bits(shape, value_bits):
        told.append(f"{beside:,.0f} bits beside every update")
    if for_selection := method.selection.upload_bits(shape, value_bits):
        told.append(f"{for_selection:,.0f} bits for the selection")
    return [words for words in told if words]


def _air(method: Any, shape: ModelShape, value_bits: float) -> str:
    wire = Wire.of(shape, value_bits=value_bits)
    scheme = method.scheme
    if scheme.chooses_codes or scheme.fits_codes:
        return "bits per weight as the deadline allows"
    per_weight = method.compression.message_bits(wire, shape.num_weights) / shape.num_weights
    if per_weight == value_bits:
        return ""
    return "1 bit per weight" if per_weight == 1.0 else f"{per_weight:.4g} bits per weight"


def _masking(method: Any, shape: ModelShape, value_bits: float) -> list[str]:
    masking = method.masking
    charges = [masking.charges(number, shape, value_bits) for number in range(_ROUNDS)]
    words = {
        "uplink_bits": "{:,.0f} bits to say which weights are sent",
        "always_bits": "{:,.0f} bits beside the weights in rounds that report",
        "late_bits": "{:,.0f} bits beside the weights, beyond the deadline, in rounds that report",
        "probe": "a minibatch on the whole model",
        "dense_gradients": "gradients of all weights",
    }
    most = {name: max(getattr(charge, name) for charge in charges) for name in words}
    told = [text.format(most[name]) for name, text in words.items() if most[name]]
    if any(charge.second_pass is not None for charge in charges):
        told.append("a second pass in every step, over a smaller width")
    if masking.dense_compute:
        told.append(f"{masking.dense_compute:.0%} of the compute of the whole model, whatever is sent")
    return told
