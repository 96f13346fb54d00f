"""Weights of devices in planning: by hand, in plans, and after a restart."""

from types import SimpleNamespace

import numpy as np
import pytest

import airprune as ap
from airprune.methods.selection.base import Candidates, known_rates
from airprune.methods.weighting import WEIGHTINGS
from airprune.methods.weighting.by_loss import LOSS
from airprune.methods.weighting.by_staleness import LAST
from support.tiny import last_state, tiny_scenario


def candidates(**given) -> Candidates:
    device = np.array([1, 2, 4])
    values = {
        "device": device,
        "edge": np.zeros(3, dtype=np.int64),
        "rates_bps": known_rates(device, np.ones(3)),
        "num_samples": np.array([10, 20, 60]),
        "round_index": 7,
        "rng": np.random.default_rng(0),
    }
    return Candidates(**values | given)


def test_by_data_a_device_counts_as_its_samples_over_the_mean():
    assert WEIGHTINGS["by-data"]().weights(candidates()).tolist() == pytest.approx([1 / 3, 2 / 3, 2.0])
    assert WEIGHTINGS["by-data"](power=0.0).weights(candidates()).tolist() == [1.0, 1.0, 1.0]


def test_plain_is_the_papers_unless_work_is_planned():
    assert WEIGHTINGS["plain"]().weights(candidates()) == 1.0
    assert WEIGHTINGS["plain"]().weights(candidates(plans_work=True)).tolist() == pytest.approx([1 / 3, 2 / 3, 2.0])


def test_by_loss_untried_devices_count_as_the_worst_and_none_is_below_a_thousandth():
    memory = {LOSS: np.array([9.0, 2.0, np.nan, 9.0, 0.0])}
    found = WEIGHTINGS["by-loss"]().weights(candidates(memory=memory))
    assert found.tolist() == pytest.approx((np.array([2.0, 2.0, 0.002]) / (4.002 / 3)).tolist())
    nothing = {LOSS: np.full(5, np.nan)}
    assert WEIGHTINGS["by-loss"]().weights(candidates(memory=nothing)) == 1.0


def test_by_loss_remembers_the_losses_that_arrived():
    outcome = SimpleNamespace(
        device=np.array([0, 3]), arrived=np.array([True, False]), loss=np.array([0.5, np.nan]), candidates=None
    )
    after = WEIGHTINGS["by-loss"]().after_edge_round(outcome, {LOSS: np.array([1.0, 2.0, 3.0, 4.0])})
    assert after[LOSS].tolist() == [0.5, 2.0, 3.0, 4.0]


def test_by_staleness_a_device_counts_as_the_rounds_since_its_last_upload():
    memory = {LAST: np.array([0, 7, 0, 0, 4])}  # round_index 7 is the eighth round
    found = WEIGHTINGS["by-staleness"]().weights(candidates(memory=memory))
    assert found.tolist() == pytest.approx((np.array([1.0, 8.0, 4.0]) / (13 / 3)).tolist())


def ratios(scenario: ap.Scenario) -> list[list[float]]:
    _, records, _ = last_state(scenario)
    return [record["pruning_ratio"] for record in records if record["kind"] == "edge"]


def test_the_first_plan_by_loss_is_the_plain_one_and_later_ones_prune_the_worst_devices_less():
    scenario = tiny_scenario(plan__deadline_s=0.0003, rounds__global_rounds=2, rounds__edge_rounds=1)
    plain, weighed = ratios(scenario), ratios(scenario.with_("plan.weighting", "by-loss"))
    assert weighed[0] == plain[0] and weighed[1] != plain[1]
    shares = scenario.with_values({"plan.weighting": "by-data", "data.size_spread": 1.0})
    _, records, _ = last_state(shares)
    assert np.isfinite(records[0]["pruning_ratio"]).all()


def test_a_scheme_sees_the_numbers_samples_and_memory_of_its_devices(unregistered):
    from airprune.components.component import Owner, Slot, per_device
    from airprune.planning.schemes import Scheme
    from airprune.planning.schemes.optimal import Optimal

    seen = []

    @ap.register
    class Watching(Scheme):
        name = "watching"
        summary = "optimal, with a note of what it sees"

        def slots(self, shape):
            return (Slot(name="watching.loss", owner=Owner.RUN, shape=per_device, dtype="<f8", start=-1.0),)

        def allocate(self, problem):
            seen.append(problem.seen)
            return Optimal().allocate(problem)

        def after_edge_round(self, outcome, values):
            loss = values["watching.loss"].copy()
            loss[outcome.device[outcome.arrived]] = outcome.loss[outcome.arrived]
            return {"watching.loss": loss}

    scenario = tiny_scenario(rounds__global_rounds=2, rounds__edge_rounds=1).with_("plan.scheme", "watching")
    _, records, _ = last_state(scenario)
    first, second = seen[0], seen[-1]
    assert first.device.tolist() == list(range(scenario.num_devices)) and first.round_index == 0
    assert (first.memory["watching.loss"] == -1.0).all() and second.round_index == 1
    edge = next(record for record in records if record["kind"] == "edge")
    assert second.memory["watching.loss"].tolist() == pytest.approx(edge["loss"])
    assert first.num_samples.sum() > 0
