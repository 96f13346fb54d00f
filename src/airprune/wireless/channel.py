"""From places to rates: path loss, shadowing, fading, SNR and the uplink rate of Eq. (10).

    link distance ─► path loss + shadowing ─► large-scale gain (fixed for a run)
                     fading over M antennas ─► small-scale gain (new each edge round)
    gain p / sigma^2 = SNR ─► r_n = B log2(1 + SNR) ─► R_n = b_n r_n

The paper gives p, sigma^2 and B but no path loss; "log-distance" without shadowing or fading is the
reading that reproduces its Table II. Path loss is handled in dB, as every published model is written,
and leaves this module as a linear gain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from airprune.checks import FloatArray, quantity, whole_number
from airprune.errors import InvalidValue, UnknownName
from airprune.randomness import rng_for
from airprune.units import db_to_ratio, dbm_to_watt
from airprune.wireless.mcs import mcs_rate_bps, mcs_snr
from airprune.wireless.network import Network
from airprune.wireless.path_loss import ENVIRONMENT_HEIGHT_M, PATH_LOSS
from airprune.wireless.slice_noise import slice_rate_bps

PAPER_BANDWIDTH_HZ = 20e6
PAPER_TRANSMIT_POWER_W = dbm_to_watt(28.0)
PAPER_NOISE_POWER_W = dbm_to_watt(-110.0)
RECEIVE_POWER_W = 0.33  # ESP32: 100 mA at 3.3 V while it receives 802.11b/g/n (Espressif, ESP32 Series data sheet)

LIGHT_M_PER_S = 299_792_458.0

# Limit of a measured rate: more is no radio, and float64 would not hold its SNR.
MAX_BITS_PER_HZ = 100.0

_FADINGS = ("none", "rayleigh", "rician")
_RATES = ("shannon", "nr-mcs")
_DOWNLINKS = ("none", "broadcast", "unicast")


@dataclass(frozen=True, kw_only=True)
class Radio:
    """One uplink band: its width, power, noise and propagation.

    Attributes:
      bandwidth_hz: B, of each edge's band.
      transmit_power_w: p_n.
      noise_power_w: sigma^2 over the whole band; the paper's -110 dBm if no noise is given.
      noise_density_w_per_hz: instead of noise_power_w: sigma^2 = density · B · noise_figure. The full B
        even for a device with a small share, so that the rate stays linear in the share as in Eq. (10), unless
        slice_noise is set.
      noise_figure: of the receiver, a plain ratio >= 1.
      slice_noise: whether a device puts its whole power on its slice, which sees the noise of that slice alone.
      path_loss: a name in PATH_LOSS.
      carrier_hz, base_height_m, device_height_m: read by the TR 38.901 models; base_height_m None takes
        the model's own.
      speed_m_per_s: of devices, for Doppler.
      shadowing_std_db: None takes the model's own (0 for log-distance).
      fading: "none", "rayleigh" or "rician".
      rician_k: power of the direct path over that of all others, a plain ratio; TR 38.901's mean is 9 dB.
      num_antennas: M at the station, combined by maximum ratio.
      num_streams: U, devices that a station hears at once by zero forcing; 1: one at a time. See `mimo`.
      reuse: edges whose numbers differ by a multiple of it use the same bandwidth, and their devices interfere; None:
        no two do.
      csi_correlation: c of the scattered part of a channel with what plans know of it; 1: they know the fading of
        their round exactly. See `csi`.
      pilots: pilot symbols that every selected device sends in an edge round, in turn over the whole bandwidth.
      report_bits: of the channel report that goes up beside every update.
      power_p0_w, power_alpha: open-loop power control: a device sends with min(p_n, P0 PL^alpha), PL the path loss to
        its station, shadowing included; None: with p_n.
      rate: "shannon" as in Eq. (10), or "nr-mcs": see `mcs`.
      downlink: "none" if models reach the devices in no time and for free; "broadcast" if a station sends one model for
        all of its devices; "unicast" if it sends each device its own.
      station_power_w: p of a station; None takes that of the devices.
      receive_power_w: P_rx of a device while it receives.
      amplifier_efficiency: eta, radiated over consumed power of a device that sends.
    """

    bandwidth_hz: float = PAPER_BANDWIDTH_HZ
    transmit_power_w: float = PAPER_TRANSMIT_POWER_W
    noise_power_w: float | None = None
    noise_density_w_per_hz: float | None = None
    noise_figure: float = 1.0
    slice_noise: bool = False
    path_loss: str = "log-distance"
    carrier_hz: float = 3.5e9
    base_height_m: float | None = None
    device_height_m: float = 1.5
    speed_m_per_s: float = 0.0
    shadowing_std_db: float | None = None
    fading: Literal["none", "rayleigh", "rician"] = "none"
    rician_k: float = db_to_ratio(9.0)
    num_antennas: int = 1
    num_streams: int = 1
    reuse: int | None = None
    csi_correlation: float = 1.0
    pilots: int = 0
    report_bits: float = 0.0
    power_p0_w: float | None = None
    power_alpha: float = 1.0
    rate: Literal["shannon", "nr-mcs"] = "shannon"
    downlink: Literal["none", "broadcast", "unicast"] = "none"
    station_power_w: float | None = None
    receive_power_w: float = RECEIVE_POWER_W
    amplifier_efficiency: float = 1.0

    def __post_init__(self) -> None:
        quantity("Radio.bandwidth_hz", self.bandwidth_hz, above=0.0, way_out="Example: bandwidth_hz = 20e6")
        quantity("Radio.transmit_power_w", self.transmit_power_w, above=0.0)
        quantity("Radio.noise_figure", self.noise_figure, at_least=1.0, way_out="A plain ratio, not dB")
        if self.noise_density_w_per_hz is not None:
            quantity("Radio.noise_density_w_per_hz", self.noise_density_w_per_hz, above=0.0)
            if self.noise_power_w is not None:
                raise InvalidValue("Radio.noise_power_w", "must be None with a noise density", self.noise_power_w)
        elif self.noise_figure != 1.0:
            raise InvalidValue(
                "Radio.noise_figure",
                "must be 1 with a noise power, which includes it",
                self.noise_figure,
                "Give noise_density_w_per_hz instead",
            )
        if self.noise_power_w is not None:
            quantity("Radio.noise_power_w", self.noise_power_w, above=0.0)
        if self.path_loss not in PATH_LOSS:
            raise UnknownName("Radio.path_loss", self.path_loss, PATH_LOSS)
        quantity("Radio.carrier_hz", self.carrier_hz, at_least=0.5e9, at_most=100e9, way_out="Example: 3.5e9")
        quantity("Radio.device_height_m", self.device_height_m, at_least=1.5, at_most=13.0)
        if self.base_height_m is not None:
            quantity("Radio.base_height_m", self.base_height_m, above=ENVIRONMENT_HEIGHT_M, at_most=150.0)
        if self.shadowing_std_db is not None:
            quantity("Radio.shadowing_std_db", self.shadowing_std_db, at_least=0.0, at_most=100.0)
        quantity("Radio.speed_m_per_s", self.speed_m_per_s, at_least=0.0, at_most=300.0)
        if self.fading not in _FADINGS:
            raise UnknownName("Radio.fading", self.fading, _FADINGS)
        quantity("Radio.rician_k", self.rician_k, at_least=0.0, way_out="A plain ratio, not dB")
        whole_number("Radio.num_antennas", self.num_antennas, at_least=1)
        whole_number("Radio.num_streams", self.num_streams, at_least=1)
        if (problem := streams_problem(self)) is not None:
            raise InvalidValue(f"Radio.{problem[0]}", *problem[1:])
        quantity("Radio.csi_correlation", self.csi_correlation, at_least=0.0, at_most=1.0)
        whole_number("Radio.pilots", self.pilots)
        quantity("Radio.report_bits", self.report_bits, at_least=0.0)
        if self.power_p0_w is not None:
            quantity("Radio.power_p0_w", self.power_p0_w, above=0.0)
        quantity("Radio.power_alpha", self.power_alpha, at_least=0.0, at_most=1.0)
        if self.reuse is not None:
            whole_number("Radio.reuse", self.reuse, at_least=1)
            if not self.knows_fading:
                rule = "must be 1 with a reuse: plans with interference know the fading of their round"
                raise InvalidValue("Radio.csi_correlation", rule, self.csi_correlation)
        if self.rate not in _RATES:
            raise UnknownName("Radio.rate", self.rate, _RATES)
        if self.rate != "shannon" and self.slice_noise:
            raise InvalidValue(
                "Radio.slice_noise",
                'must be False with rate "nr-mcs", whose steps no plan of slices can use exactly',
                True,
                'Give rate = "shannon"',
            )
        if self.downlink not in _DOWNLINKS:
            raise UnknownName("Radio.downlink", self.downlink, _DOWNLINKS)
        if self.station_power_w is not None:
            quantity("Radio.station_power_w", self.station_power_w, above=0.0)
        quantity("Radio.receive_power_w", self.receive_power_w, at_least=0.0)
        quantity("Radio.amplifier_efficiency", self.amplifier_efficiency, above=0.0, at_most=1.0)

    @property
    def slice_bandwidth_hz(self) -> float | None:
        """B where noise is that of a device's slice; None where rates are linear in the share."""
        return self.bandwidth_hz if self.slice_noise else None

    @property
    def knows_fading(self) -> bool:
        """True if plans know the fading of their round exactly."""
        return self.fading == "none" or self.csi_correlation == 1.0

    @property
    def doppler_hz(self) -> float:
        """f_D = v f_c / c."""
        return self.speed_m_per_s * self.carrier_hz / LIGHT_M_PER_S

    @property
    def pilot_s(self) -> float:
        """Time of one device's pilots, a symbol in 1/B."""
        return self.pilots / self.bandwidth_hz

    @property
    def charges_downlink(self) -> bool:
        """True if models that go down take time."""
        return self.downlink != "none"

    @property
    def downlink_power_w(self) -> float:
        """p of a station."""
        return self.transmit_power_w if self.station_power_w is None else self.station_power_w

    @property
    def band_noise_w(self) -> float:
        """sigma^2 of Eq. (10), over the whole band."""
        if self.noise_density_w_per_hz is not None:
            return self.noise_density_w_per_hz * self.bandwidth_hz * self.noise_figure
        return PAPER_NOISE_POWER_W if self.noise_power_w is None else self.noise_power_w


class StreamSettings(Protocol):
    """Settings that must agree with the number of streams; those of a scenario have the same names."""

    @property
    def num_streams(self) -> int: ...
    @property
    def num_antennas(self) -> int: ...
    @property
    def fading(self) -> str: ...
    @property
    def slice_noise(self) -> bool: ...
    @property
    def csi_correlation(self) -> float: ...


def streams_problem(radio: StreamSettings) -> tuple[str, str, object, str] | None:
    """Returns (field, rule, value, way out) of a setting that does not go with several streams, if there is one."""
    if radio.num_streams == 1:
        return None
    if radio.num_streams > radio.num_antennas:
        rule = f"must be at most num_antennas, {radio.num_antennas}"
        return "num_streams", rule, radio.num_streams, f"Set num_antennas = {radio.num_streams} or more"
    if radio.fading == "none":
        rule = "must be 1 without fading, where all channels have one direction"
        return "num_streams", rule, radio.num_streams, 'Set fading = "rayleigh"'
    if radio.slice_noise:
        rule = "must be false with several streams: groups send in turn over the whole bandwidth"
        return "slice_noise", rule, True, "Set num_streams = 1"
    if radio.csi_correlation < 1.0:
        rule = "must be 1 with several streams: zero forcing separates channels that are known"
        return "csi_correlation", rule, radio.csi_correlation, "Set num_streams = 1"
    return None


@dataclass(frozen=True, kw_only=True, eq=False)
class Links:
    """Some links between devices and stations, as a path loss sees them.

    Attributes:
      distance_m: ground distance of each.  [num_links]
      seed, key: address of their random numbers; another key is another set of links, sampled independently.
    """

    distance_m: FloatArray
    radio: Radio
    seed: int
    key: tuple[int, ...] = ()

    def rng(self, stream: str) -> np.random.Generator:
        """Returns a random stream of these links."""
        return rng_for(self.seed, stream, *self.key)


LinkGain = Callable[[Links], FloatArray]
"""Large-scale gains of links."""


def path_loss_db(distance_m: ArrayLike, radio: Radio, *, line_of_sight: ArrayLike | None = None) -> FloatArray:
    """Median loss at a ground distance; without `line_of_sight`, for the likelier of the two states."""
    model = PATH_LOSS[radio.path_loss]
    distance = quantity("path_loss_db.distance_m", distance_m, at_least=0.0)
    distance = np.maximum(distance, model.min_distance_m)
    visible = model.los_probability(distance) >= 0.5 if line_of_sight is None else line_of_sight
    height = model.base_height_m if radio.base_height_m is None else radio.base_height_m
    losses = model.los_db(distance, height, radio), model.nlos_db(distance, height, radio)
    return np.where(visible, *losses)[()]


def has_line_of_sight(
    distance_m: ArrayLike, radio: Radio, *, seed: int, key: tuple[int, ...] = ()
) -> NDArray[np.bool_]:
    """Samples which links have line of sight; fixed for a run.  [num_devices]

    `key` names another set of links, sampled independently.
    """
    model = PATH_LOSS[radio.path_loss]
    distance = quantity("has_line_of_sight.distance_m", distance_m, at_least=0.0)
    chance = model.los_probability(np.maximum(distance, model.min_distance_m))
    return rng_for(seed, "line-of-sight", *key).random(distance.shape) < chance


def link_gain(links: Links) -> FloatArray:
    """10^(-(PL + X)/10), X ~ Normal(0, shadowing_std^2) dB: fixed for a run.  [num_links]

    Shadowing is sampled per device, independent of the distance: a network and its flat() have the
    same. Its linear mean is above 1, exp((std ln10/10)^2 / 2), as usual for log-normal shadowing.
    """
    radio, distance = links.radio, links.distance_m
    visible = has_line_of_sight(distance, radio, seed=links.seed, key=links.key)
    std_db = np.where(visible, *PATH_LOSS[radio.path_loss].shadowing_std_db)
    if radio.shadowing_std_db is not None:
        std_db = np.full(distance.shape, float(radio.shadowing_std_db))
    shadowing_db = std_db * links.rng("shadowing").standard_normal(distance.shape)
    return db_to_ratio(-path_loss_db(distance, radio, line_of_sight=visible) - shadowing_db)


def large_scale_gain(network: Network, radio: Radio, *, seed: int, gain_of: LinkGain = link_gain) -> FloatArray:
    """The large-scale gain of every device to its station, `gain_of` its link: fixed for a run.  [num_devices]

    Where the network has measured SNRs, the gain is what makes them, SNR sigma^2 / p: a measurement has its path loss
    and shadowing in it. Likewise of measured rates, SNR = (2^(r/B) - 1) / M: without fading, `full_band_rates` gives
    them back.
    """
    if network.full_band_rate_bps is not None:
        if radio.rate != "shannon":
            rule, way_out = "must be shannon with measured rates, which have their MCS in them", "Or give snr_db"
            raise InvalidValue("Radio.rate", rule, radio.rate, way_out)
        bits_per_hz = quantity(
            "Network.full_band_rate_bps / Radio.bandwidth_hz",
            network.full_band_rate_bps / radio.bandwidth_hz,
            at_most=MAX_BITS_PER_HZ,
            way_out="Set radio.bandwidth_hz to the band that the rates were measured on, or to any wider one",
        )
        return _gain_of_bits_per_hz(bits_per_hz, radio)
    if network.link_snr is not None:
        return network.link_snr * (radio.band_noise_w / radio.transmit_power_w)
    return gain_of(Links(distance_m=network.link_distance_m, radio=radio, seed=seed))


def gain_of_rate(rate_bps: FloatArray, radio: Radio) -> FloatArray:
    """The gain with which Eq. (10) has a rate over the whole bandwidth, without fading: its inverse."""
    return _gain_of_bits_per_hz(rate_bps / radio.bandwidth_hz, radio)


def _gain_of_bits_per_hz(bits_per_hz: FloatArray, radio: Radio) -> FloatArray:
    ratio = np.expm1(bits_per_hz * np.log(2.0)) / radio.num_antennas
    return ratio * (radio.band_noise_w / radio.transmit_power_w)


def gains_to_stations(network: Network, radio: Radio, *, seed: int, gain_of: LinkGain = link_gain) -> FloatArray:
    """The large-scale gain of every device to every station.  [num_devices, num_edges]

    The column of the station that serves a device in `network` is `large_scale_gain` to the bit. Each other link has
    line of sight and shadowing from its station's own streams, so that association changes no other link.
    Devices that change their station take their gains from the table of the network as it was placed: calling
    `large_scale_gain` after the move would sample the new link again. A flat network has the cloud's one column.
    """
    served = large_scale_gain(network, radio, seed=seed, gain_of=gain_of)
    if network.has_measured_links:
        raise InvalidValue(
            "Network.link_snr",
            "describes the link to each device's own edge alone, so association cannot change",
            "a table with snr_db or full_band_rate_bps",
            'Give distance_m or places, or association.name = "fixed"',
        )
    if network.topology == "flat":
        return served[:, np.newaxis]
    gains = np.empty((network.num_devices, network.num_edges))
    for k, station in enumerate(network.edge_position_m):
        distance = np.hypot(*(network.device_position_m - station).T)
        gains[:, k] = gain_of(Links(distance_m=distance, radio=radio, seed=seed, key=(k + 1,)))
    gains[np.arange(network.num_devices), network.edge] = served
    return gains


def small_scale_gain(
    num_devices: int, radio: Radio, *, seed: int, round_index: int, key: tuple[int, ...] = ()
) -> FloatArray:
    """sum_m |h_m|^2 over M antennas after maximum-ratio combining, mean M.  [num_devices]

    Constant within an edge round (block fading). Rayleigh makes the sum Gamma(M, 1); "none" is exactly M.
    `key` names another channel of the same devices.
    """
    num_devices = whole_number("small_scale_gain.num_devices", num_devices)
    round_index = whole_number("small_scale_gain.round_index", round_index)
    if radio.fading == "none":
        return np.full(num_devices, float(radio.num_antennas))
    return np.sum(
        amplitudes(diffuse_parts(num_devices, radio, rng_for(seed, "fading", round_index, *key)), radio) ** 2,
        axis=(1, 2),
    )


def diffuse_parts(num_devices: int, radio: Radio, rng: np.random.Generator) -> FloatArray:
    """sqrt(2) times the real and imaginary parts of CN(0, 1), independent per antenna.  [num_devices, M, 2]

    Device by device, so that a device's numbers do not depend on how many follow.
    """
    return rng.standard_normal((num_devices, radio.num_antennas, 2))


def amplitudes(diffuse: FloatArray, radio: Radio) -> FloatArray:
    """h = sqrt(K/(K+1)) + sqrt(1/(K+1)) CN(0, 1), as real and imaginary parts; Rayleigh is K = 0.  [num_devices, M, 2]

    The direct path's phase is omitted since |h|^2 does not see it.
    """
    k = rician_k(radio)
    parts = diffuse * diffuse_scale(radio)
    parts[:, :, 0] += np.sqrt(k / (k + 1.0))
    return parts


def diffuse_scale(radio: Radio) -> float:
    """Amplitude of the scattered part, of a standard normal number for its real and for its imaginary part."""
    return float(np.sqrt(0.5 / (rician_k(radio) + 1.0)))


def rician_k(radio: Radio) -> float:
    """K of the fading; 0 for Rayleigh."""
    return radio.rician_k if radio.fading == "rician" else 0.0


def snr(gain: ArrayLike, radio: Radio) -> FloatArray:
    """g_n p_n / sigma^2 of Eq. (10), a plain ratio; `gain` is large-scale times small-scale."""
    return quantity("snr.gain", gain, at_least=0.0) * (radio.transmit_power_w / radio.band_noise_w)


def sent_power_w(gain: FloatArray, radio: Radio) -> FloatArray:
    """p_n of devices with these large-scale gains: min(p_max, P0 gain^-alpha), or p_max without power control."""
    if radio.power_p0_w is None:
        return np.full(np.shape(gain), radio.transmit_power_w)
    with np.errstate(divide="ignore"):
        wanted = radio.power_p0_w * np.asarray(gain) ** -radio.power_alpha
    return np.minimum(wanted, radio.transmit_power_w)


def sent_gain(gain: FloatArray, radio: Radio) -> FloatArray:
    """Large-scale gains times p_n / p_max: what a station hears of devices with power control."""
    if radio.power_p0_w is None:
        return gain
    return gain * (sent_power_w(gain, radio) / radio.transmit_power_w)


def full_band_rate_bps(snr_ratio: ArrayLike, bandwidth_hz: ArrayLike) -> FloatArray:
    """r_n = B log2(1 + SNR), Eq. (10) at b = 1; log1p keeps it exact at very low SNR."""
    ratio = quantity("full_band_rate_bps.snr_ratio", snr_ratio, at_least=0.0, way_out="A plain ratio, not dB")
    band = quantity("full_band_rate_bps.bandwidth_hz", bandwidth_hz, above=0.0)
    return band * (np.log1p(ratio) / np.log(2.0))


def rate_at_snr_bps(snr_ratio: ArrayLike, radio: Radio) -> FloatArray:
    """r_n at an SNR, by the radio's `rate`."""
    if radio.rate == "nr-mcs":
        ratio = quantity("rate_at_snr_bps.snr_ratio", snr_ratio, at_least=0.0, way_out="A plain ratio, not dB")
        return mcs_rate_bps(ratio, radio.bandwidth_hz)
    return full_band_rate_bps(snr_ratio, radio.bandwidth_hz)


def uplink_rate_bps(
    share: ArrayLike, full_band_rate_bps: ArrayLike, slice_bandwidth_hz: ArrayLike | None = None
) -> FloatArray:
    """R_n = b_n r_n, Eq. (10): linear in the share. Takes any share, as the formulas of `latency` do.

    With `slice_bandwidth_hz`, B, it is b_n B log2(1 + SNR_n / b_n): see `slice_noise`.
    """
    if slice_bandwidth_hz is not None:
        return slice_rate_bps(
            *(np.asarray(x, dtype=np.float64) for x in (share, full_band_rate_bps, slice_bandwidth_hz))
        )
    return np.asarray(share, dtype=np.float64) * np.asarray(full_band_rate_bps, dtype=np.float64)


def downlink_rate_bps(full_band_rate_bps: ArrayLike, radio: Radio, power_w: FloatArray | None = None) -> FloatArray:
    """B log2(1 + g_n p / sigma^2) of the station's power p, from r_n of Eq. (10) at the device's power p_n.

    g_n p_n / sigma^2 = 2^(r_n / B) - 1. The channel is reciprocal: the same gain and fading both ways, the station's M
    antennas beamform as they combine, and the device's receiver has the station's noise. With MCS, of the least SNR
    that the uplink's MCS needs.

    Args:
      power_w: p_n of each device under power control; None: that of the radio.
    """
    rate = quantity("downlink_rate_bps.full_band_rate_bps", full_band_rate_bps, at_least=0.0)
    if radio.station_power_w is None and power_w is None:
        return rate
    more = radio.downlink_power_w / (radio.transmit_power_w if power_w is None else power_w)
    if radio.rate == "nr-mcs":
        return mcs_rate_bps(mcs_snr(rate, radio.bandwidth_hz) * more, radio.bandwidth_hz)
    ratio = np.expm1(rate / radio.bandwidth_hz * np.log(2.0)) * more
    return radio.bandwidth_hz * (np.log1p(ratio) / np.log(2.0))


def full_band_rates(network: Network, radio: Radio, *, seed: int, round_index: int = 0) -> FloatArray:
    """r_n of every device in one edge round: all of this module in one call.  [num_devices]"""
    gain = large_scale_gain(network, radio, seed=seed)
    gain = gain * small_scale_gain(network.num_devices, radio, seed=seed, round_index=round_index)
    return rate_at_snr_bps(snr(gain, radio), radio)
