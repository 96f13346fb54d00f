"""The recipes that come with the package: TOML files, one per family, read when a method is asked for."""

import json
import math
import subprocess
import sys
from importlib.resources import files

import pytest

from airprune.errors import InvalidValue
from airprune.methods import METHODS
from airprune.methods.recipe import Recipe, family
from airprune.scenario import Scenario
from airprune.settings.toml_text import flat
from airprune.studies.league.schedule import SCHEDULES
from support.each import each

FAMILIES = [
    family(file.name.removesuffix(".toml"))
    for file in files("airprune.methods.recipes").iterdir()
    if file.name.endswith(".toml")
]


def test_every_family_has_a_title_and_every_recipe_its_line_in_the_list_of_methods():
    written = {name: recipe for one in FAMILIES for name, recipe in one.recipes.items()}
    listed = [name for name in METHODS if not METHODS.package_of(name)]
    assert all(one.title for one in FAMILIES)
    assert sorted(written) == sorted(listed) and len(listed) == sum(len(one.recipes) for one in FAMILIES)
    assert all(METHODS[name] is recipe for name, recipe in written.items())


@each("name", METHODS)
def test_every_recipe_makes_a_scenario_that_holds_its_settings(name):
    settings = METHODS[name].settings
    values = flat(Scenario().with_("method", name).to_dict())
    assert settings and {key: values.get(key) for key in settings} == dict(settings)


def test_no_recipe_is_read_before_one_is_asked_for():
    code = (
        "import airprune.cli.app; from airprune.methods import METHODS; from airprune.methods.recipe import family; "
        "known = 'topk' in list(METHODS); before = family.cache_info().currsize; METHODS['topk']; "
        "print(known, before, family.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "0", "1"]


def test_a_label_after_a_source_needs_its_departures():
    with pytest.raises(InvalidValue, match=r"^Recipe 'mine'\.departures must not be empty with label 'after Doe'"):
        Recipe(name="mine", summary="", label="after Doe")
    for wrong in ("one sentence", ["", "two"], [3]):
        with pytest.raises(InvalidValue, match="must be a list of sentences"):
            Recipe(name="mine", summary="", departures=wrong)
    assert Recipe(name="mine", summary="", label="after Doe", departures=["one server"]).departures == ["one server"]


def test_departures_and_other_work_are_shown_in_words_and_as_json(command):
    recipe = METHODS["hier-sign"]
    status, out, _ = command("methods", "hier-sign")
    words = " ".join(out.split())
    assert status == 0 and "other work" in words and recipe.other_work in words
    assert len(recipe.departures) > 1 and all(text in words for text in recipe.departures)
    status, out, _ = command("methods", "hier-sign", "--json")
    facts = json.loads(out)
    assert status == 0 and facts["departures"] == list(recipe.departures) and facts["other_work"] == recipe.other_work
    assert "departures=[" in repr(recipe)


def test_one_gradient_per_round_gives_as_many_gradients_as_local_steps_in_the_league():
    """200 samples in batches of 32 are 7 steps, twice per edge round, in 2 edge rounds: 28."""
    base = SCHEDULES["default"].scenario()
    assert 2 * 2 * math.ceil(200 / 32) == 28
    assert base.rounds.edge_rounds * base.train.local_epochs * math.ceil(200 / base.train.batch_size) == 28
    for name in ("sign-sgd", "hier-sign", "d2d-sign"):
        scenario = base.with_("method", name)
        assert (scenario.rounds.edge_rounds, scenario.train.local_steps) == (28, 1) and METHODS[name].other_work
    assert base.with_("method", "hybridfl").rounds.edge_rounds == base.rounds.edge_rounds


@each("name", [name for name, recipe in METHODS.items() if recipe.label.startswith("after")])
def test_what_is_after_a_source_lists_its_departures_without_full_stops(name):
    departures = METHODS[name].departures
    assert departures and all(text and not text.endswith(".") for text in departures)
