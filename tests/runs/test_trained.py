"""`airprune.train`: a whole run in one call."""

import numpy as np
import pytest
from safetensors.numpy import load_file

import airprune as ap
from support.tiny import tiny_scenario


def test_train_gives_the_records_and_the_weights_of_run(tmp_path):
    scenario = tiny_scenario()
    records = list(ap.run(scenario, out=tmp_path / "run"))
    trained = ap.train(scenario, out=tmp_path / "train")
    assert list(trained.records) == records and trained.folder == tmp_path / "train"
    written = load_file(tmp_path / "run" / "final.safetensors")
    assert written.keys() == trained.weights.keys()
    assert all(written[name].tobytes() == array.tobytes() for name, array in trained.weights.items())
    assert load_file(tmp_path / "train" / "final.safetensors").keys() == written.keys()


def test_train_needs_no_folder_and_shows_where_it_ended():
    trained = ap.train(tiny_scenario())
    times, accuracy = trained.curve()
    assert trained.folder is None and np.all(np.diff(times) > 0) and len(times) == len(trained.global_records)
    assert trained.last["test_accuracy"] == accuracy[-1] and f"test_accuracy={accuracy[-1]:.4g}" in repr(trained)
    assert trained.curve("test_nothing")[0].size == 0


def test_callbacks_see_the_records_that_train_returns():
    seen = []
    trained = ap.train(tiny_scenario(), callbacks=[seen.append])
    assert seen == list(trained.records) and trained.weights


def test_a_run_that_is_resumed_after_its_end_has_its_weights_and_no_records(tmp_path):
    first = ap.train(tiny_scenario(), out=tmp_path / "run")
    again = ap.train(tiny_scenario(), out=tmp_path / "run", resume=True)
    assert again.records == () and again.last == {} and "0 global rounds" in repr(again)
    assert all(np.array_equal(again.weights[name], array) for name, array in first.weights.items())


def test_names_of_the_package_are_those_it_offers():
    assert dir(ap) == sorted(ap.__all__)


def test_a_scenario_shows_its_preset_and_what_differs_from_it():
    smoke = ap.Scenario.preset("smoke")
    changed = smoke.with_values({"plan.deadline_s": 0.04, "seed": 3})
    assert repr(smoke) == "Scenario.preset('smoke')" and repr(ap.Scenario()) == "Scenario()"
    assert eval(repr(changed), {"Scenario": ap.Scenario}) == changed  # it is an expression
    assert str(smoke.diff(changed)) == "seed: 0 → 3\nplan.deadline_s: 0.014 → 0.04"
    assert smoke.diff(changed)[0] == ("seed", 0, 3) and str(smoke.diff(smoke)) == "no difference"


def test_a_scenario_unlike_any_preset_names_the_first_changes_alone():
    many = ap.Scenario.preset("smoke").with_("name", "mine")
    assert repr(many).startswith("Scenario().with_values({'name': 'mine', ") and repr(many).endswith(" more})")
    assert len(repr(many)) < 400


def test_train_refuses_what_run_refuses():
    with pytest.raises(ap.InvalidValue, match=r"run\.scenario"):
        ap.train("smoke")
