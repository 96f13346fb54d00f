"""The code blocks of the documentation, and what the tests do with each kind of them.

| block | what the tests do |
|---|---|
| bash | run in the order of the page, from an empty folder with `fleet.csv` in it; every `airprune …` must exist |
| python | run in the order of the page, in one script (`<!-- tested -->`) |
| text | compared with what the block before has printed; `…` stands for anything within a line |
| math | converted to MathML |
| toml | read: as a scenario, or as TOML where it is no scenario or a test reads it (`<!-- tested -->`) |
| ini, yaml, csv | read |

A comment above a block changes that, and gives the reason:

    <!-- not run: needs two machines -->
    <!-- not compared: times differ -->
    <!-- run with: rounds.global_rounds=1 -->      these words are added to every command that trains
"""

from __future__ import annotations

import configparser
import itertools
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import latex2mathml.converter
import typer
from tools.readme import GLYPHS, _split, commands

import airprune as ap
from airprune.cli.app import COMMANDS, NESTED, app_for
from airprune.web.starting.form import form

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"(?:^ *<!-- ([a-z ]+?)(?:: ([^\n]*?))? -->\n)?^( *)```(\w+)\n(.*?)^\3```$", re.DOTALL | re.MULTILINE
)
_SETTING = re.compile(r"([a-z_]+(?:\.[a-z0-9_-]+)+|seed|method)=(.*)", re.DOTALL)
_OVERRIDING = ("run", "compare", "sweep", "league", "advise", "profile", "trace")
_TRAINS = re.compile(r"airprune (run|compare|sweep|advise|trace)\b")
# Words for `run with`: a size at which every command ends within seconds, and no download.
SIZES = {"small": GLYPHS}


@dataclass(frozen=True)
class Block:
    """A code block with the comment above it.

    Attributes:
      mark: the comment's words, such as `not run`; empty without one.
      why: what follows the colon in it.
    """

    kind: str
    content: str
    mark: str = ""
    why: str = ""

    @property
    def is_tested(self) -> bool:
        return self.mark == "tested"

    @property
    def is_run(self) -> bool:
        return self.kind == "bash" and self.mark != "not run"


def blocks(page: str) -> list[Block]:
    found = FENCE.findall(page)
    return [Block(kind, textwrap.dedent(content), mark, why) for mark, why, _, kind, content in found]


def check(block: Block, before: Block | None) -> None:
    """Raises AssertionError, or the reader's own error, if the block says what is not so."""
    if block.mark in ("not run", "not compared"):
        assert len(block.why.split()) > 1, f"a block without a reason: {block.content[:80]}"
    if block.kind == "python":
        assert block.is_tested or block.mark == "not run", f"a Python block that no test runs: {block.content[:80]}"
    elif block.kind == "text":
        assert before is not None and before.kind in ("python", "bash"), "output of nothing"
        ran = before.is_tested or before.is_run
        assert ran or block.mark == "not compared", f"output that no test compares: {block.content[:80]}"
    elif block.kind == "math":
        assert latex2mathml.converter.convert(" ".join(block.content.split())).startswith("<math")
    elif block.kind == "toml":
        read = tomllib.loads(block.content)
        is_own = "smoothed" in block.content  # registered by the page itself
        if not (block.is_tested or "project" in read or is_own):
            ap.Scenario.from_text(block.content)
    elif block.kind == "ini":
        configparser.ConfigParser(strict=False, interpolation=None).read_string(block.content)
    elif block.kind in ("csv", "bibtex"):
        assert block.content.strip()
    else:
        assert block.kind == "bash", f"the tests do not know what to do with a block of {block.kind}"
        for command in _split(block.content):
            check_command(command)


@dataclass(frozen=True)
class Step:
    """Commands of one bash block, and what they print if the page shows it."""

    script: str
    printed: str | None


def steps(page: str) -> list[Step]:
    """Returns the bash blocks that are run, in the order of the page."""
    found = blocks(page)
    following = [*found, None][1:]
    return [
        Step(_sized(block), after.content if after and after.kind == "text" and after.mark != "not compared" else None)
        for block, after in zip(found, following, strict=True)
        if block.is_run
    ]


def _sized(block: Block) -> str:
    if block.mark != "run with":
        return block.content
    words = SIZES.get(block.why, block.why)
    return "\n".join(f"{line} {words}" if _TRAINS.match(line) else line for line in _split(block.content))


def follow(page: str, folder: Path, *, timeout_s: float) -> None:
    """Runs the bash blocks of a page one after the other in a folder, and compares what they print.

    Raises AssertionError for a command that fails or prints something else.
    """
    for step, printed in _run(page, folder, timeout_s):
        if step.printed is not None:
            assert prints(printed, step.printed), f"{step.script}\nmust print\n{step.printed}\ngot\n{printed}"


def refreshed(page: str, folder: Path, *, timeout_s: float) -> str:
    """Returns the page with the outputs that its commands print now."""
    for step, printed in _run(page, folder, timeout_s):
        if step.printed is not None and not prints(printed, step.printed):
            lines = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
            page = page.replace(f"```text\n{step.printed}```", f"```text\n{lines}\n```")
    return page


def fleet() -> str:
    """Returns the fleet table that the quickstart writes; the commands of other pages use it too."""
    (command,) = (text for text in commands((ROOT / "docs/quickstart.md").read_text()) if "cat > fleet.csv" in text)
    return "\n".join(command.splitlines()[1:-1]) + "\n"


def _run(page: str, folder: Path, timeout_s: float) -> Iterator[tuple[Step, str]]:
    """Yields each step with its standard output, once it has ended with status 0."""
    programs = folder / ".programs"
    programs.mkdir()
    (programs / "airprune").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m airprune "$@"\n')
    (programs / "airprune").chmod(0o755)
    (folder / "fleet.csv").write_text(fleet())
    settings = {
        "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "OMP_WAIT_POLICY": "passive",
    }
    environment = {**settings, **{name: os.environ[name] for name in ("TMPDIR",) if name in os.environ}}
    for step in steps(page):
        command = ["bash", "--norc", "-c", f"set -e -o pipefail\n{step.script}"]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s)
        assert done.returncode == 0 and "Traceback" not in done.stderr, f"{step.script}\n{done.stdout}\n{done.stderr}"
        yield step, done.stdout


def prints(printed: str, shown: str) -> bool:
    """Tells whether the lines are those shown, where `…` stands for anything within a line."""
    got, wanted = ([line.rstrip() for line in text.strip("\n").splitlines()] for text in (printed, shown))
    return len(got) == len(wanted) and all(_matches(*pair) for pair in zip(got, wanted, strict=True))


def _matches(line: str, shown: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), line) is not None


_OPERATORS = (">", ">>", "2>", "2>>", "|", "||", "&&")  # of the shell, behind a command
_OF_THE_PROGRAM = ("--install-completion", "--version", "--help")


def check_command(command: str) -> None:
    """Raises AssertionError for a command, an option or a key of a scenario that does not exist."""
    if script := re.match(r"(scripts/[\w-]+)", command):
        assert (ROOT / script[1]).is_file(), f"no script {script[1]}"
        return
    if not command.startswith("airprune "):
        return
    words = shlex.split(re.sub(r"\$\w+", "", command.replace("\\\n", " ")), comments=True)[1:]
    words = list(itertools.takewhile(lambda word: word not in _OPERATORS, words))
    if words[0] in _OF_THE_PROGRAM:
        return
    imports = "--import" in words
    if imports:  # read before any command is
        place = words.index("--import")
        del words[place : place + 2]
    name, arguments = _resolve(words)
    if name in _OVERRIDING:
        keys = {field["key"] for section in form()["sections"] for field in section["fields"]}
        for key in _settings(arguments):
            is_short = key.startswith("aggregation.smoothed.") or key == "radio.noise"
            is_own = imports and key.count(".") == 2  # an option of what is imported
            assert key in keys or is_short or is_own, f"{command!r}: no key {key}"


def _resolve(words: list[str]) -> tuple[str, list[str]]:
    """Walks down to the command and lets it read its words, without running it."""
    command: Any = typer.main.get_command(app_for(*(words[:2] if tuple(words[:2]) in NESTED else COMMANDS)))
    names: list[str] = []
    while getattr(command, "commands", None):
        assert words and words[0] in command.commands, f"no command {words[:1]} in {['airprune', *names]}"
        command = command.commands[words[0]]
        names.append(words[0])
        words = words[1:]
    try:
        command.make_context(names[-1], list(words))
    except Exception as error:  # the package of the command line has its own copy of click's errors
        assert type(error).__name__ in ("BadParameter", "Exit"), f"airprune {' '.join([*names, *words])}: {error}"
    return names[0], words


def _settings(words: list[str]) -> Iterator[str]:
    for word in words:
        if found := _SETTING.fullmatch(word):
            yield found[1]
