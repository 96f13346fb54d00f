"""The settings of a scenario, one class per section. Defaults are the paper's Table I, or our reading of the paper."""

from __future__ import annotations

from airprune.scenario.sections.learning import (
    DataSection,
    EvaluationSection,
    ModelSection,
    RoundsSection,
    StopSection,
    TrainSection,
)
from airprune.scenario.sections.methods import (
    AggregationSection,
    AssociationSection,
    BackhaulSection,
    CompressionSection,
    MaskingSection,
    ObjectiveSection,
    PlanSection,
    PrivacySection,
    SelectionSection,
    TopologySection,
)
from airprune.scenario.sections.network import (
    ClockSection,
    NetworkSection,
    RadioSection,
)
from airprune.scenario.sections.running import (
    AttackSection,
    DiagnosticsSection,
    EngineSection,
    EventsSection,
    RecordsSection,
)

__all__ = [
    "NetworkSection",
    "RadioSection",
    "ModelSection",
    "DataSection",
    "PlanSection",
    "TopologySection",
    "AssociationSection",
    "SelectionSection",
    "MaskingSection",
    "ObjectiveSection",
    "CompressionSection",
    "BackhaulSection",
    "AggregationSection",
    "PrivacySection",
    "TrainSection",
    "ClockSection",
    "RoundsSection",
    "EvaluationSection",
    "StopSection",
    "EventsSection",
    "AttackSection",
    "DiagnosticsSection",
    "RecordsSection",
    "EngineSection",
]
