"""Writes drops of devices among 19 stations (3GPP TR 38.901, outdoors) with Sionna's links: python drop.py OUT.npz."""

import sys

import numpy as np
import torch
from sionna.phy import config
from sionna.phy.channel.tr38901 import LSPGenerator, PanelArray, UMaScenario, UMiScenario
from sionna.sys import gen_hexgrid_topology

NUM_DROPS = 40
SCENARIOS = {"umi": (UMiScenario, 200.0), "uma": (UMaScenario, 500.0)}  # metres between stations, Table 7.8-1


def links(name: str) -> dict[str, np.ndarray]:
    """Places and links of all drops; arrays start with [num_drops, …], those of links go on with [num_stations, …]."""
    scenario_of, between_m = SCENARIOS[name]
    devices, sectors, device_turns, sector_turns, speeds, indoors, _, _ = gen_hexgrid_topology(
        batch_size=NUM_DROPS,
        num_rings=2,
        num_ut_per_sector=5,
        scenario=name,
        isd=between_m,
        indoor_probability=0.0,
        min_ut_height=1.5,
        max_ut_height=1.5,
    )
    stations, station_turns = sectors[:, ::3], sector_turns[:, ::3]  # three sectors of a site are one station
    antenna = PanelArray(
        num_rows_per_panel=1,
        num_cols_per_panel=1,
        polarization="single",
        polarization_type="V",
        antenna_pattern="omni",
        carrier_frequency=3.5e9,
    )
    scenario = scenario_of(3.5e9, "low", antenna, antenna, "uplink")
    scenario.set_topology(devices, stations, device_turns, station_turns, speeds, indoors)
    generator = LSPGenerator(scenario)
    generator.topology_updated_callback()
    sampled = generator()
    return {
        f"{name}_device_m": devices[..., :2].numpy(),
        f"{name}_station_m": stations[..., :2].numpy(),
        f"{name}_sight": scenario.los.numpy(),
        f"{name}_loss_db": sampled.pathloss.numpy(),
        f"{name}_shadowing_db": 10.0 * torch.log10(sampled.sf).numpy(),
    }


if __name__ == "__main__":
    config.seed = 1
    np.savez(sys.argv[1], **links("umi"), **links("uma"))
