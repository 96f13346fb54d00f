"""Describes one experiment as frozen, validated data: read from TOML, changed by dotted keys, hashed, written back.

    preset or file ──► layers merged ──► Scenario ──► build_network(), build_radio(), the run
                                         ├── to_toml(), to_dict(), json_schema()
                                         └── hash, diff(other)

sections   the settings, with Table I as the defaults
presets    the scenarios that come with the package
scenario   the whole, and the ways to get and change one
build      the network and the radio that a scenario describes
"""

from airprune.scenario.presets import presets
from airprune.scenario.scenario import Scenario
from airprune.scenario.sections import (
    ClockSection,
    DataSection,
    DiagnosticsSection,
    EngineSection,
    EventsSection,
    ModelSection,
    NetworkSection,
    PlanSection,
    RadioSection,
    RecordsSection,
    RoundsSection,
    TrainSection,
)

__all__ = [
    "Scenario",
    "presets",
    "NetworkSection",
    "RadioSection",
    "ModelSection",
    "DataSection",
    "PlanSection",
    "ClockSection",
    "TrainSection",
    "RoundsSection",
    "EventsSection",
    "DiagnosticsSection",
    "RecordsSection",
    "EngineSection",
]
