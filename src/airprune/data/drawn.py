"""Samples that devices draw for themselves out of one pool: for more devices than there are samples.

    iid            from all samples
    shards         from a few classes of its own
    dirichlet      from classes mixed by Dirichlet(α)
    edge-iid       as shards, with enough classes for an edge's devices to hold all
    edge-non-iid   from the few classes of its edge

No device has a sample twice, but two devices may have the same one. What a device has follows from its number and the
seed alone, so it is drawn when somebody asks, in any process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from airprune.checks import whole_number
from airprune.data.holdings import Holdings, IntArray
from airprune.data.partitions import checked, dirichlet_mix, holders, size_weights, whole_shares
from airprune.errors import InvalidValue
from airprune.randomness import NumberedStreams, rng_for


@dataclass(frozen=True, kw_only=True, eq=False)
class Drawn(Holdings):
    """One pool, and how each device draws from it.

    Attributes:
      sizes: D_n.  [num_devices]
      by_class: all samples, class by class.  [num_samples]
      supply: samples of each class.  [num_classes]
      edge_of: of each device.  [num_devices]
      edge_classes: which classes an edge holds; None: every edge all of them.  [num_edges, num_classes] bool
      num_classes_of: how many classes a device of each edge holds; None: all of its edge.  [num_edges]
      alpha: of Dirichlet; None: classes are not mixed, all samples of those held are alike.
    """

    sizes: IntArray
    by_class: IntArray
    supply: IntArray
    edge_of: IntArray
    seed: int
    edge_classes: NDArray[np.bool_] | None = None
    num_classes_of: IntArray | None = None
    alpha: float | None = None

    @cached_property
    def _streams(self) -> NumberedStreams:
        return NumberedStreams(self.seed, "partition-draw")

    @cached_property
    def _starts(self) -> IntArray:
        return np.cumsum(self.supply) - self.supply

    def of(self, device: int) -> IntArray:
        rng, size = self._streams[device], int(self.sizes[device])
        if self.alpha is not None:
            return np.sort(self._mixed(size, self.alpha, rng))
        edge, num_classes = int(self.edge_of[device]), len(self.supply)
        held = np.arange(num_classes) if self.edge_classes is None else np.flatnonzero(self.edge_classes[edge])
        if self.num_classes_of is not None:
            held = np.sort(rng.choice(held, int(self.num_classes_of[edge]), replace=False, shuffle=False))
        return np.sort(self._from_classes(held, size, rng))

    def _from_classes(self, held: IntArray, size: int, rng: np.random.Generator) -> IntArray:
        """Samples of these classes, all alike."""
        ends = np.cumsum(self.supply[held])
        drawn = rng.choice(int(ends[-1]), size, replace=False, shuffle=False)
        which = np.searchsorted(ends, drawn, side="right")
        return self.by_class[drawn + (self._starts[held] + self.supply[held] - ends)[which]]

    def _mixed(self, size: int, alpha: float, rng: np.random.Generator) -> IntArray:
        """Of each class as many as a mix around the pool's says; again for what a class that has run out leaves."""
        counts = np.zeros(len(self.supply), dtype=np.int64)
        while (missing := size - int(counts.sum())) > 0:
            left = self.supply - counts
            mix = dirichlet_mix(alpha * len(left) * left / left.sum(), rng)
            counts += np.minimum(whole_shares(missing, mix), left)
        parts = [self._from_classes(np.array([c]), count, rng) for c, count in enumerate(counts.tolist()) if count]
        return np.concatenate(parts)


def draw_samples(
    labels: ArrayLike,
    *,
    edge: ArrayLike,
    kind: str,
    samples_per_device: int,
    seed: int,
    classes_per_device: int = 2,
    alpha: float = 0.5,
    size_spread: float = 0.0,
) -> Drawn:
    """Every device with so many samples of its own choice; arguments as of `partition`.

    Args:
      samples_per_device: the mean; sizes follow w_n = exp(size_spread · z_n), rounded, but at least 1.
    """
    class_of, num_classes, edge_of = checked(
        labels, edge, kind, seed=seed, classes_per_device=classes_per_device, alpha=alpha, size_spread=size_spread
    )
    mean = whole_number("draw_samples.samples_per_device", samples_per_device, at_least=1)
    weight = size_weights(len(edge_of), size_spread, seed)
    drawn = Drawn(
        sizes=np.maximum(np.rint(mean * (weight / weight.mean())), 1.0).astype(np.int64),
        by_class=np.argsort(class_of, kind="stable"),
        supply=np.bincount(class_of, minlength=num_classes),
        edge_of=edge_of,
        seed=seed,
        edge_classes=_edge_classes(kind, edge_of, num_classes, classes_per_device, seed),
        num_classes_of=_num_classes_of(kind, edge_of, num_classes, classes_per_device),
        alpha=alpha if kind == "dirichlet" else None,
    )
    _check_supply(drawn)
    return drawn


def _edge_classes(kind: str, edge_of: IntArray, num_classes: int, each: int, seed: int) -> NDArray[np.bool_] | None:
    if kind != "edge-non-iid":
        return None
    num_edges = int(edge_of.max()) + 1
    per_edge = max(each, -(-num_classes // num_edges))
    return holders(num_edges, num_classes, per_edge, rng_for(seed, "partition-classes")) > 0.0


def _num_classes_of(kind: str, edge_of: IntArray, num_classes: int, each: int) -> IntArray | None:
    wanted: dict[str, Callable[[IntArray], IntArray]] = {
        "shards": lambda devices: np.full(len(devices), each),
        "edge-iid": lambda devices: np.maximum(each, -(-num_classes // devices)),
    }
    return wanted[kind](np.bincount(edge_of)) if kind in wanted else None


def _check_supply(drawn: Drawn) -> None:
    """Nobody may need more than the smallest classes that it could come to hold have together."""
    supply = np.sort(drawn.supply)
    least = int(supply.sum())
    if drawn.edge_classes is not None:
        least = int((drawn.edge_classes @ drawn.supply).min())
    elif drawn.num_classes_of is not None:
        least = int(supply[: int(drawn.num_classes_of.min())].sum())
    most = int(drawn.sizes.max())
    if most > least:
        raise InvalidValue(
            "draw_samples.samples_per_device",
            f"must leave every device at most {least:,}, the fewest samples that one may draw from",
            f"{most:,} for device {int(drawn.sizes.argmax())}",
            "Use fewer per device, a smaller size_spread or more classes per device.",
        )
