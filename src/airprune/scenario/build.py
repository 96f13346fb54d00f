"""Builds the network and the radio of a scenario in SI units; decibels end here."""

from __future__ import annotations

import dataclasses

import numpy as np

from airprune.errors import InvalidValue
from airprune.scenario.sections import NetworkSection, RadioSection
from airprune.units import db_to_ratio, dbm_to_watt
from airprune.wireless.channel import LIGHT_M_PER_S, Radio
from airprune.wireless.csi import known_correlation
from airprune.wireless.motion import Motion, Traced, Waypoints
from airprune.wireless.network import Disc, LogUniform, Network, Placement, Ring, place_flat, place_hierarchical
from airprune.wireless.traces import read_traces


def build_radio(section: RadioSection, *, speed_m_per_s: float = 0.0) -> Radio:
    doppler_hz = speed_m_per_s * section.carrier_hz / LIGHT_M_PER_S
    known = known_correlation(
        doppler_hz=doppler_hz,
        delay_s=section.csi_delay_s,
        pilots=section.pilots,
        pilot_snr=db_to_ratio(section.pilot_snr_db),
    )
    power, density = section.noise_power_dbm, section.noise_density_dbm_per_hz
    return Radio(
        bandwidth_hz=section.bandwidth_hz,
        transmit_power_w=dbm_to_watt(section.transmit_power_dbm),
        noise_power_w=None if power is None else dbm_to_watt(power),
        noise_density_w_per_hz=None if density is None else dbm_to_watt(density),
        noise_figure=db_to_ratio(section.noise_figure_db),
        slice_noise=section.slice_noise,
        path_loss=section.path_loss,
        carrier_hz=section.carrier_hz,
        speed_m_per_s=speed_m_per_s,
        shadowing_std_db=section.shadowing_std_db,
        fading=section.fading,
        rician_k=db_to_ratio(section.rician_k_db),
        num_antennas=section.num_antennas,
        num_streams=section.num_streams,
        reuse=section.reuse,
        csi_correlation=section.csi_correlation * known,
        pilots=section.pilots,
        report_bits=section.report_bits,
        power_p0_w=None if section.power_p0_dbm is None else dbm_to_watt(section.power_p0_dbm),
        power_alpha=section.power_alpha,
        rate=section.rate,
        downlink=section.downlink,
        station_power_w=None if section.station_power_dbm is None else dbm_to_watt(section.station_power_dbm),
        receive_power_w=section.receive_power_w,
        amplifier_efficiency=section.amplifier_efficiency,
    )


def build_motion(section: NetworkSection, network: Network, radio: Radio, *, seed: int) -> Motion | None:
    """Reads the traces, or sets devices in motion; None where they stay."""
    if section.traces is not None:
        return Traced(traces=read_traces(section.traces, network, radio), radio=radio, start_s=section.start_s)
    if section.mobility == "none":
        return None
    if network.has_measured_links:
        rule = "must be none with a table of measured links, which has no places"
        raise InvalidValue("Scenario.network.mobility", rule, section.mobility, "Give distance_m or coordinates")
    return Waypoints(
        network=network,
        radio=radio,
        seed=seed,
        speed_m_per_s=section.speed_m_per_s,
        radius_m=section.flat_outer_m if network.topology == "flat" else section.edge_distance_m + section.outer_m,
        start_s=section.start_s,
    )


def build_network(section: NetworkSection, *, flat: bool, seed: int, batch_samples: int) -> Network:
    """Places the devices, or reads them from the table; `batch_samples` of a local step is for tables of step times."""
    if section.table is not None:
        network = _from_table(section, section.table, seed=seed, batch_samples=batch_samples)
        return network.flat() if flat else network
    if flat:
        ring = _placement(section, section.flat_inner_m, section.flat_outer_m)
        return place_flat(
            num_devices=sum(section.device_counts),
            placement=ring,
            cpu_hz=_cpu_hz(section, sum(section.device_counts)),
            seed=seed,
        )
    return place_hierarchical(
        num_edges=section.num_edges,
        devices_per_edge=section.device_counts,
        placement=_placement(section, section.inner_m, section.outer_m),
        edge_distance_m=section.edge_distance_m,
        cpu_hz=_cpu_hz(section, sum(section.device_counts)),
        seed=seed,
    )


def _placement(section: NetworkSection, inner_m: float, outer_m: float) -> Placement:
    return Ring(inner_m, outer_m) if section.placement == "ring" else Disc(outer_m, min_distance_m=inner_m)


def _cpu_hz(section: NetworkSection, num_devices: int) -> float | tuple[float, float] | LogUniform | list[float]:
    if kinds := section.cpu_kinds_hz:
        return [kinds[n % len(kinds)] for n in range(num_devices)]
    low, high = section.cpu_hz, section.cpu_hz_max
    if high is None:
        return low
    return (low, high) if section.cpu_spread == "uniform" else LogUniform(low, high)


def _from_table(section: NetworkSection, table: str, *, seed: int, batch_samples: int) -> Network:
    """Returns the table's network, with the scenario's CPUs where the table has none."""
    from airprune.planning.fleet import network_and_columns  # slow, and few scenarios have a table

    network, present = network_and_columns(table, batch_samples=batch_samples, is_quoted=False)
    if "cpu_hz" in present:
        return network
    # A placed network of the same sizes has the same draws, edge by edge.
    sizes = np.bincount(network.edge, minlength=network.num_edges).tolist()
    drawn = place_hierarchical(
        num_edges=len(sizes), devices_per_edge=sizes, cpu_hz=_cpu_hz(section, sum(sizes)), seed=seed
    )
    cpu_hz = np.empty(network.num_devices)
    cpu_hz[np.argsort(network.edge, kind="stable")] = drawn.cpu_hz
    return dataclasses.replace(network, cpu_hz=cpu_hz)
