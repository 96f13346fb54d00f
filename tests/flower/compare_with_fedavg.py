"""Runs the app `like_fedavg` and airprune's own method on the same network; prints how far they are apart, as JSON.

Started by a test, in an environment that has Flower: without arguments beside fedavg, with `edges` beside hierfavg on
two edges that average twice before the cloud does.
"""

import json
import logging
import sys
from pathlib import Path

import numpy as np

import airprune as ap

APP = Path(__file__).parent / "apps" / "like_fedavg"
SETTINGS = {
    "network.cpu_hz": 5e8,
    "network.cpu_hz_max": 2e9,
    "radio.fading": "rayleigh",
    "radio.downlink": "broadcast",
    "clock.compute": "flops",
    "clock.flops_per_cycle": 8.0,
    "clock.idle_power_w": 0.1,
    "plan.bits_per_weight": 32.0,
    "data.partition": "natural",
    "train.learning_rate": 0.1,
    "train.batch_size": 1000,
    "train.local_epochs": 2,
    "rounds.evaluate_every": "never",
    "engine.name": "serial",
}
COMPARED = ("time_s", "uploaded_bits", "energy_j", "downlink_bits", "downlink_s", "station_energy_j", "num_samples")


def main() -> None:
    edges = 2 if "edges" in sys.argv else 0
    scenario = ap.flower.default_scenario().with_values(SETTINGS)
    network = {"network.num_edges": 1, "network.devices_per_edge": 5, "rounds.global_rounds": 3}
    if edges:
        scenario = scenario.with_values({"method": "hierfavg", "topology.hierarchical.backhaul_bps": 1e6})
        scenario = scenario.with_values({"rounds.edge_rounds": 2})
        network = {"network.num_edges": 2, "network.devices_per_edge": [3, 2], "rounds.global_rounds": 2}
    theirs = ap.flower.run(APP, scenario, edges=edges, run_config={"num-server-rounds": 4 if edges else 3})
    logging.getLogger("flwr").setLevel(logging.WARNING)
    sys.path.insert(0, str(APP))
    from like_app.task import model, samples

    parts = [(samples(partition), samples(partition)) for partition in range(5)]  # to train, and to test: not used
    records = ap.run(scenario.with_values(network), model=model(), dataset=parts)
    ours = []
    while True:
        try:
            ours.append(next(records))
        except StopIteration as end:
            weights = end.value
            break
    rounds = [[r for r in records if r["kind"] == "global"] for records in (theirs.records, ours)]
    apart = {
        name: max(abs(a[name] - b[name]) / max(abs(b[name]), 1e-300) for a, b in zip(*rounds, strict=True))
        for name in COMPARED
    }
    apart["weights"] = max(float(np.abs(theirs.arrays[name] - weights[name]).max()) for name in weights)
    apart["loss"] = max(abs(a["train_loss"] - b["train_loss"]) for a, b in zip(*rounds, strict=True))
    moved = max(float(np.abs(weights[name] - array).max()) for name, array in _start(model()).items())
    found = {"apart": apart, "moved": moved, "compute_from": theirs.compute_from, "rounds": len(rounds[0])}
    sys.stdout.write(json.dumps(found) + "\n")


def _start(net) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in net.state_dict().items()}


if __name__ == "__main__":
    main()
