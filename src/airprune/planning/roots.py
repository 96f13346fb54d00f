"""Finds the roots of many functions at once, each inside its own bracket."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray

# Every step at least halves some bracket in the long run; 200 is never reached, it only bounds the loop.
_MAX_STEPS = 200


def bracketed_roots(
    function: Callable[[Array], Array],
    low: Array,
    high: Array,
    *,
    small: float = 0.0,
    ends: tuple[Array, Array] | None = None,
) -> Array:
    """Returns where each entry of a function changes its sign between `low` and `high`, or is at most `small`.

    Chandrupatla's method: inverse quadratic interpolation where it is safe, bisection elsewhere. Where the signs at the
    two ends agree there is nothing to find, and the end that is nearer to zero is returned.

    Args:
      ends: the function at `low` and at `high`, if it is known.
    """
    a, b = np.array(high, dtype=np.float64), np.array(low, dtype=np.float64)
    f_b, f_a = (function(b), function(a)) if ends is None else ends
    nearer_end = np.where(np.abs(f_a) < np.abs(f_b), a, b)
    none = np.sign(f_a) * np.sign(f_b) > 0.0
    step = np.full(a.shape, 0.5)
    found = nearer_end
    for _ in range(_MAX_STEPS):
        x = a + step * (b - a)
        f_x = function(x)
        same = np.sign(f_x) == np.sign(f_a)
        c, f_c = np.where(same, a, b), np.where(same, f_a, f_b)
        b, f_b = np.where(same, b, a), np.where(same, f_b, f_a)
        a, f_a = x, f_x
        found = np.where(np.abs(f_a) < np.abs(f_b), a, b)
        with np.errstate(divide="ignore", invalid="ignore"):
            least = (4 * np.finfo(np.float64).eps * np.abs(found) + np.finfo(np.float64).tiny) / np.abs(b - c)
            done = none | (least > 0.5) | (np.minimum(np.abs(f_a), np.abs(f_b)) <= small) | ~np.isfinite(least)
            if done.all():
                break
            xi, phi = (a - b) / (c - b), (f_a - f_b) / (f_c - f_b)
            safe = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
            bent = f_a / (f_b - f_a) * (f_c / (f_b - f_c)) + (c - a) / (b - a) * (f_a / (f_c - f_a)) * (
                f_b / (f_c - f_b)
            )
            least = np.minimum(least, 0.5)
            step = np.where(safe & np.isfinite(bent), np.clip(bent, least, 1.0 - least), 0.5)
    return np.where(none, nearer_end, found)
