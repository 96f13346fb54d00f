"""What the commands' help says: the same option, the same words."""

import pytest
import typer

from airprune.cli.app import app


def told(words: str, name: str) -> tuple[str | None, ...]:
    """How a command's help shows a parameter."""
    command = typer.main.get_command(app)
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
