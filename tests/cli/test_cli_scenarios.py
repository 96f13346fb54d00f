"""`airprune scenarios`: presets, full settings, schema."""

import json
import re

import pytest

from airprune.cli import main
from airprune.scenario import Scenario, presets


def test_presets_are_listed_with_what_they_are(capsys):
    assert main(["scenarios"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in presets())
    assert main(["scenarios", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == presets()


def test_a_preset_shown_in_full_is_a_scenario_file(capsys, tmp_path):
    assert main(["scenarios", "hetero-cpu"]) == 0
    path = tmp_path / "mine.toml"
    path.write_text(capsys.readouterr().out)
    assert Scenario.load(path).hash == Scenario.preset("hetero-cpu").hash
    assert main(["scenarios", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["network"]["cpu_hz_max"] == 3e9


@pytest.mark.parametrize("name", presets())
def test_a_preset_shown_in_full_explains_every_setting_and_loads_again(capsys, name):
    assert main(["scenarios", name]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"# {presets()[name]}\n")
    assert Scenario.from_text(text) == Scenario.preset(name)
    for line in filter(None, text.splitlines()):
        assert line.startswith(("[", "# ")) or "  # " in line, line


def test_a_setting_is_shown_with_its_unit(capsys):
    assert main(["scenarios", "paper"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^deadline_s = 0\.03 +# s: deadline T_th", shown, re.MULTILINE)
    assert re.search(r"^transmit_power_dbm = 28\.0 +# dBm: transmit power p_n", shown, re.MULTILINE)
    assert re.search(r"^placement = \"ring\" .*one of ring, disc$", shown, re.MULTILINE)


def test_the_schema_knows_every_section(capsys):
    assert main(["scenarios", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert set(Scenario().to_dict()) <= set(schema["properties"])


@pytest.mark.parametrize("name", ["papr", "missing.toml"])
def test_an_unknown_scenario_is_one_sentence(capsys, name):
    assert main(["scenarios", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1
