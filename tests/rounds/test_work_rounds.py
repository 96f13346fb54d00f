"""Planned work on devices: ordered steps, trained layers, averages over those who trained them, and the clock."""

import numpy as np
import pytest

import airprune as ap
from airprune.engines.serial import SerialEngine
from airprune.errors import InvalidValue, UsageError
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.models.catalogue import FlatModel, build_model
from airprune.planning.schemes.work import Work
from airprune.rounds.device import device_round
from airprune.rounds.experiment import Experiment
from airprune.rounds.local import LocalSettings, Streams, minibatches
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.optimisers import gradients_in_update
from airprune.rounds.sums import add_child, edge_sum, finish_sum
from airprune.rounds.training.chunks import TrainTask
from airprune.rounds.work import layers_with_weights
from airprune.runs.driver import InProcess
from support.one_device import device
from support.tiny import blobs, last_state, tiny_scenario

UNEQUAL = {
    "network__cpu_hz": 2e8,
    "network__cpu_hz_max": 3e9,
    "clock__compute": "flops",
    "clock__flops_per_cycle": 1e-2,
}


def work_scenario(**changes) -> ap.Scenario:
    """An MLP of two layers on devices whose CPUs differ fifteenfold."""
    return tiny_scenario(**{"method": "adaptive-work", "plan__deadline_s": "auto", **UNEQUAL, **changes})


def test_ordered_steps_wrap_over_epochs_in_the_order_of_the_usual_ones():
    settings = LocalSettings(batch_size=16, local_epochs=2)
    samples = np.arange(40)  # three minibatches, the last of eight
    usual = minibatches(settings, None, samples, np.random.default_rng(0))
    more = minibatches(settings, 10, samples, np.random.default_rng(0))
    assert [len(batch) for batch in more] == [16, 16, 8] * 3 + [16]
    for one, other in zip(usual, more[:6], strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(minibatches(settings, 2, samples, np.random.default_rng(0))) == 2


def test_a_device_that_trains_upper_layers_leaves_the_others_as_it_received_them():
    one = device(momentum=0.9, weight_decay=0.1)
    start = one.model.state_array.copy()
    orders = Orders(device=3, keep=one.shape.prunable_weights, learning_rate=0.05, round_index=0, first_trained=1)
    upload = device_round(one, Broadcast(model=start), orders, samples=np.arange(60), streams=Streams(0, 0, 0))
    below = one.shape.frozen_below(1)
    np.testing.assert_array_equal(upload.state[below], start[below])
    assert np.all(upload.state[~below] != start[~below])
    assert upload.first_trained == 1
    assert upload.sent_bits == 64.0 * one.shape.weights_above(1) == 64.0 * 4 * 64  # of 12-64-4


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 1.0), (0.3, 1.7, 0.1, 2.2)])
def test_each_entry_is_the_mean_over_the_devices_that_trained_it(weights):
    """Compared with a loop over entries; entries that no device trained stay."""
    rng = np.random.default_rng(1)
    states, previous = rng.normal(size=(4, 10)), rng.normal(size=10)
    frozen = np.zeros((4, 10), dtype=bool)
    frozen[1, :6] = frozen[2, :3] = frozen[:, 0] = True
    prunable, mask = slice(4, 9), rng.random(5) < 0.5
    masks = [None, None, mask, None]
    aggregation = AGGREGATIONS["masked-mean"]()
    sums = [MaskedSum.zeros(10, prunable) for _ in range(2)]
    for n in range(4):
        state = states[n].copy()
        if masks[n] is not None:
            state[prunable] *= masks[n]
        child_frozen = frozen[n] if frozen[n].any() else None
        add_child(aggregation, sums[n // 2], state, masks[n], weights[n], previous, (n, n), frozen=child_frozen)
    total = sums[0].copy()
    total.merge(sums[1])
    for entry in range(10):
        sent = [
            n
            for n in range(4)
            if not frozen[n, entry] and (masks[n] is None or not 4 <= entry < 9 or masks[n][entry - 4])
        ]
        expected = previous[entry]
        if sent:
            expected = sum(weights[n] * states[n, entry] for n in sent) / sum(weights[n] for n in sent)
        assert aggregation.finish(total, previous)[entry] == pytest.approx(expected, rel=1e-12)
        assert total.sent_by[entry] == len(sent)
    assert aggregation.finish(total, previous)[0] == previous[0]


def test_a_round_with_parts_is_the_mean_of_devices_trained_one_by_one():
    experiment = Experiment.of(work_scenario(compression__name="cast", model__float64=True), dataset=blobs())
    shape = experiment.shape
    start = experiment.initial_state().edge_states[0].copy()
    parts, steps, weights = (0, 1, 1), (2, 5, 9), (40.0, 30.0, 50.0)

    def task(places):
        return TrainTask(
            devices=tuple(places),
            keep=(shape.prunable_weights,) * len(places),
            weights=tuple(weights[n] for n in places),
            local_steps=tuple(steps[n] for n in places),
            first_trained=tuple(parts[n] for n in places),
            learning_rate=0.05,
            global_round=0,
            edge_round=0,
            round_index=0,
        )

    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        (together,) = engine.map("train", Broadcast(model=start), [task(range(3))])
        alone = list(engine.map("train", Broadcast(model=start), [task([n]) for n in range(3)]))
    result = finish_sum(edge_sum([together]), start, experiment.method.edge, shape.prunable)
    models = [part.total.total / weights[n] for n, part in enumerate(alone)]
    below = shape.frozen_below(1)
    expected = sum(w * model for w, model in zip(weights, models, strict=True)) / sum(weights)
    np.testing.assert_allclose(result.combined[~below], expected[~below], rtol=0, atol=1e-12)
    np.testing.assert_allclose(result.combined[below], models[0][below], rtol=0, atol=1e-12)
    assert result.coverage.min_count == 1 and result.coverage.num_uncovered == 0
    assert [int(n) for n in together.statistics.uploaded_weights] == [1024, 256, 256]  # of 12-64-4


def test_a_run_trains_every_layer_on_every_edge_within_its_deadlines():
    state, records, _ = last_state(work_scenario())
    edges = [record for record in records if record["kind"] == "edge"]
    assert len(edges) == 4
    for record in edges:
        first, edge = np.array(record["first_trained"]), np.array(record["edge"])
        assert all(np.any(first[edge == k] == 0) for k in (0, 1))
        assert set(record["edge_status"]) == {"ok"} and set(record["fate"]) == {"ok"}
        assert np.all(np.add(record["compute_s"], record["uplink_s"]) <= record["deadline_s"] * (1 + 1e-9))
        assert min(record["local_steps"]) >= 1 and np.any(first == 1)
        assert record["pruning_ratio"] == [0.0] * 6
    assert len({*edges[0]["local_steps"]}) > 1
    assert records[-1]["test_accuracy"] > 0.8
    assert np.isfinite(state.global_state).all()


def test_compute_times_are_the_flops_of_the_planned_steps():
    """By hand: 12-64-4, forward 2 W, weight gradients 2 W, input gradients of the second layer only."""
    _, records, experiment = last_state(work_scenario(train__feature_cache_mb=0.0))
    record = records[0]
    for n, device_number in enumerate(record["device"]):
        whole, top = 2 * 12 * 64, 2 * 64 * 4
        flops = 2 * whole + 3 * top if record["first_trained"][n] == 0 else whole + 2 * top
        size = int(experiment.data_sizes[device_number])
        passes, rest = divmod(record["local_steps"][n], -(-size // 16))
        seconds = (passes * size + rest * 16) * flops / (1e-2 * experiment.network.cpu_hz[device_number])
        assert record["compute_s"][n] == pytest.approx(seconds, rel=1e-9)


def test_kept_features_let_slow_devices_make_more_steps():
    slow_steps = []
    for cache_mb in (0.0, 512.0):
        scenario = work_scenario(train__feature_cache_mb=cache_mb, plan__deadline_s=0.008, rounds__global_rounds=1)
        _, records, _ = last_state(scenario)
        upper = np.array(records[0]["first_trained"]) == 1
        slow_steps.append(int(np.array(records[0]["local_steps"])[upper].sum()))
    assert slow_steps[1] > slow_steps[0] > 0


def test_on_the_papers_clock_time_grows_with_steps_and_trained_weights():
    scenario = tiny_scenario(method="adaptive-work", plan__deadline_s="auto", plan__cycles_per_weight=1e4)
    _, records, experiment = last_state(scenario)
    record = records[0]
    for n, device_number in enumerate(record["device"]):
        weights = experiment.shape.weights_above(record["first_trained"][n])
        full_steps = 2 * -(-int(experiment.data_sizes[device_number]) // 16)
        whole_s = 2 * 1e4 * weights / experiment.network.cpu_hz[device_number]  # Eq. (9) with T = 2
        assert record["compute_s"][n] == pytest.approx(whole_s * record["local_steps"][n] / full_steps, rel=1e-9)


def test_without_parts_devices_make_as_many_steps_as_fit():
    scenario = tiny_scenario(
        method="fp32", plan__scheme="work", plan__deadline_s=0.02, masking__name="whole",
        **{"plan__work.parts": False}, **UNEQUAL,
    )  # fmt: skip
    _, records, experiment = last_state(scenario)
    record = records[0]
    assert set(record["first_trained"]) == {0}
    for n, device_number in enumerate(record["device"]):
        steps, size = record["local_steps"][n], int(experiment.data_sizes[device_number])
        step_s = record["compute_s"][n] / (steps * 16) * 16  # 40 samples: 2.5 minibatches, so no more than this
        most = 8 * -(-size // 16)
        slack_s = 0.02 - record["compute_s"][n] - record["uplink_s"][n]
        assert steps == most or slack_s < 2.0 * step_s


def test_steps_can_count_in_the_average_as_in_fednova():
    """With one layer more trained by some, FedNova's sums are normalised by each device's own number of steps."""
    _, records, _ = last_state(work_scenario(aggregation__edge="fednova", train__momentum=0.5))
    assert records[-1]["test_accuracy"] > 0.5
    assert float(gradients_in_update("sgd", 0.5, 1)) == 1.0


def test_parts_begin_with_layers_that_have_weights():
    """Of a residual network: nine convolutions, two of them in shortcuts, and the classifier; not its norms."""
    shape = FlatModel(build_model("resnet-8", input_shape=(3, 32, 32), num_classes=10, seed=0)).shape
    firsts = Work().parts_of(layers_with_weights(shape))[0].tolist()
    matrices = [tensor for tensor in shape.tensors if tensor.counted]
    assert firsts[0] == 0 and firsts == sorted(firsts) and len(firsts) == len(matrices) < shape.num_layers
    assert [shape.weights_above(first) for first in firsts] == sorted(
        (shape.weights_above(first) for first in firsts), reverse=True
    )


def test_bare_name_adaptive_names_both_methods():
    with pytest.raises(UsageError, match=r"adaptive-bits.*adaptive-work"):
        ap.Scenario().with_values({"method": "adaptive"})


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"train__steps_decay": "loss"}, "train.steps_decay"), ({"topology__name": "d2d"}, "topology.name")],
)
def test_what_would_change_planned_steps_is_refused(changes, field):
    with pytest.raises(InvalidValue, match=f"Scenario.{field}"):
        Experiment.of(work_scenario(**changes), dataset=blobs())


def test_planned_work_is_part_of_the_round_only_where_a_scheme_plans_it():
    _, records, _ = last_state(tiny_scenario())
    assert not any("local_steps" in record or "first_trained" in record for record in records)
    _, records, _ = last_state(tiny_scenario(plan__scheme="work"))
    assert "local_steps" in records[0]
