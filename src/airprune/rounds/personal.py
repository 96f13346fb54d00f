"""Layers that stay on their devices: neither sent nor averaged, trained on from round to round.

A device puts its own layers in the place of the received ones before it does anything else, and gives the edge back
what it received of them. So they are never pruned, cost no bits, and the cloud's model has them as they started.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from airprune.components.component import ModelShape, Owner, Slot

Array = np.ndarray
SLOTS = OWN, BEGUN = "personal.layers", "personal.begun"


def slots(shape: ModelShape) -> tuple[Slot, ...]:
    """A device's own layers, and whether it has trained them yet: until then they are those of the received model."""
    return (
        Slot(name=OWN, owner=Owner.DEVICE, shape=lambda s: (s.num_personal,), dtype="<f8"),
        Slot(name=BEGUN, owner=Owner.DEVICE, shape=lambda s: (1,), dtype="|i1"),
    )


def put_in(model: Array, memory: Mapping[str, Array], shape: ModelShape) -> Array:
    """The model as a device with this memory uses it.  [num_state]"""
    if not memory[BEGUN][0]:
        return model
    own = model.copy()
    own[shape.personal] = memory[OWN]
    return own


def take_out(state: Array, received: Array, shape: ModelShape) -> dict[str, Array]:
    """Puts the received layers back into the state, in place; the slots that hold the device's own."""
    own = state[shape.personal].astype(np.float64)
    state[shape.personal] = received[shape.personal]
    return {OWN: own, BEGUN: np.ones(1, dtype=np.int8)}


def samples_like(train_y: Array, test_y: Array, count: int, rng: np.random.Generator) -> Array:
    """Indices of `count` test samples drawn with the class proportions of a device's own.

    Classes without test samples are left out; a device that has only such gets any samples.  [count]
    """
    num_classes = int(max(train_y.max(), test_y.max())) + 1
    there = np.bincount(test_y, minlength=num_classes)
    odds = np.bincount(train_y, minlength=num_classes) * (there > 0.0)
    if not odds.any():
        odds = there
    label = rng.choice(num_classes, size=count, p=odds / odds.sum())
    order = np.argsort(test_y, kind="stable")
    starts = np.concatenate([[0], np.cumsum(there)[:-1]])
    drawn: Array = order[starts[label] + np.floor(rng.random(count) * there[label]).astype(np.int64)]
    return drawn
