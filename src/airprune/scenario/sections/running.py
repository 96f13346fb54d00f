"""Settings of what happens to a run: events, attackers, diagnostics, records and the engine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from airprune.settings.section import (
    Count,
    FilePath,
    Label,
    Positive,
    Ratio,
    Section,
    Text,
)


class EventsSection(Section):
    """Random failures of devices in each edge round."""

    owner = "Scenario.events"

    dropout_probability: Ratio = Field(default=0.0, description="probability that a device's update is lost")
    straggler_probability: Ratio = Field(default=0.0, description="probability that a device is slower than planned")
    straggler_slowdown: Annotated[float, Field(ge=1)] = Field(
        default=2.0, description="slowdown of stragglers, a factor"
    )


class AttackSection(Section):
    """Attackers among the devices of a simulation: they train as ordered, and send something else."""

    owner = "Scenario.attack"

    kind: Literal["none", "sign-flip", "noise", "scaled", "label-flip", "free-rider", "colluding"] = Field(
        default="none",
        description="what attackers send: their update reversed (sign-flip), random numbers (noise), a multiple of it "
        "(scaled), one trained on reversed classes (label-flip), none (free-rider), or all of them the same, a few "
        "standard deviations from their mean (colluding)",
    )
    share: Ratio = Field(
        default=0.2, description="share of the network's devices that attack, sampled once per seed, for all methods"
    )
    strength: Positive | None = Field(
        default=None,
        description="sign-flip (1) and scaled (100): factor of the update; noise (100): standard deviation over the "
        "update's root mean square; colluding (1.5): standard deviations; none: the number in brackets",
    )

    @property
    def strength_used(self) -> float:
        """The strength, or that of the kind."""
        usual = {"scaled": 100.0, "noise": 100.0, "colluding": 1.5}
        return usual.get(self.kind, 1.0) if self.strength is None else self.strength


class DiagnosticsSection(Section):
    """Diagnostics that are recorded beside the results."""

    owner = "Scenario.diagnostics"

    gradients: bool = Field(default=False, description="record gradient norms and estimates of Theorem 1's constants")
    sub_models: bool = Field(default=False, description="record the test accuracy of the median device's sub-model")


class RecordsSection(Section):
    """Detail of the records of a round."""

    owner = "Scenario.records"

    devices: Literal["all"] | Count = Field(
        default="all",
        description="lists per device in the record of an edge round: all selected devices, or a random sample",
    )


class EngineSection(Section):
    """Processes that run the devices' work; results do not depend on them."""

    owner = "Scenario.engine"

    name: Annotated[Literal["serial", "processes", "dask"], Label()] = Field(
        default="processes",
        description="serial: in this process; processes: on the cores of this machine; dask: on a Dask cluster",
    )
    workers: Annotated[Count | None, Label()] = Field(
        default=None, description="number of worker processes; none: one per core, or all of the cluster"
    )
    scheduler: Annotated[Text | None, Label()] = Field(
        default=None, description="for dask: address (tls://host:8786) or scheduler file; none: a local cluster"
    )
    tls: Annotated[FilePath | None, Label()] = Field(
        default=None, description="for dask: folder with the certificates for tls:// addresses"
    )
    worker_timeout_s: Annotated[float, Field(ge=1, le=86_400), Label()] = Field(
        default=30.0,
        description="for dask: a worker that is unreachable for so long is reported, and its work runs elsewhere",
    )
    on_device_failure: Literal["fail", "drop-device"] = Field(
        default="fail",
        description="if a device's training fails three times: fail the run, or drop the device from the round",
    )
