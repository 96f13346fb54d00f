"""The one run at work: a process of its own, stopped cleanly by the page or with the server."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from starlette.requests import Request

from airprune.errors import WorkFailed
from airprune.methods.registration import import_words

STOPPED = 130  # the command line's exit status after Ctrl-C
PATIENCE_S = 1.5

_TAIL_BYTES = 8_000
_TAIL_LINES = 15


@dataclass(eq=False)
class _Process:
    """A run's process; `errors` is what it writes to stderr."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    is_stopping: bool = False
    is_cleared: bool = False

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def ask_to_stop(self) -> None:
        self.is_stopping = True
        with contextlib.suppress(OSError):
            if self.process.stdin is not None:
                self.process.stdin.close()

    def kill(self) -> None:
        """Loses the round in progress and nothing else; its workers leave with it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def clear(self) -> None:
        """After its end: takes away what it leaves behind besides its run folder."""
        if self.is_cleared:
            return
        from airprune.runs.layout import RunFolder

        self.is_cleared = True
        self.ask_to_stop()
        with contextlib.suppress(OSError):  # a folder in which no run came about
            left = {entry.name for entry in self.folder.iterdir()}
            if left <= {".lock", ".scratch"} and not RunFolder(self.folder).is_running:
                shutil.rmtree(self.folder)

    def last_words(self) -> str:
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, size - _TAIL_BYTES))
        lines = self.errors.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


class Work:
    """At most one run at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: _Process | None = None

    def start(self, folder: Path, name: str, toml: str) -> None:
        """A new run of this scenario in `folder`, which must not exist."""
        with self._lock:
            self._check_idle()
            try:
                folder.parent.mkdir(parents=True, exist_ok=True)
                folder.mkdir()
            except FileExistsError:
                raise WorkFailed(f"{name} is there already; choose another name, or resume it.") from None
            except OSError as error:
                raise WorkFailed(f"{name} cannot be made: {error.strerror}.") from None
            with tempfile.TemporaryFile() as scenario:  # without a name: it goes with the last who has it open
                scenario.write(toml.encode())
                scenario.seek(0)
                words = [f"/dev/fd/{scenario.fileno()}"]
                self._latest = _launched(folder, name, words, pass_fds=[scenario.fileno()])

    def resume(self, folder: Path, name: str) -> None:
        with self._lock:
            self._check_idle()
            self._latest = _launched(folder, name, [str(folder / "scenario.toml"), "--resume"])

    def _check_idle(self) -> None:
        if self._latest is None:
            return
        if self._latest.is_running:
            raise WorkFailed(f"One run at a time: {self._latest.name} is at work; wait for it or stop it.")
        self._latest.clear()
        self._latest.errors.close()
        self._latest = None

    def stop(self) -> None:
        """Asks the run to stop as by Ctrl-C; asked again, ends it at once."""
        with self._lock:
            latest = self._latest
            if latest is None or not latest.is_running:
                raise WorkFailed("No run is at work that was started here.")
            if latest.is_stopping:
                latest.kill()
            else:
                latest.ask_to_stop()

    def status(self) -> dict[str, Any]:
        """{state: idle, running, stopping or ended; name, exit_status, said: its last words if it failed}."""
        with self._lock:
            latest = self._latest
            if latest is None:
                return {"state": "idle", "name": None, "exit_status": None, "said": ""}
            if latest.is_running:
                state = "stopping" if latest.is_stopping else "running"
                return {"state": state, "name": latest.name, "exit_status": None, "said": ""}
            latest.clear()
            status = latest.process.returncode
            said = latest.last_words() if status not in (0, STOPPED) else ""
            return {"state": "ended", "name": latest.name, "exit_status": status, "said": said}

    def close(self) -> None:
        """Stops the run, cleanly if it lets itself be stopped in time."""
        with self._lock:
            latest, self._latest = self._latest, None
            if latest is None:
                return
            latest.ask_to_stop()
            try:
                latest.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                latest.kill()
                latest.process.wait()
            latest.clear()
            latest.errors.close()


def _launched(folder: Path, name: str, words: list[str], *, pass_fds: Sequence[int] = ()) -> _Process:
    errors = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the run
    # -P: a module of the same name in the working directory must not take the package's place.
    command = [sys.executable, "-P", "-m", "airprune.web.starting.child", "run", *words, "--out", str(folder)]
    command += import_words()
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except OSError as error:
        errors.close()
        with contextlib.suppress(OSError):  # a resumed run's folder is not empty and stays
            folder.rmdir()
        raise WorkFailed(f"{name} cannot be started: {error.strerror}.") from error
    return _Process(name, folder, process, errors)


def work_of(request: Request) -> Work:
    """The work of the server that a request came to."""
    work: Work = request.app.state.work
    return work
