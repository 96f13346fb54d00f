"""Lists the models of the catalogue and the names of their layers, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airprune.components.registry import Registry, imported
from airprune.models.base import Model

if TYPE_CHECKING:
    from torch import nn

_SUMMARIES = {
    "paper-cnn": "the paper's CNN for images: two convolutions, 8 hidden units",
    "cifar-cnn": "the same with 64 hidden units",
    "resnet-8": "a residual network of eight layers for images",
    "mlp": "one hidden layer of 64 units, for samples of any shape",
    "char-cnn": "a causal convolutional network that predicts the next character",
    "char-lora": "a small transformer that predicts the next character, trained on Milton, with adapters of rank 8",
}


def _listed(name: str, address: str) -> Model:
    def build(input_shape: Sequence[int], num_classes: int) -> nn.Module:
        module: nn.Module = imported(name, address)(input_shape, num_classes)  # imports torch
        return module

    return Model(name=name, summary=_SUMMARIES[name], build=build)


MODELS: Registry[Model] = Registry(
    "models",
    {
        "paper-cnn": "airprune.models.catalogue:paper_cnn",
        "cifar-cnn": "airprune.models.catalogue:cifar_cnn",
        "resnet-8": "airprune.models.catalogue:resnet_8",
        "mlp": "airprune.models.catalogue:MLP",
        "char-cnn": "airprune.models.catalogue:char_cnn",
        "char-lora": "airprune.models.char_transformer:char_lora",
    },
    _listed,
)

# Hidden units of those that are chains of layers.
HIDDEN = {"paper-cnn": 8, "cifar-cnn": 64, "mlp": 64}

PRUNABLE, PERSONAL = "Scenario.model.prunable", "Scenario.model.personal"
# The personal layer that is the last with a weight matrix; the prunable ones that are all linear and convolutional.
LAST, EVERY_LAYER = "last", "*"
