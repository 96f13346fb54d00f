"""The settings of a scenario, one class per section. Defaults are the paper's Table I, or our reading of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from airprune.components.choice import ChoiceSection
from airprune.data.partitions import PARTITIONS
from airprune.errors import InvalidValue, UnknownName
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.aggregation.steps import STEPS
from airprune.methods.association import ASSOCIATIONS
from airprune.methods.augmentations import AUGMENTATIONS
from airprune.methods.compression import COMPRESSIONS
from airprune.methods.loops import LOOPS, MINIBATCH_STEPS
from airprune.methods.masking import MASKINGS
from airprune.methods.objectives import OBJECTIVES
from airprune.methods.optimisers import OPTIMISERS
from airprune.methods.schedules import SCHEDULES
from airprune.methods.selection import SELECTIONS
from airprune.methods.topology import TOPOLOGIES
from airprune.methods.weighting import WEIGHTINGS
from airprune.models.kernels import KERNELS
from airprune.models.losses import AUTO, CROSS_ENTROPY, LOSSES, METRICS, OWN, terms_of
from airprune.planning.problem import CLASSIFIER_CAP
from airprune.planning.schemes import SCHEMES
from airprune.settings.section import (
    MAX_COUNT,
    Count,
    Decibel,
    FilePath,
    Label,
    NonNegative,
    PerEdge,
    Positive,
    Ratio,
    Section,
    Text,
)
from airprune.text import shown
from airprune.wireless.channel import RECEIVE_POWER_W
from airprune.wireless.channels import CHANNELS
from airprune.wireless.device_speed.boards import BOARDS, EFFICIENCY
from airprune.wireless.device_speed.profile import clock_keys
from airprune.wireless.latency import EFFECTIVE_CAPACITANCE
from airprune.wireless.path_loss import PATH_LOSS


class NetworkSection(Section):
    """Cloud, edges and devices."""

    owner = "Scenario.network"

    num_edges: Count = Field(default=5, description="number K of edge servers")
    devices_per_edge: PerEdge = Field(
        default=5, description="number N_k of devices per edge: one number, or a list with one entry per edge"
    )
    placement: Literal["ring", "disc"] = Field(
        default="ring",
        description="positions of devices between inner_m and outer_m: uniform in distance (ring) or in area (disc)",
    )
    inner_m: NonNegative = Field(default=118.0, description="smallest distance of a device to its edge server")
    outer_m: Positive = Field(default=152.0, description="largest distance of a device to its edge server")
    flat_inner_m: NonNegative = Field(default=580.0, description="smallest distance of a device to the cloud, if flat")
    flat_outer_m: Positive = Field(default=790.0, description="largest distance of a device to the cloud, if flat")
    edge_distance_m: NonNegative = Field(default=685.0, description="distance of every edge server to the cloud")
    cpu_hz: Positive = Field(default=3e9, description="CPU frequency f_n of every device")
    cpu_hz_max: Positive | None = Field(
        default=None, description="if given, CPU frequencies are sampled from cpu_hz to this value"
    )
    cpu_spread: Literal["uniform", "log-uniform"] = Field(
        default="uniform",
        description="with cpu_hz_max: frequencies are uniform, or their logarithms are, as of devices of several kinds",
    )
    cpu_kinds_hz: tuple[Positive, ...] = Field(
        default=(), description="CPU frequencies of several kinds of device, which come in turn; overrides cpu_hz"
    )
    table: FilePath | None = Field(
        default=None,
        description="CSV or JSON table of devices as for `airprune plan`: device, edge and one of snr_db, rate_mbps, "
        "distance_m or coordinates; overrides counts and placement",
    )

    @model_validator(mode="after")
    def _agree(self) -> NetworkSection:
        for low, high in (("inner_m", "outer_m"), ("flat_inner_m", "flat_outer_m"), ("cpu_hz", "cpu_hz_max")):
            self.check_order(low, high)
        sizes = self.devices_per_edge
        if isinstance(sizes, tuple) and len(sizes) != self.num_edges:
            rule = f"must have one entry for each of {self.num_edges} edges"
            raise InvalidValue(f"{self.owner}.devices_per_edge", rule, list(sizes[:8]), "Or set num_edges to match")
        if sum(self.device_counts) > MAX_COUNT:
            rule = f"must make at most {MAX_COUNT:,} devices in all"
            raise InvalidValue(f"{self.owner}.devices_per_edge", rule, f"{sum(self.device_counts):,}")
        return self

    @property
    def device_counts(self) -> list[int]:
        """Returns N_k of every edge as placed; a table has its own counts."""
        sizes = self.devices_per_edge
        return list(sizes) if isinstance(sizes, tuple) else [sizes] * self.num_edges


# Thermal noise k T of 290 K, and the noise figure of a usual receiver.
_THERMAL = {"noise_density_dbm_per_hz": -174.0, "noise_figure_db": 7.0}


class RadioSection(ChoiceSection):
    """Channel between an edge and its devices, in the units of data sheets."""

    owner = "Scenario.radio"
    choices: ClassVar = {"channel": CHANNELS}
    either = (("noise_power_dbm", "noise_density_dbm_per_hz"),)

    channel: Text = Field(
        default="block-fading", description="model of the links: path loss, fading and rates; see `airprune methods`"
    )
    bandwidth_hz: Positive = Field(default=20e6, description="uplink bandwidth B of each edge")
    transmit_power_dbm: Decibel = Field(default=28.0, description="transmit power p_n of every device")
    noise_power_dbm: Decibel | None = Field(default=-110.0, description="noise power sigma^2 over the whole bandwidth")
    noise_density_dbm_per_hz: Decibel | None = Field(
        default=None,
        description="noise density, in place of noise_power_dbm; noise = thermal is short for a density of -174 and a "
        "noise_figure_db of 7",
    )
    noise_figure_db: Annotated[float, Field(ge=0, le=300)] = Field(
        default=0.0, description="receiver noise figure, added to noise_density_dbm_per_hz"
    )
    slice_noise: bool = Field(
        default=False,
        description="a device puts its whole power on its share of the bandwidth, which sees the noise of that share "
        "alone: rates b B log2(1 + SNR / b); false: linear in the share, as in the paper",
    )
    path_loss: Text = Field(
        default="log-distance",
        description="log-distance is 128.1 + 37.6 log10(d/km) dB; the others are models of 3GPP TR 38.901",
    )
    carrier_hz: Annotated[float, Field(ge=0.5e9, le=100e9)] = Field(
        default=3.5e9, description="carrier frequency of TR 38.901 models"
    )
    shadowing_std_db: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=None, description="standard deviation of log-normal shadowing; none: that of the path-loss model"
    )
    fading: Literal["none", "rayleigh", "rician"] = Field(
        default="none", description="small-scale fading, new in each edge round"
    )
    rician_k_db: Decibel = Field(default=9.0, description="Rician K-factor: direct path over all others")
    num_antennas: Count = Field(default=1, description="receive antennas M at the station, maximum ratio combining")
    reuse: Count | None = Field(
        default=None,
        description="frequency reuse: edges whose numbers differ by a multiple of it use the same bandwidth, and their "
        "devices interfere; 1: all edges do; none: every edge has its own bandwidth, as in the paper",
    )
    csi_correlation: Ratio = Field(
        default=1.0,
        description="correlation of the fading that plans know with the true one: 1 is exact, as in the paper; "
        "J0(2 pi f_D tau) if it is outdated by tau; 0: plans know its distribution alone. See plan.on_time",
    )
    rate: Literal["shannon", "nr-mcs"] = Field(
        default="shannon",
        description="rate at an SNR: Shannon's, as in the paper, or that of the modulation and coding schemes of 5G NR "
        "(up to 256-QAM) at a block error rate of 10 %, with its retransmissions",
    )
    downlink: Literal["none", "broadcast", "unicast"] = Field(
        default="none",
        description="way of the model to the devices before each edge round, charged in time, bits and energy: one "
        "broadcast of the whole model, or of what devices lack of adapters, at the rate of the slowest device; or each "
        "device's own sub-model in turn; the links down from the cloud are then charged too; none: free, as in the "
        "paper",
    )
    station_power_dbm: Decibel | None = Field(
        default=None, description="transmit power of a station on the downlink; none: transmit_power_dbm"
    )
    receive_power_w: NonNegative = Field(
        default=RECEIVE_POWER_W,
        description="power of a device while it receives a charged downlink; 0.33 W is an ESP32's (100 mA at 3.3 V, "
        "Espressif's data sheet)",
    )

    amplifier_efficiency: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0,
        description="radiated over consumed power of a device that sends, for energies; 0.35 is that of linear "
        "amplifiers in Cui, Goldsmith, Bahai (IEEE Trans. Wireless Commun. 2005)",
    )

    @classmethod
    def overlaid(cls, values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
        """Returns plain values with some changed; `noise = "thermal"` is short for density and figure."""
        return super().overlaid(values, _with_thermal_noise(cls.owner, changes))

    @model_validator(mode="before")
    @classmethod
    def _density_replaces_power(cls, data: Any) -> Any:
        if isinstance(data, dict):
            data = _with_thermal_noise(cls.owner, data)
        if isinstance(data, dict) and data.get("noise_density_dbm_per_hz") not in (None, "none"):
            return {"noise_power_dbm": None, **data}
        return data

    @field_validator("path_loss")
    @classmethod
    def _known_path_loss(cls, name: str) -> str:
        if name not in PATH_LOSS:
            raise UnknownName(f"{cls.owner}.path_loss", name[:60], PATH_LOSS)
        return name

    @model_validator(mode="after")
    def _agree(self) -> RadioSection:
        power, density = self.noise_power_dbm, self.noise_density_dbm_per_hz
        if (power is None) == (density is None):
            got = "neither" if power is None else f"{power:g} and {density:g}"
            rule = "or noise_density_dbm_per_hz must be given, and not both"
            raise InvalidValue(f"{self.owner}.noise_power_dbm", rule, got, "Example: noise_power_dbm = -110")
        if power is not None and self.noise_figure_db != 0:
            rule, way_out = "must be 0 with a noise power, which includes it", "Give noise_density_dbm_per_hz instead"
            raise InvalidValue(f"{self.owner}.noise_figure_db", rule, f"{self.noise_figure_db:g}", way_out)
        if self.reuse is not None and self.fading != "none" and self.csi_correlation < 1.0:
            rule = "must be 1 with a reuse: plans with interference know the fading of their round"
            raise InvalidValue(f"{self.owner}.csi_correlation", rule, f"{self.csi_correlation:g}", "Set reuse = none")
        if self.slice_noise and self.rate != "shannon":
            rule = f"must be false with rate = {self.rate}, whose steps no plan of slices can use exactly"
            raise InvalidValue(f"{self.owner}.slice_noise", rule, True, 'Set rate = "shannon"')
        return self


def _with_thermal_noise(owner: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns given values of the radio with the short form `noise` spelled out."""
    given = dict(given)
    if "noise" not in given:
        return given
    if (word := given.pop("noise")) != "thermal":
        way_out = "Or give noise_power_dbm, or noise_density_dbm_per_hz"
        raise InvalidValue(f"{owner}.noise", "must be thermal", shown(word), way_out)
    return _THERMAL | given


class ModelSection(Section):
    """Neural network that is trained."""

    owner = "Scenario.model"

    name: Text = Field(
        default="paper-cnn", description="architecture; paper-cnn has W_conv = 18,720 and W_fully = 25,168 weights"
    )
    prunable: tuple[Text, ...] = Field(
        default=(), description='names of layers that may be pruned; empty: every linear layer; ["*"]: convolutions too'
    )
    personal: tuple[Text, ...] = Field(
        default=(),
        description='names of layers that stay on each device, neither sent nor averaged; "last" is the last one',
    )
    float64: bool = Field(default=False, description="train in double precision (64 bit)")
    start: FilePath | None = Field(
        default=None,
        description="weights that training starts from: a safetensors file, or the folder of a finished run; none: "
        "sampled by the seed",
    )


class DataSection(Section):
    """Data set, and its partition among the devices."""

    owner = "Scenario.data"

    name: Text = Field(default="fashion-mnist", description="a data set of `airprune data list`")
    path: FilePath | None = Field(
        default=None,
        description="file or folder with samples of your own, in place of name: CSV, NPZ, LEAF, PFLlib or images; "
        "train_samples and test_samples are then the most that are used",
    )
    target_column: Text | None = Field(
        default=None,
        description="for a path to a CSV file: column with the target; none: label, labels, target, y or class",
    )
    feature_columns: tuple[Text, ...] | None = Field(
        default=None, description="for a path to a CSV file: columns with the features; none: all others"
    )
    owner_column: Text | None = Field(
        default=None,
        description="for a path to a CSV file: column that names the owner of each sample, for partition natural",
    )
    sample_shape: tuple[Count, ...] | None = Field(
        default=None, description="for a path: shape of a sample where the file has it flat; size of images in a folder"
    )
    train_samples: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=50_000, description="number of training samples; none: all"
    )
    test_samples: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=10_000, description="number of test samples; none: all"
    )
    judge_on: Literal["test", "held-out"] = Field(
        default="test",
        description="samples for evaluation; held-out: test_samples of the training samples that are not in "
        "train_samples, for tuning without the test set",
    )
    owners: Count | None = Field(
        default=None,
        description="for data sets whose samples have owners: number of owners, sampled at random, whose samples are "
        "used; none: all",
    )
    min_owner_samples: Count = Field(
        default=1,
        description="for data sets whose samples have owners: owners with fewer training samples are excluded",
    )
    partition: Text = Field(
        default="iid",
        description="partition of the training samples among devices: IID, non-IID by class, or natural: a device is "
        "one owner of samples, or several",
    )
    samples_per_device: Count | None = Field(
        default=None,
        description="none: each sample belongs to one device; a number: every device samples as many from the whole "
        "training set, so that devices may share samples; for more devices than samples",
    )
    classes_per_device: Count = Field(
        default=2, description="classes per device, for partitions shards and edge-iid; per edge, for edge-non-iid"
    )
    alpha: Positive = Field(default=0.5, description="concentration of partition dirichlet; smaller is more non-IID")
    standardize: bool = Field(
        default=True,
        description="shift and scale the samples to mean 0 and standard deviation 1; false: values in [0, 1]",
    )
    size_spread: NonNegative = Field(
        default=0.0, description="standard deviation of the logarithm of devices' numbers of samples; 0: equal numbers"
    )
    data_dir: Annotated[FilePath | None, Label()] = Field(
        default=None, description="folder that is searched first for the files; results do not depend on it"
    )

    @field_validator("partition")
    @classmethod
    def _known_partition(cls, name: str) -> str:
        if name not in PARTITIONS:
            raise PARTITIONS.unknown(name[:60], f"{cls.owner}.partition")
        return name

    @property
    def source(self) -> str:
        """Returns the name of the data set, or of the file or folder in its place."""
        return self.name if self.path is None else Path(self.path).name


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
        "exactly (radio.csi_correlation below 1); none: they count on the mean gain",
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


# Fields of `train` that may name what a script gave to `run`, and the argument of it.
_OWN_FIELDS = {"loop": "train", "optimizer": "optimizer"}


def _is_own(name: Any) -> bool:
    return isinstance(name, str) and name.startswith(OWN)


class TrainSection(ChoiceSection):
    """Local training, Eq. (8)."""

    owner = "Scenario.train"
    choices: ClassVar = {"loop": LOOPS, "optimizer": OPTIMISERS, "schedule": SCHEDULES, "augmentation": AUGMENTATIONS}

    loop: Text = Field(
        default=MINIBATCH_STEPS,
        description="training loop of a device; your own function by --import or `run(train=…)`",
    )
    optimizer: Text = Field(
        default="sgd",
        description="local optimiser; its state starts anew on every device in each edge round; your own by "
        "--import or `run(optimizer=…)`",
    )
    learning_rate: Positive = Field(default=0.001, description="learning rate eta of Eq. (8)")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="momentum of sgd; beta_1 of adam and adamw, where 0 means 0.9"
    )
    weight_decay: NonNegative = Field(
        default=0.0, description="weight decay: L2, decoupled for adamw; pruned weights stay unchanged"
    )
    clip_gradient_norm: Positive | None = Field(
        default=None,
        description="gradients of a step that are longer are scaled to this L2 norm over all parameters; none: as they "
        "are",
    )
    clip_gradient_value: Positive | None = Field(
        default=None, description="entries of gradients are clipped to this absolute value; none: as they are"
    )
    augmentation: Text = Field(default="none", description="random changes of the samples of each minibatch")
    batch_size: Count = Field(default=128, description="samples per minibatch")
    local_epochs: Count = Field(default=2, description="local passes over a device's samples per edge round")
    local_steps: Count | None = Field(
        default=None, description="bound on the minibatch steps of a device per edge round; none: all of its epochs"
    )
    steps_decay: Literal["none", "loss"] = Field(
        default="none",
        description="loss: fewer local steps from round to round, in proportion to sqrt(F(t) / F(0) eta(0) / eta(t))",
    )
    schedule: Text = Field(default="constant", description="schedule of the learning rate")
    schedule_unit: Literal["global", "edge", "step", "local-step"] = Field(
        default="global",
        description="unit that the schedule follows: global rounds, edge rounds, step: edge rounds with a fraction for "
        "every local step, local-step: the steps of a device in each of its rounds",
    )
    step_every: Count = Field(default=1, description="for schedule step: units between two changes")
    step_factor: Positive = Field(default=0.5, description="for schedule step: factor of each change")
    kernel: Text = Field(
        default="auto",
        description="code that computes gradients; native is fast, for the paper's CNN; auto: native where it can",
    )
    loss: Text = Field(
        default=CROSS_ENTROPY,
        description="loss that is minimised, or a weighted sum, 0.7 mse + 0.3 huber; your own by --import or "
        "`run(loss=…)`",
    )
    metric: Text = Field(
        default=AUTO, description="metric of evaluations beside the loss; auto: the one that belongs to the loss"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        default="cpu", description="hardware for train.kernel = torch; auto: an accelerator if torch finds one"
    )
    feature_cache_mb: Annotated[float, Field(ge=0, le=1_000_000)] = Field(
        default=512.0,
        description="memory per worker, in MB, for outputs of frozen layers that later local epochs reuse; 0: none",
    )

    def steps(self, num_samples: Any) -> Any:
        """Returns the minibatch steps per edge round of devices with so many samples, before any decay."""
        whole = self.local_epochs * np.ceil(np.asarray(num_samples) / self.batch_size)
        return whole if self.local_steps is None else np.minimum(whole, self.local_steps)

    def samples_seen(self, num_samples: Any, local_steps: Any = None) -> Any:
        """Returns the sample passes per edge round of devices with so many samples; in so many steps, if given.

        Every epoch ends with a smaller minibatch if the samples do not divide.
        """
        steps = self.local_steps if local_steps is None else local_steps
        if steps is None:
            return num_samples * self.local_epochs
        per_epoch = np.ceil(np.asarray(num_samples) / self.batch_size)
        epochs = np.minimum(steps // np.maximum(per_epoch, 1), self.local_epochs)
        rest = np.where(epochs < self.local_epochs, (steps - epochs * per_epoch) * self.batch_size, 0.0)
        return num_samples * epochs + np.minimum(rest, num_samples)

    @classmethod
    def _chosen(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the components that the fields name; functions of a script have no options."""
        listed = {field: name for field, name in fields.items() if field not in _OWN_FIELDS or not _is_own(name)}
        return super()._chosen(listed)

    def chosen(self, field: str) -> Any:
        """Returns the component that `field` names; what a script gave to `run` has to be given again."""
        if field in _OWN_FIELDS and _is_own(name := getattr(self, field)):
            rule = "names a function of the script that started the run"
            way_out = f"Give it again: airprune.run(…, {_OWN_FIELDS[field]}=…)."
            raise InvalidValue(f"{self.owner}.{field}", rule, repr(name), way_out)
        return super().chosen(field)

    @field_validator("loss", "metric")
    @classmethod
    def _known_function(cls, name: str, info: ValidationInfo) -> str:
        known = LOSSES if info.field_name == "loss" else (AUTO, *METRICS)
        names = terms_of(name) if info.field_name == "loss" else {name: 1.0}
        for one in names:
            if one not in known and not one.startswith(OWN):
                raise UnknownName(f"{cls.owner}.{info.field_name}", one[:60], known)
        if info.field_name == "metric" and name in METRICS and METRICS[name].is_vector:
            rule, way_out = "must be one number", f'Example: evaluation.metrics = ["{name}"]'
            raise InvalidValue(f"{cls.owner}.metric", rule, f"{name!r}, one for each class", way_out)
        return name

    @field_validator("kernel")
    @classmethod
    def _known_kernel(cls, name: str) -> str:
        if name != "auto" and name not in KERNELS:
            raise UnknownName(f"{cls.owner}.kernel", name[:60], ("auto", *KERNELS))
        return name


class ClockSection(Section):
    """Computation time of devices, for planner, simulated clock and energy."""

    owner = "Scenario.clock"
    either = (("flops_per_cycle", "board"),)

    compute: Literal["paper", "flops", "measured"] = Field(
        default="paper",
        description="paper: Eq. (9); flops: counted FLOPs of every sample pass; measured: the same at a measured speed",
    )
    board: Text | None = Field(
        default=None, description="for compute = flops: the board that every device is; docs/clock.md lists them"
    )
    cores: Count | None = Field(default=None, description="cores of the board that train; none: all")
    efficiency: Annotated[float, Field(gt=0, le=1)] = Field(
        default=EFFICIENCY, description="sustained over peak FLOP/s of the board, 0 to 1"
    )
    flops_per_cycle: Positive | None = Field(
        default=None, description="for compute = flops, in place of board: sustained FLOP per CPU cycle"
    )
    seconds_per_sample: Positive | None = Field(
        default=None, description="for compute = measured: time of one sample of a minibatch, forward and backward"
    )
    at_hz: Positive | None = Field(
        default=None, description="for compute = measured: CPU frequency during the measurement"
    )
    flops_per_sample: Positive | None = Field(
        default=None,
        description="for compute = measured: FLOPs of the measured model; another model is refused; none: any model",
    )
    profile: FilePath | None = Field(
        default=None,
        description="file of `airprune profile`: sets compute = measured and the three settings above when it is read",
    )
    savings: Literal["units", "weights"] = Field(
        default="units",
        description="pruning that saves computation, unless compute = paper: whole units only, or every pruned weight",
    )

    effective_capacitance: Positive = Field(
        default=EFFECTIVE_CAPACITANCE,
        description="kappa in W s^3: a core at f Hz takes kappa f^3 watts; 1e-28 is usual in papers on federated "
        "learning, 2.7e-28 makes the 3.7 W that four cores of a Raspberry Pi 4 at 1.5 GHz take (6.4 W loaded, 2.7 W "
        "idle, measured by J. Geerling, pidramble.com)",
    )
    energy_cores: Count = Field(
        default=1, description="cores that take kappa f^3 watts each while a device trains; a Raspberry Pi 4 has 4"
    )
    idle_power_w: NonNegative = Field(
        default=0.0,
        description="power that a planned device takes all through its edge round, beside computing, sending and "
        "receiving; 2.7 W is an idle Raspberry Pi 4's (J. Geerling, pidramble.com); 0: none, as usual in papers",
    )

    @model_validator(mode="before")
    @classmethod
    def _read_profile(cls, data: Any) -> Any:
        """Replaces the file by its numbers, so that a scenario that has been read needs no file."""
        if not isinstance(data, dict) or not isinstance(path := data.get("profile"), str) or path == "none":
            return data
        found = {key: value for key, value in clock_keys(path).items() if value is not None}
        return {**data, **found, "compute": "measured", "profile": None}

    @model_validator(mode="after")
    def _agree(self) -> ClockSection:
        if self.board is not None and self.board not in BOARDS:
            raise UnknownName(f"{self.owner}.board", self.board[:60], BOARDS)
        if self.board is not None and self.cores is not None and self.cores > BOARDS[self.board].cores:
            rule = f"must be at most {BOARDS[self.board].cores}, those of a {self.board}"
            raise InvalidValue(f"{self.owner}.cores", rule, self.cores)
        if self.compute == "flops" and (self.board is None) == (self.flops_per_cycle is None):
            got = "neither" if self.board is None else "both"
            rule = 'or flops_per_cycle must be given with compute = "flops", and not both'
            raise InvalidValue(f"{self.owner}.board", rule, got, 'Example: board = "raspberry-pi-4"')
        for key in ("seconds_per_sample", "at_hz") if self.compute == "measured" else ():
            if getattr(self, key) is None:
                rule, way_out = 'must be given with compute = "measured"', "`airprune profile` measures it"
                raise InvalidValue(f"{self.owner}.{key}", rule, "none", way_out)
        return self

    @property
    def words(self) -> str:
        """Returns the name of the clock, for captions."""
        if self.compute == "paper":
            return "the paper's"
        if self.compute == "measured":
            return f"measured, {self.seconds_per_sample:.3g} s per sample at {(self.at_hz or 0.0) / 1e9:.3g} GHz"
        return f"flops, {self.board or f'{self.flops_per_cycle:g} FLOP per cycle'}"


class RoundsSection(Section):
    """Numbers of edge and global rounds, Eqs. (12) and (13)."""

    owner = "Scenario.rounds"

    global_rounds: Count = Field(default=10, description="number Q of global rounds, i.e. cloud aggregations")
    edge_rounds: PerEdge = Field(
        default=5, description="number E of edge rounds per global round: one number, or a list with one entry per edge"
    )
    evaluate_every: Literal["global", "edge", "never"] = Field(
        default="global", description="rounds after which the global model is evaluated"
    )
    target_accuracy: Annotated[Ratio | None, Label()] = Field(
        default=None, description="report time, bits and energy until this test accuracy; it changes no result"
    )


class EvaluationSection(Section):
    """Further metrics of evaluations, and evaluation by device."""

    owner = "Scenario.evaluation"

    metrics: tuple[Text, ...] = Field(
        default=(),
        description="further metrics on the test samples, recorded as test_ and their names, numbers or lists: f1 "
        "(mean over classes), class-f1, class-accuracy, accuracy, mae; your own by --import or `run(metric=[…])`",
    )
    devices: bool = Field(
        default=False,
        description="after each global round, the metric on every device's own test samples: by device, by edge, and "
        "its mean, standard deviation, worst tenth and Jain's index over devices",
    )

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in METRICS and not name.startswith(OWN):
                raise UnknownName(f"{cls.owner}.metrics", name[:60], METRICS)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidValue(f"{cls.owner}.metrics", "must name each metric once", f"{twice!r} twice")
        return names


class StopSection(Section):
    """Early stopping: the run ends, with its model, after the global round in which one of these is met."""

    owner = "Scenario.stop"

    metric: Text = Field(
        default="test_accuracy", description="recorded metric that target, patience and keep_best look at"
    )
    smaller_is_better: bool | None = Field(
        default=None, description="direction of the metric; none: smaller is better for metrics named …loss, …error"
    )
    target: float | None = Field(default=None, description="value of the metric that ends the run")
    patience: Count | None = Field(
        default=None, description="number of global rounds without an improvement of the metric that ends the run"
    )
    min_improvement: NonNegative = Field(default=0.0, description="change of the metric that counts as an improvement")
    time_s: Positive | None = Field(default=None, description="simulated time that ends the run")
    uploaded_bits: Positive | None = Field(default=None, description="uplink bits since the start that end the run")
    energy_j: Positive | None = Field(default=None, description="energy of all devices that ends the run")
    keep_best: bool = Field(
        default=False, description="keep the best model by the metric as best.safetensors, beside the last one"
    )

    @property
    def watches_metric(self) -> bool:
        """True if the metric must be evaluated in every global round."""
        return self.target is not None or self.patience is not None or self.keep_best

    @property
    def direction(self) -> float:
        """1 if a larger metric is better, −1 if a smaller one is."""
        smaller = self.smaller_is_better
        if smaller is None:
            smaller = self.metric.endswith(("loss", "error"))
        return -1.0 if smaller else 1.0


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
