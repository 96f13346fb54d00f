"""Help and tables: commands by purpose, plain metavars, no word cut at any width, other names of options accepted."""

import re
import time

import pytest
import typer

import airprune as ap
from airprune.cli import main, progress
from airprune.cli.app import COMMANDS, NESTED, OTHER_NAMES, PANELS, app_for
from airprune.cli.tables import plain_table, print_table
from airprune.methods import METHODS
from airprune.planning.schemes import SCHEMES


def shown(capsys, *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


def every_command() -> list[tuple[str, ...]]:
    found = []
    for name, command in typer.main.get_command(app_for(*COMMANDS)).commands.items():
        inner = getattr(command, "commands", {})
        found += [(name,), *((name, other) for other in inner)]
    return [*found, *NESTED]


def test_help_groups_the_commands_in_panels_and_gives_each_one_line_at_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = shown(capsys, "--help").splitlines()
    assert [re.sub("[^A-Za-z]", "", line) for line in lines if line.startswith("╭")] == ["Options", *PANELS]
    for name, summary in COMMANDS.items():
        assert any(line.split()[1:2] == [name] and summary.replace("`", "") in line for line in lines), name


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
@pytest.mark.parametrize("columns", ["80", "100"])
def test_help_shows_flags_without_a_type_and_values_in_capitals(words, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    text = shown(capsys, *words, "--help")
    assert not re.search(r"<(bool|str|path|int|float|list)|--no-|…│", text)
    assert max(map(len, text.splitlines())) <= int(columns)


@pytest.mark.parametrize("columns", ["80", "100"])
@pytest.mark.parametrize("words", [("methods", "--components"), ("schemes",), ("data", "list"), ("scenarios",)])
def test_lists_cut_no_word_and_stay_within_the_width(words, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    text = shown(capsys, *words)
    assert max(map(len, text.splitlines())) <= int(columns) and "…" not in text
    known = " ".join(scheme.summary for scheme in SCHEMES.values()).split()
    if words == ("schemes",):
        assert set(known) <= set(text.split())


def test_methods_are_listed_by_family_on_one_line_each(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = shown(capsys, "methods").splitlines()
    named = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(named) == sorted(METHODS) and max(map(len, lines)) <= 80
    assert sum(bool(line) and not line.startswith(" ") for line in lines) >= 6  # headings


def test_a_table_that_is_too_wide_comes_in_parts_that_repeat_its_first_column(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    headings = [f"heading{i}" for i in range(6)]
    table = plain_table("name", *headings, numbers=headings, title="A title", caption="A caption")
    table.add_row("one", *(f"{i} ± 0.123" for i in range(6)))
    print_table(table)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 40 and all(f"{i} ± 0.123" in text for i in range(6))
    assert text.count("one ") == text.count("name ") == 2 and text.count("A title") == text.count("A caption") == 1


def test_a_pipe_of_unknown_width_gets_a_wide_table_in_one_part(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    table = plain_table("name", *"abcdefghij", numbers="abcdefghij")
    table.add_row("one", *["123456789 ± 123456789"] * 10)
    print_table(table)
    assert capsys.readouterr().out.count("one ") == 1


@pytest.mark.parametrize("words", OTHER_NAMES, ids=" ".join)
def test_another_name_of_an_option_is_accepted_with_a_hint(words, capsys):
    command = typer.main.get_command(app_for(*words))
    for word in words:
        command = command.commands[word]
    known = {option for parameter in command.params for option in parameter.opts}
    for other, name in OTHER_NAMES[words].items():
        assert other not in known and (name is None or name in known)
        main([*words, "--help", other, "value"])
        hint = f"note: {other} " + ("has no effect" if name is None else f"is accepted for {name}.")
        assert capsys.readouterr().err.startswith(hint)


def test_without_a_terminal_a_long_round_prints_a_line_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    scenario = ap.Scenario.preset("smoke").with_("rounds.global_rounds", 1)
    edge = {"kind": "edge", "num_samples": 10, "global_round": 1}
    list(progress.show_progress([edge, edge, {"kind": "global", "global_round": 1}], scenario, label="here"))
    err = capsys.readouterr().err
    assert err.count("here: round 1/1") == 3


def test_work_without_lines_of_its_own_shows_that_it_goes_on(capsys):
    with progress.repeated_line(lambda: "still here", every_s=0.01):
        time.sleep(0.2)
    shown_lines = capsys.readouterr().err.count("still here\n")
    time.sleep(0.05)
    assert shown_lines >= 2 and capsys.readouterr().err == ""
