"""Devices that train the upper layers alone: nothing below moves, and every way of training ends in the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import airprune as ap
from airprune.engines.serial import SerialEngine
from airprune.models.kernels import native, stacked
from airprune.models.kernels.autograd import MinibatchLoss
from airprune.rounds import device as device_module
from airprune.rounds.device import device_round
from airprune.rounds.experiment import Experiment
from airprune.rounds.local import Streams, minibatches
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.sums import chunk_sum
from airprune.rounds.training.chunks import TrainTask
from airprune.runs import InProcess
from airprune.simulation import run_rounds

pytestmark = pytest.mark.usefixtures("one_thread")
needs_native = pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}")

SMALL = {
    "network.num_edges": 2,
    "network.devices_per_edge": 4,
    "train.local_epochs": 3,
    "train.batch_size": 4,
    "train.learning_rate": 0.05,
    "rounds.global_rounds": 1,
    "rounds.edge_rounds": 2,
    "plan.scheme": "no-pruning",
    "engine.name": "serial",
}
NUM_DEVICES = 8


def images(shape=(1, 8, 8)):
    rng = np.random.default_rng(0)
    x = rng.random((80, *shape), dtype=np.float32)
    return (x, rng.integers(0, 10, 80)), (x[:10], np.arange(10))


def features():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 12)).astype(np.float32)
    return (x, x[:, :4].argmax(axis=1)), (x[:20], x[:20, :4].argmax(axis=1))


def mlp():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))


def worker_of(changes=(), *, model=None, dataset=None):
    """(worker, received model) of a run."""
    scenario = ap.Scenario().with_values({**SMALL, **dict(changes)})
    experiment = Experiment.of(scenario, model=model, dataset=dataset or images())
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        return engine._worker, experiment.initial_state().edge_states[0].copy()


def task_of(worker, first_trained, **changes):
    devices = tuple(range(len(first_trained)))
    shape = worker.device.shape
    return TrainTask(
        devices=devices,
        keep=(shape.prunable_weights,) * len(devices),
        weights=(1.0,) * len(devices),
        learning_rate=0.05,
        global_round=0,
        edge_round=0,
        round_index=0,
        first_trained=first_trained,
        **changes,
    )


def upload_of(worker, received, first_trained):
    orders = Orders(
        device=0,
        keep=worker.device.shape.prunable_weights,
        learning_rate=0.05,
        round_index=0,
        first_trained=first_trained,
        memory={slot.name: np.zeros(slot.shape(worker.device.shape)) for slot in worker.device.memory_slots},
    )
    return device_round(
        worker.device, Broadcast(model=received), orders, samples=worker.job.samples[0], streams=Streams(0, 0, 0)
    )


MOVERS = {
    "sgd": {},
    "momentum": {"train.momentum": 0.9},
    "decay": {"train.momentum": 0.9, "train.weight_decay": 0.1},
    "adam": {"train.optimizer": "adam", "train.weight_decay": 0.1},
    "prox": {"objective.name": "prox"},
    "sign": {"compression.name": "sign"},
    "quantised": {"compression.name": "quantised", "compression.quantised.bits": 2},
    "top-k": {"compression.name": "top-k"},
    "noise": {"privacy.clip_norm": 0.5, "privacy.noise_multiplier": 1.0},
    "pruned": {"plan.scheme": "optimal", "plan.min_pruning_ratio": 0.5, "plan.deadline_s": 1e6},
}


@pytest.mark.parametrize("kernel", [pytest.param("native", marks=needs_native), "torch"])
@pytest.mark.parametrize("name", MOVERS)
def test_nothing_below_the_first_trained_layer_moves(name, kernel):
    """Not by momentum, decay, objectives, codes whose zero is a coin, or noise."""
    worker, received = worker_of({**MOVERS[name], "train.kernel": kernel})
    for first in (1, 2, 3):
        state = upload_of(worker, received, first).state
        frozen = worker.device.shape.frozen_below(first)
        np.testing.assert_array_equal(state[frozen], received[frozen])
        assert (state != received)[~frozen].mean() > 0.001  # few where a code sends few


@pytest.mark.parametrize("kernel", [pytest.param("native", marks=needs_native), "torch"])
def test_a_device_that_trains_a_part_takes_the_steps_of_a_masked_gradient(kernel):
    """Against a plain loop: the whole gradient, zeros below, heavy-ball momentum and decay."""
    worker, received = worker_of({"train.kernel": kernel, "train.momentum": 0.9, "train.weight_decay": 0.01})
    model, settings = worker.device.model, worker.device.settings
    state = upload_of(worker, received, 2).state.copy()
    batches = minibatches(settings, None, worker.job.samples[0], Streams(0, 0, 0).batches.at(0))
    moving = ~worker.device.shape.frozen_below(2)
    model.load(received)
    velocity = np.zeros(model.num_state)
    weights = received.astype(np.float64)
    for batch in batches:
        model.state_array[:] = weights
        worker.device.gradient(batch)
        velocity = 0.9 * velocity + (model.gradient_array + 0.01 * weights) * moving
        weights -= 0.05 * velocity
    np.testing.assert_allclose(state, weights, rtol=0, atol=2e-6)  # float32 against float64
    assert np.abs(state - received).max() > 1e-3


@needs_native
@pytest.mark.parametrize("first", [1, 2, 3])
def test_features_change_no_bit_of_the_native_kernel(first):
    worker, received = worker_of({"train.momentum": 0.9})
    without, _ = worker_of({"train.momentum": 0.9, "train.feature_cache_mb": 0})
    ends = [upload_of(who, received, first) for who in (worker, without)]
    assert worker.device.gradient._features.size > 0 == without.device.gradient._features.size
    assert ends[0].state.tobytes() == ends[1].state.tobytes()
    assert ends[0].loss == ends[1].loss


def test_features_change_nothing_of_the_torch_kernel_but_rounding():
    kernel = {"train.kernel": "torch", "train.momentum": 0.9}
    ends = []
    for cache_mb in (512, 0):
        worker, received = worker_of({**kernel, "train.feature_cache_mb": cache_mb})
        ends.append(upload_of(worker, received, 2).state.copy())
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-6)


@needs_native
@pytest.mark.parametrize("parts", [(2, 2, 2), (0, 1, 2, 3, 0, 2)], ids=str)
@pytest.mark.parametrize("cache_mb", [512, 0.05, 0])
def test_a_chunk_at_once_trains_parts_to_the_bits_of_its_devices_one_after_the_other(parts, cache_mb):
    worker, received = worker_of({"train.feature_cache_mb": cache_mb})
    task, broadcast = task_of(worker, parts), Broadcast(model=received)
    done = worker.train(broadcast, task)
    usual = chunk_sum(
        worker.job.method.aggregation, worker.device.shape, received, task, worker._uploads(broadcast, task)
    )
    assert done.total.total.tobytes() == usual.total.total.tobytes()
    np.testing.assert_array_equal(done.total.sent_by, usual.total.sent_by)
    np.testing.assert_array_equal(done.total.weight, usual.total.weight)
    for name in ("loss", "sent_bits", "num_samples", "uploaded_weights", "code_error"):
        np.testing.assert_array_equal(getattr(done.statistics, name), getattr(usual.statistics, name), err_msg=name)


@needs_native
def test_parts_are_trained_in_one_call_of_the_native_library(monkeypatch):
    worker, received = worker_of()
    monkeypatch.setattr(worker, "_uploads", lambda *_: pytest.fail("device after device"))
    assert worker.train(Broadcast(model=received), task_of(worker, (2, 0, 1))) is not None


@pytest.mark.parametrize("name", ["sgd", "momentum", "decay", "adam", "prox", "quantised", "pruned"])
def test_devices_in_step_train_parts_to_the_bits_of_devices_one_after_the_other(name, monkeypatch):
    """Devices with different parts beside each other, with features and without."""
    monkeypatch.setattr(stacked, "TRIED_ROWS", 8)
    for cache_mb in (512, 0):
        changes = {**MOVERS[name], "train.kernel": "torch", "train.feature_cache_mb": cache_mb}
        worker, received = worker_of(changes, model=mlp(), dataset=features())
        assert worker.together is not None
        memory = {slot.name: np.zeros((6, *slot.shape(worker.device.shape))) for slot in worker.device.memory_slots}
        task, broadcast = task_of(worker, (0, 1, 1, 2, 2, 1), memory=memory), Broadcast(model=received)
        in_step = [(upload.state.copy(), upload.loss) for upload in worker._uploads(broadcast, task)]
        worker.together = None
        alone = [(upload.state.copy(), upload.loss) for upload in worker._uploads(broadcast, task)]
        for number, (mine, expected) in enumerate(zip(in_step, alone, strict=True)):
            np.testing.assert_array_equal(mine[0], expected[0], err_msg=str(number))
            assert mine[1] == expected[1]
            frozen = worker.device.shape.frozen_below(task.first_trained[number])
            np.testing.assert_array_equal(mine[0][frozen], received[frozen])


def test_a_narrow_model_trains_its_upper_layers_alone():
    """HeteroFL's sub-model of leading units, with its first layer frozen."""
    changes = {"masking.name": "heterofl", "train.kernel": "torch", "train.momentum": 0.9}
    worker, received = worker_of(changes, model=mlp(), dataset=features())
    shape = worker.device.shape
    half = shape.units.num_weights(shape.units.counts(0.5).tolist())
    orders = Orders(device=0, keep=half, learning_rate=0.05, round_index=0, first_trained=1)
    upload = device_round(
        worker.device,
        Broadcast(model=received, mask=np.array([0.5])),  # the widest width of the run
        orders,
        samples=worker.job.samples[0],
        streams=Streams(0, 0, 0),
    )
    assert any(small is not None for small in worker.device._smaller.values())
    held = np.ones(shape.num_state, dtype=bool)
    held[shape.prunable] = upload.mask
    frozen = shape.frozen_below(1)
    np.testing.assert_array_equal(upload.state[frozen & held], received[frozen & held])
    assert (upload.state != received)[~frozen & held].any()


def test_running_means_of_frozen_layers_stay_although_a_probe_has_seen_the_minibatch():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)
    )
    changes = {**MOVERS["pruned"], "train.kernel": "torch"}
    worker, received = worker_of(changes, model=model, dataset=features())
    shape = worker.device.shape
    orders = Orders(device=0, keep=shape.prunable_weights // 2, learning_rate=0.05, round_index=0, first_trained=2)
    state = device_round(
        worker.device, Broadcast(model=received), orders, samples=worker.job.samples[0], streams=Streams(0, 0, 0)
    ).state
    buffers = {tensor.name: slice(tensor.start, tensor.stop) for tensor in shape.tensors if "running" in tensor.name}
    for name, place in buffers.items():
        assert np.array_equal(state[place], received[place]) == name.startswith("1."), name


@pytest.mark.parametrize("masking", ["fedpart", "fedpt", "fedplt", "frozen"])
@pytest.mark.parametrize("kernel", [pytest.param("native", marks=needs_native), "torch"])
def test_methods_that_freeze_by_masks_end_in_the_bytes_of_whole_gradients(masking, kernel, monkeypatch):
    """And compute less: fully connected weights of which none moves get no gradient."""
    changes = {
        "masking.name": masking,
        "train.kernel": kernel,
        "train.momentum": 0.9,
        "train.weight_decay": 0.01,
        "rounds.edge_rounds": 5,
        "plan.scheme": "optimal",
        "plan.min_pruning_ratio": 0.6,
        "plan.deadline_s": 1e6,
    }
    if masking == "fedpart":
        changes |= {"masking.fedpart.warm_up": 1}
    ends, seen = [], set()
    for skips in (True, False):
        found = device_module.trained_part

        def watched(model, sub_model, found=found, skips=skips):
            part = found(model, sub_model) if skips else None
            seen.add(part is not None)
            return part

        monkeypatch.setattr(device_module, "trained_part", watched)
        experiment = Experiment.of(ap.Scenario().with_values({**SMALL, **changes}), dataset=images())
        state = experiment.initial_state()
        with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
            records = list(run_rounds(experiment, engine, state))
        monkeypatch.undo()
        ends.append((repr(records), state.models.tobytes()))
        if skips:
            assert (True in seen) == (masking == "fedpart")  # the others scatter what moves over all layers
    assert ends[0] == ends[1]


def test_a_code_sends_only_what_is_trained():
    """Bits are those of the head's weights, behind 2 × 2 cells of 64 channels."""
    for compression in ("cast", "quantised"):
        worker, received = worker_of({"compression.name": compression})
        upload = upload_of(worker, received, 2)
        code, wire = worker.device.method.compression, worker.device.wire
        head = 64 * 2 * 2 * 8 + 8 * 10
        assert upload.sent_bits == float(code.message_bits(wire, head))


def test_the_loss_of_a_part_is_that_of_the_whole_model():
    """The forward pass goes through everything."""
    worker, received = worker_of({"train.kernel": "torch", "train.local_epochs": 1, "train.batch_size": 80})
    batch = minibatches(worker.device.settings, None, worker.job.samples[0], Streams(0, 0, 0).batches.at(0))[0]
    loss = upload_of(worker, received, 3).loss
    worker.device.model.load(received)
    (x, y), _ = images()
    assert loss == pytest.approx(MinibatchLoss(worker.device.model, x, y).value(batch), rel=1e-6)
