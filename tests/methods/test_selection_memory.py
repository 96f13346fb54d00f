"""Selections that remember: whose channel is better than usual, who has much to teach, who was never tried."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import airprune as ap
from airprune.components.component import paper_shape
from airprune.engines.serial import SerialEngine
from airprune.methods.outcome import Outcome
from airprune.methods.selection import SELECTIONS
from airprune.methods.selection import oort as rules
from airprune.methods.selection.base import Candidates, known_rates
from airprune.models.catalogue import build_model
from airprune.rounds.experiment import Experiment
from airprune.runs.driver import InProcess
from airprune.simulation import run_rounds
from support.tiny import blobs, tiny_scenario


class Rounds:
    """A selection asked round after round, its slots handed back in."""

    def __init__(self, name, num_devices, edge=None, **options):
        self.selection = SELECTIONS[name](**options)
        self.edge = np.zeros(num_devices, dtype=np.int64) if edge is None else np.asarray(edge)
        shape = paper_shape().on(num_devices=num_devices, num_edges=int(self.edge.max()) + 1)
        self.memory = {slot.name: slot.row(shape) for slot in self.selection.slots(shape)}
        self.index = 0

    def ask(self, rate=None, *, loss=1.0, latency_s=1.0, arrives=True):
        count = len(self.edge)
        found = Candidates(
            device=np.arange(count),
            edge=self.edge,
            rates_bps=known_rates(
                np.arange(count), np.ones(count) if rate is None else np.asarray(rate, dtype=np.float64)
            ),
            num_samples=np.full(count, 10),
            round_index=self.index,
            rng=np.random.default_rng(self.index),
            memory=self.memory,
        )
        asked = np.flatnonzero(self.selection.before(found))
        outcome = Outcome(
            candidates=found,
            device=asked,
            edge=self.edge[asked],
            num_samples=found.num_samples[asked],
            arrived=np.broadcast_to(arrives, count)[asked],
            latency_s=np.broadcast_to(latency_s, count)[asked],
            loss=np.broadcast_to(loss, count)[asked],
        )
        self.memory = self.memory | self.selection.after_edge_round(outcome, {})
        self.index += 1
        return asked.tolist()


def test_oort_scores_are_those_computed_by_hand():
    duration_s = np.array([0.03, 0.05, 0.02, 0.04])
    preferred_s = rules.preferred_duration_s(duration_s, 50.0)
    assert preferred_s == 0.04
    utility, last = np.array([5.0, 20.0, 8.0, 12.0]), np.array([3, 5, 4, 2])
    scores = rules.scores(utility, last, duration_s, t=6, preferred_s=preferred_s, penalty=2.0)
    assert scores == pytest.approx([0.2447208562, 0.7611531823, 0.4119124772, 0.7661568865], abs=1e-10)


def test_oort_cuts_off_the_largest_utilities_of_many():
    utility = np.append(np.arange(1.0, 40.0), 1e6)  # 40 devices: the 39th in order is where the 95 % begin
    same = {"t": 1, "preferred_s": np.inf, "penalty": 2.0}  # at t = 1 nothing is added for age
    scores = rules.scores(utility, np.ones(40), np.ones(40), **same)
    assert scores[39] == scores[38] < 1e-4


def test_oort_slow_devices_lose_by_the_square_and_none_beyond_the_hundredth_percentile():
    assert rules.preferred_duration_s(np.array([1.0, 2.0]), 100.0) == np.inf
    args = (np.array([1.0, 1.0]), np.array([1, 1]), np.array([1.0, 3.0]))
    quick, slow = rules.scores(*args, t=5, preferred_s=1.0, penalty=2.0)
    assert slow == pytest.approx(quick / 9.0, rel=1e-12)


def test_oort_explores_less_and_less_but_never_below_a_fifth():
    oort = rules.Oort()
    assert oort.explored_share(1) == pytest.approx(0.882)
    assert oort.explored_share(10) == pytest.approx(0.9 * 0.98**10)
    assert oort.explored_share(500) == 0.2


def test_a_lot_is_won_by_weight():
    rng = np.random.default_rng(0)
    wins = sum(rules.sampled_places(np.array([3.0, 1.0]), rng.exponential(size=2), 1)[0] == 0 for _ in range(4_000))
    assert abs(wins - 3_000) < 5 * np.sqrt(4_000 * 0.75 * 0.25)  # five standard deviations


@pytest.mark.parametrize(
    ("past", "present", "moved"), [(10.0, 10.5, 60.0), (10.0, 15.0, 50.0), (10.0, 70.0, 40.0), (10.0, 0.5, 50.0)]
)
def test_the_pacer_waits_longer_when_utility_stands_still_and_less_when_it_jumps(past, present, moved):
    oort = rules.Oort()
    assert oort.paced(50.0, np.array([past, present]), 39) == (50.0, pytest.approx([past, present]))
    percentile, gains = oort.paced(50.0, np.array([past, present]), 40)
    assert percentile == moved and gains.tolist() == [present, 0.0]
    assert oort.paced(50.0, np.array([past, present]), 20)[0] == 50.0  # nothing to compare with yet


def test_oort_tries_everybody_once_before_anybody_twice_while_it_explores():
    selection = Rounds("oort", 6, edge=[0, 0, 0, 1, 1, 1], share=0.3)
    asked = [selection.ask() for _ in range(3)]
    assert sorted(n for devices in asked for n in devices) == [0, 1, 2, 3, 4, 5]
    assert all(len(devices) == 2 for devices in asked)


def test_oort_asks_those_with_the_largest_losses_once_all_are_tried():
    selection = Rounds("oort", 20, share=0.25)
    loss = np.where(np.arange(20) < 5, 5.0, 0.1)
    rounds = [selection.ask(loss=loss) for _ in range(40)]
    assert set(rounds[-1]) == {0, 1, 2, 3, 4}


def test_oort_prefers_the_quick_among_equals():
    selection = Rounds("oort", 20, share=0.25, percentile=20.0)
    rounds = [selection.ask(latency_s=np.where(np.arange(20) < 5, 0.1, 1.0)) for _ in range(40)]
    assert set(rounds[-1]) == {0, 1, 2, 3, 4}


def test_who_did_not_arrive_is_still_untried():
    selection = Rounds("oort", 4, share=1.0)
    selection.ask(arrives=[True, False, True, False], loss=2.0)
    assert selection.memory["oort.last_round"].tolist() == [1, 0, 1, 0]
    assert selection.memory["oort.utility"].tolist() == [20.0, 0.0, 20.0, 0.0]


def test_running_means_are_plain_means_until_the_window_is_full():
    selection = Rounds("proportional-fair", 1, window=3)
    for rate in (2.0, 4.0, 9.0):
        selection.ask([rate])
    assert selection.memory["proportional-fair.mean_rate_bps"] == pytest.approx([5.0])
    selection.ask([11.0])
    assert selection.memory["proportional-fair.mean_rate_bps"] == pytest.approx([5.0 + 6.0 / 3.0])


def test_proportional_fair_asks_the_best_compared_with_their_own_past():
    selection = Rounds("proportional-fair", 4, share=0.5)
    assert selection.ask([100.0, 10.0, 1.0, 50.0]) == [0, 3]  # nothing known: the best channels
    assert selection.ask([90.0, 12.0, 3.0, 40.0]) == [1, 2]  # 0.9, 1.2, 3, 0.8 of what they were


def test_devices_near_and_far_are_asked_equally_often():
    rng = np.random.default_rng(1)
    selection = Rounds("proportional-fair", 4, share=0.5)
    counts = np.zeros(4)
    for _ in range(1_000):
        counts[selection.ask(np.array([1e9, 1e8, 1e7, 1e6]) * rng.exponential(size=4))] += 1
    assert np.abs(counts - 500).max() < 5 * np.sqrt(1_000 * 0.25)  # five standard deviations


def test_where_channels_never_change_chance_decides():
    selection = Rounds("proportional-fair", 4, share=0.5)
    later = [tuple(selection.ask([4.0, 3.0, 2.0, 1.0])) for _ in range(30)][1:]
    assert len(set(later)) > 3


@pytest.mark.parametrize("name", ["proportional-fair", "oort"])
def test_those_asked_share_the_whole_band(name):
    changes = {"selection__name": name, f"selection__{name}__share": 0.6, "plan__deadline_s": 0.0002}
    for record in ap.run(tiny_scenario(**changes), dataset=blobs()):
        if record["kind"] == "edge":
            shares, edge = np.array(record["bandwidth_share"]), np.array(record["edge"])
            assert np.bincount(edge).tolist() == [2, 2]
            assert [shares[edge == k].sum() for k in (0, 1)] == pytest.approx([1.0, 1.0], abs=1e-9)


def test_oort_utility_is_the_data_size_times_the_root_mean_square_of_the_losses():
    # Minibatches of one sample: every loss is a sample's own, as in the source.
    changes = {"selection__name": "oort", "selection__oort__share": 1.0, "rounds__edge_rounds": 1}
    steps = {
        "train__batch_size": 1,
        "train__local_epochs": 1,
        "train__learning_rate": 1e-30,
        "rounds__global_rounds": 1,
    }
    scenario, data = tiny_scenario(**changes, **steps, model__float64=True, plan__deadline_s=100.0), blobs()
    experiment = Experiment.of(scenario, dataset=data)
    state = experiment.initial_state()
    (x, y), _ = data
    model = build_model("mlp", input_shape=(12,), num_classes=4, seed=scenario.seed).double()
    with torch.no_grad():
        loss = F.cross_entropy(model(torch.tensor(x, dtype=torch.float64)), torch.tensor(y), reduction="none").numpy()
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        list(run_rounds(experiment, engine, state))
    for device in range(experiment.network.num_devices):
        own = loss[experiment.samples.of(device)]
        expected = len(own) * np.sqrt(np.mean(own**2))
        assert expected > 1.01 * len(own) * own.mean()  # so that the mean would not do
        assert state.values["oort.utility"][device] == pytest.approx(expected, rel=1e-9)


def test_oort_pays_for_the_losses_that_devices_report():
    plain = next(ap.run(tiny_scenario(), dataset=blobs()))
    oort = next(ap.run(tiny_scenario(selection__name="oort", selection__oort__share=1.0), dataset=blobs()))
    assert oort["uploaded_bits"] == plain["uploaded_bits"] + 6 * 64
