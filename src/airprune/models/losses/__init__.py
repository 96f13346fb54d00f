"""Lists the losses and metrics. To add one, write its file and list it here.

base            the interface of losses and metrics
classification  cross-entropy, accuracy
per_class       accuracy and F1 of each class
regression      mse, mae, huber
own             functions of users
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airprune.components.registry import Registry

if TYPE_CHECKING:
    from airprune.models.losses.base import Loss, Metric

CROSS_ENTROPY = "cross-entropy"
LOSSES: Registry[Loss] = Registry(
    "losses",
    {
        CROSS_ENTROPY: "airprune.models.losses.classification:CROSS_ENTROPY",
        "mse": "airprune.models.losses.regression:MSE",
        "huber": "airprune.models.losses.regression:HUBER",
    },
)
METRICS: Registry[Metric] = Registry(
    "metrics",
    {
        "accuracy": "airprune.models.losses.classification:ACCURACY",
        "mae": "airprune.models.losses.regression:MAE",
        "class-accuracy": "airprune.models.losses.per_class:CLASS_ACCURACY",
        "class-f1": "airprune.models.losses.per_class:CLASS_F1",
        "f1": "airprune.models.losses.per_class:F1",
    },
)

# Before the name of a function that was given to `run`, in scenarios of such runs.
OWN = "own:"
# The metric that goes with the loss.
AUTO = "auto"

__all__ = ["AUTO", "CROSS_ENTROPY", "LOSSES", "METRICS", "OWN"]
