"""The `airprune` command: its subcommands, and how errors reach the user."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import airprune
from airprune.cli.console import say
from airprune.cli.stopping import STOPPED, interruptible
from airprune.errors import NO_MEMORY, AirpruneError, UsageError, exhausted_by
from airprune.extras import MissingExtra, sentence_for

# Every command by its name, which is also that of its module and of what the module calls it, with its summary: the
# first paragraph of its help.
COMMANDS = {
    "plan": "Give every device a bandwidth share and a pruning ratio so that each round meets the deadline.",
    "advise": "Advise on a method for a fleet: pilot runs and the planner tell time, bits and joules to an accuracy.",
    "run": "Train a scenario: plan, prune, learn, average, round after round.",
    "compare": "Compare schemes or methods over seeds on the same network, samples and fading; finished runs are not "
    "repeated.",
    "sweep": "Run a scenario for every combination of values, several whole runs at a time, and average over seeds.",
    "league": "Play all methods against each other on one network, clock and set of seeds; tables, a picture and a "
    "page.",
    "reproduce": "Reproduce the paper: tables, figures, and each of its claims with a verdict.",
    "report": "Write a self-contained HTML page about a folder: summary, curves, devices, claims, and how to repeat "
    "it.",
    "export": "Write the trained model of a run as a state dict for torch, or as ONNX.",
    "web": "Open overview, planner, runs, league and reproduction in a browser, served by this machine alone.",
    "schemes": "List the schemes that choose bandwidth shares and pruning ratios.",
    "methods": "List the methods, tell all about one, or check one.",
    "scenarios": "List the presets, show one with every setting, or print the JSON schema.",
    "profile": "Time a scenario's model on this machine and count its FLOPs.",
    "doctor": "Check the installation: versions, memory, data, a small plan and a small training run.",
    "data": "List, fetch and look at datasets.",
    "cluster": "Start the machines of a cluster for `airprune run --engine dask`.",
    "deploy": "Run a scenario on real machines: a cloud, edges and devices, each a process of its own.",
}


def app_for(*words: str) -> typer.Typer:
    """The application. Of its commands those among `words` are imported; the others are there by name and summary,
    so that a command does not wait for what the others import."""
    app = typer.Typer(
        name="airprune",
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, summary in COMMANDS.items():
        if name not in words:
            app.command(name, help=summary)(_not_imported)
            continue
        command = getattr(importlib.import_module(f"airprune.cli.{name}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _not_imported() -> None:
    raise AssertionError("only commands that were imported are called")


def _words(arguments: list[str]) -> list[str]:
    """The name of the command among its arguments; of those that a shell wants completed, if it asks for that."""
    completed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    asked = completed.split()[1:] if "_AIRPRUNE_COMPLETE" in os.environ else arguments
    return [word for word in asked if not word.startswith("-")][:1]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"airprune {airprune.__version__}")
        raise typer.Exit


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


def run_command(arguments: list[str] | None) -> int:
    """Runs one command; turns every deliberate error into one sentence and its exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        arguments = _with_imports(arguments)
        app = app_for(*_words(arguments))
        with interruptible():
            status = app(arguments or ["--help"], prog_name="airprune", standalone_mode=False)
    except typer.TyperException as error:
        say(f"error: {error.format_message()}")
        return 2
    except AirpruneError as error:
        say(f"error: {error}")
        return error.exit_status
    except ModuleNotFoundError as error:
        sentence = sentence_for(error, " ".join(["airprune", *_words(arguments)]))
        if sentence is None:
            raise
        say(f"error: {sentence}")
        return MissingExtra.exit_status
    except MemoryError:
        say(f"error: {NO_MEMORY}")
        return 1
    except (KeyboardInterrupt, typer.Abort):
        say("stopped.")
        return STOPPED
    except BrokenPipeError:  # the reader, e.g. `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        exhausted = exhausted_by(error)
        if exhausted is None:
            raise
        say(f"error: {exhausted}")
        return exhausted.exit_status
    return status if isinstance(status, int) else 0


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
        from airprune.methods.registration import import_file

        if not import_file(path):
            say(f"note: {path} registers nothing; a file does so by airprune.register(…).")
    return left
