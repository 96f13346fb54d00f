"""A chunk in one call of the native library or on a stack: the bits of device after device; the usual way for some."""

import numpy as np
import pytest

import airprune as ap
from airprune.engines.serial import SerialEngine
from airprune.errors import WorkFailed
from airprune.methods.masking.probe import Probe
from airprune.models.kernels import native
from airprune.rounds.experiment import Experiment
from airprune.rounds.training import worker
from airprune.runs import InProcess
from airprune.simulation import run_rounds

pytestmark = [
    pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}"),
    pytest.mark.usefixtures("one_thread"),
]

SMALL = {
    "network.num_edges": 2,
    "network.devices_per_edge": 4,
    "train.local_epochs": 2,
    "train.batch_size": 4,
    "rounds.global_rounds": 1,
    "rounds.edge_rounds": 2,
    "plan.deadline_s": 1e6,
    "plan.min_pruning_ratio": 0.5,
}


def images():
    rng = np.random.default_rng(0)
    x = rng.random((80, 1, 28, 28), dtype=np.float32)
    return (x, rng.integers(0, 10, 80)), (x[:10], np.arange(10))


def run(changes, *, usual=False, monkeypatch):
    """(records, models, which chunks were trained at once)"""
    at_once, done = worker.train_at_once, []

    def watched(*arguments, **options):
        found = None if usual else at_once(*arguments, **options)
        done.append(found is not None)
        return found

    monkeypatch.setattr(worker, "train_at_once", watched)
    experiment = Experiment.of(ap.Scenario().with_values(SMALL | changes), dataset=images())
    state = experiment.initial_state()
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        records = list(run_rounds(experiment, engine, state))
    monkeypatch.undo()
    return records, state.models.tobytes(), done


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"plan.min_pruning_ratio": 0.05},  # the last ones kept are ties among zeros
        {"plan.min_pruning_ratio": 0.9},
        {"plan.scheme": "no-pruning"},
        {"plan.scheme": "no-pruning", "aggregation.edge": "data-weighted"},
        {"aggregation.edge": "fill"},
        {"train.local_steps": 3},
        {"model.prunable": ["conv2", "fc1", "fc2"]},
        {"train.kernel": "torch"},
        {"train.kernel": "torch", "plan.scheme": "no-pruning"},
    ],
    ids=str,
)
def test_a_chunk_at_once_is_its_devices_one_after_the_other_to_the_bit(changes, monkeypatch):
    records, models, done = run(changes, monkeypatch=monkeypatch)
    assert done and all(done)
    assert (records, models) == run(changes, usual=True, monkeypatch=monkeypatch)[:2]


@pytest.mark.parametrize(
    "changes",
    [
        {"train.momentum": 0.9},
        {"train.weight_decay": 0.01},
        {"train.optimizer": "adam"},
        {"train.kernel": "torch", "model.float64": True},
        {"masking.probe.importance": "magnitude"},
        {"masking.probe.scope": "layer"},
        {"masking.name": "frozen"},
        {"objective.name": "prox"},
        {"compression.name": "quantised", "compression.quantised.memory": False},
        {"aggregation.edge": "data-weighted"},
        {"diagnostics.gradients": True},
        {"privacy.clip_norm": 1.0},
    ],
    ids=str,
)
def test_devices_that_do_more_go_the_usual_way(changes, monkeypatch):
    _, _, done = run(changes | {"rounds.edge_rounds": 1}, monkeypatch=monkeypatch)
    assert done and not any(done)


def test_a_masking_derived_from_the_papers_goes_at_once_unless_it_chooses_itself(monkeypatch, unregistered):
    class Renamed(Probe):
        name = "renamed"

    class Choosy(Probe):
        name = "choosy"

        def choose(self, view):
            return super().choose(view)

    for kind, goes in ((Renamed, True), (Choosy, False)):
        ap.register(kind)
        _, _, done = run({"masking.name": kind.name, "rounds.edge_rounds": 1}, monkeypatch=monkeypatch)
        assert done and set(done) == {goes}


def test_a_chunk_in_which_a_device_fails_tells_which_one():
    experiment = Experiment.of(ap.Scenario().with_values(SMALL), dataset=images())
    job = experiment.job(InProcess(experiment.dataset))
    with SerialEngine(job) as engine, pytest.raises(WorkFailed, match=r"^Device 2 failed"):
        gradient = engine._worker.device.gradient
        *others, labels = gradient._arrays
        wrong = labels.copy()
        wrong[job.samples[2][0]] = 77
        gradient._arrays = (*others, wrong)
        list(run_rounds(experiment, engine, experiment.initial_state()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"received": np.zeros(3, np.float32)},
        {"total": np.zeros(3)},
        {"counts": np.zeros(3, np.int64)},
        {"keep": [1, 1]},
        {"weights": [1.0]},
        {"learning_rate": 0.0},
        {"batches": [[np.array([0])], [np.array([80])]]},
        {"batches": [[np.array([0])], [np.array([], np.int64)]]},
        {"batches": [[np.array([0])], []]},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_wrong_calls_are_refused(wrong):
    experiment = Experiment.of(ap.Scenario().with_values(SMALL), dataset=images())
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        device = engine._worker.device
    size = device.model.prunable_weights
    right = {
        "received": device.model.state_array.copy(),
        "batches": [[np.array([0, 1])], [np.array([2])]],
        "keep": [size, size],
        "weights": [1.0, 1.0],
        "learning_rate": 0.01,
        "total": np.zeros(device.model.num_state),
        "counts": np.zeros(size, np.int64),
    }
    assert device.gradient.train_chunk(**right) is not None
    with pytest.raises(ValueError):
        device.gradient.train_chunk(**right | wrong)
