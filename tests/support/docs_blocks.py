"""The code blocks of the documentation, and what is done with each kind of them.

| block | what the tests do |
|---|---|
| python | run, in the order of the page, and its output compared (`<!-- tested -->`) |
| text | compared with the output of the block before, or shown output of a command that takes long |
| math | converted to MathML |
| toml | read: as a scenario, or as TOML where it is no scenario or a test reads it (`<!-- tested -->`) |
| ini | read |
| bash | every `airprune …`: command, options and keys must exist; those of README, tutorial and `CHEAP` are run |

A command of another program has a reason in `REASONS`; one without is an error, so that nothing is left out unseen.
"""

from __future__ import annotations

import configparser
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import latex2mathml.converter
import typer
from tools.readme import GLYPHS, _split

import airprune as ap
from airprune.cli.app import COMMANDS, app_for
from airprune.web.starting.form import form

FENCE = re.compile(r"(<!-- tested -->\n)?^( *)```(\w+)\n(.*?)^\2```$", re.DOTALL | re.MULTILINE)
_SETTING = re.compile(r"([a-z_]+(?:\.[a-z0-9_-]+)+|seed|method)=(.*)", re.DOTALL)
_OVERRIDING = ("run", "compare", "sweep", "league", "advise", "profile", "trace")

# Why a command is not run: the first pattern that matches the whole command counts.
REASONS = {
    r"(ssh|scp|srun|for host in) .*": "needs machines of one's own",
    r"(cd ~/airprune-tls|airprune=.*|tls=.*|file=.*|until .*|kill .*|wait|#.*)": "part of a job script of a cluster",
    r"(short|methods)=.*": "words for the commands below it",
    r"\$airprune .*": "the same as `airprune`, within a job script",
    r"pip install .*": "installs; tests/docs/test_readme.py does so on a fresh machine",
    r"scripts/\w+( \d+)?": "the scripts that run and check these tests",
    r"source \.venv/bin/activate": "run with the README",
    r"cat > .*": "run with the README",
}


# Commands of any page that end within a second or two, and what is added so that they do.
CHEAP = {
    r"airprune (plan|methods)\b(?!.*--(import|check)).*": "",
    r"airprune (cluster certificates|deploy (init|revoke|renew)) .*": "",
    r"airprune run (smoke|demo) (?!.*--(import|engine|log)).*": GLYPHS,
}


@dataclass(frozen=True)
class Block:
    kind: str
    content: str
    is_tested: bool


def blocks(page: str) -> list[Block]:
    return [Block(kind, textwrap.dedent(content), bool(mark)) for mark, _, kind, content in FENCE.findall(page)]


def check(block: Block, before: Block | None) -> None:
    """Raises AssertionError, or the reader's own error, if the block says what is not so."""
    if block.kind == "python":
        assert block.is_tested, f"a Python block that no test runs: {block.content[:80]}"
    elif block.kind == "text":
        assert before is not None and before.kind in ("python", "bash"), "output of nothing"
    elif block.kind == "math":
        assert latex2mathml.converter.convert(" ".join(block.content.split())).startswith("<math")
    elif block.kind == "toml":
        read = tomllib.loads(block.content)
        is_own = "smoothed" in block.content  # registered by the page itself
        if not (block.is_tested or "project" in read or is_own):
            ap.Scenario.from_text(block.content)
    elif block.kind == "ini":
        configparser.ConfigParser(strict=False, interpolation=None).read_string(block.content)
    else:
        assert block.kind == "bash", f"nobody knows what to do with a block of {block.kind}"
        for command in _split(block.content):
            check_command(command)


def cheap_commands(page: str) -> list[list[str]]:
    """The words of the commands of `CHEAP`, without the program's name, in the order of the page."""
    found = []
    for command in (line for block in blocks(page) if block.kind == "bash" for line in _split(block.content)):
        added = [words for pattern, words in CHEAP.items() if re.fullmatch(pattern, command, re.DOTALL)]
        if added and "$" not in command:
            found.append(shlex.split(f"{command} {added[0]}".replace("\\\n", " "))[1:])
    return found


_OF_THE_PROGRAM = ("--install-completion", "--version", "--help")


def check_command(command: str) -> None:
    if not command.startswith("airprune "):
        assert any(re.fullmatch(pattern, command, re.DOTALL) for pattern in REASONS), f"no reason for {command!r}"
        return
    words = shlex.split(re.sub(r"\$\w+", "", command.replace("\\\n", " ")), comments=True)[1:]
    if ">" in words:  # what is written where
        words = words[: words.index(">")]
    if words[0] in _OF_THE_PROGRAM:
        return
    if "--import" in words:  # read before any command is
        place = words.index("--import")
        del words[place : place + 2]
    name, arguments = _resolve(words)
    if name in _OVERRIDING:
        keys = {field["key"] for section in form()["sections"] for field in section["fields"]}
        for key in _settings(arguments):
            assert key in keys or key.startswith("aggregation.smoothed."), f"{command!r}: no key {key}"


def _resolve(words: list[str]) -> tuple[str, list[str]]:
    """Walks down to the command and lets it read its words, without running it."""
    command: Any = typer.main.get_command(app_for(*COMMANDS))
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
