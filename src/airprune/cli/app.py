"""The `airprune` command: its subcommands, and how errors reach the user."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import airprune
from airprune.cli.advise import advise
from airprune.cli.cluster import cluster
from airprune.cli.compare import compare
from airprune.cli.console import say
from airprune.cli.data import data
from airprune.cli.deploy import deploy
from airprune.cli.doctor import doctor
from airprune.cli.league import league
from airprune.cli.methods import methods
from airprune.cli.plan import plan
from airprune.cli.profile import profile
from airprune.cli.report import report
from airprune.cli.reproduce import reproduce
from airprune.cli.run import run
from airprune.cli.scenarios import scenarios
from airprune.cli.schemes import schemes
from airprune.cli.sweep import sweep
from airprune.cli.web import web
from airprune.errors import AirpruneError, UsageError
from airprune.extras import MissingExtra, sentence_for

app = typer.Typer(
    name="airprune",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(plan)
app.command()(advise)
app.command()(run)
app.command()(compare)
app.command()(sweep)
app.command()(league)
app.command()(reproduce)
app.command()(report)
app.command()(web)
app.command()(schemes)
app.command()(methods)
app.command()(scenarios)
app.command()(profile)
app.command()(doctor)
app.add_typer(data, name="data")
app.add_typer(cluster, name="cluster")
app.add_typer(deploy, name="deploy")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"airprune {airprune.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    imported: Annotated[
        list[Path] | None,
        typer.Option(
            "--import",
            metavar="FILE",
            help="A Python file that registers components or methods of your own; may stand anywhere.",
        ),
    ] = None,
) -> None:
    """Plan and simulate hierarchical federated learning with adaptive pruning over wireless networks."""


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; turns every deliberate error into one sentence and its exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        arguments = _with_imports(arguments)
        status = app(arguments or ["--help"], prog_name="airprune", standalone_mode=False)
    except typer.TyperException as error:
        say(f"error: {error.format_message()}")
        return 2
    except AirpruneError as error:
        say(f"error: {error}")
        return error.exit_status
    except ModuleNotFoundError as error:
        sentence = sentence_for(error, " ".join(["airprune", *_command(arguments)]))
        if sentence is None:
            raise
        say(f"error: {sentence}")
        return MissingExtra.exit_status
    except (KeyboardInterrupt, typer.Abort):
        say("stopped.")
        return 130
    except BrokenPipeError:  # the reader, e.g. `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status if isinstance(status, int) else 0


def _command(arguments: list[str]) -> list[str]:
    """The name of the command among its arguments."""
    return [word for word in arguments if not word.startswith("-")][:1]


def _with_imports(arguments: list[str]) -> list[str]:
    """Loads every file given with --import, wherever the option stands; what is left is the command."""
    left: list[str] = []
    waiting = iter(arguments)
    for word in waiting:
        if word == "--":
            return [*left, word, *waiting]
        if word != "--import" and not word.startswith("--import="):
            left.append(word)
            continue
        path = word.partition("=")[2] if "=" in word else next(waiting, "")
        if not path or path.startswith("-"):
            got = repr(path) if path else "nothing"
            raise UsageError(f"--import must be followed by a Python file, got {got}. Example: --import my_methods.py")
        from airprune.registration import import_file

        if not import_file(path):
            say(f"note: {path} registers nothing; a file does so by airprune.register(…).")
    return left
