"""Derives from the scenario, the same on every node, the method, the model's shape and the codec of updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune import __version__
from airprune.components.component import ModelShape, Owner, ReportKind, Slot
from airprune.deployment.digests import digest_of
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.errors import AirpruneError, UsageError
from airprune.methods.aggregation.cohort import CohortView
from airprune.methods.aggregation.over_the_air import OverTheAir
from airprune.methods.compression.base import Wire
from airprune.methods.registration import code_used_by
from airprune.methods.secure.cohort import SecureCohort
from airprune.methods.selection import Selection
from airprune.methods.topology import Topology
from airprune.models.without_torch import chain_of
from airprune.rounds.method import LocalMethod, Method
from airprune.rounds.secure import check_words, hides
from airprune.rounds.wire import Codec
from airprune.scenario import Scenario
from airprune.text import plain

if TYPE_CHECKING:
    from airprune.models.catalogue import FlatModel
    from airprune.rounds.experiment import Experiment

Array = np.ndarray
PROTOCOL = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class RunDefinition:
    """Defines one run for all of its nodes.

    Attributes:
      input_shape: of one sample.
    """

    scenario: Scenario
    input_shape: tuple[int, ...]
    num_classes: int
    num_devices: int
    num_edges: int

    @classmethod
    def from_welcome(cls, welcome: pb.Welcome) -> RunDefinition:
        """Reads what the cloud sends to nodes that join; raises UsageError if this node has other code for it."""
        scenario = Scenario.from_text(welcome.scenario, source="the scenario of the cloud")
        check_same_code(code_used_by(scenario), welcome.packages)
        return cls(
            scenario=scenario,
            input_shape=tuple(welcome.input_shape),
            num_classes=welcome.num_classes,
            num_devices=welcome.num_devices,
            num_edges=welcome.num_edges,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """All but the scenario, as `deployment.json` and a welcome hold it."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "scenario"}

    @cached_property
    def method(self) -> Method:
        return Method.of(self.scenario)

    @cached_property
    def shape(self) -> ModelShape:
        """Shape of the model, without torch for models of the catalogue."""
        known = catalogue_shape(self.scenario, input_shape=self.input_shape, num_classes=self.num_classes)
        if known is None:
            known = torch_model(self.scenario, input_shape=self.input_shape, num_classes=self.num_classes).shape
        return known.on(
            num_devices=self.num_devices,
            num_edges=self.num_edges,
            num_antennas=self.scenario.radio.num_antennas,
        )

    @cached_property
    def codec(self) -> Codec:
        wire = Wire.of(self.shape, value_bits=self.scenario.plan.bits_per_weight)
        return Codec(
            compression=self.method.compression, wire=wire, shape=self.shape, float64=self.scenario.model.float64
        )

    def slots(self, owner: Owner) -> dict[str, Slot]:
        return {slot.name: slot for slot in self.method.slots(self.shape) if slot.owner == owner}

    @property
    def hides(self) -> bool:
        """True if devices hide their updates from their edge."""
        return hides(self.method)

    def cohort(self, devices: Sequence[int]) -> SecureCohort:
        """Returns the devices of an edge that hide their updates; their secrets are their own."""
        view = CohortView(devices=tuple(devices), word_bits=self.scenario.plan.bits_per_weight)
        cohort = self.method.edge.cohort(view)
        assert isinstance(cohort, SecureCohort)
        return replace(cohort, secret=b"")

    @cached_property
    def model_bytes(self) -> int:
        return self.shape.num_state * self.codec.state_dtype.itemsize

    @cached_property
    def reports(self) -> dict[str, ReportKind] | None:
        """Kinds of all arrays that devices may report, by name; see `reports_of`."""
        return reports_of(self.method, self.shape)

    @cached_property
    def report_bytes(self) -> int:
        """Upper bound of what a device's reports add to its update."""
        has_reports = any(part.sends_reports for part in self.method.local_parts)
        return 64 * self.shape.num_state if has_reports else 0

    @cached_property
    def max_payload_bytes(self) -> int:
        """Upper bound of any message of the run: a few models, with the slots of their edge, masks and reports."""
        slots = sum(slot.num_bytes(self.shape) for slot in self.method.slots(self.shape) if slot.owner != Owner.RUN)
        return 4 * self.model_bytes + 2 * slots + 80 * self.shape.num_state + 2**20


def catalogue_shape(scenario: Scenario, *, input_shape: Sequence[int], num_classes: int) -> ModelShape | None:
    """Returns the shape of the scenario's model, without torch; None if the model is not of the catalogue."""
    model = scenario.model
    chain = chain_of(model.name, input_shape=input_shape, num_classes=num_classes)
    return None if chain is None else chain.shape(prunable=model.prunable, personal=model.personal)


def torch_model(scenario: Scenario, *, input_shape: Sequence[int], num_classes: int) -> FlatModel:
    """Builds the scenario's model; needs torch."""
    from airprune.models.catalogue import FlatModel, build_model

    settings = scenario.model
    module = build_model(settings.name, input_shape=input_shape, num_classes=num_classes, seed=scenario.seed)
    return FlatModel(module, prunable=settings.prunable, personal=settings.personal, float64=settings.float64)


def reports_of(method: Method | LocalMethod, shape: ModelShape) -> dict[str, ReportKind] | None:
    """Returns the kinds of all arrays that devices may report; None if a component reports without declaring them."""
    kinds: dict[str, ReportKind] = {}
    for component in method.local_parts:
        declared = component.reported(shape)
        if declared is None and component.sends_reports:
            return None
        kinds |= declared or {}
    return kinds


def state_digest(model: Array, slots: Mapping[str, Array]) -> str:
    """Returns the digest of an edge's model and slots, by which the cloud knows that both have the same."""
    arrays = [np.ascontiguousarray(array) for array in (model, *(slots[name] for name in sorted(slots)))]
    return digest_of(*(array.data for array in arrays)).hex()


def without_run(welcome: pb.Welcome) -> pb.Welcome:
    """Returns the welcome for a node that waits for the next run."""
    idle = pb.Welcome(stays=welcome.stays, denied=welcome.denied, parents=welcome.parents)
    idle.fleet.CopyFrom(welcome.fleet)
    return idle


def unexpected(error: Exception) -> Exception | None:
    """Returns the error if its traceback is of use, for `exc_info`; None for one that explains itself."""
    return None if isinstance(error, (AirpruneError, OSError)) else error


def check_same_code(here: Mapping[str, str], cloud: Mapping[str, str]) -> None:
    """Raises UsageError unless files and packages of a scenario's own components are the cloud's; none is ever sent."""
    for name in sorted({*here, *cloud}):
        if here.get(name) != cloud.get(name):
            known = f"{here[name][:12]} here" if here.get(name) else "none here"
            there = f"{cloud[name][:12]} at the cloud" if cloud.get(name) else "none at the cloud"
            raise UsageError(
                f"{name} must be the same code on all nodes, got {known}, {there}; install the same version."
            )


def check_versions(protocol: int, version: str) -> str:
    """Returns why a node of another version cannot join; empty if it can."""
    if (protocol, version) == (PROTOCOL, __version__):
        return ""
    return (
        f"It speaks protocol {protocol} of airprune {plain(version, 30)}; this is protocol {PROTOCOL} of airprune "
        f"{__version__}. Install the same version on both."
    )


def check_deployable(method: Method) -> None:
    """Topologies in which devices talk to each other, or begin at different times, have no real counterpart here.

    Nor have selections that end a round with the first so many uploads of all edges, since edges do not know of each
    other's.
    """
    if method.selection.overrides(Selection.barrier):
        raise UsageError(
            f"Selection {method.selection.name!r}, which ends rounds before the deadline, cannot be deployed; simulate "
            'it with `airprune run`, or choose selection.name="random-share".'
        )
    if isinstance(method.edge, OverTheAir):
        raise UsageError(
            f"Aggregation {method.edge.name!r}, whose signals add up on a simulated channel, cannot be deployed; "
            'simulate it with `airprune run`, or choose aggregation.edge="data-weighted".'
        )
    topology = method.topology
    relays = topology.overrides(Topology.relay)
    if relays or topology.overrides(Topology.due):
        what = "whose devices send to each other" if relays else "whose devices begin at different times"
        raise UsageError(
            f"Topology {topology.name!r}, {what}, cannot be deployed; simulate it with `airprune run`, or choose "
            'topology.name="hierarchical".'
        )


def check_is_real(experiment: Experiment) -> None:
    """Refuses attackers, secure sums that hide nothing, and a radio that no measured link has."""
    if experiment.scenario.attack.kind != "none":
        raise UsageError("Attackers are simulated, not deployed; set attack.kind=none, or use `airprune run`.")
    if hides(experiment.method):
        check_words(experiment.scenario, "a deployment")
        if not getattr(experiment.method.edge, "masked", True):
            raise UsageError(
                "Scenario.aggregation.secure-sum.masked must be true in a deployment, whose edges would see every "
                "update, got false. Example: aggregation.secure-sum.masked=true"
            )
    radio = experiment.radio
    if radio.reuse is not None:
        raise UsageError(
            f"Scenario.radio.reuse must be none in a deployment, whose links are measured, got {radio.reuse}. "
            "Example: radio.reuse=none"
        )
    if not radio.knows_fading:
        raise UsageError(
            "Scenario.radio.csi_correlation must be 1 in a deployment, whose links are measured, got "
            f"{radio.csi_correlation:g}. Example: radio.csi_correlation=1"
        )
    simulated = {
        "radio.num_streams": (radio.num_streams, 1),
        "radio.pilots": (radio.pilots, 0),
        "radio.report_bits": (radio.report_bits, 0),
        "radio.power_p0_dbm": (experiment.scenario.radio.power_p0_dbm, None),
        "network.traces": (experiment.scenario.network.traces, None),
        "network.mobility": (experiment.scenario.network.mobility, "none"),
    }
    for key, (got, usual) in simulated.items():
        if got != usual:
            word = "none" if usual is None else usual
            raise UsageError(
                f"Scenario.{key} must be {word} in a deployment, whose links are measured, got {got}. "
                f"Example: {key}={word}"
            )
    if radio.slice_noise:
        raise UsageError(
            "Scenario.radio.slice_noise must be false in a deployment, whose links are measured and paced, got true. "
            "Example: radio.slice_noise=false"
        )
