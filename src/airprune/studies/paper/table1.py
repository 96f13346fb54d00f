"""Table I: the paper's parameters beside those of the preset `paper`."""

from __future__ import annotations

from airprune.results.tidy import Rows
from airprune.scenario import Scenario

# (what, as printed, key of the scenario, the printed value in the scenario's unit)
_PARAMETERS = (
    ("Transmission power of device", "28 dBm", "radio.transmit_power_dbm", 28.0),
    ("Bandwidth", "20 MHz", "radio.bandwidth_hz", 20e6),
    ("CPU frequency of device", "3 GHz", "network.cpu_hz", 3e9),
    ("Learning rate", "0.001", "train.learning_rate", 0.001),
    ("AWGN noise power", "-110 dBm", "radio.noise_power_dbm", -110.0),
    ("Batch size", "128", "train.batch_size", 128),
    ("Quantization bit", "64", "plan.bits_per_weight", 64.0),
    ("Number of global communication rounds", "10", "rounds.global_rounds", 10),
    ("Number of edge servers", "5", "network.num_edges", 5),
    ("Number of edge communication rounds", "5", "rounds.edge_rounds", 5),
    ("Number of devices per edge server", "5", "network.devices_per_edge", 5),
    ("Number of local epochs", "2", "train.local_epochs", 2),
)


def rows() -> Rows:
    """Returns a row per parameter: as printed, in both presets, and whether they agree."""
    paper, converged = (Scenario.preset(name).to_dict() for name in ("paper", "paper-converged"))
    found: Rows = []
    for what, printed, key, value in _PARAMETERS:
        section, name = key.split(".")
        found.append(
            {
                "parameter": what,
                "printed": printed,
                "key": key,
                "paper": paper[section][name],
                "paper_converged": converged[section][name],
                "agrees": "yes" if paper[section][name] == value else "no",
            }
        )
    return found
