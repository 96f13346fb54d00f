"""Planned work, deployed: parts and steps as ordered, plans with measured times, the bits of simulation and replay."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune.cli import main
from airprune.deployment import training
from airprune.deployment.checks import MAX_PARTS, trouble_in_measured
from airprune.deployment.cloud_estimates import beside_s, first_beside, learn, part_costs, slowdown_of
from airprune.deployment.device import _asked
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.remote import CloudSettings
from airprune.deployment.run_definition import RunDefinition
from airprune.deployment.training import Trainer, slowed
from airprune.deployment.unequal import run_unequal
from airprune.errors import InvalidValue, UsageError, WorkFailed
from airprune.methods.masking.base import SubModel
from airprune.methods.masking.whole import Whole
from airprune.rounds.messages import Broadcast
from airprune.rounds.work import LocalWork
from airprune.runs.layout import RunFolder
from airprune.runs.measured import MeasuredRow, PlannedInputs, read_inputs, read_measured
from support.federation import Processes, Tasks, rows_of
from support.tiny import final_bytes

# CPUs that differ tenfold, so that parts and steps differ; uplinks that are never the bottleneck of a test.
SMALL = [
    "method=adaptive-work",
    "network.num_edges=1",
    "network.devices_per_edge=3",
    "network.cpu_hz=2e8",
    "network.cpu_hz_max=2e9",
    "clock.board=none",
    "clock.flops_per_cycle=8",
    "data.train_samples=120",
    "data.test_samples=40",
    "train.batch_size=8",
    "rounds.global_rounds=2",
    "radio.bandwidth_hz=2e6",
    "engine.name=serial",
]
AS_SIMULATED = CloudSettings(measures=False, grace_s=60.0, wait_s=60.0)
# Late or not, everything counts: what is compared are bits.
MEASURED = CloudSettings(measures_uplink=False, grace_s=60.0, wait_s=60.0)


def scenario_of(*changes: str) -> ap.Scenario:
    return ap.Scenario.preset("deployed").with_overrides([*SMALL, *changes])


def deploy(folder: Path, scenario: ap.Scenario, settings: CloudSettings) -> Path:
    """Runs it with edges and devices as tasks of this process; returns the run folder."""
    network = scenario.build_network()
    per_edge = [int((network.edge == edge).sum()) for edge in range(network.num_edges)]
    with Tasks(folder / "federation", num_edges=network.num_edges, devices_per_edge=per_edge) as federation:
        federation.start_all()
        list(federation.run_cloud(scenario, folder / "run", settings))
    return folder / "run"


def simulate(scenario: ap.Scenario, out: Path, **options) -> Path:
    list(ap.run(scenario, out=out, **options))
    return out


# The simulation's bits.


@pytest.mark.parametrize(
    "changes",
    [
        (),  # deadline, parts, steps and levels with error feedback by the scheme; native kernel
        # By torch, which cannot trace a model for its features while another thread uses one.
        ("model.name=mlp", "network.num_edges=2", "train.local_epochs=1", "train.feature_cache_mb=0"),
        (
            "aggregation.edge=fednova",
            "compression.name=cast",
            "plan.deadline_s=0.2",
            "plan.framing=false",
            "train.learning_rate=0.002",  # with 0.02 it diverges, which a deployment refuses
        ),
        ("method=cocofl",),  # blocks of layers, the others at 8 bits
    ],
    ids=["adaptive-work", "torch", "fednova", "cocofl"],
)
def test_planned_work_ends_in_the_simulations_records_and_model(changes, tmp_path):
    scenario = scenario_of(*changes)
    run = deploy(tmp_path, scenario, AS_SIMULATED)
    rows = read_measured(RunFolder(run))
    assert {row.fate for row in rows} == {"ok"}
    assert len({(row.first_trained, row.last_trained) for row in rows}) > 1
    assert len({row.local_steps for row in rows}) > (scenario.plan.scheme == "work")
    if scenario.plan.framing:
        assert [row.bytes for row in rows] == [row.planned_bytes for row in rows]
    assert final_bytes(run) == final_bytes(simulate(scenario, tmp_path / "simulated"))


# Measured times.


@pytest.fixture(scope="module")
def measured(tmp_path_factory) -> Path:
    """A run that was planned with measured times."""
    return deploy(tmp_path_factory.mktemp("measured"), scenario_of("rounds.global_rounds=3"), MEASURED)


def test_a_run_planned_with_measured_times_is_replayed_to_its_bits(measured, tmp_path):
    again = simulate(scenario_of("rounds.global_rounds=3"), tmp_path / "again", replay=measured)
    assert final_bytes(measured) == final_bytes(again)


def test_its_inputs_have_the_times_of_parts_and_what_rounds_take_beside_training(measured):
    inputs, shape = read_inputs(RunFolder(measured)), scenario_of().build_network()
    first, last = inputs[0], inputs[max(inputs)]
    assert len(first.part_cost) == len(first.part_saved) == 4  # layers of the paper's CNN
    assert first.part_cost[0] == 1.0 and list(first.part_cost) == sorted(first.part_cost, reverse=True)
    assert first.part_saved[0] == 0.0 and first.part_saved[-1] > 0.0
    assert first.extra_s == (0.1 / 0.85,) * shape.num_devices  # nothing is measured yet
    assert last.extra_s != first.extra_s
    rows = [row for row in read_measured(RunFolder(measured)) if row.round == max(inputs)]
    assert {row.device: row.extra_s for row in rows} == dict(zip(last.device, last.extra_s, strict=True))
    assert all(row.compute_s < row.started_s for row in rows)


@pytest.mark.parametrize(
    "change",
    [
        {"part_cost": [1.0, 0.5]},
        {"part_cost": [1.0, 0.5, 0.6, 0.4]},
        {"part_cost": [1.0, 0.5, None, 0.4]},
        {"part_saved": [0.0, 0.9, 0.0, 0.0]},
        {"part_saved": None},
        {"extra_s": [-1.0, 0.1, 0.1]},
    ],
    ids=str,
)
def test_a_replay_refuses_times_that_cannot_be_of_the_scenarios_parts(measured, tmp_path, change):
    folder = tmp_path / "run"
    folder.mkdir()
    for path in measured.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    line, *rest = rows_of(measured / "inputs.jsonl")
    line |= {"part_cost": [1.0, 0.8, 0.6, 0.4], "part_saved": [0.0, 0.1, 0.1, 0.1]} | change
    line = {key: value for key, value in line.items() if value is not None}
    (folder / "inputs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (line, *rest)))
    with pytest.raises(WorkFailed, match=r"inputs.jsonl does not fit the scenario in edge round 0"):
        simulate(scenario_of("rounds.global_rounds=3"), tmp_path / "again", replay=folder)


def presence(*times: tuple[float, float]) -> pb.Presence.Device:
    device = pb.Presence.Device(num_samples=1)
    for seconds, cached in times:
        device.parts.add(seconds=seconds, cached_seconds=cached)
    return device


def local_work(**changes) -> LocalWork:
    known = {"first_trained": np.arange(3), "saved": np.array([0.0, 0.2, 0.3]), "half_work": 1.0}
    unused = dict.fromkeys(("train", "weights", "cost", "value", "max_epochs", "full_minibatches"))
    return LocalWork(**unused | known | changes)


def test_costs_of_parts_are_medians_over_devices_of_any_speed_and_fall():
    devices = [
        presence((1.0, 1.0), (0.6, 0.6), (0.5, 0.1)),
        presence(
            (20.0, 20.0), (16.0, 14.0), (10.0, 4.0)
        ),  # over its whole model: 0.8 and 0.5, from features 0.7 and 0.2
        presence((0.1, 0.1), (0.09, 0.08), (0.095, 0.03)),
    ]
    cost, saved = part_costs(devices, local_work())
    np.testing.assert_allclose(cost, [1.0, 0.8, 0.5], rtol=1e-12)
    np.testing.assert_allclose(saved, [0.0, 0.1, 0.3], rtol=1e-12)
    rising = [presence((1.0, 1.0), (0.5, 0.5), (0.7, 0.1))]
    assert part_costs(rising, local_work())[0].tolist() == [1.0, 0.5, 0.5]
    cost, saved = part_costs(rising, local_work(saved=np.zeros(3), last_trained=np.array([2, 0, 1])))
    assert cost.tolist() == [1.0, 0.5, 0.7] and not saved.any()  # blocks, in any order; no features are counted on


@pytest.mark.parametrize("device", [presence(), presence((1.0, 1.0)), presence((0.0, 0.0), (1.0, 1.0), (1.0, 1.0))])
def test_devices_that_measured_no_parts_or_others_do_not_count_in_their_costs(device):
    assert part_costs([device], local_work()) is None
    cost, _ = part_costs([device, presence((2.0, 2.0), (1.0, 1.0), (0.5, 0.5))], local_work())
    assert cost.tolist() == [1.0, 0.5, 0.25]


def row(device: int, **known) -> MeasuredRow:
    values = dict.fromkeys(field.name for field in fields(MeasuredRow))
    place = {"round": 0, "global_round": 1, "edge_round": 1, "edge": 0, "device": device, "fate": "ok", "extra": {}}
    return MeasuredRow(**values | place | known)


def test_time_beside_training_is_learnt_apart_from_the_speed_of_training():
    came = row(0, planned_compute_s=1.5, extra_s=0.5, compute_s=2.0, started_s=2.1)
    assert slowdown_of(came) == 2.0  # of 1 s that was planned for training
    assert slowdown_of(replace(came, extra_s=None)) == 2.1 / 1.5
    state = types.SimpleNamespace(values=first_beside(4))
    training_only = learn_only_beside(state, [came, row(1, compute_s=2.0, started_s=30.0), row(2, fate="late")])
    # Means of 0.1 s and what was measured, at most four times as much; twice as much where nothing is known.
    np.testing.assert_allclose(training_only, [0.1, 0.25, 0.2, 0.1], rtol=1e-12)
    np.testing.assert_allclose(beside_s(state), np.array([0.1, 0.25, 0.2, 0.1]) / 0.85, rtol=1e-12)


def learn_only_beside(state, rows) -> np.ndarray:
    from airprune.deployment.cloud_estimates import as_values
    from airprune.deployment.estimates import Estimates

    state.values |= as_values(Estimates.unknown(4))
    learn(state, rows, [])
    return state.values["world/beside_s"]


# Devices.


class Clock:
    """Stands for the module `time`: processor seconds and others pass as they are given."""

    def __init__(self) -> None:
        self.now_s, self.used_s, self.slept_s = 100.0, 3.0, []

    def pass_by(self, used_s: float, waited_s: float) -> None:
        self.used_s += used_s
        self.now_s += used_s + waited_s

    def perf_counter(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return self.used_s

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)


@pytest.fixture
def clock(monkeypatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(training, "time", made)
    return made


@pytest.mark.parametrize(
    ("factor", "waited_s", "slept_s"),
    [(4.0, 0.0, [6.0]), (4.0, 1.5, [4.5]), (4.0, 9.0, [0.0]), (1.0, 0.0, [])],
    ids=["idle machine", "busy machine", "busier than the slow-down", "as fast as the machine"],
)
def test_a_slowed_device_takes_the_factor_times_its_processor_seconds(clock, factor, waited_s, slept_s):
    with slowed(factor):
        clock.pass_by(2.0, waited_s)
    assert clock.slept_s == slept_s


def trainer_of(scenario: ap.Scenario, **options) -> Trainer:
    rng = np.random.default_rng(0)
    work = RunDefinition(scenario=scenario, input_shape=(1, 12, 12), num_classes=4, num_devices=3, num_edges=1)
    return Trainer(work, 0, (rng.normal(size=(40, 1, 12, 12)).astype(np.float32), np.arange(40) % 4), **options)


@pytest.mark.parametrize("changes", [(), ("model.name=mlp",)], ids=["native", "torch"])
def test_a_device_measures_every_part_that_it_may_train(changes):
    trainer = trainer_of(scenario_of(*changes), slowdown=2.0)
    parts = trainer.part_seconds()
    assert len(parts) == (2 if changes else 4)
    assert all(0.0 < seconds < math.inf and 0.0 < cached < math.inf for seconds, cached in parts)
    assert trainer_of(scenario_of(*changes, "plan.work.parts=false")).part_seconds() == []
    assert trainer_of(scenario_of(*changes, "method=adaptive-bits")).part_seconds() == []


def test_speeds_are_not_measured_on_zeros_which_a_kernel_skips():
    trainer = trainer_of(scenario_of("method=adaptive-bits"))
    model = trainer._device.model
    assert trainer.seconds_per_sample() > 0.0
    assert np.count_nonzero(model.state_array) == model.num_state


def test_an_answer_to_other_work_is_not_taken_for_these_orders():
    orders = pb.Orders(keep=5, learning_rate=0.1, model_digest="00")
    work = [orders, pb.Orders(local_steps=3), pb.Orders(local_steps=4), pb.Orders(local_steps=4, first_trained=1)]
    work += [pb.Orders(local_steps=4, last_trained=0), pb.Orders(local_steps=4, last_trained=1)]
    for one in work[1:]:
        one.MergeFrom(orders)
    assert len({_asked(one) for one in work}) == len(work)
    plain = pb.Orders(keep=5, learning_rate=0.1, model_digest="00", first_trained=0)
    assert plain.SerializeToString() == orders.SerializeToString()  # orders without work are as they were


def orders_for(trainer: Trainer, **work) -> tuple[pb.Orders, Broadcast]:
    model = np.random.default_rng(1).normal(scale=0.05, size=trainer.work.shape.num_state).astype(np.float32)
    keep = trainer.work.shape.prunable_weights
    return pb.Orders(keep=keep, learning_rate=0.01, model_digest="00" * 16, **work), Broadcast(model=model)


def test_a_masking_that_freezes_layers_by_itself_is_refused_in_a_sentence(monkeypatch):
    trainer = trainer_of(scenario_of("compression.name=cast"))
    monkeypatch.setattr(Whole, "choose", lambda self, view: SubModel(first_trained=2))
    assert trainer.upload(*orders_for(trainer, first_trained=2, local_steps=1), {}).data
    with pytest.raises(
        InvalidValue, match=r"SubModel.first_trained and last_trained must be as ordered: [^\n]+, got \(2, None\)\."
    ):
        trainer.upload(*orders_for(trainer, local_steps=1), {})


def test_orders_to_train_a_layer_that_is_not_there_are_refused_in_a_sentence():
    trainer = trainer_of(scenario_of("compression.name=cast"))
    with pytest.raises(InvalidValue, match=r"first_trained must be the number of one of the model's 4 layers"):
        trainer.upload(*orders_for(trainer, first_trained=9, local_steps=1), {})


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        ([(math.nan, 1.0)], "parts.seconds must be finite and not negative, got nan."),
        ([(1.0, 1.0), (1.0, -2.0)], "parts.cached_seconds must be finite and not negative, got -2."),
        ([(1.0, 1.0)] * (MAX_PARTS + 1), f"parts must be at most {MAX_PARTS}, got {MAX_PARTS + 1}."),
        ([(1.0, 1.0)] * 4, ""),
    ],
)
def test_measured_parts_that_cannot_be_are_refused(times, sentence):
    assert trouble_in_measured(presence(*times)) == sentence


# Commands.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["device", "kit", "--slowdown", "inf"], "--slowdown must be a finite number, got inf."),
        (["device", "kit", "--slowdown", "0.5"], "'--slowdown': Input should be greater than or equal to 1"),
        (["cloud", "kit", "deployed", "--plan-with", "luck"], "--plan-with must be measured, speeds or network"),
        (["demo", "--unequal", "method=hierfavg"], "needs a scheme that plans their work, got 'no-pruning'"),
    ],
)
def test_commands_refuse_what_cannot_be_in_a_sentence(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["deploy", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# Real processes.


@pytest.mark.slow
def test_processes_killed_in_the_middle_of_planned_work_leave_a_run_that_is_replayed_to_its_bits(tmp_path):
    run, changes = tmp_path / "run", ("rounds.global_rounds=3", "model.name=mlp")  # by torch, with kept features
    with Processes(tmp_path / "federation", num_edges=1, devices_per_edge=3) as federation:
        federation.start("e0")
        for name, factor in zip(federation.devices, ("1", "4", "16"), strict=True):
            federation.start(name, "--slowdown", factor)
        patient = ("--grace", "60", "--patience", "120")
        federation.start_cloud(run, "deployed", *SMALL, *changes, *patient, plan_with="speeds")

        def planned(number: int) -> bool:
            return len(rows_of(run / "inputs.jsonl")) >= number

        federation.wait_for(lambda: planned(2), "the second edge round")
        federation.kill("e0")
        federation.start("e0")
        federation.wait_for(lambda: planned(4), "the fourth edge round")
        federation.kill("d2")
        assert federation.wait("cloud") == 0, federation.log("cloud")
    lost = {(row["device"], row["fate"]) for row in rows_of(run / "measured.jsonl") if row["fate"] != "ok"}
    assert lost <= {(2, "dropped")}
    assert final_bytes(run) == final_bytes(simulate(scenario_of(*changes), tmp_path / "again", replay=run))


@pytest.mark.slow
def test_the_demonstration_of_unequal_devices_meets_its_plan_and_is_replayed(tmp_path):
    result = run_unequal(scenario_of(), tmp_path / "demo", (1.0, 8.0), report=lambda _: None)
    assert result.is_replayed
    assert [device.slowdown for device in result.devices] == [1.0, 8.0, 1.0]
    assert result.num_uploads == 3 * 4 and len(result.deadline_s) == 4 and len(result.part_cost) == 4
    with pytest.raises(UsageError, match="needs a scheme that plans their work"):
        run_unequal(scenario_of("method=hierfavg"), tmp_path / "other", (1.0,), report=lambda _: None)


def test_inputs_without_work_are_written_as_they_were():
    place = {"round": 0, "global_round": 1, "edge_round": 1, "device": (0,), "edge": (0,), "full_band_rate_bps": (1.0,)}
    assert list(PlannedInputs(**place).to_json()) == list(place)
