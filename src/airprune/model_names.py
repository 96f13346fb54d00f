"""The models of the catalogue by name, so that forms and docs can list them without torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airprune.registry import Registry

# Each is called with the shape of one input and the number of classes.
MODELS: Registry[Callable[..., Any]] = Registry(
    "model",
    {
        "paper-cnn": "airprune.models:paper_cnn",
        "cifar-cnn": "airprune.models:cifar_cnn",
        "mlp": "airprune.models:MLP",
    },
)
