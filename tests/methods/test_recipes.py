"""The recipes that come with the package: TOML files, one per family, read when a method is asked for."""

import subprocess
import sys
from importlib.resources import files

from airprune.methods import METHODS
from airprune.methods.recipe import family
from airprune.scenario import Scenario
from airprune.settings.toml_text import flat
from support.each import each

FAMILIES = [
    family(file.name.removesuffix(".toml"))
    for file in files("airprune.methods.recipes").iterdir()
    if file.name.endswith(".toml")
]

AFTER_WITH_DEPARTURES = {
    name
    for one in (family("allocating"), family("associating"), family("topologies"), family("pruning"))
    for name in one.recipes
}


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


@each("name", [name for name, recipe in METHODS.items() if recipe.label.startswith("after")])
def test_what_is_after_a_source_lists_its_departures_without_full_stops(name):
    departures = METHODS[name].departures
    assert departures or name not in AFTER_WITH_DEPARTURES
    assert all(text and not text.endswith(".") for text in departures)
