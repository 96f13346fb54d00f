"""The blocks of README.md, run one by one in a copy of the checkout, as somebody new would.

What takes long, needs a network or never ends has a row in TREATMENTS; a command without a row is an error, so that
nothing is left out unseen. A Python block is run as well, and what it prints compared with the block that follows.

As a program (scripts/readme): in a clone, with an environment of its own, at the sizes quick, full or printed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.processes import wait_for

ROOT = Path(__file__).resolve().parents[1]
NOT_COPIED = {".git", ".venv", "runs", "reproduction", ".yardstick", ".hypothesis", "build", "dist"}  # at the top
# A size of training at which every command ends within seconds.
SMALL = "data.train_samples=400 data.test_samples=100 rounds.global_rounds=1 rounds.edge_rounds=1"
# The paper's CNN stays: its own kernel serves it, and no command has to import torch.
GLYPHS = f"data.name=glyphs {SMALL} --engine serial"
QUICK, FULL, PRINTED = "quick", "full", "printed"
SNIPPET = "python3 - <<'SNIPPET'"


@dataclass(frozen=True)
class Treatment:
    """How a command of the README is run here.

    Attributes:
      quick, full: the command that is run in its place, made from it, so that it ends within seconds or minutes.
      printed: the same where what is printed is to be run: itself, unless this machine cannot do it.
      why: what it is run otherwise for.
      answers: it never ends; it is asked at the address it prints, then stopped with Ctrl-C.
      why_not: why it is not run at all; empty if it is.
    """

    quick: Callable[[str], str] = str
    full: Callable[[str], str] = str
    printed: Callable[[str], str] = str
    why: str = ""
    answers: bool = False
    why_not: str = ""


def adding(words: str) -> Callable[[str], str]:
    return lambda command: f"{command} {words}"


def here(words: str) -> Callable[[str], str]:
    """On this machine in place of somebody's cluster, over two seeds."""

    def changed(command: str) -> str:
        return re.sub(r"(--seeds |seed=)0-[0-9]+", r"\g<1>0-1", local(command)) + f" {words}"

    return changed


def local(command: str) -> str:
    return re.sub(r" --(scheduler|tls) \S+", "", command)


def only_table_2(command: str) -> str:
    return re.sub(r"\ball\b", "table2", command)


# The first row whose pattern matches the whole command counts.
TREATMENTS: dict[str, Treatment] = {
    r"scripts/demo": Treatment(quick=adding(GLYPHS), why="small"),
    r"scripts/test": Treatment(
        quick=adding("-n 0 tests/wireless/test_units.py"),
        full=adding("tests/wireless/test_units.py"),
        why="one file of tests",
    ),
    r"source \.venv/bin/activate": Treatment(),
    r"cat > \S+ <<.*": Treatment(),
    r"airprune (plan|scenarios|schemes|methods|report|doctor|reproduce table2)\b.*": Treatment(),
    r"airprune web\b.*": Treatment(answers=True),
    r"airprune run smoke": Treatment(),
    r"airprune run smoke .*": Treatment(quick=adding("rounds.global_rounds=1 --engine serial"), why="one round"),
    r"airprune sweep .*--scheduler.*": Treatment(
        quick=here(GLYPHS), full=here(SMALL), printed=here(""), why="here, since the cluster is an example; two seeds"
    ),
    r"airprune (run|compare|sweep) .*": Treatment(quick=here(GLYPHS), full=here(SMALL), why="small"),
    r"airprune advise .*": Treatment(
        quick=adding(f"{GLYPHS} --rounds 1"), full=adding(f"{SMALL} --rounds 1"), why="small"
    ),
    r"airprune deploy demo": Treatment(quick=adding(SMALL), full=adding(SMALL), why="small"),
    r"airprune reproduce all\b.*": Treatment(quick=only_table_2, full=only_table_2, why="all takes an hour"),
    re.escape(SNIPPET) + ".*": Treatment(),
}


def treatment_of(command: str) -> Treatment:
    for pattern, treatment in TREATMENTS.items():
        if re.fullmatch(pattern, command, re.DOTALL):
            return treatment
    raise LookupError(f"README.md has {command!r}; give it a row in TREATMENTS of tools/readme.py")


def commands(text: str) -> list[str]:
    """Every command of the bash blocks in order, without its comment."""
    blocks = re.findall(r"^```(?:bash|sh|shell|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [command for block in blocks for command in _split(block)]


@dataclass(frozen=True)
class Step:
    """One thing that a README tells to do: a command, and what it must print if that is told too."""

    command: str
    printed: str | None = None


def steps(text: str) -> list[Step]:
    """Returns commands and Python blocks in order; a block of text after one is what its last command prints."""
    found: list[Step] = []
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for (kind, block), (next_kind, next_block) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        printed = next_block if next_kind == "text" else None
        if kind in ("bash", "sh", "shell", "console"):
            *first, last = _split(block)
            found += [*(Step(command) for command in first), Step(last, printed)]
        elif kind == "python":
            found.append(Step(f"{SNIPPET}\n{block}SNIPPET", printed))
    return found


def _split(block: str) -> list[str]:
    """A command is a line, with the lines that a backslash or a here-document adds."""
    found: list[str] = []
    lines = iter(block.splitlines())
    for line in lines:
        parts = [line]
        if here := re.search(r"<<-?\s*['\"]?(\w+)", line):
            for inner in lines:
                parts.append(inner)
                if inner.strip() == here[1]:
                    break
        while parts[-1].endswith("\\"):
            parts.append(next(lines))
        parts[0] = re.sub(r"(^|\s+)#\s.*$", "", parts[0])
        if command := "\n".join(parts).strip():
            found.append(command)
    return found


class Shell:
    """Commands one after the other in a bare environment; variables and folder carry over, as in a terminal."""

    def __init__(self, checkout: Path, scratch: Path, **variables: str) -> None:
        self._state, self._folder = scratch / "variables", scratch / "folder"
        self._state.write_text("")
        self._folder.write_text(f"{checkout}\n")
        home = scratch / "home"
        home.mkdir()
        python = Path(sys.base_prefix) / "bin"
        self._environment = {"HOME": str(home), "PATH": f"{python}:/usr/bin:/bin", "LANG": "C.UTF-8", **variables}
        self._output = scratch / "output"

    def run(self, command: str, *, timeout_s: float) -> str:
        """The command to its end; what it printed. Raises AssertionError if it fails."""
        return "\n".join(self.outputs(command, timeout_s=timeout_s))

    def outputs(self, command: str, *, timeout_s: float) -> tuple[str, str]:
        """The command to its end; what went to stdout and to stderr. Raises AssertionError if it fails."""
        script = self._script(f"{command}\nexport -p >'{self._state}'\npwd >'{self._folder}'")
        done = subprocess.run(script, env=self._environment, capture_output=True, text=True, timeout=timeout_s)
        assert done.returncode == 0 and "Traceback" not in done.stdout + done.stderr, (
            f"{command}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout, done.stderr

    def ask(self, command: str, *, timeout_s: float) -> None:
        """Starts the command, opens the address that it prints, and stops it with Ctrl-C."""
        with self._output.open("w") as output:
            process = subprocess.Popen(
                self._script(command), env=self._environment, stdout=output, stderr=output, start_new_session=True
            )
        try:
            wait_for(lambda: process.poll() is not None or self._address() is not None, command, timeout_s)
            address = self._address()
            assert address, f"{command}\n{self._printed()}"
            with urllib.request.urlopen(address[1], timeout=timeout_s) as answer:
                assert answer.status == 200
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=timeout_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        ended = process.returncode in (0, 128 + signal.SIGINT)
        assert ended and "Traceback" not in self._printed(), f"{command}\n{self._printed()}"

    def _address(self) -> re.Match[str] | None:
        return re.search(r"(http://\S+)\n", self._printed())

    def _script(self, command: str) -> list[str]:
        start = f"set -e -o pipefail\nsource '{self._state}'\ncd \"$(cat '{self._folder}')\""
        return ["bash", "--norc", "-c", f"{start}\n{command}"]

    def _printed(self) -> str:
        return self._output.read_text()


def follow(
    text: str, shell: Shell, *, variant: str, timeout_s: float, tell: Callable[[str], None] = lambda line: None
) -> None:
    """Does every step of a README as its treatment says, and compares what is told to be printed.

    Args:
      tell: is told of each step as it ends, and how it differs from what is written.
    """
    for step in steps(text):
        treatment = treatment_of(step.command)
        shown = step.command.split("\n")[0]
        if treatment.why_not:
            tell(f"left out  {shown}: {treatment.why_not}")
            continue
        command = getattr(treatment, variant)(step.command)
        started = time.monotonic()
        if treatment.answers:
            shell.ask(command, timeout_s=timeout_s)
        else:
            out, _ = shell.outputs(command, timeout_s=timeout_s)
            compared = step.printed if command == step.command else None
            assert compared is None or _legible(compared) == _legible(out), (
                f"{step.command}\nmust print\n{step.printed}\ngot\n{out}"
            )
        differs = f", {treatment.why}: {command}" if command != step.command else ""
        tell(f"{time.monotonic() - started:7.1f} s  {shown}{differs}{', prints what it says' if step.printed else ''}")


def _legible(text: str) -> list[str]:
    """Lines as a reader sees them: without blanks at their ends, or empty lines at the end."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def copy_checkout(folder: Path, *, built: bool) -> Path:
    """The checkout as somebody gets it; `built` takes the compiled kernel along."""
    others = shutil.ignore_patterns("__pycache__", ".*_cache", *(() if built else ("*.so", "*.egg-info")))

    def ignored(place: str, names: list[str]) -> set[str]:
        return others(place, names) | (NOT_COPIED & set(names) if Path(place) == ROOT else set())

    shutil.copytree(ROOT, folder, ignore=ignored)
    return folder


def borrow_environment(checkout: Path) -> None:
    """A .venv that looks as if the scripts of the checkout had set it up, made of links to the one of these tests."""
    own, theirs = checkout / ".venv", Path(sys.prefix)
    (own / "bin").mkdir(parents=True)
    for name in ("lib", "pyvenv.cfg"):
        (own / name).symlink_to(theirs / name)
    for program in (theirs / "bin").iterdir():
        if program.name == "activate":
            (own / "bin/activate").write_text(program.read_text().replace(str(theirs), str(own)))
        else:
            (own / "bin" / program.name).symlink_to(program)
    wanted = subprocess.run(
        ["bash", "-c", "source scripts/common; wanted"], cwd=checkout, capture_output=True, text=True, check=True
    )
    for script in (checkout / "scripts").iterdir():
        for extras in re.findall(r"^setup\b(.*)$", script.read_text(), re.MULTILINE):
            (own / f".installed-{'-'.join(extras.split())}").write_text(wanted.stdout)


def clone(folder: Path) -> Path:
    """What is committed, as somebody gets it."""
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


def fresh_shell(checkout: Path, scratch: Path) -> Shell:
    """A terminal of somebody who has nothing yet; how this machine reaches a package index is its own affair."""
    ways = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or "proxy" in name.lower()}
    shell = Shell(checkout, scratch, **ways)
    if (config := Path.home() / ".config/pip").is_dir():
        shutil.copytree(config, scratch / "home/.config/pip")
    return shell


def main() -> None:
    variant = sys.argv[1] if len(sys.argv) > 1 else FULL
    if variant not in (QUICK, FULL, PRINTED):
        sys.exit(f"The size must be {QUICK}, {FULL} or {PRINTED}, got {variant!r}.")
    with tempfile.TemporaryDirectory(prefix="airprune-readme-") as name:
        scratch = Path(name)
        checkout = clone(scratch / "airprune")
        readme = (checkout / "README.md").read_text()
        follow(readme, fresh_shell(checkout, scratch), variant=variant, timeout_s=7200, tell=_say)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
