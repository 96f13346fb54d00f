"""The help of the commands: the same option, the same words."""

import os
import subprocess
import sys

import pytest
import typer

from airprune.cli import main
from airprune.cli.app import COMMANDS, app_for
from support.processes import AIRPRUNE


def told(words: str, name: str) -> tuple[str | None, ...]:
    """Returns a parameter as a command's help shows it."""
    command = typer.main.get_command(app_for(*words.split()))
    for word in words.split():
        command = command.commands[word]
    (parameter,) = (p for p in command.params if p.name == name)
    return parameter.help, parameter.metavar, *parameter.opts


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("scenario", ["compare", "sweep", "deploy cloud"]),
        ("engine", ["run", "compare"]),  # that of a sweep is for whole runs, and so are its workers
        ("workers", ["run", "compare", "cluster worker"]),
        ("scheduler", ["run", "compare", "sweep"]),
        ("tls", ["run", "compare", "sweep", "cluster scheduler", "cluster worker"]),
        ("insecure", ["cluster scheduler", "cluster worker"]),
        ("as_json", ["compare", "sweep"]),
        ("as_json", ["plan", "reproduce", "scenarios", "schemes", "doctor", "data list", "data show"]),
    ],
)
def test_what_means_the_same_is_told_in_the_same_words(name, commands):
    (words,) = {told(command, name) for command in commands}
    assert words[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_of_itself_what_the_list_of_commands_says(name, capsys):
    command = typer.main.get_command(app_for(name)).commands[name]
    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name]
    assert main([name, "--help"]) == 0
    assert f"Usage: airprune {name}" in capsys.readouterr().out


def test_help_and_version_import_no_command():
    code = (
        "import sys; from airprune.cli import main; main(['--help']); main(['--version']);"
        "print([name for name in ('numpy', 'pydantic', 'torch', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("\nairprune 0.1.0\n[]\n") and all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize(
    ("typed", "found"),
    [("sc", ["schemes", "scenarios"]), ("run --re", ["--resume", "--replay"]), ("data f", ["fetch"])],
)
def test_a_shell_completes_commands_and_options(typed, found):
    words = f"airprune {typed}"
    asked = {"_AIRPRUNE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run([AIRPRUNE], env=os.environ | asked, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == found


def test_python_m_airprune_is_the_command():
    done = subprocess.run([sys.executable, "-m", "airprune", "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "airprune 0.1.0\n")
