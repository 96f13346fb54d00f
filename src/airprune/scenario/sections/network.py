"""Settings of the network, its radio and its clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from airprune.components.choice import ChoiceSection
from airprune.errors import InvalidValue, UnknownName
from airprune.settings.section import (
    MAX_COUNT,
    Count,
    Decibel,
    FilePath,
    NonNegative,
    PerEdge,
    Positive,
    Ratio,
    Section,
    Text,
)
from airprune.text import shown
from airprune.wireless.channel import RECEIVE_POWER_W, streams_problem
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
    traces: FilePath | None = Field(
        default=None,
        description="file (.npz or .parquet) with links over time: columns time, device, station, and gain_db or "
        "rate_bps; in place of path loss and shadowing. See docs/radio.md",
    )
    mobility: Literal["none", "waypoint"] = Field(
        default="none",
        description="movement of devices: none, or random waypoint at speed_m_per_s, within edge_distance_m + outer_m "
        "of the cloud",
    )
    speed_m_per_s: Annotated[float, Field(ge=0, le=300)] = Field(
        default=0.0, description="speed of devices, for mobility = waypoint and for Doppler"
    )
    start_s: NonNegative = Field(default=0.0, description="time of traces, or of the movement, at which a run begins")

    @model_validator(mode="after")
    def _agree(self) -> NetworkSection:
        for low, high in (("inner_m", "outer_m"), ("flat_inner_m", "flat_outer_m"), ("cpu_hz", "cpu_hz_max")):
            self.check_order(low, high)
        if self.traces is not None and self.mobility != "none":
            rule = "must be none with traces, which have their movement in them"
            raise InvalidValue(f"{self.owner}.mobility", rule, self.mobility)
        if self.mobility != "none" and self.speed_m_per_s == 0.0:
            raise InvalidValue(f"{self.owner}.speed_m_per_s", "must be > 0 with a mobility", 0, "Example: 1.5, on foot")
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
    num_streams: Count = Field(
        default=1,
        description="devices U that a station hears at once (MU-MIMO), separated by zero forcing: groups of so many "
        "devices send in turn over the whole bandwidth; 1: one device at a time",
    )
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
    csi_delay_s: NonNegative = Field(
        default=0.0,
        description="age of the fading that plans know: times J0(2 pi f_D age) in csi_correlation, at "
        "network.speed_m_per_s",
    )
    pilots: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=0,
        description="pilot symbols that each selected device sends in an edge round, charged in time and energy; their "
        "estimate counts in csi_correlation; 0: the channel is known without, and free, as in the paper",
    )
    pilot_snr_db: Decibel = Field(default=10.0, description="SNR of one pilot symbol at the station")
    report_bits: NonNegative = Field(
        default=0.0, description="bits of a channel report that each device sends beside its update; charged"
    )
    power_p0_dbm: Decibel | None = Field(
        default=None,
        description="open-loop power control: devices send with P0 + power_alpha times their path loss in dB, at most "
        "transmit_power_dbm; none: with transmit_power_dbm",
    )
    power_alpha: Ratio = Field(default=1.0, description="share of the path loss that power control makes up for")
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
        if (problem := streams_problem(self)) is not None:
            raise InvalidValue(f"{self.owner}.{problem[0]}", *problem[1:])
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
