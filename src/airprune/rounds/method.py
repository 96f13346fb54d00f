"""The components that a scenario chooses, each bound to its options, and the memory they declare together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from airprune.components.component import Component, LocalComponent, ModelShape, Owner, Slot
from airprune.errors import InvalidValue
from airprune.methods.aggregation import Aggregation
from airprune.methods.aggregation.steps import Step
from airprune.methods.association import Association
from airprune.methods.compression import Compression
from airprune.methods.masking import Masking
from airprune.methods.objectives import Objective
from airprune.methods.selection import Selection
from airprune.methods.topology import Topology
from airprune.methods.weighting import Weighting
from airprune.planning.schemes import Scheme
from airprune.rounds.sending import personal_slots
from airprune.scenario import Scenario
from airprune.wireless.channels import Channel

# The parts of a method, and the scenario keys that choose them.
CHOICES = {
    "association": "association.name",
    "selection": "selection.name",
    "weighting": "plan.weighting",
    "scheme": "plan.scheme",
    "masking": "masking.name",
    "objective": "objective.name",
    "compression": "compression.name",
    "backhaul": "backhaul.name",
    "edge": "aggregation.edge",
    "cloud": "aggregation.cloud",
    "edge_step": "aggregation.edge_step",
    "cloud_step": "aggregation.cloud_step",
    "topology": "topology.name",
}


@dataclass(frozen=True, kw_only=True)
class Method:
    """All choices of a scenario; `selection`, `masking`, … answer one question each (see their packages).

    Attributes:
      channel: of the radio; a part of the environment, so that no recipe sets it.
      personal: whether some layers stay on the devices.
    """

    channel: Channel
    association: Association
    selection: Selection
    weighting: Weighting
    scheme: Scheme
    masking: Masking
    objective: Objective
    compression: Compression
    backhaul: Compression
    edge: Aggregation
    cloud: Aggregation
    edge_step: Step
    cloud_step: Step
    topology: Topology
    personal: bool = False

    @classmethod
    def of(cls, scenario: Scenario) -> Method:
        chosen = {part: _chosen(scenario, key) for part, key in CHOICES.items()}
        if scenario.masking.charged:
            chosen["masking"] = chosen["masking"].fully_charged()
        return cls(**chosen, channel=_chosen(scenario, "radio.channel"), personal=bool(scenario.model.personal))

    @property
    def components(self) -> dict[str, str]:
        """Names by scenario key."""
        return {key: getattr(self, part).name for part, key in CHOICES.items()}

    @property
    def local(self) -> LocalMethod:
        """The part that devices need."""
        return LocalMethod(
            selection=self.selection,
            masking=self.masking,
            objective=self.objective,
            compression=self.compression,
            aggregation=self.edge,
        )

    @property
    def local_parts(self) -> tuple[LocalComponent, ...]:
        """Components that may keep state on devices, or have them report."""
        return self.local.local_parts

    def slots(self, shape: ModelShape) -> tuple[Slot, ...]:
        """The memory of all components and of personal layers. The steps of edges and cloud have names of their own."""
        found = list(self._declared(shape))
        names = [slot.name for slot in found]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidValue("Slots", "must have names of their own", f"{twice!r} twice")
        return tuple(found)

    def _declared(self, shape: ModelShape) -> Iterator[Slot]:
        yield from self.channel.slots(shape)
        for part in CHOICES:
            component: Component = getattr(self, part)
            if part == "backhaul":  # remembers nothing
                continue
            for slot in component.slots(shape):
                if part in ("edge_step", "cloud_step"):
                    owner = Owner.EDGE if part == "edge_step" else Owner.CLOUD
                    yield replace(slot, name=tier_name(part, slot.name), owner=owner)
                else:
                    yield slot
        if self.personal:
            yield from personal_slots(shape)


@dataclass(frozen=True, kw_only=True)
class LocalMethod:
    """The device's part of a method, and the aggregation of its uploads."""

    selection: Selection
    masking: Masking
    objective: Objective
    compression: Compression
    aggregation: Aggregation

    @property
    def local_parts(self) -> tuple[LocalComponent, ...]:
        """Components that may keep state on devices, or have them report."""
        return self.masking, self.objective, self.selection


def tier_name(tier: str, slot: str) -> str:
    """The name of a step's slot at one tier: both tiers may use the same step."""
    return f"{tier}/{slot}"


def _chosen(scenario: Scenario, key: str) -> Any:
    """The component that a key of the scenario names, with its options."""
    section, _, field = key.partition(".")
    return getattr(scenario, section).chosen(field)
