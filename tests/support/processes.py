"""Commands run as a user runs them, and a look at which of their worker processes are alive."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support.warm import Forked

AIRPRUNE = str(Path(sys.executable).with_name("airprune"))
_WITH_TORCH = ("run", "compare", "sweep", "advise")
PATIENCE_S = 120  # of tests on a busy machine; nothing is expected to take that long


def airprune(*arguments: object, input: str | None = None, **options) -> subprocess.CompletedProcess:
    """One command to its end."""
    command = [AIRPRUNE, *map(str, arguments)]
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with _starter(command, options)(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    ) as process:
        try:
            out, err = process.communicate(input, timeout=PATIENCE_S)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def start_airprune(*arguments: object, **options) -> subprocess.Popen:
    """One command in a process group of its own, as a shell starts it."""
    command = [AIRPRUNE, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return _starter(command, options)(command, text=True, start_new_session=True, **{**pipes, **options})


def _starter(command: list[str], options: dict) -> type[subprocess.Popen]:
    """What imports torch starts warm, unless it is to begin in its own way."""
    return Forked if command[1] in _WITH_TORCH and not {"env", "preexec_fn"} & set(options) else subprocess.Popen


def start_module(module: str, *arguments: object) -> subprocess.Popen:
    """`python -m MODULE` of the tests in a session of its own; its errors go where the tests' own go."""
    tests = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, start_new_session=True)


def kill(process: subprocess.Popen) -> None:
    """kill -9 of this process alone."""
    process.send_signal(signal.SIGKILL)
    process.communicate(input, timeout=PATIENCE_S)


def kill_session(process: subprocess.Popen) -> None:
    """kill -9 of a process that was started in a session of its own, and of all that it has started."""
    for pid in session_of(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=PATIENCE_S)
    wait_for(lambda: not session_of(process.pid), "a killed session should be gone")


def session_of(leader: int) -> list[int]:
    """Living processes of a session, its leader first: also those in process groups of their own, as workers are."""
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    members = [pid for pid in found if is_alive(pid) and _status(pid)[3:4] == [str(leader)]]
    return sorted(members, key=lambda pid: (pid != leader, pid))


def workers_of(driver: int) -> list[int]:
    """Living worker processes whose parent is `driver`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _parent(int(entry.name)) == driver and _is_worker(int(entry.name)):
            found.append(int(entry.name))
    return sorted(found)


def is_alive(pid: int) -> bool:
    """Whether the process is still running; one that only waits to be collected is not."""
    status = _status(pid)
    return bool(status) and status[0] not in "ZX"


def wait_for(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"timed out: {what}"
        time.sleep(0.005)


def wait_until_gone(pids: list[int]) -> None:
    wait_for(lambda: not any(map(is_alive, pids)), f"workers {pids} should leave by themselves", patience_s=5)


def _status(pid: int) -> list[str]:
    """State, parent and the rest of /proc/PID/stat; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int:
    status = _status(pid)
    return int(status[1]) if status and status[0] not in "ZX" else -1


def _is_worker(pid: int) -> bool:
    try:
        return b"worker_process.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def this_process_workers() -> list[int]:
    """Those that were started warm too, whose parent is another process."""
    warm = [process.pid for process in Forked.living if "worker_process.py" in " ".join(process.args)]
    return workers_of(os.getpid()) + [pid for pid in warm if is_alive(pid)]
