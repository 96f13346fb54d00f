"""Settings of a method: the plan and the components that answer the questions of a round."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from airprune.components.choice import ChoiceSection
from airprune.errors import InvalidValue
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.aggregation.steps import STEPS
from airprune.methods.association import ASSOCIATIONS
from airprune.methods.compression import COMPRESSIONS
from airprune.methods.masking import MASKINGS
from airprune.methods.objectives import OBJECTIVES
from airprune.methods.selection import SELECTIONS
from airprune.methods.topology import TOPOLOGIES
from airprune.methods.weighting import WEIGHTINGS
from airprune.planning.problem import CLASSIFIER_CAP
from airprune.planning.schemes import SCHEMES
from airprune.settings.section import (
    Count,
    Label,
    NonNegative,
    Positive,
    Ratio,
    Section,
    Text,
)


class PlanSection(ChoiceSection):
    """Deadline, and the allocation of bandwidth and pruning, Eqs. (9) and (25)–(29)."""

    owner = "Scenario.plan"
    choices: ClassVar = {"scheme": SCHEMES, "weighting": WEIGHTINGS}

    scheme: Text = Field(
        default="optimal",
        description="scheme that allocates bandwidth shares and pruning ratios, see `airprune schemes`",
    )
    weighting: Text = Field(
        default="plain",
        description="weight c_n of a device in the scheme's objective, for schemes that have weights",
    )
    deadline_s: Positive | Literal["auto"] = Field(
        default=0.030,
        description="deadline T_th of an edge round, computation plus uplink; auto: the one with the least expected "
        "time to accuracy, for schemes that choose compression levels or work",
    )
    on_time: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="probability with which a planned device is to meet the deadline where plans do not know fading "
        "exactly (radio.csi_correlation below 1) or devices may be stragglers (events); none: they count on the mean "
        "gain and the usual compute time. In a deployment: by quantiles of each device's measured times; none: by "
        "their estimate and a margin of 15 %",
    )
    error_cost: Positive = Field(
        default=1.0,
        description="for deadline_s = auto: rounds lost per round that a compression error waits in error feedback",
    )
    bits_per_weight: Positive = Field(default=64.0, description="uplink bits q-hat per kept weight")
    framing: bool = Field(
        default=False,
        description="charge uploads as a deployment sends them: header, statistics, biases, mask, whole bytes",
    )
    cycles_per_weight: NonNegative = Field(default=20.0, description="CPU cycles C_n per weight and local iteration")
    local_iterations: Count = Field(
        default=2,
        description="local iterations T of Eq. (9), for the paper's clock only; training follows train.local_epochs",
    )
    min_pruning_ratio: Ratio = Field(default=0.0, description="lower bound of the pruning ratio rho_n")
    max_pruning_ratio: Ratio = Field(
        default=CLASSIFIER_CAP, description="upper bound of the pruning ratio rho_n; 1 would remove the classifier"
    )
    max_energy_j: Positive | None = Field(
        default=None,
        description="energy budget of a device per edge round, for schemes that choose CPU frequency and power",
    )
    infeasible: Literal["drop", "fail"] = Field(
        default="drop",
        description="for edges that cannot meet the deadline: drop the blocking devices (an edge without others sits "
        "out the round), or fail the run",
    )

    @model_validator(mode="after")
    def _agree(self) -> PlanSection:
        self.check_order("min_pruning_ratio", "max_pruning_ratio")
        return self


class TopologySection(ChoiceSection):
    """Tree of aggregation, and its links."""

    owner = "Scenario.topology"
    choices: ClassVar = {"name": TOPOLOGIES}

    name: Text = Field(default="hierarchical", description="flat: the cloud serves all devices with its own bandwidth")


class AssociationSection(ChoiceSection):
    """Association of devices with edges."""

    owner = "Scenario.association"
    choices: ClassVar = {"name": ASSOCIATIONS}

    name: Text = Field(default="fixed", description="fixed: every device stays with the edge of its placement")


class SelectionSection(ChoiceSection):
    """Client selection in each edge round."""

    owner = "Scenario.selection"
    choices: ClassVar = {"name": SELECTIONS}

    name: Text = Field(
        default="everyone", description="devices that are not selected get no bandwidth and spend no energy"
    )


class MaskingSection(ChoiceSection):
    """Sub-model that a device holds, trains and sends, Eqs. (1)–(3) and (5)."""

    owner = "Scenario.masking"
    choices: ClassVar = {"name": MASKINGS}

    name: Text = Field(default="probe", description="probe is the paper's: the least important weights are set to zero")
    charged: bool = Field(
        default=False,
        description="charge what choosing masks on devices costs: the probe minibatch and the mask's bits, with any "
        "masking that ranks weights; false: as its count_probe and count_mask_bits say",
    )


class ObjectiveSection(ChoiceSection):
    """Local objective of a device, Eq. (7)."""

    owner = "Scenario.objective"
    choices: ClassVar = {"name": OBJECTIVES}

    name: Text = Field(default="plain", description="plain: the loss alone; prox adds a proximal term")


class CompressionSection(ChoiceSection):
    """Compression of updates on the uplink."""

    owner = "Scenario.compression"
    choices: ClassVar = {"name": COMPRESSIONS}

    name: Text = Field(
        default="cast",
        description="compressor of a device's update; cast: values uncompressed, at plan.bits_per_weight bits each",
    )


class BackhaulSection(ChoiceSection):
    """Compression of updates on the links above the edges, at all levels of a tree; without error feedback."""

    owner = "Scenario.backhaul"
    choices: ClassVar = {"name": COMPRESSIONS}

    name: Text = Field(default="cast", description="compressor, as of compression.name; cast: values uncompressed")


class AggregationSection(ChoiceSection):
    """Aggregation of models at edges and cloud, Eqs. (12) and (13), and their server optimisers."""

    owner = "Scenario.aggregation"
    choices: ClassVar = {
        "edge": AGGREGATIONS,
        "cloud": AGGREGATIONS,
        "edge_step": STEPS,
        "cloud_step": STEPS,
    }

    edge: Text = Field(default="masked-mean", description="aggregation of the devices' models at their edge, Eq. (12)")
    cloud: Text = Field(default="masked-mean", description="aggregation of the edges' models at the cloud, Eq. (13)")
    edge_step: Text = Field(default="replace", description="server optimiser of edges; replace: the aggregate itself")
    cloud_step: Text = Field(
        default="replace", description="server optimiser of the cloud; replace: the aggregate itself"
    )
    min_contributors: Count = Field(
        default=1, description="at an edge, a weight kept by fewer devices than this stays unchanged, Eq. (12)"
    )
    rollback: Annotated[float, Field(ge=1)] | None = Field(
        default=None,
        description="an aggregate that is not finite, or whose update is more than this many times as long as the "
        "children's median one, is discarded: the model stays as it was; children with such updates are recorded as "
        "suspected; none: never",
    )


class PrivacySection(Section):
    """Differential privacy of updates, before compression; off unless clip_norm is given."""

    owner = "Scenario.privacy"

    clip_norm: Positive | None = Field(
        default=None,
        description="clipping norm C: longer updates are scaled to this L2 norm over all entries; none: no clipping",
    )
    noise_multiplier: NonNegative = Field(
        default=0.0, description="z: Gaussian noise of standard deviation z C is added to every entry that is sent"
    )
    noise_of: Literal["update", "sum"] = Field(
        default="update",
        description="what has the noise: every update, or, with aggregation.edge = secure-sum, the sum of an edge's "
        "updates: each device then adds z C / sqrt(t), where t is the least number of devices that opens the sum",
    )
    noise_from: Literal["device", "seed"] = Field(
        default="device",
        description="source of the noise in a deployment: the device's own, secret randomness, or the run's seed",
    )
    delta: Annotated[float, Field(gt=0, lt=1), Label()] = Field(
        default=1e-5, description="delta of the reported (epsilon, delta); it changes no result"
    )

    @model_validator(mode="after")
    def _agree(self) -> PrivacySection:
        if self.noise_multiplier and self.clip_norm is None:
            rule = "must be 0 without clip_norm, which says how long an update can be"
            way_out = "Example: clip_norm = 1.0"
            raise InvalidValue(f"{self.owner}.noise_multiplier", rule, self.noise_multiplier, way_out)
        return self
