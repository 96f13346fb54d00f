"""Compressors of updates, one file each. To add one, write its file and list it here."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from airprune.checks import array_of, quantity, whole_number
from airprune.components.registry import Registry
from airprune.errors import InvalidValue
from airprune.methods.compression.base import Array, Compression, Message, Wire, transmit
from airprune.randomness import rng_for
from airprune.text import shown

Generator = np.random.Generator

COMPRESSIONS: Registry[type[Compression]] = Registry(
    "compression",
    {
        "cast": "airprune.methods.compression.cast:Cast",
        "quantised": "airprune.methods.compression.quantised:Quantised",
        "top-k": "airprune.methods.compression.top_k:TopK",
        "random-k": "airprune.methods.compression.random_k:RandomK",
        "sign": "airprune.methods.compression.sign:Sign",
        "rounded": "airprune.methods.compression.rounded:Rounded",
        "ternary": "airprune.methods.compression.ternary:Ternary",
        "ladder": "airprune.methods.compression.ladder:Ladder",
    },
)


def compress(
    delta: ArrayLike,
    name: str,
    *,
    memory: ArrayLike | None = None,
    rng: Generator | int | None = None,
    value_bits: float = 64.0,
    **options: Any,
) -> tuple[Array, float, Array]:
    """Compresses one update, as one tensor; with error feedback if the memory is passed on.

        decoded, bits, memory = compress(delta, "top-k", share=0.01, memory=memory)

    Args:
      delta: the update.  [n]
      name: of `COMPRESSIONS`.
      memory: the compression error of earlier calls; None: zero.  [n]
      rng: a generator or a seed; needed by stochastic compressors.
      value_bits: q̂, charged for one exact value.
      options: of the compressor; error feedback is up to the caller here.

    Returns:
      What the receiver decodes (float64 [n]), the bits charged, and the compression error: delta + memory − decoded, in
      the memory's own dtype if that is floating, else in float64.
    """
    if not isinstance(name, str):
        raise InvalidValue("compress.name", "must be the name of a compression", shown(name), 'Example: "quantised"')
    kind = COMPRESSIONS[name]
    update = _vector("compress.delta", delta)
    before = np.zeros(update.size) if memory is None else _vector("compress.memory", memory)
    if before.size != update.size:
        rule = f"must have as many entries as delta, {update.size}"
        raise InvalidValue("compress.memory", rule, before.size, "memory=None starts without")
    bits_each = quantity("compress.value_bits", value_bits, above=0, way_out="Example: value_bits = 64")
    if bits_each.ndim:
        raise InvalidValue("compress.value_bits", "must be one number", shown(value_bits))
    wire = Wire(value_bits=float(bits_each), num_weights=update.size, num_tensors=1)
    starts = np.array([0, update.size])
    remembers = {"memory": memory is not None} if "memory" in kind.model_fields else {}
    compression = kind(**options, **remembers)
    decoded, message, left = transmit(compression, wire, update, starts, before, _generator(rng))
    assert left is not None
    return decoded, message.bits, left


def _vector(field: str, values: ArrayLike) -> Array:
    """Real numbers [n] in a floating dtype; NaN and Inf may pass, because a diverged update is to be seen."""
    rule, way_out = "must be a one-dimensional array of real numbers", "Example: delta = trained - received, flattened"
    array = array_of(field, values, rule, kinds="fiu", way_out=way_out)
    if array.ndim != 1:
        raise InvalidValue(field, rule, f"{array.dtype} of shape {array.shape}", way_out)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


class _NoRandomness:
    def random(self, size: int) -> Array:
        raise InvalidValue(
            "compress.rng", "must be given, because this compressor is stochastic", "None", "Example: rng=0"
        )


def _generator(rng: Any) -> Any:
    """A numpy generator, or anything else that draws arrays of uniforms, as it is; the stream of a seed."""
    if rng is None:
        return _NoRandomness()
    if hasattr(rng, "random"):
        try:
            if isinstance(rng.random(0), np.ndarray):  # takes nothing out of the stream
                return rng
        except TypeError:  # such as Python's own random.Random
            pass
    return rng_for(whole_number("compress.rng", rng, way_out="Give a numpy Generator or a seed"), "compression")


__all__ = ["COMPRESSIONS", "Compression", "Message", "Wire", "compress", "transmit"]
