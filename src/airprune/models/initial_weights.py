"""Samples the initial weights of the paper's CNN as torch does, bit for bit, without torch.

A run with the native kernel would otherwise import torch, which takes longer than many such runs, to sample 44,000
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from airprune.models.layout import Shape
from airprune.randomness import rng_for

Array = np.ndarray
# Numbers that torch adds side by side: lanes of a vector, and vectors at a time. Where it could use longer vectors,
# the sums would differ in their last bits; so these are fixed.
_LANES, _AT_A_TIME = 8, 4
_LEVELS, _LEAST_POWER = 4, 4


def torch_seed(seed: int) -> int:
    """Returns the seed of torch's generator for the model of a scenario."""
    return int(rng_for(seed, "initial-weights").integers(2**63))


def initial_tensors(weights: Mapping[str, Shape], seed: int) -> Iterator[tuple[str, Array]]:
    """Yields (name, tensor) of every layer's weight and bias, uniform within ± 1/√inputs as torch's layers are.

    Args:
      weights: the shape of each layer's weight, in the order in which they are made.
      seed: of torch's generator.
    """
    stream = np.random.MT19937()
    stream._legacy_seeding(seed & 0xFFFFFFFF)  # as the algorithm's authors seed it
    for name, shape in weights.items():
        inputs = math.prod(shape[1:])
        bound = math.sqrt(3.0) * (math.sqrt(2.0 / (1.0 + math.sqrt(5.0) ** 2)) / math.sqrt(inputs))
        yield f"{name}.weight", _uniform(stream, shape, bound)
        yield f"{name}.bias", _uniform(stream, shape[:1], 1.0 / math.sqrt(inputs))


def _uniform(stream: np.random.MT19937, shape: Shape, bound: float) -> Array:
    """Takes 24 bits of each number, spread over ± bound in double precision and rounded once."""
    low, width = np.float32(-bound), np.float32(bound) - np.float32(-bound)
    parts = (stream.random_raw(math.prod(shape)) & 0xFFFFFF) * 2.0**-24
    return (parts * float(width) + float(low)).astype(np.float32).reshape(shape)


def centred(weight: Array) -> Array:
    """Returns every unit's weights less their mean."""
    rows = weight.reshape(len(weight), -1)
    means = _row_sums(np.ascontiguousarray(rows)) / rows.dtype.type(rows.shape[1])
    centred: Array = (rows - means[:, np.newaxis]).reshape(weight.shape)
    return centred


def _row_sums(rows: Array) -> Array:
    """Sums rows in torch's order: lanes of vectors, four vectors at a time, in steps that cascade."""
    num_rows, size = rows.shape
    num_vectors = size // _LANES
    num_steps = num_vectors // _AT_A_TIME
    vectors = rows[:, : num_vectors * _LANES].reshape(num_rows, num_vectors, _LANES)
    stepped = vectors[:, : num_steps * _AT_A_TIME].reshape(num_rows, num_steps, _AT_A_TIME, _LANES)
    columns = _cascaded(stepped)
    total = columns[:, 0]
    for rest in range(num_steps * _AT_A_TIME, num_vectors):
        total = total + vectors[:, rest]
    for column in range(1, _AT_A_TIME):
        total = total + columns[:, column]
    sums = np.zeros(num_rows, rows.dtype)
    for column in range(num_vectors * _LANES, size):
        sums += rows[:, column]
    for lane in range(_LANES):
        sums += total[:, lane]
    return sums


def _cascaded(steps: Array) -> Array:
    """Sums over axis 1: so many steps on the first level, whose sum goes to the second, and so on."""
    num_rows, num_steps, *rest = steps.shape
    power = max(_LEAST_POWER, max(num_steps - 1, 0).bit_length() // _LEVELS)
    sums = np.zeros((_LEVELS, num_rows, *rest), steps.dtype)
    for step in range(num_steps):
        sums[0] += steps[:, step]
        done = step + 1
        for level in range(1, _LEVELS):
            if done % (1 << (level * power)):
                break
            sums[level] += sums[level - 1]
            sums[level - 1] = 0.0
    for level in range(1, _LEVELS):
        sums[0] += sums[level]
    found: Array = sums[0]
    return found
