"""FedPart: after some rounds of the whole model, one layer at a time is trained and sent for some rounds, in cycles.

The layers that take turns are the prunable ones; weights that are never pruned are trained in every round. Turns do not
ask whether a layer fits: where it does not, the round is late.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from airprune.methods.masking.base import Masking, RoundView, Values, as_prepared, not_by_data
from airprune.methods.masking.fedpt import choose
from airprune.settings.section import MAX_COUNT, Count, Section

Array = np.ndarray


class FedPartOptions(Section):
    """When layers begin to take turns."""

    warm_up: Annotated[int, Field(ge=0, le=MAX_COUNT)] = Field(
        default=5, description="edge rounds in which the whole model is trained first"
    )
    rounds_each: Count = Field(default=2, description="edge rounds that a layer's turn takes")


def prepare(options: FedPartOptions, view: RoundView, values: Values) -> tuple[Array | None, Values]:
    """The layer whose turn it is."""
    done, layers = view.round_index - options.warm_up, view.shape.layers
    if done < 0:
        return None, values
    mask = np.zeros(layers.num_weights, dtype=bool)
    mask[layers.layers[done // options.rounds_each % len(layers)].span] = True
    return mask, values


def late(options: FedPartOptions) -> bool:
    return False


def whole_layers(options: FedPartOptions) -> bool:
    return True


MASKING = Masking(
    name="fedpart",
    summary="after a warm-up one layer at a time is trained and sent, in turn, whatever the deadline",
    source="after FedPart (Wang et al.)",
    Options=FedPartOptions,
    choose=choose,
    prepare=prepare,
    counts=as_prepared,
    adapts=late,
    whole_units=whole_layers,
    dense_compute=2 / 3,  # forward pass and input gradients; weight gradients only for what moves
    fully_open={"warm_up": MAX_COUNT},
    by_data=not_by_data,
)
