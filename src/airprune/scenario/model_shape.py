"""Finds the shape of the model that a scenario trains, without its data or a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airprune.components.component import ModelShape

if TYPE_CHECKING:
    from airprune.scenario import Scenario


def shape_of(scenario: Scenario) -> ModelShape:
    """Returns the shape of the model as a run builds it for the data set; biases do not count as weights."""
    from airprune.models.catalogue import (  # needs torch, which readers of finished runs do without
        FlatModel,
        build_model,
    )
    from airprune.scenario.data import entry_of  # which imports the scenario

    data, settings = entry_of(scenario), scenario.model
    module = build_model(
        settings.name,
        input_shape=data.feature_shape,
        num_classes=data.num_classes,
        seed=scenario.seed,
        shape_only=True,
    )
    return FlatModel(module, prunable=settings.prunable, personal=settings.personal).shape
