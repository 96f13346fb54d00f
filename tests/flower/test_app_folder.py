"""Reading an app's folder, without Flower."""

import sys

import pytest

import airprune as ap
from airprune.errors import InvalidValue, UsageError
from airprune.extras import MissingExtra
from airprune.flower import app as app_module
from airprune.flower.app import FlowerApp, config_words
from airprune.flower.app_run import default_scenario, scenario_of

PROJECT = """
[project]
name = "mine"
[tool.flwr.app.components]
serverapp = "mine.server_app:app"
clientapp = "mine.client_app:app"
[tool.flwr.app.config]
num-server-rounds = 3
train.lr = 0.1
[tool.flwr.federations]
default = "small"
[tool.flwr.federations.small]
options.num-supernodes = 10
[tool.flwr.federations.large]
options.num-supernodes = 1000
"""


@pytest.fixture
def app(tmp_path):
    def read(text=PROJECT):
        (tmp_path / "pyproject.toml").write_text(text)
        return FlowerApp.read(tmp_path)

    return read


def test_an_app_has_the_clients_of_its_default_federation_and_its_config_flat(app):
    found = app()
    assert (found.name, found.num_clients, found.num_rounds) == ("mine", 10, 3)
    assert found.config == {"num-server-rounds": 3, "train.lr": 0.1}
    assert (found.server, found.client) == ("mine.server_app:app", "mine.client_app:app")


def test_changes_to_the_config_are_words_with_toml_values(app):
    words = config_words("num-server-rounds=5 train.lr=0.5")
    assert app().with_config(words).config == {"num-server-rounds": 5, "train.lr": 0.5}
    assert config_words("name='a b' steps=[1, 2]") == {"name": "a b", "steps": [1, 2]}
    with pytest.raises(InvalidValue, match=r"--run-config must be key=value words"):
        config_words("lr 5")
    with pytest.raises(InvalidValue, match=r"must change a key of .*'rate'"):
        app().with_config({"rate": 1})


def test_an_app_without_a_client_is_refused_in_one_sentence(app):
    with pytest.raises(InvalidValue, match=r"must name its clientapp as module:name .* got None"):
        app(PROJECT.replace("clientapp", "client"))


def test_an_app_without_a_number_of_clients_needs_one(app):
    found = app(PROJECT.replace("options.num-supernodes", "options.other"))
    with pytest.raises(UsageError, match=r"give --devices N"):
        scenario_of(found)
    assert scenario_of(found, devices=4).num_devices == 4


def test_clients_are_spread_evenly_over_edges(app):
    scenario = scenario_of(app(), edges=3)
    assert scenario.network.devices_per_edge == (4, 3, 3)
    assert not scenario.is_flat and scenario_of(app()).is_flat
    with pytest.raises(InvalidValue, match=r"flower.edges must be at most the number of clients, 10"):
        scenario_of(app(), edges=11)


def test_a_fleet_table_has_its_own_number_of_clients(app, tmp_path):
    table = tmp_path / "fleet.csv"
    table.write_text("device,edge,rate_mbps\na,e,1\nb,e,2\n")
    scenario = default_scenario().with_("network.table", str(table))
    assert scenario_of(app(), scenario).num_devices == 2
    with pytest.raises(InvalidValue, match=r"flower.devices must be the fleet table's 2"):
        scenario_of(app(), scenario, devices=3)


def test_a_changed_file_or_config_changes_the_digest(app, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "task.py").write_text("a = 1\n")
    first = app()
    assert first.digest != first.with_config({"num-server-rounds": 4}).digest
    before = first.digest
    (tmp_path / "mine" / "task.py").write_text("a = 2\n")
    assert first.digest != before


def test_without_flower_a_sentence_says_what_to_install(app, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setattr(app_module, "need", lambda extra, what: (_ for _ in ()).throw(MissingExtra(f"{what}: {extra}")))
    with pytest.raises(MissingExtra, match=r"airprune.flower.run: flower"):
        ap.flower.run(app().folder)


def test_counting_outside_of_a_run_does_nothing():
    assert ap.flower.counted(None, [1, 2]) is None
