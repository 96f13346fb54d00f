"""Partial training: FedPT, FedPart, FedPLT. What is frozen is used, does not move and is not sent."""

from dataclasses import replace

import numpy as np
import pytest

from airprune.components.component import paper_shape
from airprune.methods.masking import MASKINGS
from airprune.methods.masking.fedplt import ASSIGNED, FedPlt
from airprune.scenario import Scenario
from airprune.scenario.model_shape import shape_of as model_shape
from support.played import played, round_view, shape_of
from support.tiny import tiny_scenario

TIGHT_S = 0.0003  # about half of the MLP's weights


def rounds_of(method, **changes):
    values = {"method": method, "plan__deadline_s": TIGHT_S, "rounds__edge_rounds": 3, "train__local_epochs": 1}
    return played(tiny_scenario(**{**values, **changes}))


def test_fedpt_trains_one_part_for_the_whole_run_and_leaves_the_rest_bit_for_bit():
    rounds = rounds_of("fedpt", radio__fading="none")
    masks = [one.timed.planned.mask for one in rounds]
    assert all(np.array_equal(mask, masks[0]) for mask in masks)
    assert 0.1 < masks[0].mean() < 0.9
    start, end = rounds[0].before, rounds[-1].after
    assert np.array_equal(end[:, ~masks[0]], start[:, ~masks[0]])
    assert np.mean(end[0, masks[0]] != start[0, masks[0]]) > 0.9  # a few have no gradient


def test_fedpt_with_less_time_trains_a_part_of_the_same_order():
    shape, model = paper_shape(), np.zeros(paper_shape().num_state)
    masking = MASKINGS["fedpt"]()
    few, many = (masking.prepare(round_view(shape, keep, model), {})[0] for keep in ((4000, 9000), (9000,)))
    assert few.sum() == 4000 and many.sum() == 9000
    assert np.mean(many[few]) > 0.99  # rows that would be empty take their best weight first
    assert masking.prepare(round_view(shape, 25_168, model), {}) == (None, {})


def test_fedpart_trains_layers_in_turn_and_nothing_else_moves():
    rounds = rounds_of("fedpart", masking__fedpart__warm_up=1)
    layers = {"fc1": slice(0, 12 * 64), "fc2": slice(12 * 64, 16 * 64)}
    turns = ["fc1", "fc1", "fc2", "fc2"]
    assert rounds[0].timed.planned.mask is None and rounds[5].timed.planned.mask is None  # a cycle has five rounds
    for one, turn in zip(rounds[1:5], turns, strict=True):
        others = np.ones(16 * 64, dtype=bool)
        others[layers[turn]] = False
        moved = one.after[1:] != one.before[1:]  # the edges
        assert moved[:, layers[turn]].any() and not moved[:, others].any()
        assert np.array_equal(one.timed.planned.mask, ~others)
        assert np.all(one.timed.planned.bits == 64 * others.size - 64 * others.sum())


def test_fedpart_gives_every_layer_of_the_papers_cnn_a_turn_from_the_first_to_the_last():
    scenario = Scenario.preset("paper").with_("method", "fedpart")
    shape, masking = model_shape(scenario), MASKINGS["fedpart"](warm_up=5, rounds_each=2)
    assert shape.fixed_weights == 0

    def trained(index):
        view = replace(round_view(shape, 40_000, np.zeros(shape.num_state)), round_index=index)
        mask, _ = masking.prepare(view, {})
        return shape.prunable_weights if mask is None else int(mask.sum())

    conv1, conv2, fc1, fc2, whole = 9 * 32, 9 * 32 * 64, 3136 * 8, 8 * 10, 43_888
    cycle = [whole] * 5 + [conv1, conv1, conv2, conv2, fc1, fc1, fc2, fc2]
    assert [trained(index) for index in range(26)] == cycle * 2


def test_fedplt_cuts_the_papers_cnn_into_its_hidden_units():
    """The budgets of three devices buy 8, 5 and 3 of 8 sub-layers of 3,146 weights."""
    budget = np.array([25_168, 18_165, 12_101])
    assert FedPlt().num_kept(budget, paper_shape()).tolist() == [25_168, 5 * 3146, 3 * 3146]


@pytest.mark.parametrize("seed", range(3))
def test_fedplt_gives_every_sub_layer_equally_many_holders_give_or_take_one(seed):
    shape, masking = shape_of((3, 7), (4, 5), num_devices=20), FedPlt(sub_layers=6)
    budget = np.random.default_rng(seed).integers(1, 42, size=20)
    keep = masking.num_kept(budget, shape)
    assert np.all(keep <= budget)
    view = round_view(shape, keep, np.zeros(shape.num_state))
    assigned, values = masking.prepare(view, {ASSIGNED: masking.slots(shape)[0].row(shape)})
    assert np.array_equal(masking.counts(view, assigned), keep)
    holders = np.zeros(6, dtype=int)
    for first, number in assigned.T.tolist():
        holders[[(first + i) % 6 for i in range(number)]] += 1
    assert holders.max() - holders.min() <= 1 and holders.sum() > 0
    again, _ = masking.prepare(round_view(shape, keep[::-1], np.zeros(shape.num_state)), values)
    assert np.array_equal(again, assigned)  # fixed for the run


def test_fedplt_trains_own_sub_layers_and_frozen_weights_stay_bit_for_bit():
    pieces, num_frozen = np.concatenate([np.repeat(np.arange(8), 96), np.repeat(np.arange(8), 32)]), 0
    for one in rounds_of("fedplt", plan__deadline_s=0.0002):
        planned = one.timed.planned
        for edge in (0, 1):
            held = np.zeros(8, dtype=bool)
            for device, keep in zip(
                planned.device[planned.edge == edge], planned.keep[planned.edge == edge], strict=True
            ):
                first, number = planned.mask[:, device]
                assert keep % 128 == 0 and keep <= 128 * number
                held[[(first + i) % 8 for i in range(keep // 128)]] = True
            num_frozen += np.count_nonzero(~held)
            moved = one.after[1 + edge] != one.before[1 + edge]
            assert not moved[~held[pieces]].any() and moved[held[pieces]].any()
    assert num_frozen > 0
