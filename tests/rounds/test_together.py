"""Devices trained in step have the bits of devices trained one after the other, for any model, method and group."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import airprune as ap
from airprune.engines.machine import single_thread
from airprune.engines.serial import SerialEngine
from airprune.models.catalogue import FlatModel
from airprune.models.kernels import layers, native, stacked, stacked_chunks
from airprune.models.kernels.autograd import MinibatchLoss
from airprune.models.kernels.stacked import Stack, Unstackable
from airprune.rounds.experiment import Experiment
from airprune.rounds.local import Device
from airprune.rounds.sums import chunk_sum
from airprune.rounds.training import at_once, together, worker
from airprune.runs import InProcess
from airprune.runs.driver import opened_store
from airprune.simulation import run_rounds
from support.each import each

SMALL = {
    "seed": 3,
    "network.num_edges": 2,
    "network.devices_per_edge": 6,
    "train.kernel": "torch",
    "train.batch_size": 7,
    "train.local_epochs": 2,
    "train.learning_rate": 0.1,
    "rounds.global_rounds": 2,
    "rounds.edge_rounds": 2,
    "plan.scheme": "no-pruning",
    "engine.name": "serial",
}
PRUNED = {"plan.scheme": "optimal", "plan.min_pruning_ratio": 0.4, "plan.deadline_s": 1e6}
METHODS = {
    "plain": {},
    "pruned": PRUNED,
    "uneven": {"data.size_spread": 0.9, **PRUNED},
    "momentum-and-decay": {"train.momentum": 0.9, "train.weight_decay": 0.01, **PRUNED},
    "adam": {"train.optimizer": "adam", "train.learning_rate": 0.003},
    "float64": {"model.float64": True, **PRUNED},
    "few-steps": {"train.local_steps": 3},
    "prox": {"objective.name": "prox"},
    "scaffold": {"objective.name": "scaffold"},
    "top-k": {"compression.name": "top-k"},
    "frozen": {"masking.name": "frozen", **PRUNED},
    "taylor": {"masking.probe.importance": "taylor", "masking.probe.structure": "neurons", **PRUNED},
    "heterofl": {"masking.name": "heterofl", **PRUNED},
    "feddst": {"masking.name": "feddst", **PRUNED},
    "personal": {"model.personal": ["2"]},
}


def data(seed: int = 0, num_samples: int = 240):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_samples, 12)).astype(np.float32)
    return (x, x[:, :4].argmax(axis=1)), (x[:20], x[:20, :4].argmax(axis=1))


def mlp() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))


def outcome(changes=(), *, model=None, alone: bool = False, in_step: bool = False, dataset=None):
    """Records, final models and the worker of a run; `in_step`: with no chunk at once."""
    scenario = ap.Scenario().with_values({**SMALL, **dict(changes)})
    experiment = Experiment.of(scenario, model=model or mlp(), dataset=dataset or data())
    state = experiment.initial_state()
    with (
        tempfile.TemporaryDirectory() as folder,
        SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine,
    ):
        state.store = opened_store(experiment, Path(folder))
        if alone:
            engine._worker.together = None
        if in_step:
            engine._worker.train = usual_way(engine._worker)
        records = list(run_rounds(experiment, engine, state))
        return records, [np.asarray(model).tobytes() for model in state.models], engine._worker


def usual_way(used: worker.Worker):
    """`Worker.train` without a look at whether a chunk can be trained at once."""

    def train(received, task):
        uploads = used._uploads(received, task)
        return chunk_sum(used.job.method.aggregation, used.device.shape, received.model, task, uploads)

    return train


@pytest.fixture(autouse=True)
def trusted_soon(monkeypatch):
    """After a few rows, so that short runs have both: rows that are compared and rows that are not."""
    monkeypatch.setattr(stacked, "TRIED_ROWS", 6)


@pytest.mark.parametrize("name", METHODS)
def test_devices_in_step_end_in_the_bytes_of_devices_one_after_the_other(name):
    records, models, used = outcome(METHODS[name], in_step=True)
    assert used.together is not None
    expected = outcome(METHODS[name], alone=True)
    assert models == expected[1]
    assert repr(records) == repr(expected[0])


@pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}")
@pytest.mark.parametrize("name", ["plain", "pruned", "some-prune", "few-steps"])
def test_devices_at_once_end_in_the_bytes_of_devices_one_after_the_other(monkeypatch, name):
    """Mixed: of some devices the plan prunes nothing, and these sit apart from the others."""
    some_prune = {"plan.scheme": "optimal", "plan.deadline_s": 1e-4}
    changes = {**METHODS, "some-prune": some_prune}[name]
    chunks, real = [], stacked_chunks.train_chunk

    def watched(*arguments, **told):
        trained = real(*arguments, **told)
        prunes = [number < 128 for number in told["keep"]]
        chunks.append((trained is not None, any(prunes), all(prunes)))
        return trained

    monkeypatch.setattr(at_once, "train_chunk", watched)
    records, models, _ = outcome(changes)
    assert all(was_done for was_done, _, _ in chunks)
    assert any(some and not everybody for _, some, everybody in chunks) == (name == "some-prune")
    expected = outcome(changes, alone=True)
    assert (repr(records), models) == (repr(expected[0]), expected[1])


@pytest.mark.parametrize("in_step", [False, True])
@pytest.mark.parametrize("num_seats", [1, 2, 5])
def test_how_many_sit_together_changes_no_byte(monkeypatch, num_seats, in_step):
    monkeypatch.setattr(worker, "MAX_CHUNK_DEVICES", num_seats)
    monkeypatch.setattr(stacked, "FEWEST_ROWS", 1)
    records, models, used = outcome(PRUNED, in_step=in_step)
    assert used.together.num_seats == num_seats
    expected = outcome(PRUNED, alone=True)
    assert (repr(records), models) == (repr(expected[0]), expected[1])


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_worker_counts_change_no_byte(tmp_path, workers):
    engine = {"engine.name": "processes", "engine.workers": workers}
    scenario = ap.Scenario().with_values({**SMALL, **PRUNED, **engine, "rounds.global_rounds": 1})
    list(ap.run(scenario, model=mlp(), dataset=data(), out=tmp_path / "run"))
    found = FlatModel(ap.load_model(tmp_path / "run", model=mlp())).state_array
    assert found.tobytes() in outcome({**PRUNED, "rounds.global_rounds": 1}, alone=True)[1]


def conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(16, 4)
    )


MODELS = {
    "vector-wide": lambda: nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)),
    "odd": lambda: nn.Sequential(
        nn.Linear(12, 13), nn.Tanh(), nn.Linear(13, 5), nn.GELU(), nn.Linear(5, 3, bias=False)
    ),
    "sigmoid": lambda: nn.Sequential(nn.Linear(12, 16), nn.Sigmoid(), nn.Identity(), nn.Linear(16, 4)),
    "wide": lambda: nn.Sequential(nn.Linear(12, 200), nn.ReLU(), nn.Linear(200, 62)),
    "conv": conv,
}


@pytest.fixture
def one_thread():
    restore = single_thread()
    yield
    restore()


@each("size", [1, 2, 7, 20, 33])
@each("name", MODELS)
def test_a_stack_has_the_gradients_of_autograd_whether_or_not_it_is_still_tried(one_thread, name, size):
    torch.manual_seed(0)
    model, rng = FlatModel(MODELS[name]()), np.random.default_rng(size)
    x = rng.normal(size=(60, 2, 6, 6) if name == "conv" else (60, 12)).astype(np.float32)
    stack = Stack(model, MinibatchLoss(model, x, rng.integers(0, 3, 60)), 9)
    start = model.state_array.copy()
    for _ in range(4):
        for row in stack.rows:
            row.state_array[:] = start + 0.1 * rng.normal(size=start.size).astype(start.dtype)
        batches = [rng.permutation(60)[:size] for _ in range(5)]
        losses = stack.gradients(2, batches)
        if losses is None:  # this machine's products round otherwise
            continue
        found = [row.gradient_array.tobytes() for row in stack.rows[2:7]]
        assert losses == [stack.alone(row, batch) for row, batch in enumerate(batches, 2)]
        assert found == [row.gradient_array.tobytes() for row in stack.rows[2:7]]


def test_stacked_gradients_are_near_autograds_even_where_they_are_not_used(one_thread):
    """The chain itself is right: without the comparison it would hide behind autograd."""
    model, rng = FlatModel(conv()), np.random.default_rng(0)
    x = rng.normal(size=(40, 2, 6, 6)).astype(np.float32)
    stack = Stack(model, MinibatchLoss(model, x, rng.integers(0, 4, 40)), 3)
    for row in stack.rows:
        row.state_array[:] = model.state_array
    batches = [rng.permutation(40)[:9] for _ in range(3)]
    for whole in (False, True):
        stack._computed(layers.Stretch(0, 3, whole), batches)
        found = stack.rows[1].gradient_array.copy()
        stack.alone(1, batches[1])
        np.testing.assert_allclose(found, stack.rows[1].gradient_array, rtol=1e-4, atol=1e-6)  # float32, other order


@pytest.mark.parametrize("loss", ["mse", "huber"])
def test_other_losses_are_stacked_too(loss):
    x = np.random.default_rng(0).normal(size=(240, 12)).astype(np.float32)
    pairs = ((x, x[:, :4].copy()), (x[:20], x[:20, :4].copy()))
    found = outcome({"train.loss": loss, "train.learning_rate": 0.01}, dataset=pairs)
    assert found[2].together is not None
    assert found[1] == outcome({"train.loss": loss, "train.learning_rate": 0.01}, dataset=pairs, alone=True)[1]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.out = nn.Linear(12, 4)

    def forward(self, x):
        return self.out(x + self.fc(x))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.out = nn.Linear(12, 4)

    def forward(self, x):
        return self.out(torch.relu(self.first(torch.relu(self.first(x)))))


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(12, 4)

    def forward(self, x):
        return self.fc(x) if x.sum() > 0 else -self.fc(x)


def hooked() -> nn.Module:
    model = mlp()
    model[0].register_forward_hook(_doubled)
    return model


def _doubled(module, inputs, output):
    return 2 * output


ALONE = {
    "dropout": lambda: nn.Sequential(nn.Linear(12, 8), nn.Dropout(0.3), nn.Linear(8, 4)),
    "batch norm": lambda: nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)),
    "residual": Residual,
    "tied": Tied,
    "branching": Branching,
    "hooked": hooked,
    "large": lambda: nn.Sequential(nn.Linear(12, 90_000), nn.Linear(90_000, 4)),
}


@pytest.mark.parametrize("name", ALONE)
def test_models_that_cannot_be_stacked_are_trained_one_after_the_other(name):
    model = FlatModel(ALONE[name]())
    (x, y), _ = data()
    assert stacked.build(model, x, y, loss=None, batch_size=7, num_rows=8) is None


def test_frozen_layers_are_stacked_and_stay(one_thread):
    model = mlp()
    model[0].requires_grad_(False)
    found = outcome(model=model)
    assert found[2].together is not None
    assert found[1] == outcome(model=model, alone=True)[1]


@pytest.mark.parametrize("changes", [{"diagnostics.gradients": True}, {"method": "fjord-kd"}], ids=str)
def test_what_needs_a_model_of_its_own_is_trained_one_after_the_other(changes):
    experiment = Experiment.of(ap.Scenario().with_values({**SMALL, **changes}), model=mlp(), dataset=data())
    job = experiment.job(InProcess(experiment.dataset))
    assert job.open(None).together is None


def test_a_device_that_diverges_leaves_its_neighbours_alone(one_thread):
    model, rng = FlatModel(mlp()), np.random.default_rng(0)
    (x, y), _ = data()
    stack = Stack(model, MinibatchLoss(model, x, y), 3)
    for row in stack.rows:
        row.state_array[:] = model.state_array
    batches = [rng.permutation(240)[:7] for _ in range(3)]
    stack._computed(layers.Stretch(0, 3, False), batches)
    before = [row.gradient_array.copy() for row in stack.rows]
    stack.rows[1].state_array[:] = np.nan
    losses = stack._computed(layers.Stretch(0, 3, False), batches)
    assert np.isnan(losses[1]) and np.isnan(stack.rows[1].gradient_array).any()
    assert np.array_equal(before[0], stack.rows[0].gradient_array)
    assert np.array_equal(before[2], stack.rows[2].gradient_array)


def test_a_machine_whose_products_differ_trains_row_by_row_or_alone(monkeypatch):
    expected = outcome(alone=True)
    real = torch.bmm
    monkeypatch.setattr(layers.torch, "bmm", lambda *args, **kwargs: real(*args, **kwargs).mul_(1.0001))
    found = outcome()
    ways = {trial.way for trial in found[2].together.stack._trials.values()}
    assert ways == {stacked._Way.EACH}
    monkeypatch.setattr(layers.torch, "addmm", lambda *args, **kwargs: torch.ops.aten.addmm(*args).mul_(1.0001))
    alone = outcome()
    assert {trial.way for trial in alone[2].together.stack._trials.values()} == {stacked._Way.ALONE}
    assert found[1] == alone[1] == expected[1]


def failing_run(monkeypatch, times: int):
    """The round of device 4 fails so many times on its first minibatch."""
    real, left = worker.round_in_steps, [times]

    def sometimes(device: Device, received, orders, **told):
        if orders.device == 4 and left[0]:
            left[0] -= 1
            raise RuntimeError("no more memory")
        return real(device, received, orders, **told)

    monkeypatch.setattr(worker, "round_in_steps", sometimes)
    return outcome({"engine.on_device_failure": "drop-device", "rounds.global_rounds": 1}, in_step=True)


def test_a_device_that_fails_once_is_tried_again_and_leaves_no_trace(monkeypatch):
    assert failing_run(monkeypatch, 1)[1] == outcome({"rounds.global_rounds": 1}, alone=True)[1]


def test_a_device_that_fails_for_good_is_dropped_and_the_others_go_on(monkeypatch):
    records, models, _ = failing_run(monkeypatch, together.MAX_TRIES)
    assert "failed" in str(records[0])
    assert models != outcome({"rounds.global_rounds": 1})[1]


def test_samples_that_break_a_device_name_that_device():
    (x, y), test = data()

    def picky(outputs, targets):
        if (targets == 3).all():
            raise RuntimeError("only threes")
        return nn.functional.cross_entropy(outputs, targets)

    with pytest.raises(ap.AirpruneError, match="only threes"):
        scenario = ap.Scenario().with_values({**SMALL, "data.partition": "shards", "train.batch_size": 2})
        list(ap.run(scenario, model=mlp(), dataset=((x, np.sort(y)), test), loss=picky))


def test_a_run_that_was_stopped_goes_on_in_step_to_the_same_bytes(tmp_path):
    scenario = ap.Scenario().with_values({**SMALL, **PRUNED})
    whole = list(ap.run(scenario, model=mlp(), dataset=data(), out=tmp_path / "whole"))
    stopped = ap.run(scenario, model=mlp(), dataset=data(), out=tmp_path / "run")
    for _ in range(2):
        next(stopped)
    stopped.close()
    list(ap.run(scenario, model=mlp(), dataset=data(), out=tmp_path / "run", resume=True))
    names = ("records.jsonl", "final.safetensors")
    assert len(whole) > 2
    assert [(tmp_path / "run" / name).read_bytes() for name in names] == [
        (tmp_path / "whole" / name).read_bytes() for name in names
    ]


@pytest.mark.parametrize(
    ("name", "why"), [("residual", "the user's own"), ("hooked", "hooks"), ("batch norm", "buffers")]
)
def test_why_a_module_is_not_stacked_is_said(name, why):
    model = FlatModel(ALONE[name]())
    with pytest.raises(Unstackable, match=why):
        Stack(model, MinibatchLoss(model, *data()[0]), 1)
