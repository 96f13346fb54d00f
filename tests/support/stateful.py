"""One run with memory everywhere: in devices, edges, cloud and the run itself. `python -m support.stateful` runs it.

A mask for all devices, top-k with memory, momentum at the cloud and at the edges, half of the devices asked, handover;
and a deadline that prunes in every round, with dropouts and stragglers.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

import airprune as ap
from airprune.rounds.experiment import Experiment
from airprune.runs import checkpoint, store
from airprune.runs.driver import opened_store
from airprune.runs.layout import RunFolder
from support.tiny import blobs, tiny_scenario
from support.trouble import Plain

NUM_DEVICES = 12
SLOT = "top-k.error"


def stateful_scenario(**changes) -> ap.Scenario:
    """Three edges, four devices each, 3 × 3 rounds, for the 256 weights of `Plain`."""
    values = {
        "network__num_edges": 3,
        "network__devices_per_edge": 4,
        "rounds__global_rounds": 3,
        "rounds__edge_rounds": 3,
        "masking__name": "shared",
        "masking__shared__every": 2,
        "compression__name": "top-k",
        "compression__top-k__share": 0.1,
        "aggregation__edge_step": "momentum",
        "aggregation__cloud_step": "momentum",
        "aggregation__momentum__beta": 0.5,
        "selection__name": "random-share",
        "selection__random-share__share": 0.5,
        "association__name": "handover",
        "association__handover__probability": 0.2,
        "events__dropout_probability": 0.1,
        "events__straggler_probability": 0.1,
        "events__straggler_slowdown": 3.0,
        # Most of the deadline is compute, which even in rounds without scores is not enough for the whole model.
        "plan__deadline_s": 2.5e-4,
        "plan__cycles_per_weight": 1800.0,
    }
    return tiny_scenario(**{**values, **changes})


def run(folder: Path, scenario: ap.Scenario, *, model=None, resume: bool = False):
    return ap.run(scenario, out=folder, resume=resume, model=model or Plain(), dataset=blobs())


@contextlib.contextmanager
def small_blocks() -> Iterator[None]:
    """Memory in blocks of three devices, of which two are in the cache: every round writes and reads blocks."""
    row = 4 * 256
    with mock.patch.multiple(store, BLOCK_BYTES=3 * row, CACHE_BYTES=6 * row):
        yield


def memory_of(folder: Path) -> np.ndarray:
    """What all devices remember as of the last checkpoint.  [NUM_DEVICES, 256]"""
    experiment = Experiment.of(stateful_scenario(), model=Plain(), dataset=blobs())
    _, facts = checkpoint.read(RunFolder(folder).checkpoint_file)
    return opened_store(experiment, folder, facts["memory"]).take(range(NUM_DEVICES))[SLOT]


def outcome(folder: Path) -> dict[str, bytes]:
    """All that a run leaves: records, final model, the checkpoint's arrays, what devices remember."""
    run = RunFolder(folder)
    arrays, facts = checkpoint.read(run.checkpoint_file)
    blocks = sum(len(slot["blocks"]) for slot in facts["memory"].values())
    assert len(list(run.memory_folder.iterdir())) == blocks, "blocks that no checkpoint names"
    return {
        "records": run.records_file.read_bytes(),
        "final": run.final_file.read_bytes(),
        "memory": memory_of(folder).tobytes(),
        **{name: array.tobytes() for name, array in arrays.items()},
    }


def main(folder: str, engine: str, workers: str, global_rounds: str) -> None:
    scenario = stateful_scenario(rounds__global_rounds=int(global_rounds)).with_values(
        {"engine.name": engine, "engine.workers": int(workers)}
    )
    with small_blocks():
        for _ in run(Path(folder), scenario, resume=True):
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
