"""The cheap baselines that every comparison needs: hand values of each, and what they have in common with others."""

from __future__ import annotations

import math

import numpy as np
import pytest

import airprune as ap
from airprune.components.component import paper_shape
from airprune.engines.serial import SerialEngine
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.compression.base import Wire, transmit
from airprune.methods.optimisers.base import StepSettings
from airprune.methods.optimisers.sgd import Sgd
from airprune.planning import PlanProblem
from airprune.rounds.experiment import Experiment
from airprune.rounds.messages import Broadcast
from airprune.rounds.method import Method
from airprune.rounds.optimisers import gradients_in_update
from airprune.rounds.sums import add_child
from airprune.rounds.training import chunks
from airprune.rounds.training.chunks import TrainTask
from airprune.runs.driver import InProcess
from support.each import each
from support.tiny import blobs, last_state, timed_rounds, tiny_scenario

WANTED = np.array([3.0, -1.0, 0.5, -4.0])
FIXED = {"fixed-16": 16, "fixed-8": 8, "fixed-4": 4, "fixed-2": 2}


def method_of(name: str, **changes) -> Method:
    return Method.of(ap.Scenario().with_("method", name).with_values(changes))


def sent_and_kept(name: str, wanted, **changes):
    """What one tensor of a device arrives as, half of it from error feedback, and the error that is kept."""
    wire = Wire(value_bits=64.0, num_weights=len(wanted), num_tensors=1)
    starts, rng = np.array([0, len(wanted)]), np.random.default_rng(0)
    sent, _, kept = transmit(method_of(name, **changes).compression, wire, wanted / 2, starts, wanted / 2, rng)
    return sent.tolist(), kept.tolist()


# Fixed bits


def test_two_fixed_bits_are_the_nearest_of_three_levels_and_the_rest_is_kept():
    assert sent_and_kept("fixed-2", WANTED) == ([4.0, 0.0, 0.0, -4.0], [-1.0, -1.0, 0.5, 0.0])


def test_four_fixed_bits_are_the_nearest_of_fifteen_even_levels():
    """Levels are sevenths of 4: 5.25, 1.75, 0.875 and 7 of them."""
    sent, kept = sent_and_kept("fixed-4", WANTED)
    assert sent == pytest.approx([20 / 7, -8 / 7, 4 / 7, -4.0], rel=1e-15)  # one rounding each
    assert np.add(sent, kept).tolist() == pytest.approx(WANTED.tolist(), rel=1e-15)


@each("name,bits", FIXED.items())
def test_fixed_bits_are_charged_for_every_weight_beside_a_scale_per_tensor(name, bits):
    wire = Wire.of(paper_shape(), value_bits=64.0)
    assert method_of(name).compression.message_bits(wire, 43_888) == 43_888 * bits + 4 * 64


@each("name", [*FIXED, "stc", "topk-1"])
def test_fixed_compression_sends_whole_models_with_equal_bits_in_equal_shares(name):
    part = method_of(name).compression.name
    scenario = tiny_scenario(method=name, rounds__global_rounds=1).with_(f"compression.{part}.memory", False)
    rounds, experiment = timed_rounds(scenario)
    bits = method_of(name).compression.message_bits(experiment.wire, experiment.shape.num_weights)
    for timed in rounds:
        assert timed.planned.bits.tolist() == [bits] * 6
        assert timed.planned.keep.tolist() == [experiment.shape.prunable_weights] * 6
        assert timed.planned.share.tolist() == [1 / 3] * 6


# Sparse ternary compression and top-k


def test_sparse_ternary_compression_sends_the_mean_of_the_largest_with_their_signs():
    sent, kept = sent_and_kept("stc", WANTED, **{"compression.ternary.one_in": 2})
    assert sent == [3.5, 0.0, 0.0, -3.5] and kept == [-0.5, -1.0, 0.5, -0.5]


def golomb_bits(places, one_in: int) -> float:
    """Bits of the positions by the code of Sattler et al., a unary quotient and b* bits of each gap."""
    golden = (1 + math.sqrt(5)) / 2
    width = 1 + math.floor(math.log2(math.log(golden - 1) / math.log(1 - 1 / one_in)))
    gaps = np.diff(places, prepend=-1) - 1
    return float(np.sum(gaps // 2**width + 1 + width))


def test_sparse_ternary_positions_take_at_most_an_eighth_more_than_golomb_codes():
    """4 + 1 / (1 − (31/32)^16) = 6.51 bits per position on average, where ours take 7, whatever the positions."""
    n, k, rng = 43_888, 43_888 // 32, np.random.default_rng(0)
    positions = [np.sort(rng.choice(n, k, replace=False)) for _ in range(20)]
    golomb = np.mean([golomb_bits(places, 32) for places in positions]) / k
    assert golomb == pytest.approx(4 + 1 / (1 - (31 / 32) ** 16), rel=0.01)  # 27,000 gaps: sampling error 0.2 %
    wire = Wire.of(paper_shape(), value_bits=64.0)
    ours = (method_of("stc").compression.message_bits(wire, n) - 4 * 64) / k - 1  # scales and signs
    assert ours == pytest.approx(7.0, abs=1 / k) and ours < 1.125 * golomb


def test_top_k_of_one_percent_sends_438_of_the_papers_weights():
    wire = Wire.of(paper_shape(), value_bits=64.0)
    assert method_of("topk-1").compression.message_bits(wire, 43_888) == 438 * (64 + 16)
    assert method_of("topk-1").compression.memory


# Allocation


def test_min_max_pruning_is_the_papers_masks_with_the_least_largest_ratio():
    method = method_of("minmax-pruning")
    paper = Method.of(ap.Scenario()).components
    assert method.components == paper | {"plan.scheme": "min-max"}


def test_min_max_pruning_keeps_equally_many_weights_on_all_devices_of_an_edge():
    rounds, experiment = timed_rounds(tiny_scenario(method="minmax-pruning", plan__deadline_s=2e-4))
    kept = np.array([timed.planned.keep.reshape(2, 3) for timed in rounds])
    assert np.all(kept < experiment.shape.prunable_weights) and np.ptp(kept, axis=2).max() <= 1  # whole weights


def test_dropping_stragglers_excludes_the_fewest_devices_so_that_whole_models_arrive():
    """In thirds of the bandwidth whole models take 28.7, 35.7, 42.7 ms; without the last one 19.3 and 24.0 ms."""
    scheme = method_of("drop-stragglers").scheme
    cap = ap.Scenario().with_("method", "drop-stragglers").plan.max_pruning_ratio
    problem = PlanProblem(
        full_band_rate_bps=np.array([300e6, 240e6, 200e6]), seconds_per_weight=40 / 3e9, max_pruning_ratio=cap
    )
    first = scheme.plan(problem)
    assert first.failed.all() and first.blocking_devices.tolist() == [False, False, True]
    second = scheme.plan(problem.subset(~first.blocking_devices))
    assert second.bandwidth_share.tolist() == [0.5, 0.5] and second.pruning_ratio.tolist() == [0.0, 0.0]
    compute_s, bits = 43_888 * 40 / 3e9, 43_888 * 64
    expected = [compute_s + bits / 150e6, compute_s + bits / 120e6]
    assert second.latency_s.tolist() == pytest.approx(expected, rel=1e-12)  # closed form
    assert max(expected) < 0.030


def test_stragglers_are_dropped_before_the_round_and_nothing_is_pruned():
    scenario = tiny_scenario(method="drop-stragglers", plan__deadline_s=5e-4)
    rounds, experiment = timed_rounds(scenario)
    stays = np.array([timed.planned.in_plan for timed in rounds])
    assert stays.any() and not stays.all()
    for timed in rounds:
        there = timed.planned.in_plan
        assert timed.planned.keep[there].tolist() == [experiment.shape.prunable_weights] * int(there.sum())
        assert np.nanmax(timed.edge_latency_s) <= 5e-4


def test_fewer_steps_halve_the_papers_local_work_of_every_device_and_prune_nothing():
    paper = ap.Scenario.preset("paper")
    fewer, whole = (paper.with_("method", name) for name in ("fewer-steps", "hierfavg"))
    assert (whole.train.local_epochs, fewer.train.local_epochs) == (2, 1)
    small = {"data.name": "glyphs", "data.train_samples": 250, "data.test_samples": 10, "rounds.global_rounds": 1}
    one, two = (next(ap.run(scenario.with_values(small))) for scenario in (fewer, whole))
    assert one["compute_s"] == pytest.approx([43_888 * 20 / 3e9] * 25, rel=1e-12)  # closed form, T = 1
    assert two["compute_s"] == pytest.approx([43_888 * 40 / 3e9] * 25, rel=1e-12)
    assert one["uplink_s"] == two["uplink_s"] and one["uploaded_weights"] == 25 * 43_888


# FedNova


def nova(updates, sizes, work, previous=0.0, *, chunks=1):
    """The model of an edge at `previous` after these updates of its devices, added in so many chunks."""
    chosen = AGGREGATIONS["fednova"]()
    updates = np.array(updates, dtype=np.float64).reshape(len(sizes), -1)
    before = np.full(updates.shape[1], previous)
    parts = []
    for chunk in np.array_split(np.arange(len(sizes)), chunks):
        parts.append(chosen.Sum.zeros(before.size, slice(0, before.size)))
        for n in chunk:
            weight = float(chosen.weights(np.array(sizes))[n])
            add_child(chosen, parts[-1], before + updates[n], None, weight, before, (n, n), work[n])
    for part in parts[1:]:
        parts[0].merge(part)
    return chosen.finish(parts[0], before)


def test_fednova_moves_by_the_mean_step_times_the_mean_number_of_steps():
    """Steps of −1 each, three of them on average; by sizes 1 and 3 three and a half."""
    assert nova([-2.0, -4.0], [5, 5], [2.0, 4.0]).tolist() == [-3.0]
    assert nova([-2.0, -4.0], [1, 3], [2.0, 4.0]).tolist() == [-3.5]


def test_fednova_counts_unequal_steps_equally_where_averages_follow_the_busier_device():
    """Opposite pulls, one with three times the steps: a mean would move by 1, FedNova stays."""
    assert nova([3.0, -1.0], [1, 1], [3.0, 1.0]).tolist() == [0.0]


@each("chunks", [1, 2, 3])
def test_fednova_with_equal_steps_is_the_data_weighted_mean(chunks):
    rng = np.random.default_rng(1)
    updates, sizes = rng.normal(size=(5, 40)), [3, 1, 4, 1, 5]
    expected = 0.25 + np.average(updates, axis=0, weights=sizes)
    got = nova(updates, sizes, [2.9] * 5, 0.25, chunks=chunks)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)  # a few roundings of float64


def test_the_gradients_in_an_update_with_momentum_are_those_of_the_authors_recursion():
    for momentum in (0.0, 0.5, 0.9):
        counter, total = 0.0, 0.0
        for steps in range(1, 30):
            counter = counter * momentum + 1.0
            total += counter
            assert float(gradients_in_update("sgd", momentum, steps)) == pytest.approx(total, rel=1e-12)  # closed form
    assert float(gradients_in_update("sgd", 0.9, 2)) == pytest.approx(2.9, rel=1e-12)
    assert float(gradients_in_update("adam", 0.9, 2)) == 2.0


def test_the_gradients_in_an_update_are_what_sgd_makes_of_ones():
    weights, step = np.zeros(1), Sgd().begin(StepSettings(learning_rate=0.5, momentum=0.9))
    for count in range(1, 6):
        step(weights, np.ones(1), 0.5)
        assert -weights[0] / 0.5 == pytest.approx(float(gradients_in_update("sgd", 0.9, count)), rel=1e-12)


UNEQUAL = {"data__size_spread": 0.8, "network__num_edges": 1, "rounds__global_rounds": 1, "rounds__edge_rounds": 1}


def test_a_round_of_fednova_is_the_formula_on_devices_trained_one_by_one():
    scenario = tiny_scenario(method="fednova", train__momentum=0.9, model__float64=True, **UNEQUAL)
    state, _, experiment = last_state(scenario)
    start = experiment.initial_state().edge_states[0].copy()
    tasks = [
        TrainTask(
            devices=(device,),
            keep=(experiment.shape.prunable_weights,),
            weights=(1.0,),
            learning_rate=0.05,
            global_round=0,
            edge_round=0,
            round_index=0,
        )
        for device in range(3)
    ]
    plain = Experiment.of(tiny_scenario(train__momentum=0.9, model__float64=True, **UNEQUAL), dataset=blobs())
    with SerialEngine(plain.job(InProcess(plain.dataset))) as engine:
        trained = [part.total.total for part in engine.map("train", Broadcast(model=start), tasks)]
    sizes = experiment.data_sizes
    steps = [2 * math.ceil(size / 16) for size in sizes]
    assert len(set(steps)) > 1
    work = [sum((1 - 0.9 ** (tau - k)) / 0.1 for k in range(tau)) for tau in steps]
    share = sizes / sizes.sum()
    per_step = sum(p * (model - start) / a for p, model, a in zip(share, trained, work, strict=True))
    np.testing.assert_allclose(state.global_state, start + share @ work * per_step, rtol=0, atol=1e-12)


def test_fednova_with_equal_data_learns_as_hierfavg():
    ends = [
        last_state(tiny_scenario(method=name, model__float64=True))[0].global_state for name in ("fednova", "hierfavg")
    ]
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-12)  # roundings of float64 over four edge rounds


def test_fednova_counts_the_steps_that_a_falling_loss_leaves(monkeypatch):
    counted = []

    def counting(optimizer, momentum, num_steps):
        counted.append(num_steps.tolist())
        return gradients_in_update(optimizer, momentum, num_steps)

    monkeypatch.setattr(chunks, "gradients_in_update", counting)
    last_state(tiny_scenario(method="fednova", train__steps_decay="loss", **UNEQUAL | {"rounds__global_rounds": 3}))
    first, last = counted[0], counted[-1]
    assert len(set(first)) > 1 and all(now < then for now, then in zip(last, first, strict=True))
