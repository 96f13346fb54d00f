"""Lists the losses and metrics. To add one, write its file and list it here.

base            the interface of losses and metrics
classification  cross-entropy, accuracy
tokens          cross-entropy of tokens, perplexity
per_class       accuracy and F1 of each class
regression      mse, mae, huber
mixed           weighted sums of losses
own             functions of users
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from airprune.components.registry import Registry
from airprune.errors import InvalidValue

if TYPE_CHECKING:
    from airprune.models.losses.base import Loss, Metric

CROSS_ENTROPY = "cross-entropy"
LOSSES: Registry[Loss] = Registry(
    "losses",
    {
        CROSS_ENTROPY: "airprune.models.losses.classification:CROSS_ENTROPY",
        "mse": "airprune.models.losses.regression:MSE",
        "huber": "airprune.models.losses.regression:HUBER",
        "tokens": "airprune.models.losses.tokens:TOKENS",
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
        "perplexity": "airprune.models.losses.tokens:PERPLEXITY",
    },
)

# Before the name of a function that was given to `run`, in scenarios of such runs.
OWN = "own:"
# The metric that goes with the loss.
AUTO = "auto"


def terms_of(text: str) -> dict[str, float]:
    """Returns the weights of the losses in a sum, "0.7 mse + 0.3 huber"; one name alone has the weight 1."""
    found: dict[str, float] = {}
    for term in text.split(" + "):
        number, _, name = term.strip().partition(" ")
        try:
            weight = float(number) if name else 1.0
        except ValueError:
            weight = math.nan
        name = name.removeprefix("* ").strip() or number
        if not (math.isfinite(weight) and weight > 0.0) or name in found:
            rule = "must be a loss, or a sum of different ones with weights > 0"
            raise InvalidValue("Scenario.train.loss", rule, repr(text[:60]), 'Example: "0.7 mse + 0.3 huber"')
        found[name] = weight
    return found


def loss_named(text: str) -> Loss:
    """Returns the loss of a name, or the weighted sum of several; its metric is that of the first."""
    terms = terms_of(text)
    if len(terms) == 1 and text in LOSSES:
        return LOSSES[text]
    from airprune.models.losses.mixed import mixed_loss  # of torch's tensors

    return mixed_loss(text, [(weight, LOSSES[name]) for name, weight in terms.items()])


__all__ = ["AUTO", "CROSS_ENTROPY", "LOSSES", "METRICS", "OWN", "loss_named", "terms_of"]
