"""The `airprune` command: its subcommands, and how errors reach the user."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import airprune
from airprune.cli.console import say
from airprune.cli.stopping import STOPPED, interruptible
from airprune.errors import NO_MEMORY, AirpruneError, UsageError, exhausted_by
from airprune.extras import MissingExtra, sentence_for

# Every command by its panel of the help and its name, which is also that of its module and of its function there; the
# summary is the first paragraph of its help.
PANELS = {
    "Plan": {
        "plan": "Allocate bandwidth and pruning so that devices meet the deadline.",
        "deadline": "Show which deadlines serve all devices, and what is pruned.",
        "advise": "Recommend a method for a fleet, from pilot runs.",
    },
    "Experiment": {
        "run": "Train one scenario: plan, prune, train, aggregate.",
        "compare": "Compare schemes or methods over seeds, on the same network.",
        "sweep": "Run a scenario for every combination of values, over seeds.",
        "league": "Benchmark all methods under the same rules.",
        "reproduce": "Reproduce the paper: tables, figures, verdicts on its claims.",
        "flower": "Run a Flower app, as it is, on a simulated wireless network.",
        "trace": "Write every array of one edge round, to check Algorithm 1.",
    },
    "Results": {
        "report": "Write an HTML report of a run, comparison, sweep or reproduction.",
        "export": "Export the trained model of a run, for PyTorch or as ONNX.",
        "web": "Serve planner, runs and results as web pages on this machine.",
    },
    "Catalogue": {
        "methods": "List the methods by family, show one in full, or check one.",
        "schemes": "List the schemes that allocate bandwidth and pruning.",
        "scenarios": "List the presets, or show one with every setting.",
        "data": "List and fetch datasets, and show how devices share them.",
    },
    "Operate": {
        "doctor": "Check the installation: versions, data, a small plan and run.",
        "profile": "Measure how fast this machine trains a scenario's model.",
        "cluster": "Start a Dask cluster for `airprune run --engine dask`.",
        "deploy": "Run a scenario on real machines: cloud, edges and devices.",
    },
}
# What typer raises for wrong usage; click's, before typer had an exception of its own.
WRONG_USAGE: Any = getattr(typer, "TyperException", None) or importlib.import_module("click").ClickException

# Words after a command that are commands of their own, and their modules; others are arguments of the command.
NESTED: dict[tuple[str, ...], str] = {("league", "verify"): "league_verify"}
COMMANDS = {name: summary for panel in PANELS.values() for name, summary in panel.items()}

# Other names under which options are accepted, by command, and those that the help shows; None: it has no effect.
OTHER_NAMES: dict[tuple[str, ...], dict[str, str | None]] = {
    ("league",): {"--division": "--track", "--played": "--ledger", "--so-far": "--partial"},
    ("deploy", "cloud"): {"--metrics": "--metrics-port"},
    ("deploy", "edge"): {"--folder": "--state-dir"},
    ("deploy", "device"): {"--folder": "--state-dir"},
    ("deploy", "shape"): {"--print": None},
}


def app_for(*words: str) -> typer.Typer:
    """Returns the application with those of its commands imported that are among `words`.

    The others are there by name and summary, so that a command does not wait for what the others import.
    """
    app = typer.Typer(
        name="airprune",
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for panel, commands in PANELS.items():
        for name, summary in commands.items():
            if name not in words:
                app.command(name, help=summary, rich_help_panel=panel)(_not_imported)
                continue
            module = NESTED.get(words[:2], name)
            command = getattr(importlib.import_module(f"airprune.cli.{module}"), name)
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=name, rich_help_panel=panel)
            else:
                app.command(name, rich_help_panel=panel)(command)
    return app


def _hide_types(command: Any, parent: typer.Context | None = None) -> None:
    """Shows no type in the help where it says nothing: of flags, and of arguments, which have a name."""
    context = typer.Context(command, parent=parent, **command.context_settings)
    for parameter in command.get_params(context):
        if parameter.param_type_name == "argument" or parameter.is_flag:
            parameter.display_type_rich = lambda ctx: None
    for inner in getattr(command, "commands", {}).values():
        _hide_types(inner, context)


def _not_imported() -> None:
    raise AssertionError("only commands that were imported are called")


def _words(arguments: list[str]) -> list[str]:
    """Returns the command's name and the next word, of the arguments or of what a shell wants completed."""
    completed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    typed = completed.split()[1:] if "_AIRPRUNE_COMPLETE" in os.environ else arguments
    words = [word for word in typed if not word.startswith("-")][:1]
    return [*words, *(word for word in typed[1:2] if typed[:1] == words)]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"airprune {airprune.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    imported: Annotated[
        list[Path] | None,
        typer.Option(
            "--import",
            metavar="FILE",
            help="Python file that registers your own components or methods; may stand anywhere.",
        ),
    ] = None,
) -> None:
    """Plan, simulate, compare and deploy hierarchical federated learning over wireless networks."""


def run_command(arguments: list[str] | None) -> int:
    """Runs one command; every deliberate error becomes one sentence and its exit status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        arguments = _with_shown_names(_with_imports(arguments))
        command = typer.main.get_command(app_for(*_words(arguments)))
        _hide_types(command)
        with interruptible():
            status = command(arguments or ["--help"], prog_name="airprune", standalone_mode=False)
    except WRONG_USAGE as error:
        say(f"error: {error.format_message()}")
        return 2
    except AirpruneError as error:
        say(f"error: {error}")
        return error.exit_status
    except ModuleNotFoundError as error:
        sentence = sentence_for(error, " ".join(["airprune", *_words(arguments)[:1]]))
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
    """Loads every file given with --import, wherever the option stands; returns the other arguments."""
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


def _with_shown_names(arguments: list[str]) -> list[str]:
    """Replaces options of other names by those that the help shows, with a hint on each."""
    words = [word for word in arguments if not word.startswith("-")]
    names = OTHER_NAMES.get(tuple(words[:1])) or OTHER_NAMES.get(tuple(words[:2])) or {}
    left: list[str] = []
    for word in arguments:
        given, equals, value = word.partition("=")
        if given not in names:
            left.append(word)
        elif (shown := names[given]) is None:
            say(f"note: {given} has no effect; leave it out.")
        else:
            say(f"note: {given} is accepted for {shown}.")
            left.append(f"{shown}{equals}{value}")
    return left
