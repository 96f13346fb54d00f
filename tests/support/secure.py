"""A deployment of secure sums in tests: one edge, five devices unless a test has more, three of which open a sum."""

from __future__ import annotations

from pathlib import Path

import airprune as ap
from airprune.deployment.remote import CloudSettings
from support.tiny import final_bytes

CHANGES = (
    "model.name=mlp",
    "data.train_samples=150",
    "data.test_samples=40",
    "radio.bandwidth_hz=4e6",
    "network.num_edges=1",
    "network.devices_per_edge=5",
    "rounds.global_rounds=2",
    "engine.name=serial",
    "method=secure-sums",
    "plan.bits_per_weight=32",
)
ONE_ROUND = ("rounds.global_rounds=1", "rounds.edge_rounds=1")
SETTINGS = CloudSettings(measures=False, grace_s=60.0)


def scenario_of(*changes: str) -> ap.Scenario:
    return ap.Scenario.preset("deployed").with_overrides([*CHANGES, *changes])


def replayed(run: Path, *changes: str) -> tuple[bytes, bytes]:
    """Records and model of a replay."""
    out = run.with_name("replayed")
    for _ in ap.run(scenario_of(*changes), out=out, replay=run):
        pass
    return final_bytes(out)
