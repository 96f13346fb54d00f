"""Models, data sets, partitions and all that trains, of a user's own: by a file, on every engine, and deployed."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import airprune as ap
from airprune.cli import main
from airprune.data import Partition, partition
from airprune.deployment.remote import CloudSettings
from airprune.errors import InvalidValue
from airprune.methods.loops import Loop
from airprune.methods.registration import files_used_by, import_file
from airprune.runs.layout import RunFolder
from airprune.settings.toml_text import literal
from airprune.studies.conformance import check
from support.federation import Tasks
from support.tiny import final_bytes

pytestmark = pytest.mark.usefixtures("unregistered", "warm_workers")

FILE = Path(__file__).parents[1] / "support" / "own_training.py"


CHOICES = {
    "rounds.global_rounds": 1,
    "plan.deadline_s": 0.01,
    "model.name": "tanh-net",
    "data.name": "clouds",
    "data.train_samples": None,
    "data.test_samples": None,
    "data.partition": "in-turn",
    "train.loop": "gentle",
    "train.optimizer": "centred",
    "train.centred.alpha": 0.8,
    "train.schedule": "inverse",
    "train.augmentation": "scaled",
    "train.momentum": 0.0,
    "train.learning_rate": 0.01,
    "train.batch_size": 8,
}


def register_as_a_script() -> None:
    runpy.run_path(str(FILE))


def words(values: dict[str, object]) -> list[str]:
    return [f"{key}={literal(value)}" for key, value in values.items()]


@pytest.mark.parametrize("engine", [("processes", 2), ("dask", 2)], ids=lambda engine: engine[0])
def test_a_file_brings_everything_that_trains_to_every_engine(engine, tmp_path: Path):
    for name in ("serial", "other"):
        chosen = ("serial", 1) if name == "serial" else engine
        place = ["--engine", chosen[0], "--out", str(tmp_path / name)]
        place += [] if chosen[0] == "serial" else ["--workers", str(chosen[1])]
        script = ["run", "smoke", *words(CHOICES), *place, "--import", str(own_copy(tmp_path))]
        assert main(script) == 0
    assert final_bytes(tmp_path / "serial") == final_bytes(tmp_path / "other")
    record = RunFolder(tmp_path / "serial").scenario()
    assert record.train.loop == "gentle" and record.train.centred.alpha == 0.8


def own_copy(folder: Path) -> Path:
    path = folder / "mine.py"
    path.write_bytes(FILE.read_bytes())
    return path


def test_a_scenario_names_the_file_of_its_model_data_and_training(tmp_path: Path):
    import_file(own_copy(tmp_path))
    chosen = {"model.name": "tanh-net", "data.name": "clouds", "data.partition": "in-turn", "train.loop": "gentle"}
    for key, value in chosen.items():
        assert list(files_used_by(ap.Scenario().with_(key, value))) == ["mine.py"]
    assert files_used_by(ap.Scenario()) == {}


def test_a_partition_of_ones_own_assigns_samples_and_is_checked():
    ap.register(
        Partition(name="halves", summary="", assign=lambda task: np.arange(len(task.class_of)) // 4, by_class=False)
    )
    held = partition([0] * 8, edge=[0, 0], kind="halves", seed=0)
    assert [own.tolist() for own in held] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(InvalidValue, match="'halves' must return devices from 0 to 1, or -1, got 0 to 2"):
        partition([0] * 12, edge=[0, 0], kind="halves", seed=0)


def test_a_training_loop_of_ones_own_keeps_all_rules():
    register_as_a_script()
    findings = check("gentle", kind="loops", processes=False)
    assert [finding for finding in findings if not finding.kept] == []
    assert "a training loop computes inside its mask" in [finding.rule for finding in findings]


def rules_broken(function) -> list[str]:
    ap.register(Loop.of(function, name="broken"))
    return [finding.rule for finding in check("broken", kind="loops", processes=False) if not finding.kept]


def test_the_check_finds_what_a_loop_carries_from_device_to_device():
    earlier: list[int] = []

    def leaky(model, batches, context):
        earlier.append(context.device)
        for x, y in batches:
            context.loss(model(x), y)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1 - 0.001 * len(earlier))

    assert "stopped and resumed: same bytes" in rules_broken(leaky)


def test_the_check_finds_random_numbers_that_the_seed_does_not_set():
    entropy = np.random.default_rng()

    def restless(model, batches, context):
        for x, y in batches:
            context.loss(model(x), y)
        with torch.no_grad():
            next(model.parameters()).add_(float(entropy.normal()))

    assert "same bytes in any order, on any number of workers" in rules_broken(restless)


def test_the_check_finds_forward_passes_outside_the_mask():
    def outside(model, batches, context):
        for x, y in batches:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.01)
            context.loss(model(x), y)

    assert rules_broken(outside) == ["a training loop computes inside its mask"]


@pytest.mark.parametrize("own", [{"train.loop": "gentle"}, {"train.clip_gradient_norm": 1.0}], ids=["loop", "steps"])
def test_a_deployed_device_trains_by_ones_own_file_to_the_simulations_bytes(own, tmp_path: Path):
    register_as_a_script()
    scenario = ap.Scenario.preset("deployed").with_values(
        {
            "data.train_samples": 120,
            "data.test_samples": 50,
            "data.partition": "in-turn",
            "plan.deadline_s": 0.5,
            "radio.bandwidth_hz": 2.0e7,
            "plan.framing": False,
            "engine.name": "serial",
            "train.optimizer": "centred",
            "train.momentum": 0.0,
            "train.schedule": "warm-up",
            "train.schedule_unit": "step",
            "train.augmentation": "images",
            "train.images.shift": 1,
            **own,
        }
    )
    simulated = tmp_path / "simulated"
    list(ap.run(scenario, out=simulated))
    network = scenario.build_network()
    per_edge = [int((network.edge == edge).sum()) for edge in range(network.num_edges)]
    with Tasks(tmp_path / "federation", num_edges=network.num_edges, devices_per_edge=per_edge) as federation:
        federation.start_all()
        list(federation.run_cloud(scenario, tmp_path / "run", CloudSettings(measures=False, grace_s=60.0, wait_s=60.0)))
    assert final_bytes(tmp_path / "run") == final_bytes(simulated)
