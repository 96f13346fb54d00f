"""Lets every device sample from one pool by itself, for more devices than there are samples.

    iid            from all samples
    shards         from a few classes of its own
    dirichlet      from classes mixed by Dirichlet(α)
    edge-iid       as shards, with enough classes for an edge's devices to hold all
    edge-non-iid   from the few classes of its edge

No device has a sample twice, but two devices may have the same one. The samples of a device follow from its number and
the seed alone, so they are sampled only when they are read, in any process.
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

_KINDS = ("iid", "shards", "dirichlet", "edge-iid", "edge-non-iid")


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled(Holdings):
    """The holdings of devices that sample from one pool.

    Attributes:
      sizes: D_n.  [num_devices]
      by_class: all samples, class by class.  [num_samples]
      supply: samples of each class.  [num_classes]
      edge_of: edge of each device.  [num_devices]
      edge_classes: classes that an edge holds; None: every edge all of them.  [num_edges, num_classes] bool
      num_classes_of: number of classes of a device of each edge; None: all of its edge.  [num_edges]
      alpha: of Dirichlet; None: classes are not mixed, all samples of those held are equally likely.
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
        """Samples uniformly from these classes."""
        ends = np.cumsum(self.supply[held])
        chosen = rng.choice(int(ends[-1]), size, replace=False, shuffle=False)
        which = np.searchsorted(ends, chosen, side="right")
        return self.by_class[chosen + (self._starts[held] + self.supply[held] - ends)[which]]

    def _mixed(self, size: int, alpha: float, rng: np.random.Generator) -> IntArray:
        """Samples each class by a mix around the pool's, again for the samples that an exhausted class lacks."""
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
) -> Sampled:
    """Returns holdings of so many samples per device, sampled by each device; other arguments as of `partition`.

    Args:
      samples_per_device: the mean; sizes follow w_n = exp(size_spread · z_n), rounded, but at least 1.
    """
    class_of, num_classes, edge_of = checked(
        labels, edge, kind, seed=seed, classes_per_device=classes_per_device, alpha=alpha, size_spread=size_spread
    )
    if kind == "natural":
        rule = "must be none with the partition natural, where devices hold the samples of their owners"
        raise InvalidValue("draw_samples.samples_per_device", rule, samples_per_device)
    if kind not in _KINDS:
        rule = f"must be none with the partition {kind!r}, which assigns each sample to one device"
        raise InvalidValue("draw_samples.samples_per_device", rule, samples_per_device)
    mean = whole_number("draw_samples.samples_per_device", samples_per_device, at_least=1)
    weight = size_weights(len(edge_of), size_spread, seed)
    sampled = Sampled(
        sizes=np.maximum(np.rint(mean * (weight / weight.mean())), 1.0).astype(np.int64),
        by_class=np.argsort(class_of, kind="stable"),
        supply=np.bincount(class_of, minlength=num_classes),
        edge_of=edge_of,
        seed=seed,
        edge_classes=_edge_classes(kind, edge_of, num_classes, classes_per_device, seed),
        num_classes_of=_num_classes_of(kind, edge_of, num_classes, classes_per_device),
        alpha=alpha if kind == "dirichlet" else None,
    )
    _check_supply(sampled)
    return sampled


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


def _check_supply(sampled: Sampled) -> None:
    """Checks that no device needs more samples than the smallest classes that it may hold have together."""
    supply = np.sort(sampled.supply)
    least = int(supply.sum())
    if sampled.edge_classes is not None:
        least = int((sampled.edge_classes @ sampled.supply).min())
    elif sampled.num_classes_of is not None:
        least = int(supply[: int(sampled.num_classes_of.min())].sum())
    most = int(sampled.sizes.max())
    if most > least:
        raise InvalidValue(
            "draw_samples.samples_per_device",
            f"must leave every device at most {least:,}, the fewest samples that one may sample from",
            f"{most:,} for device {int(sampled.sizes.argmax())}",
            "Use fewer per device, a smaller size_spread or more classes per device.",
        )
