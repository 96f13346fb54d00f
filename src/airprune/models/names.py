"""Lists the models of the catalogue and the names of their layers, without torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airprune.components.registry import Registry

# Each is called with the shape of one input and the number of classes.
MODELS: Registry[Callable[..., Any]] = Registry(
    "model",
    {
        "paper-cnn": "airprune.models.catalogue:paper_cnn",
        "cifar-cnn": "airprune.models.catalogue:cifar_cnn",
        "resnet-8": "airprune.models.catalogue:resnet_8",
        "mlp": "airprune.models.catalogue:MLP",
        "char-cnn": "airprune.models.catalogue:char_cnn",
    },
)

# Hidden units of those that are chains of layers.
HIDDEN = {"paper-cnn": 8, "cifar-cnn": 64, "mlp": 64}

PRUNABLE, PERSONAL = "Scenario.model.prunable", "Scenario.model.personal"
# The personal layer that is the last with a weight matrix; the prunable ones that are all linear and convolutional.
LAST, EVERY_LAYER = "last", "*"
