"""What can be set in an experiment. The defaults are the paper's Table I, and our reading where it is silent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from airprune.components.choice import ChoiceSection
from airprune.components.registry import Registry
from airprune.errors import InvalidValue, UnknownName
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.aggregation.steps import STEPS
from airprune.methods.association import ASSOCIATIONS
from airprune.methods.compression import COMPRESSIONS
from airprune.methods.masking import MASKINGS
from airprune.methods.objectives import OBJECTIVES
from airprune.methods.selection import SELECTIONS
from airprune.methods.topology import TOPOLOGIES
from airprune.models.kernels import KERNELS
from airprune.models.losses import AUTO, CROSS_ENTROPY, LOSSES, METRICS, OWN
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
from airprune.wireless.device_speed.boards import BOARDS, EFFICIENCY
from airprune.wireless.device_speed.profile import clock_keys
from airprune.wireless.path_loss import PATH_LOSS


class NetworkSection(Section):
    """Cloud, edges and devices."""

    owner: ClassVar[str] = "Scenario.network"

    num_edges: Count = Field(default=5, description="K, edge servers")
    devices_per_edge: PerEdge = Field(default=5, description="N_k, one number or a list with one per edge")
    placement: Literal["ring", "disc"] = Field(
        default="ring", description="between inner_m and outer_m: uniform in distance (ring) or in area (disc)"
    )
    inner_m: NonNegative = Field(default=118.0, description="nearest device to its edge")
    outer_m: Positive = Field(default=152.0, description="farthest device from its edge")
    flat_inner_m: NonNegative = Field(default=580.0, description="nearest device to the cloud when flat")
    flat_outer_m: Positive = Field(default=790.0, description="farthest device from the cloud when flat")
    edge_distance_m: NonNegative = Field(default=685.0, description="edges to the cloud")
    cpu_hz: Positive = Field(default=3e9, description="f_n of every device")
    cpu_hz_max: Positive | None = Field(default=None, description="if given, f_n is uniform from cpu_hz to this")
    table: FilePath | None = Field(
        default=None,
        description="the fleet of `airprune plan`: device, edge and snr_db, rate_mbps, distance_m or places; "
        "overrides counts and placement",
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
        """N_k of every edge, as placed; a table brings its own."""
        sizes = self.devices_per_edge
        return list(sizes) if isinstance(sizes, tuple) else [sizes] * self.num_edges


class RadioSection(Section):
    """The uplink of one edge, in the units of data sheets."""

    owner: ClassVar[str] = "Scenario.radio"
    either: ClassVar[tuple[tuple[str, str], ...]] = (("noise_power_dbm", "noise_density_dbm_per_hz"),)

    bandwidth_hz: Positive = Field(default=20e6, description="B, of each edge's band")
    transmit_power_dbm: Decibel = Field(default=28.0, description="p_n of every device")
    noise_power_dbm: Decibel | None = Field(default=-110.0, description="sigma^2 over the whole band")
    noise_density_dbm_per_hz: Decibel | None = Field(default=None, description="instead of noise_power_dbm")
    noise_figure_db: Annotated[float, Field(ge=0, le=300)] = Field(default=0.0, description="added to a noise density")
    path_loss: Text = Field(default="log-distance", description="128.1 + 37.6 log10(d_km) dB, or a TR 38.901 model")
    carrier_hz: Annotated[float, Field(ge=0.5e9, le=100e9)] = Field(default=3.5e9, description="read by TR 38.901")
    shadowing_std_db: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=None, description="none: the path-loss model's own"
    )
    fading: Literal["none", "rayleigh", "rician"] = Field(default="none", description="new in each edge round")
    rician_k_db: Decibel = Field(default=9.0, description="direct path over all others")
    num_antennas: Count = Field(default=1, description="M at the station, combined by maximum ratio")

    @model_validator(mode="before")
    @classmethod
    def _density_replaces_power(cls, data: Any) -> Any:
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
        return self


class ModelSection(Section):
    """The network that is trained."""

    owner: ClassVar[str] = "Scenario.model"

    name: Text = Field(default="paper-cnn", description="paper-cnn has W_conv = 18,720 and W_fully = 25,168")
    prunable: tuple[Text, ...] = Field(
        default=(), description='layers that may be pruned; empty: every linear layer; ["*"]: convolutions too'
    )
    personal: tuple[Text, ...] = Field(
        default=(), description='layers that stay on each device, neither sent nor averaged; "last" is the last one'
    )
    float64: bool = Field(default=False, description="train in double precision")


class DataSection(Section):
    """Samples, and which device holds which."""

    owner: ClassVar[str] = "Scenario.data"

    name: Text = Field(default="fashion-mnist", description="a dataset of `airprune data list`")
    train_samples: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=50_000, description="to train on; none: all"
    )
    test_samples: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=10_000, description="to test on; none: all"
    )
    judge_on: Literal["test", "held-out"] = Field(
        default="test",
        description="held-out: test_samples of the training samples that train_samples leaves out, for tuning",
    )
    partition: Literal["iid", "shards", "dirichlet", "edge-iid", "edge-non-iid"] = Field(
        default="iid", description="how samples are dealt to devices"
    )
    samples_per_device: Count | None = Field(
        default=None,
        description="none: each sample is dealt to one device; a number: every device draws so many for itself, "
        "so that two may have the same; for more devices than samples",
    )
    classes_per_device: Count = Field(
        default=2, description="of shards and edge-iid; of edge-non-iid, classes per edge"
    )
    alpha: Positive = Field(default=0.5, description="of dirichlet; smaller is less alike")
    standardize: bool = Field(
        default=True, description="shift and scale the samples of `name` to mean 0, deviation 1; else in [0, 1]"
    )
    size_spread: NonNegative = Field(
        default=0.0, description="standard deviation of the log of devices' shares; 0: equal"
    )
    data_dir: Annotated[FilePath | None, Label()] = Field(
        default=None, description="where to look for the files first; results do not depend on it"
    )


class PlanSection(ChoiceSection):
    """Deadline and planner, Eqs. (9) and (25)–(29)."""

    owner: ClassVar[str] = "Scenario.plan"
    choices: ClassVar[Mapping[str, Registry[Any]]] = {"scheme": SCHEMES}

    scheme: Text = Field(default="optimal", description="a scheme of `airprune schemes`")
    deadline_s: Positive | Literal["auto"] = Field(
        default=0.030,
        description="T_th, of compute plus uplink; auto: the least time to accuracy, for schemes that choose codes",
    )
    error_cost: Positive = Field(
        default=1.0, description="of auto: rounds lost per round that a code's error waits in the devices' memory"
    )
    bits_per_weight: Positive = Field(default=64.0, description="q-hat, bits sent per kept weight")
    framing: bool = Field(
        default=False,
        description="charge uploads as they travel in a deployment: header, statistics, biases, mask, whole bytes",
    )
    cycles_per_weight: NonNegative = Field(default=20.0, description="C_n, CPU cycles per weight and iteration")
    local_iterations: Count = Field(
        default=2, description="T of Eq. (9), for the simulated clock; training goes by train.local_epochs"
    )
    min_pruning_ratio: Ratio = Field(default=0.0, description="lower limit of rho_n")
    max_pruning_ratio: Ratio = Field(
        default=CLASSIFIER_CAP, description="upper limit of rho_n; 1 would remove the classifier"
    )
    max_energy_j: Positive | None = Field(
        default=None,
        description="what a device may spend in an edge round; for schemes that choose clock and power",
    )
    infeasible: Literal["drop", "fail"] = Field(
        default="drop", description="leave out of the round the devices that block an edge, or fail the run"
    )

    @model_validator(mode="after")
    def _agree(self) -> PlanSection:
        self.check_order("min_pruning_ratio", "max_pruning_ratio")
        return self


class TopologySection(ChoiceSection):
    """Who averages whom, and over which links."""

    owner: ClassVar[str] = "Scenario.topology"
    choices: ClassVar[Mapping[str, Registry[Any]]] = {"name": TOPOLOGIES}

    name: Text = Field(default="hierarchical", description="flat: the cloud's own band serves all devices")


class AssociationSection(ChoiceSection):
    """Which station serves which device."""

    owner: ClassVar[str] = "Scenario.association"
    choices: ClassVar[Mapping[str, Registry[Any]]] = {"name": ASSOCIATIONS}

    name: Text = Field(default="fixed", description="fixed: as the network says")


class SelectionSection(ChoiceSection):
    """Who is asked to take part in an edge round."""

    owner: ClassVar[str] = "Scenario.selection"
    choices: ClassVar[Mapping[str, Registry[Any]]] = {"name": SELECTIONS}

    name: Text = Field(default="everyone", description="devices that are not asked get no band and cost nothing")


class MaskingSection(ChoiceSection):
    """Which sub-model a device holds, trains and sends, Eqs. (1)–(3) and (5)."""

    owner: ClassVar[str] = "Scenario.masking"
    choices: ClassVar[Mapping[str, Registry[Any]]] = {"name": MASKINGS}

    name: Text = Field(default="probe", description="probe is the paper's: ranked on the device, the rest zeroed")


class ObjectiveSection(ChoiceSection):
    """What a device minimises, Eq. (7)."""

    owner: ClassVar[str] = "Scenario.objective"
    choices: ClassVar[Mapping[str, Registry[Any]]] = {"name": OBJECTIVES}

    name: Text = Field(default="plain", description="plain: the loss alone")


class CompressionSection(ChoiceSection):
    """How an update is encoded for the uplink."""

    owner: ClassVar[str] = "Scenario.compression"
    choices: ClassVar[Mapping[str, Registry[Any]]] = {"name": COMPRESSIONS}

    name: Text = Field(default="cast", description="cast: values as they are, at plan.bits_per_weight each")


class BackhaulSection(ChoiceSection):
    """How updates are encoded on the links above the edges, at all levels of a tree; without memory."""

    owner: ClassVar[str] = "Scenario.backhaul"
    choices: ClassVar[Mapping[str, Registry[Any]]] = {"name": COMPRESSIONS}

    name: Text = Field(default="cast", description="as compression.name; cast: values as they are")


class AggregationSection(ChoiceSection):
    """How parents combine their children's models, Eqs. (12) and (13), and how they move to the result."""

    owner: ClassVar[str] = "Scenario.aggregation"
    choices: ClassVar[Mapping[str, Registry[Any]]] = {
        "edge": AGGREGATIONS,
        "cloud": AGGREGATIONS,
        "edge_step": STEPS,
        "cloud_step": STEPS,
    }

    edge: Text = Field(default="masked-mean", description="of an edge over its devices, Eq. (12)")
    cloud: Text = Field(default="masked-mean", description="of the cloud over the edges, Eq. (13)")
    edge_step: Text = Field(default="replace", description="how an edge moves to the combined model")
    cloud_step: Text = Field(default="replace", description="how the cloud moves to the combined model")
    min_contributors: Count = Field(
        default=1, description="t: at an edge, a weight that fewer devices kept stays as it was, Eq. (12)"
    )


class PrivacySection(Section):
    """What a device does to its update before it is encoded; off unless clip_norm is given."""

    owner: ClassVar[str] = "Scenario.privacy"

    clip_norm: Positive | None = Field(
        default=None, description="C: longer updates are scaled to this norm, over all that is sent; none: as they are"
    )
    noise_multiplier: NonNegative = Field(
        default=0.0, description="z: Gaussian noise of standard deviation z C is added to every entry that is sent"
    )
    noise_from: Literal["device", "seed"] = Field(
        default="device",
        description="in a deployment: what nobody else can repeat, or the seed, which edge and cloud know",
    )
    delta: Annotated[float, Field(gt=0, lt=1), Label()] = Field(
        default=1e-5, description="of the (epsilon, delta) that is told; it changes no result"
    )

    @model_validator(mode="after")
    def _agree(self) -> PrivacySection:
        if self.noise_multiplier and self.clip_norm is None:
            rule = "must be 0 without clip_norm, which says how long an update can be"
            way_out = "Example: clip_norm = 1.0"
            raise InvalidValue(f"{self.owner}.noise_multiplier", rule, self.noise_multiplier, way_out)
        return self


class TrainSection(Section):
    """Local training, Eq. (8)."""

    owner: ClassVar[str] = "Scenario.train"

    optimizer: Literal["sgd", "adam"] = Field(default="sgd", description="of every device, new in each edge round")
    learning_rate: Positive = Field(default=0.001, description="eta of Eq. (8)")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="of sgd; of adam its beta_1, 0 meaning 0.9"
    )
    weight_decay: NonNegative = Field(default=0.0, description="does not move pruned weights")
    batch_size: Count = Field(default=128, description="samples per minibatch")
    local_epochs: Count = Field(default=2, description="passes over a device's samples in an edge round")
    local_steps: Count | None = Field(
        default=None, description="minibatch steps after which a device stops in an edge round; none: all of its epochs"
    )
    steps_decay: Literal["none", "loss"] = Field(
        default="none",
        description="loss: from round to round fewer local steps, in proportion to sqrt(F(t) / F(0) eta(0) / eta(t))",
    )
    schedule: Literal["constant", "step", "cosine"] = Field(default="constant", description="of the learning rate")
    step_every: Count = Field(default=1, description="global rounds between two steps, schedule step")
    step_factor: Positive = Field(default=0.5, description="of each step, schedule step")
    kernel: Text = Field(
        default="auto", description="what computes gradients; native is fast and for the paper's CNN; auto: if it can"
    )
    loss: Text = Field(default=CROSS_ENTROPY, description="what is minimised; own ones by --import or `run(loss=…)`")
    metric: Text = Field(default=AUTO, description="what models are judged by besides; auto: as the loss has it")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        default="cpu", description="what the kernel torch computes on; auto: an accelerator if torch finds one"
    )

    def steps(self, num_samples: Any) -> Any:
        """Minibatch steps of an edge round, of devices with so many samples, before they decay."""
        whole = self.local_epochs * np.ceil(np.asarray(num_samples) / self.batch_size)
        return whole if self.local_steps is None else np.minimum(whole, self.local_steps)

    def samples_seen(self, num_samples: Any, local_steps: Any = None) -> Any:
        """Sample passes of an edge round, of devices with so many samples; in so many steps, if given.

        Every epoch ends with a smaller minibatch if the samples do not divide.
        """
        steps = self.local_steps if local_steps is None else local_steps
        if steps is None:
            return num_samples * self.local_epochs
        per_epoch = np.ceil(np.asarray(num_samples) / self.batch_size)
        epochs = np.minimum(steps // np.maximum(per_epoch, 1), self.local_epochs)
        rest = np.where(epochs < self.local_epochs, (steps - epochs * per_epoch) * self.batch_size, 0.0)
        return num_samples * epochs + np.minimum(rest, num_samples)

    @field_validator("loss", "metric")
    @classmethod
    def _known_function(cls, name: str, info: ValidationInfo) -> str:
        known = LOSSES if info.field_name == "loss" else (AUTO, *METRICS)
        if name not in known and not name.startswith(OWN):
            raise UnknownName(f"{cls.owner}.{info.field_name}", name[:60], known)
        return name

    @field_validator("kernel")
    @classmethod
    def _known_kernel(cls, name: str) -> str:
        if name != "auto" and name not in KERNELS:
            raise UnknownName(f"{cls.owner}.kernel", name[:60], ("auto", *KERNELS))
        return name


class ClockSection(Section):
    """How long devices compute, for planner, simulated clock and energies."""

    owner: ClassVar[str] = "Scenario.clock"
    either: ClassVar[tuple[tuple[str, str], ...]] = (("flops_per_cycle", "board"),)

    compute: Literal["paper", "flops", "measured"] = Field(
        default="paper", description="Eq. (9); counted FLOPs of every sample pass; or these at a measured speed"
    )
    board: Text | None = Field(default=None, description="of flops: what all devices are; docs/clock.md lists them")
    cores: Count | None = Field(default=None, description="of the board, that train; none: all")
    efficiency: Annotated[float, Field(gt=0, le=1)] = Field(
        default=EFFICIENCY, description="of the board: sustained over peak FLOP/s"
    )
    flops_per_cycle: Positive | None = Field(default=None, description="of flops, instead of board: sustained")
    seconds_per_sample: Positive | None = Field(
        default=None, description="of measured: one sample of a minibatch, forward and backward"
    )
    at_hz: Positive | None = Field(default=None, description="of measured: the CPU's clock meanwhile")
    flops_per_sample: Positive | None = Field(
        default=None, description="of measured: of the model that was timed; another model is refused; none: any"
    )
    profile: FilePath | None = Field(
        default=None, description="file of `airprune profile`: sets compute = measured and the three above when read"
    )
    savings: Literal["units", "weights"] = Field(
        default="units", description="what saves work but for paper: whole removed units, or every pruned weight"
    )

    @model_validator(mode="before")
    @classmethod
    def _read_profile(cls, data: Any) -> Any:
        """The numbers stay, the file does not: a scenario that has been read needs no file."""
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
        """Which clock it is, for captions."""
        if self.compute == "paper":
            return "the paper's"
        if self.compute == "measured":
            return f"measured, {self.seconds_per_sample:.3g} s per sample at {(self.at_hz or 0.0) / 1e9:.3g} GHz"
        return f"flops, {self.board or f'{self.flops_per_cycle:g} FLOP per cycle'}"


class RoundsSection(Section):
    """How often edges and the cloud average, Eqs. (12) and (13)."""

    owner: ClassVar[str] = "Scenario.rounds"

    global_rounds: Count = Field(default=10, description="Q, cloud averages")
    edge_rounds: PerEdge = Field(
        default=5, description="E, edge averages per global round; one number or a list with one per edge"
    )
    evaluate_every: Literal["global", "edge", "never"] = Field(
        default="global", description="rounds after which to test"
    )
    target_accuracy: Annotated[Ratio | None, Label()] = Field(
        default=None,
        description="time, bits and joules until this test accuracy are told of the run; it changes no result",
    )


class EventsSection(Section):
    """What goes wrong, at random, in each edge round."""

    owner: ClassVar[str] = "Scenario.events"

    dropout_probability: Ratio = Field(default=0.0, description="a device's update is lost")
    straggler_probability: Ratio = Field(default=0.0, description="a device computes more slowly than planned")
    straggler_slowdown: Annotated[float, Field(ge=1)] = Field(default=2.0, description="how many times more slowly")


class DiagnosticsSection(Section):
    """What to record beyond the results."""

    owner: ClassVar[str] = "Scenario.diagnostics"

    gradients: bool = Field(default=False, description="gradient norms, and estimates of Theorem 1's constants")
    sub_models: bool = Field(default=False, description="accuracy of the sub-model that the median device holds")


class RecordsSection(Section):
    """How much of a round is written down."""

    owner: ClassVar[str] = "Scenario.records"

    devices: Literal["all"] | Count = Field(
        default="all",
        description="lists per device of an edge round: of all that were asked, or of a random sample of so many",
    )


class EngineSection(Section):
    """Where device work runs. Results do not depend on it."""

    owner: ClassVar[str] = "Scenario.engine"

    name: Annotated[Literal["serial", "processes", "dask"], Label()] = Field(
        default="processes", description="one after the other, on cores, or on a Dask cluster"
    )
    workers: Annotated[Count | None, Label()] = Field(
        default=None, description="none: one per core, or those of the cluster"
    )
    scheduler: Annotated[Text | None, Label()] = Field(
        default=None, description="for dask: an address (tls://host:8786) or a scheduler file; none: a local cluster"
    )
    tls: Annotated[FilePath | None, Label()] = Field(
        default=None, description="for dask: a folder with certificates, for tls:// addresses"
    )
    worker_timeout_s: Annotated[float, Field(ge=1, le=86_400), Label()] = Field(
        default=30.0,
        description="for dask: a worker that gives no sign of life for so long is named, and its work done elsewhere",
    )
    on_device_failure: Literal["fail", "drop-device"] = Field(
        default="fail", description="what to do if a device's training fails three times"
    )
