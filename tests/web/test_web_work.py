"""The work page: boards, planned and tried work, and their numbers."""

import numpy as np
import pytest

import airprune as ap
from airprune.planning.schemes.work import Work
from airprune.rounds.experiment import Experiment
from airprune.web.work.boards import CNN, KINDS, LAYER_NAMES, LAYER_WEIGHTS
from airprune.web.work.picture import picture, problem_of
from airprune.web.work.settings import WorkSettings

pytest_plugins = ["support.browser"]

# A deadline at which slow boards train the upper layers and fast ones everything.
MIXED = "raspberry-pi-3b+*1,raspberry-pi-5*1,accelerator-500*1"


def test_layers_and_flops_are_those_of_the_papers_cnn():
    experiment = Experiment.of(ap.Scenario.preset("demo").with_values({"data.name": "glyphs"}))
    counted = experiment.work
    assert [layer.forward for layer in counted.layers] == [layer.forward for layer in CNN.layers]
    assert [counted.step_flops(first) for first in range(4)] == [CNN.step_flops(first) for first in range(4)]
    assert [counted.frozen_forward(first) for first in range(4)] == [CNN.frozen_forward(first) for first in range(4)]
    assert [layer.name for layer in counted.layers] == list(LAYER_NAMES)
    assert [experiment.shape.weights_above(first) for first in range(4)] == [sum(LAYER_WEIGHTS[k:]) for k in range(4)]


def test_a_board_takes_the_flops_of_a_sample_over_its_speed():
    pi = KINDS["raspberry-pi-4"]
    assert pi.sample_s(32, 1.0) == pytest.approx(22_730_208 / (8 * 4 * 0.25 * 1.8e9), rel=1e-12)
    assert KINDS["accelerator-70"].sample_s(32, 1.0) == pytest.approx(22_730_208 / 70e9, rel=1e-12)
    assert KINDS["cpu"].sample_s(32, 2.0) == pytest.approx(22_730_208 / (8 * 2e9), rel=1e-12)
    paper_step_s = 20 * 43_888 / 3e9  # one iteration of Eq. (9)
    assert KINDS["paper"].sample_s(32, 1.0) * 32 == pytest.approx(paper_step_s, rel=1e-12)


def test_every_number_without_a_source_is_marked():
    for kind in KINDS.values():
        assert kind.is_assumed == any(word in kind.source for word in ("assumed one", "assumed 3", "an assumption"))


def test_bars_are_the_plan_of_scheme_work():
    settings = WorkSettings(boards=MIXED)
    plan = Work().plan(problem_of(settings))
    planned = picture(settings)["planned"]
    assert [one["steps"] for one in planned] == plan.local_steps.tolist()
    assert [one["trains"] == "all layers" for one in planned] == (plan.first_trained == 0).tolist()
    for one in planned:
        assert one["forward_ms"] + one["backward_ms"] + one["upload_ms"] == pytest.approx(one["total_ms"], rel=1e-9)
        assert one["total_ms"] <= settings.deadline_ms * (1 + 1e-9)
    assert np.sum([one["share"] for one in planned]) <= 1 + 1e-9


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_the_most_steps_that_fit_do_fit_and_one_more_does_not(first):
    found = picture(WorkSettings(boards=MIXED, first_trained=first))["tried"]
    for place, one in enumerate(found):
        most = one["most_steps"]
        if 0 < most < 56:
            for steps, fits in ((most, True), (most + 1, False)):
                again = picture(WorkSettings(boards=MIXED, first_trained=first, steps=steps))["tried"][place]
                assert again["fits"] is fits


def test_the_smallest_deadline_has_a_plan_and_a_shorter_one_has_none():
    smallest_ms = picture(WorkSettings(deadline_ms=1.0))["smallest_deadline_ms"]
    assert picture(WorkSettings(deadline_ms=1.0))["planned"] is None
    assert picture(WorkSettings(deadline_ms=smallest_ms))["planned"] is not None
    assert picture(WorkSettings(deadline_ms=smallest_ms * 0.99))["planned"] is None


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"boards": "raspberry-pi-9*1"}, "work.boards 'raspberry-pi-9' is unknown"),
        ({"boards": "raspberry-pi-4*x"}, "must be NAME*COUNT"),
        ({"boards": "raspberry-pi-4*41"}, "must have 1 to 40 devices"),
        ({"boards": "raspberry-pi-4*0"}, "must have 1 to 40 devices"),
        ({"first_trained": "4"}, "work.first_trained"),
        ({"steps": "0"}, "work.steps"),
        ({"deadline": "5"}, "deadline_ms"),
    ],
)
def test_a_setting_that_breaks_its_rule_is_refused_with_a_sentence(server, query, sentence):
    answer = server.client.get("/api/planned-work", params=query)
    assert answer.status_code == 422 and sentence in answer.json()["error"]
    page = server.client.get("/work", params=query)
    assert page.status_code == 200 and "Work planner" in page.text
