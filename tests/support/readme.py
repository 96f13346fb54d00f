"""The bash blocks of README.md, run command by command in a copy of the checkout, as somebody new would.

What takes long, needs a network or never ends has a row in TREATMENTS; a command without a row is an error, so that
nothing is left out unseen.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.processes import wait_for

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = {".git", ".venv", "runs", "reproduction", ".yardstick", ".hypothesis", "build", "dist"}  # at the top
# A size of training at which every command ends within seconds.
SMALL = "data.train_samples=400 data.test_samples=100 rounds.global_rounds=1 rounds.edge_rounds=1"
GLYPHS = f"data.name=glyphs model.name=mlp {SMALL} --engine serial"
QUICK, FULL = "quick", "full"


@dataclass(frozen=True)
class Treatment:
    """How a command of the README is run here.

    Attributes:
      quick, full: the command that is run in its place, made from it.
      answers: it never ends; it is asked at the address it prints, then stopped with Ctrl-C.
      why_not: why it is not run at all; empty if it is.
    """

    quick: Callable[[str], str] = str
    full: Callable[[str], str] = str
    answers: bool = False
    why_not: str = ""


def adding(words: str) -> Callable[[str], str]:
    return lambda command: f"{command} {words}"


def here(words: str) -> Callable[[str], str]:
    """On this machine in place of somebody's cluster, over two seeds."""

    def changed(command: str) -> str:
        local = re.sub(r" --(scheduler|tls) \S+", "", command)
        return re.sub(r"(--seeds |seed=)0-[0-9]+", r"\g<1>0-1", local) + f" {words}"

    return changed


def only_table_2(command: str) -> str:
    return re.sub(r"\ball\b", "table2", command)


# The first row whose pattern matches the whole command counts.
TREATMENTS: dict[str, Treatment] = {
    r"scripts/demo": Treatment(quick=adding(GLYPHS)),
    r"scripts/test": Treatment(quick=adding("-n 0 tests/test_units.py"), full=adding("tests/test_units.py")),
    r"source \.venv/bin/activate": Treatment(),
    r"cat > \S+ <<.*": Treatment(),
    r"airprune (plan|scenarios|schemes|methods|report|doctor)\b.*": Treatment(),
    r"airprune web\b.*": Treatment(answers=True),
    r"airprune run smoke": Treatment(quick=adding("rounds.global_rounds=1 --engine serial")),
    r"airprune (run|compare|sweep) .*": Treatment(quick=here(GLYPHS), full=here(SMALL)),
    r"airprune advise .*": Treatment(quick=adding(f"{GLYPHS} --rounds 1"), full=adding(f"{SMALL} --rounds 1")),
    r"airprune deploy demo": Treatment(quick=adding(f"model.name=mlp {SMALL}"), full=adding(SMALL)),
    r"airprune reproduce all\b.*": Treatment(quick=only_table_2, full=only_table_2),  # all of it takes ten minutes
}


def treatment_of(command: str) -> Treatment:
    for pattern, treatment in TREATMENTS.items():
        if re.fullmatch(pattern, command, re.DOTALL):
            return treatment
    raise LookupError(f"README.md has {command!r}; give it a row in TREATMENTS of tests/support/readme.py")


def commands(text: str) -> list[str]:
    """Every command of the bash blocks in order, without its comment."""
    blocks = re.findall(r"^```(?:bash|sh|shell|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [command for block in blocks for command in _split(block)]


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
        script = self._script(f"{command}\nexport -p >'{self._state}'\npwd >'{self._folder}'")
        done = subprocess.run(script, env=self._environment, capture_output=True, text=True, timeout=timeout_s)
        printed = f"{done.stdout}\n{done.stderr}"
        assert done.returncode == 0 and "Traceback" not in printed, f"{command}\n{printed}"
        return printed

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


def follow(text: str, shell: Shell, *, variant: str, timeout_s: float) -> None:
    """Runs every command of a README as its treatment says."""
    for command in commands(text):
        treatment = treatment_of(command)
        if not treatment.why_not:
            shown = (treatment.quick if variant == QUICK else treatment.full)(command)
            (shell.ask if treatment.answers else shell.run)(shown, timeout_s=timeout_s)


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
