"""Masks of single weights: an exact number of them, and at least one per output unit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from airprune.checks import whole_number
from airprune.components.layers import Array, PrunableLayers
from airprune.errors import InvalidValue, NotFinite, UnknownName

SCOPES = ("global", "layer")


def choose_mask(
    scores: Array,
    *,
    keep: int,
    layers: PrunableLayers,
    scope: str = "global",
    tie_break: Array | None = None,
) -> Array:
    """The mask m of Eq. (5): exactly `keep` True, the best of each row and then the highest scores.

    Equal scores are common (a dead ReLU gives its whole row gradient 0); among them the larger `tie_break`
    stays, then the lower index. Without `tie_break` the first inputs of a dead row would always win.

    Args:
      scores: importance of each weight, finite.  [num_weights]
      keep: at least one weight for each of `layers.num_rows` output units.
      scope: "global" ranks all weights together; "layer" gives each layer its share, see `layer_shares`.
      tie_break: usually |w|, finite.  [num_weights]

    Returns:
      Boolean mask.  [num_weights]
    """
    if scope == "global" and (mask := _natively(scores, keep, layers, tie_break)) is not None:
        return mask
    scores = per_weight("choose_mask.scores", scores, layers)
    if tie_break is not None:
        tie_break = per_weight("choose_mask.tie_break", tie_break, layers)
    if scope not in SCOPES:
        raise UnknownName("scope", scope, SCOPES)
    keep = _enough_to_keep("choose_mask.keep", keep, layers)
    if keep == layers.num_weights:
        return np.ones(layers.num_weights, dtype=bool)
    ranks = scores.copy()
    ranks[_best_of_rows(scores, tie_break, layers)] = np.inf
    keys = [ranks] if tie_break is None else [ranks, tie_break]
    if scope == "global":
        return largest(keys, keep)
    mask = np.empty(layers.num_weights, dtype=bool)
    for layer, share in zip(layers, layer_shares(layers, keep), strict=True):
        mask[layer.span] = largest([key[layer.span] for key in keys], share)
    return mask


def _natively(scores: Array, keep: int, layers: PrunableLayers, tie_break: Array | None) -> Array | None:
    """The same mask in a sixth of the time; None for calls that are wrong, or not for the native library."""
    from airprune.models.kernels import native  # which knows models, whose layers are of this package

    size, fits = (layers.num_weights,), isinstance(keep, (int, np.integer))
    if tie_break is None or np.shape(scores) != size or np.shape(tie_break) != size:
        return None
    if not fits or not layers.num_rows <= keep < layers.num_weights:
        return None
    return native.best_weights(np.asarray(scores), np.asarray(tie_break), layers.row_starts, int(keep))


def mask_of_moves(
    weights: Array, gradient: Array, learning_rate: float, *, keep: int, layers: PrunableLayers
) -> Array | None:
    """`choose_mask` of the scores η |∇F| of Eq. (2) with ties by |w|, without making either.

    None for calls that are wrong, or not for the native library.
    """
    from airprune.models.kernels import native  # as above

    size = (layers.num_weights,)
    if type(learning_rate) is not float or weights.shape != size or gradient.shape != size:
        return None
    if not layers.num_rows <= keep < layers.num_weights:
        return None
    return native.largest_moves(weights, gradient, layers.row_starts, keep, learning_rate)


def layer_shares(layers: PrunableLayers, keep: int) -> tuple[int, ...]:
    """Returns how many weights each layer keeps in scope "layer": keep · size / P by largest remainder, so Σ = keep.

    A layer whose share is below one weight per output unit gets one per unit; the others share the rest.
    """
    keep = _enough_to_keep("layer_shares.keep", keep, layers)
    shares = [layer.out_features for layer in layers]
    free = list(range(len(layers)))
    while True:
        left = keep - sum(shares[i] for i in range(len(layers)) if i not in free)
        size = sum(layers.layers[i].num_weights for i in free)
        quotas = {i: divmod(left * layers.layers[i].num_weights, size) for i in free}
        short = [i for i in free if quotas[i][0] < shares[i]]
        if not short:
            break
        free = [i for i in free if i not in short]
    spare = left - sum(whole for whole, _ in quotas.values())
    by_remainder = sorted(free, key=lambda i: -quotas[i][1])
    for position, i in enumerate(by_remainder):
        shares[i] = quotas[i][0] + (position < spare)
    return tuple(shares)


def largest(keys: Sequence[Array], count: int) -> Array:
    """Mask of exactly `count` entries: the largest by the first key, ties by the next key, at last the lowest index."""
    values = keys[0]
    if count <= 0:
        return np.zeros(values.size, dtype=bool)
    if count >= values.size:
        return np.ones(values.size, dtype=bool)
    threshold = _threshold(values, count)
    chosen = values > threshold
    tied = np.flatnonzero(values == threshold)
    missing = count - int(np.count_nonzero(chosen))
    if tied.size > missing:
        rest = keys[1:]
        tied = tied[largest([key[tied] for key in rest], missing)] if rest else tied[:missing]
    chosen[tied] = True
    return chosen


def _threshold(values: Array, count: int) -> np.floating:
    """The `count`-th largest value, by partition: a full sort of 25,168 scores would cost several times more.

    One of float32 is faster still, and rounding keeps the order but for ties, so float64 is cut in two steps.
    Thousands of equal entries slow it down, so the smallest value (the zeros of dead units) is set aside first.
    """
    if values.itemsize > 4:
        with np.errstate(over="ignore"):
            coarse = values.astype(np.float32)
        cut = _threshold(coarse, count)
        count -= int(np.count_nonzero(coarse > cut))
        values = values[coarse == cut]
    lowest = values.min()
    values = values[values > lowest]
    if values.size < count:
        return lowest
    values.partition(values.size - count)
    return values[values.size - count]


def _best_of_rows(scores: Array, tie_break: Array | None, layers: PrunableLayers) -> Array:
    """Index of the best weight of each row, by the order that `largest` uses.  [num_rows]"""
    is_best = np.empty(layers.num_weights, dtype=bool)
    for layer in layers:
        matrix = layer.matrix(scores)
        np.equal(matrix, matrix.max(axis=1, keepdims=True), out=layer.matrix(is_best))
    best = np.flatnonzero(is_best)
    if best.size > layers.num_rows and tie_break is not None:
        ties, row = tie_break[best], layers.row_of[best]
        top = np.maximum.reduceat(ties, np.searchsorted(row, np.arange(layers.num_rows)))
        best = best[ties == top[row]]
    if best.size > layers.num_rows:
        best = best[np.searchsorted(layers.row_of[best], np.arange(layers.num_rows))]
    return best


def per_weight(field: str, values: Array, layers: PrunableLayers) -> Array:
    """`values` as floats, or InvalidValue naming `field`: one entry per prunable weight, finite or it is NotFinite."""
    values = np.asarray(values)
    if not np.issubdtype(values.dtype, np.floating):
        values = values.astype(np.float64)
    if values.shape != (layers.num_weights,):
        rule = f"must have one entry for each of the {layers.num_weights} prunable weights"
        raise InvalidValue(field, rule, f"shape {values.shape}")
    finite = np.isfinite(values)
    if not finite.all():
        first = int(np.argmin(finite))
        way_out = "Training has probably diverged: lower the learning rate."
        raise NotFinite(field, "must be finite", f"{values[first]} at entry {first}", way_out)
    return values


def _enough_to_keep(field: str, keep: int, layers: PrunableLayers) -> int:
    keep = whole_number(field, keep, at_most=layers.num_weights)
    if keep < layers.num_rows:
        rule = f"must be ≥ {layers.num_rows}, one weight for every output unit"
        most = math.floor(1e4 * (1.0 - layers.num_rows / layers.num_weights)) / 1e4
        raise InvalidValue(field, rule, keep, f"Prune less: max_pruning_ratio = {most:g} is possible.")
    return keep
