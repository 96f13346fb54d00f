"""Partitions the training samples among the devices, in the ways of `PARTITIONS`.

All but iid work in two steps: the number of samples of each class that a holder gets, as a table that fits both the
holders' sizes and the classes' supplies; then the samples themselves, by a shuffle of each class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from airprune.checks import FloatArray, quantity, whole_number
from airprune.components.registry import Registry
from airprune.data.base import Partition, PartitionTask
from airprune.data.holdings import IntArray, Partitioned
from airprune.errors import InvalidValue
from airprune.randomness import rng_for

_SUMMARIES = {
    "iid": "IID: every device holds a random share",
    "shards": "non-IID: every device holds a few classes",
    "dirichlet": "non-IID: every device mixes the classes by Dirichlet(α)",
    "edge-iid": "IID edges, non-IID devices: every edge holds a random share, its devices a few classes each",
    "edge-non-iid": "non-IID edges: every edge holds a few classes, its devices random shares of them",
    "natural": "non-IID as collected: every device holds all samples of one owner, or of several",
}


def _listed(name: str, summary: str) -> Partition:
    by_class = name not in ("iid", "natural")
    return Partition(name=name, summary=summary, assign=_ASSIGN.get(name), by_class=by_class)


PARTITIONS: Registry[Partition] = Registry("partitions", _SUMMARIES, _listed)

_SWEEPS = 500


def partition(
    labels: ArrayLike,
    *,
    edge: ArrayLike,
    kind: str,
    seed: int,
    classes_per_device: int = 2,
    alpha: float = 0.5,
    size_spread: float = 0.0,
    owner: ArrayLike | None = None,
    owner_order: str = "random",
) -> Partitioned:
    """Returns the sample indices of each device, ascending; no sample is used twice and no device is empty.

    Sizes follow w_n = exp(size_spread · z_n) with standard normal z_n; 0 makes them equal, and then each of
    N devices gets ⌊samples / N⌋. Where devices or edges hold few classes, equal sizes may be impossible: then
    the samples of every class that a device holds are used up, and sizes come as near as that allows.
    With "natural" sizes are those of the owners.

    Args:
      labels: class of each sample.  [num_samples]
      edge: index of the edge serving each device.  [num_devices]
      kind: see PARTITIONS.
      classes_per_device: for shards and edge-iid; for edge-non-iid the classes of each edge. Edges get more
        where they, or the devices of an edge, would otherwise be too few to hold all classes.
      alpha: for dirichlet; small is skewed, large is even.
      owner: for natural: the owner of each sample.  [num_samples]
      owner_order: how owners come to devices, as `Dataset.owner_order`.
    """
    class_of, num_classes, edge_of = checked(
        labels, edge, kind, seed=seed, classes_per_device=classes_per_device, alpha=alpha, size_spread=size_spread
    )
    num_devices, num_samples = len(edge_of), len(class_of)
    if num_samples < num_devices:
        raise InvalidValue(
            "partition.labels",
            f"must have a sample for each of {num_devices:,} devices",
            f"{num_samples:,}",
            "Scenario.data.samples_per_device lets devices share samples",
        )
    if kind == "natural":
        return _natural(owner, num_devices, num_samples, size_spread, seed, owner_order)
    sizes = _sizes(num_samples, size_weights(num_devices, size_spread, seed))
    task = PartitionTask(class_of, num_classes, edge_of, sizes, seed, classes_per_device, alpha)
    assign = PARTITIONS[kind].assign
    assert assign is not None
    holdings = _holdings(_checked_devices(kind, assign(task), task), num_devices)
    empty = np.flatnonzero(holdings.sizes == 0)
    if len(empty):
        raise InvalidValue(
            "partition.labels",
            "must have samples for every device",
            f"none for {len(empty)} of {num_devices} devices, the first is {empty[0]}",
            "Use more samples, fewer devices or a smaller size_spread.",
        )
    return holdings


def checked(
    labels: ArrayLike,
    edge: ArrayLike,
    kind: str,
    *,
    seed: int,
    classes_per_device: int,
    alpha: float,
    size_spread: float,
) -> tuple[IntArray, int, IntArray]:
    """Returns (class of each sample, number of classes, edge of each device), both counted from 0 without gaps."""
    if kind not in PARTITIONS:
        raise PARTITIONS.unknown(kind, "partition")
    classes, class_of = np.unique(_whole_vector("partition.labels", labels), return_inverse=True)
    _, edge_of = np.unique(_whole_vector("partition.edge", edge), return_inverse=True)
    whole_number("partition.seed", seed)
    quantity("partition.size_spread", size_spread, at_least=0.0, at_most=10.0)
    quantity("partition.alpha", alpha, above=0.0, at_most=1e6, way_out='For even shares use kind = "iid".')
    whole_number("partition.classes_per_device", classes_per_device, at_least=1)
    if kind in ("shards", "edge-iid", "edge-non-iid") and classes_per_device > len(classes):
        raise InvalidValue(
            "partition.classes_per_device", f"must be ≤ {len(classes)}, the classes there are", classes_per_device
        )
    return class_of, len(classes), edge_of


def size_weights(num_devices: int, size_spread: float, seed: int) -> FloatArray:
    """Returns w_n = exp(size_spread · z_n), relative sizes of the devices' data.  [num_devices]"""
    return np.exp(size_spread * rng_for(seed, "partition-size").standard_normal(num_devices))


def partition_table(labels: ArrayLike, parts: Sequence[ArrayLike], num_classes: int) -> IntArray:
    """Returns the number of samples of each class on each device.  [num_devices, num_classes]"""
    array = _whole_vector("partition_table.labels", labels)
    whole_number("partition_table.num_classes", num_classes, at_least=int(array.max()) + 1)
    rows = [np.bincount(array[np.asarray(part, dtype=np.int64)], minlength=num_classes) for part in parts]
    return np.array(rows, dtype=np.int64).reshape(len(parts), num_classes)


def _natural(
    owner: ArrayLike | None, num_devices: int, num_samples: int, size_spread: float, seed: int, order: str
) -> Partitioned:
    """Gives the owners, in random order, to the devices in turn: one each if there are as many, else several.

    With O owners every device gets ⌊O / N⌋ or one more of them, and all of their samples. In the order "sorted" owner n
    goes to device n if there are as many; in the order "device" there must be as many.
    """
    if owner is None:
        way_out = "Other partitions: " + ", ".join(name for name in PARTITIONS if name != "natural")
        raise InvalidValue("partition.owner", "must be given for the partition natural", None, way_out)
    owners, owner_of = np.unique(_whole_vector("partition.owner", owner), return_inverse=True)
    if len(owner_of) != num_samples:
        raise InvalidValue(
            "partition.owner", f"must be given for each of {num_samples:,} samples", f"{len(owner_of):,}"
        )
    if order == "device" and len(owners) != num_devices:
        rule = f"must have one part for each of {num_devices:,} devices"
        way_out = f"Example: network.num_edges = 1 and network.devices_per_edge = {len(owners)}"
        raise InvalidValue("partition.owner", rule, f"{len(owners):,} parts", way_out)
    if len(owners) < num_devices:
        rule = f"must have an owner for each of {num_devices:,} devices"
        raise InvalidValue("partition.owner", rule, f"{len(owners):,} owners", "Use fewer devices or more samples.")
    if size_spread:
        rule = "must be 0 for the partition natural, where owners have the samples that they have"
        raise InvalidValue("partition.size_spread", rule, size_spread)
    if order != "random" and len(owners) == num_devices:
        return _holdings(owner_of, num_devices)
    device_of = np.empty(len(owners), dtype=np.int64)
    device_of[rng_for(seed, "partition-owners").permutation(len(owners))] = np.arange(len(owners)) % num_devices
    return _holdings(device_of[owner_of], num_devices)


def _checked_devices(kind: str, device: IntArray, task: PartitionTask) -> IntArray:
    """Returns the device of each sample as a partition assigns them; refuses others than there are."""
    if kind in _ASSIGN:
        return device
    array, field = np.asarray(device), f"The partition {kind!r}"
    if array.shape != task.class_of.shape or array.dtype.kind not in "iu":
        rule = f"must return the device of each of {len(task.class_of):,} samples"
        raise InvalidValue(field, rule, f"{array.dtype} {array.shape}", "-1 for samples that are not used")
    if array.min() < -1 or array.max() >= task.num_devices:
        rule = f"must return devices from 0 to {task.num_devices - 1}, or -1"
        raise InvalidValue(field, rule, f"{array.min()} to {array.max()}")
    return array.astype(np.int64)


def _whole_vector(field: str, value: ArrayLike) -> IntArray:
    array = np.asarray(value)
    if array.ndim != 1 or array.dtype.kind not in "iub" or not array.size:
        raise InvalidValue(field, "must be a non-empty vector of whole numbers", f"{array.dtype} {array.shape}")
    if int(array.min()) < 0:
        raise InvalidValue(field, "must be ≥ 0", int(array.min()))
    return array.astype(np.int64)


def _sizes(num_samples: int, weight: FloatArray) -> FloatArray:
    """Returns 1 + (samples - N) w_n / Σ w: no device is below one sample, if there are enough."""
    return 1.0 + (num_samples - len(weight)) * (weight / weight.sum())


def _iid(task: PartitionTask) -> IntArray:
    samples = np.arange(len(task.class_of))
    return _random_shares(samples, task.sizes, rng_for(task.seed, "partition-share"), len(samples))


def _shards(task: PartitionTask) -> IntArray:
    rng = rng_for(task.seed, "partition-classes")
    allowed = holders(len(task.sizes), task.num_classes, task.classes_per_device, rng)
    return _assign(task.class_of, allowed, task.sizes, rng_for(task.seed, "partition-share"))


def _dirichlet(task: PartitionTask) -> IntArray:
    """Lets devices take samples in random order, by mixes around the remaining supply.

    A device's mix is Dirichlet(α C p), where p are the shares of the C classes in the remaining supply: its mean is p,
    and α = 1 is uniform over all mixes while the classes are even. With p in place of 1 / C every device has its size
    and its skew to the very end of the supply.
    """
    rng = rng_for(task.seed, "partition-classes")
    left = np.bincount(task.class_of, minlength=task.num_classes)
    sizes = _floor(task.sizes)
    counts = np.zeros((len(sizes), task.num_classes), dtype=np.int64)
    for n in rng.permutation(len(sizes)):
        while (missing := sizes[n] - counts[n].sum()) > 0:  # again whenever a class has run out
            mix = dirichlet_mix(task.alpha * task.num_classes * left / left.sum(), rng)
            taken = np.minimum(whole_shares(missing, mix), left)
            counts[n] += taken
            left -= taken
    return _hand_out(task.class_of, counts, rng_for(task.seed, "partition-share"))


def dirichlet_mix(concentration: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Samples one mix, by logarithms of gamma variates, since for small α the variates underflow to 0 / 0."""
    safe = np.maximum(concentration, 1e-300)
    log_gamma = np.log(rng.standard_gamma(safe + 1.0)) + np.log1p(-rng.random(len(safe))) / safe
    log_gamma[concentration == 0] = -np.inf
    mix = np.exp(log_gamma - log_gamma.max())
    return mix / mix.sum()


def whole_shares(total: int, mix: FloatArray) -> IntArray:
    """Splits `total` by `mix`; the remainder of flooring goes to the largest fractions."""
    shares = total * mix
    whole = np.floor(shares).astype(np.int64)
    rest = total - whole.sum()
    whole[np.argsort(whole - shares, kind="stable")[:rest]] += 1
    return whole


def _edge_sizes(task: PartitionTask) -> FloatArray:
    return np.bincount(task.edge_of, weights=task.sizes).astype(np.float64)


def _edge_iid(task: PartitionTask) -> IntArray:
    edge_sizes = _edge_sizes(task)
    samples = np.arange(len(task.class_of))
    edge_share = _random_shares(samples, edge_sizes, rng_for(task.seed, "partition-share"), len(samples))
    owner = np.full(len(task.class_of), -1)
    for k in range(len(edge_sizes)):
        mine, devices = np.flatnonzero(edge_share == k), np.flatnonzero(task.edge_of == k)
        per_device = max(task.classes_per_device, -(-task.num_classes // len(devices)))
        rng = rng_for(task.seed, "partition-classes", k)
        allowed = holders(len(devices), task.num_classes, per_device, rng)
        local = _assign(task.class_of[mine], allowed, task.sizes[devices], rng)
        owner[mine[local >= 0]] = devices[local[local >= 0]]
    return owner


def _edge_non_iid(task: PartitionTask) -> IntArray:
    edge_sizes = _edge_sizes(task)
    per_edge = max(task.classes_per_device, -(-task.num_classes // len(edge_sizes)))
    allowed = holders(len(edge_sizes), task.num_classes, per_edge, rng_for(task.seed, "partition-classes"))
    edge_share = _assign(task.class_of, allowed, edge_sizes, rng_for(task.seed, "partition-share"))
    owner = np.full(len(task.class_of), -1)
    for k in range(len(edge_sizes)):
        mine, devices = np.flatnonzero(edge_share == k), np.flatnonzero(task.edge_of == k)
        sizes = np.maximum(_sizes(len(mine), task.sizes[devices]), 0.0)
        local = _random_shares(mine, sizes, rng_for(task.seed, "partition-share", k), len(task.class_of))
        owner[local >= 0] = devices[local[local >= 0]]
    return owner


_ASSIGN: dict[str, Callable[[PartitionTask], IntArray]] = {
    "iid": _iid,
    "shards": _shards,
    "dirichlet": _dirichlet,
    "edge-iid": _edge_iid,
    "edge-non-iid": _edge_non_iid,
}


def _random_shares(samples: IntArray, sizes: FloatArray, rng: np.random.Generator, num_samples: int) -> IntArray:
    """Returns the holder of each sample, -1 for those not in `samples` and the remainder of rounding.  [num_samples]"""
    counts = _floor(sizes)
    owner = np.full(num_samples, -1)
    owner[rng.permutation(samples)[: counts.sum()]] = np.repeat(np.arange(len(sizes)), counts)[: len(samples)]
    return owner


def holders(num_holders: int, num_classes: int, each: int, rng: np.random.Generator) -> FloatArray:
    """Returns 1 where a holder may hold a class: `each` classes per holder, every class held about equally often."""
    held = np.zeros(num_classes)
    allowed = np.zeros((num_holders, num_classes))
    for n in range(num_holders):
        # The classes with the fewest holders so far, ties broken at random.
        chosen = np.argsort(held + rng.random(num_classes) / 2)[:each]
        allowed[n, chosen] = 1.0
        held[chosen] += 1
    return allowed


def _assign(class_of: IntArray, allowed: FloatArray, sizes: FloatArray, rng: np.random.Generator) -> IntArray:
    """Returns the holder of each sample, -1 for none, from the classes that each may hold and its size."""
    supply = np.bincount(class_of, minlength=allowed.shape[1])
    return _hand_out(class_of, _round(_fit(allowed, sizes, supply), allowed, sizes, supply), rng)


def _hand_out(class_of: IntArray, counts: IntArray, rng: np.random.Generator) -> IntArray:
    """Returns the holder of each sample, -1 for none, if holder n gets counts[n, c] of class c.  [num_samples]"""
    owner = np.full(len(class_of), -1)
    for c, held in enumerate(counts.T):
        chosen = rng.permutation(np.flatnonzero(class_of == c))[: held.sum()]
        owner[chosen] = np.repeat(np.arange(len(counts)), held)
    return owner


def _fit(allowed: FloatArray, sizes: FloatArray, supply: IntArray) -> FloatArray:
    """Scales rows and columns in turn until rows sum to `sizes` and columns to `supply` (Sinkhorn's iteration).

    Columns come last: where both cannot hold, the supply does.
    """
    table = allowed.copy()
    for _ in range(_SWEEPS):
        table *= _ratio(sizes, table.sum(axis=1))[:, None]
        table *= _ratio(supply, table.sum(axis=0))[None, :]
        if np.all(np.abs(table.sum(axis=1) - sizes) < 0.01):
            break
    return table


def _ratio(wanted: np.ndarray, got: np.ndarray) -> np.ndarray:
    return np.divide(wanted, got, out=np.zeros(len(got)), where=got > 0)


def _round(table: FloatArray, allowed: FloatArray, sizes: FloatArray, supply: IntArray) -> IntArray:
    """Rounds `table` so that columns stay within `supply` and rows reach their sum, if they can."""
    got = table.sum(axis=1)
    target = _floor(np.where(np.abs(got - sizes) < 1.0, sizes, got))
    table = table * np.minimum(1.0, _ratio(target, got))[:, None]
    counts = _floor(table)
    left = supply - counts.sum(axis=0)
    for n in np.flatnonzero(target > counts.sum(axis=1)):
        missing = target[n] - counts[n].sum()
        order = np.argsort(counts[n] - table[n], kind="stable")  # the largest fraction cut off comes first
        for at_most in (1, target[n]):  # one of each, then what is still missing from wherever something is left
            for c in order[allowed[n, order] > 0]:
                given = min(left[c], at_most, missing)
                counts[n, c] += given
                left[c] -= given
                missing -= given
    return counts


def _floor(values: FloatArray) -> IntArray:
    """Returns ⌊values⌋, where 399.99999999 is a 400 with rounding errors."""
    return np.floor(values + 1e-6).astype(np.int64)


def _holdings(owner: IntArray, num_devices: int) -> Partitioned:
    """Returns the samples of each owner, ascending, from the owner of each sample, -1 for none."""
    order = np.argsort(owner, kind="stable")
    return Partitioned.of_sizes(
        order[np.count_nonzero(owner < 0) :], np.bincount(owner[owner >= 0], minlength=num_devices)
    )
