"""Stations that serve several devices at once (MU-MIMO): groups of devices, and the gains of zero forcing.

A station with M antennas hears U <= M devices together and separates them by zero forcing. With H = (h_1 … h_U) the
channels of a group, [M, U], device n has

    SINR_n = g_n p z_n / sigma^2,  z_n = 1 / [(H^H H)^-1]_nn = |h_n|^2 outside the span of the others,

in place of g_n p |h_n|^2 / sigma^2 alone. In Rayleigh fading, z_n of devices that meet at random is
Gamma(M - U + 1, 1).

Groups are chosen greedily (semi-orthogonal user selection): the strongest device that is left begins; then comes, as
long as the group has room, the strongest of those whose channel lies outside the span of the group by a part of at
least `_SEMI_ORTHOGONAL` of its power, or else the device with the largest such part. All devices end up in a group.
"""

from __future__ import annotations

import numpy as np

from airprune.checks import FloatArray
from airprune.wireless.channel import Radio, diffuse_scale, rician_k

Array = np.ndarray

# Part of a channel's power outside the span of the devices before it: alpha^2 = 0.3 of Yoo and Goldsmith.
_SEMI_ORTHOGONAL = 0.7
# Groups among whose devices each group is chosen: so many times U devices are searched, however large an edge is.
_GROUPS_SEARCHED = 8


def antenna_vectors(diffuse: FloatArray, radio: Radio, rng: np.random.Generator) -> Array:
    """Returns h of every device, complex, with |h|^2 the gain of maximum-ratio combining.  [num_devices, M]

    Direct paths come from a direction of the device's own, uniform and fixed for a run, and cross a uniform linear
    array with half a wavelength between antennas.

    Args:
      diffuse: as `diffuse_parts` has them.  [num_devices, M, 2]
      rng: stream of the directions.
    """
    scattered = diffuse_scale(radio) * (diffuse[:, :, 0] + 1j * diffuse[:, :, 1])
    k = rician_k(radio)
    if k == 0.0:
        return scattered
    angle = 2.0 * np.pi * rng.random(len(diffuse))
    phase = np.pi * np.sin(angle)[:, np.newaxis] * np.arange(radio.num_antennas)
    return np.asarray(scattered + np.sqrt(k / (k + 1.0)) * np.exp(1j * phase))


def mimo_groups(channels: Array, gain: FloatArray, edge: Array, num_streams: int) -> Array:
    """Returns the group of each device, numbers from 0 on, each within one edge and of U devices at the most.

    Args:
      channels: h.  [num_devices, M]
      gain: large-scale gain.  [num_devices]
      edge: station of each.  [num_devices]
      num_streams: U.
    """
    pool, place = _pools(edge, _GROUPS_SEARCHED * num_streams)
    num_pools, size = int(pool.max()) + 1, int(place.max()) + 1
    h = np.zeros((num_pools, size, channels.shape[1]), dtype=np.complex128)
    strength = np.full((num_pools, size), -1.0)
    h[pool, place] = channels
    strength[pool, place] = gain
    which = np.tile(np.arange(size), (num_pools, 1))
    first = -(-np.bincount(pool) // num_streams)
    first = np.cumsum(first) - first  # number of each pool's first group
    group = np.full((num_pools, size), -1)
    turn = 0
    while which.shape[1]:
        chosen = _one_group(h, strength, num_streams)
        rows = np.arange(len(h))[:, np.newaxis]
        group[rows, which[rows, chosen]] = first[:, np.newaxis] + turn
        stays = np.ones(which.shape, dtype=bool)
        stays[rows, chosen] = False
        left = which.shape[1] - chosen.shape[1]
        which, strength = (array[stays].reshape(len(h), left) for array in (which, strength))
        h = h[stays].reshape(len(h), left, h.shape[2])
        turn += 1
    return np.asarray(group[pool, place])


def _pools(edge: Array, size: int) -> tuple[Array, Array]:
    """Returns (the pool of each device, its place there): up to `size` devices of one edge each."""
    order = np.argsort(edge, kind="stable")
    sorted_edge = edge[order]
    starts = np.flatnonzero(np.r_[True, sorted_edge[1:] != sorted_edge[:-1]])
    counts = np.diff(starts, append=len(edge))
    place = np.arange(len(edge)) - np.repeat(starts, counts)
    pools = -(-counts // size)
    pool = np.repeat(np.cumsum(pools) - pools, counts) + place // size
    found = np.empty((2, len(edge)), dtype=np.int64)
    found[:, order] = pool, place % size
    return found[0], found[1]


def _one_group(h: Array, strength: FloatArray, num_streams: int) -> Array:
    """Returns the devices of the next group of every pool; those with a negative strength are none.

    [num_pools, up to num_streams]
    """
    num_pools, size, _ = h.shape
    rows, chosen = np.arange(num_pools), []
    power = np.maximum(np.sum(np.abs(h) ** 2, axis=2), np.finfo(np.float64).tiny)
    strength = np.where(strength < 0.0, -1.0, strength / np.max(strength * power, axis=1, keepdims=True))
    rest, score = h, np.where(strength < 0.0, -1.0, strength * power)
    for stream in range(min(num_streams, size)):
        best = np.argmax(score, axis=1)
        chosen.append(best)
        if stream + 1 == min(num_streams, size):
            break
        ray = rest[rows, best]
        ray = ray / np.maximum(np.linalg.norm(ray, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        rest = rest - (rest @ ray.conj()[:, :, np.newaxis]) * ray[:, np.newaxis, :]
        outside = np.sum(np.abs(rest) ** 2, axis=2)
        part = outside / power
        score = np.where(part >= _SEMI_ORTHOGONAL, 1.0 + strength * outside, part)
        score = np.where(strength < 0.0, -1.0, score)
        score[rows[:, np.newaxis], np.stack(chosen, axis=1)] = -2.0
    return np.stack(chosen, axis=1)


def zero_forcing_gain(channels: Array, group: Array) -> FloatArray:
    """Returns z_n of every device among the devices of its group.  [num_devices]"""
    gain = np.empty(len(group))
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(group[order]) != 0])
    counts = np.diff(starts, append=len(group))
    for size in np.unique(counts):
        member = order[starts[counts == size, np.newaxis] + np.arange(size)]
        h = channels[member]  # [num_groups, size, M]
        inverse = np.linalg.inv(h.conj() @ h.swapaxes(1, 2))
        gain[member] = 1.0 / np.einsum("gnn->gn", inverse).real
    return gain
