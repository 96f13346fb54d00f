"""Masks of whole units, Eq. (3), which leave smaller dense layers, not sparse ones.

The paper writes ρ in Eq. (3) but means the share of units that is *kept*; here it is κ, `unit_keep`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from airprune.checks import quantity, whole_number
from airprune.components.layers import Array, PrunableLayers
from airprune.errors import InvalidValue
from airprune.methods.masking.core.masks import largest, per_weight


@dataclass(frozen=True, kw_only=True, eq=False)
class StructuredMask:
    """The units that stay, layer by layer; where a layer feeds the next, its outputs are the next one's inputs.

    Attributes:
      unit_keep: κ of Eq. (3).
      kept_inputs: ascending input indices of each layer.
      kept_outputs: ascending output indices of each layer; all of them in the last layer.
    """

    layers: PrunableLayers
    unit_keep: float
    kept_inputs: tuple[Array, ...]
    kept_outputs: tuple[Array, ...]

    @cached_property
    def kept_weights(self) -> int:
        pairs = zip(self.kept_outputs, self.kept_inputs, strict=True)
        return sum(outputs.size * inputs.size for outputs, inputs in pairs)

    @cached_property
    def flat_indices(self) -> Array:
        """Indices of the small layers' weights in the flat vector, in order.  [kept_weights]"""
        parts = [np.zeros(0, dtype=np.intp)]
        for layer, outputs, inputs in zip(self.layers, self.kept_outputs, self.kept_inputs, strict=True):
            parts.append((layer.start + outputs[:, None] * layer.in_features + inputs).ravel())
        return np.concatenate(parts)

    @cached_property
    def mask(self) -> Array:
        """The mask m of Eq. (5): kept outputs × kept inputs of each layer.  [num_weights]"""
        mask = np.zeros(self.layers.num_weights, dtype=bool)
        mask[self.flat_indices] = True
        return mask


def structured_count(layers: PrunableLayers, unit_keep: float) -> int:
    """Eq. (3): Σ ⌈κ in⌉ ⌈κ out⌉ weights.

    Differs from Eq. (3): the last layer's outputs are the classes and all stay, so it counts ⌈κ in⌉ out.
    """
    quantity("structured_count.unit_keep", unit_keep, above=0.0, at_most=1.0, way_out="Example: unit_keep = 0.5")
    return sum(
        _num_outputs(layers, index, unit_keep) * _num_units(layer.in_features, unit_keep)
        for index, layer in enumerate(layers)
    )


def unit_keep_for(layers: PrunableLayers, keep: int) -> float:
    """The largest κ with structured_count ≤ keep, so that the deadline holds.

    The count rises just above each κ = i / n, n the units of a layer, so the largest κ is one of these: exact.
    """
    keep = whole_number("unit_keep_for.keep", keep)
    candidates = _breakpoints(layers)
    fewest = structured_count(layers, candidates[0])
    if keep < fewest:
        rule = f"must be ≥ {fewest}, one unit per layer and every class"
        raise InvalidValue("unit_keep_for.keep", rule, keep, "Prune less: lower max_pruning_ratio.")
    return candidates[bisect_right(candidates, keep, key=lambda kappa: structured_count(layers, kappa)) - 1]


def choose_units(scores: Array, *, keep: int, layers: PrunableLayers, tie_break: Array | None = None) -> StructuredMask:
    """The units with the highest scores, as many as `keep` weights allow; a unit scores the sum of its weights.

    A hidden unit owns the weights into it and, where its layer feeds the next, the weights out of it: both go
    with it. An input of the first layer owns the weights out of it. Arguments as for `choose_mask`.
    """
    unit_keep = unit_keep_for(layers, keep)
    keys = [_unit_sums(per_weight("choose_units.scores", scores, layers), layers)]
    if tie_break is not None:
        keys.append(_unit_sums(per_weight("choose_units.tie_break", tie_break, layers), layers))
    kept_inputs, kept_outputs = [], []
    for index, layer in enumerate(layers):
        by_input = [key[index][0] for key in keys]
        by_output = [key[index][1] for key in keys]
        outputs = _num_outputs(layers, index, unit_keep)
        kept_inputs.append(np.flatnonzero(largest(by_input, _num_units(layer.in_features, unit_keep))))
        kept_outputs.append(np.flatnonzero(largest(by_output, outputs)))
    return StructuredMask(
        layers=layers, unit_keep=unit_keep, kept_inputs=tuple(kept_inputs), kept_outputs=tuple(kept_outputs)
    )


def _num_units(units: int, unit_keep: float) -> int:
    """⌈κ n⌉, at least one; a billionth of a unit is tolerated, so that κ = i / n keeps i, not i + 1."""
    return max(1, math.ceil(unit_keep * units - 1e-9))


def _num_outputs(layers: PrunableLayers, index: int, unit_keep: float) -> int:
    outputs = layers.layers[index].out_features
    return outputs if index == len(layers) - 1 else _num_units(outputs, unit_keep)


@lru_cache(maxsize=64)
def _breakpoints(layers: PrunableLayers) -> tuple[float, ...]:
    sizes = {layer.in_features for layer in layers} | {layer.out_features for layer in layers.layers[:-1]}
    return tuple(np.unique(np.concatenate([np.arange(1, size + 1) / size for size in {1, *sizes}])).tolist())


def _unit_sums(flat: Array, layers: PrunableLayers) -> list[tuple[Array, Array]]:
    """Sums over the weights of each (input, output) unit of each layer; a hidden unit has one sum on both sides."""
    inputs = [layer.matrix(flat).sum(axis=0, dtype=np.float64) for layer in layers]
    outputs = [layer.matrix(flat).sum(axis=1, dtype=np.float64) for layer in layers]
    for index in range(len(layers)):
        if layers.feeds_next(index):
            outputs[index] = inputs[index + 1] = outputs[index] + inputs[index + 1]
    return list(zip(inputs, outputs, strict=True))
