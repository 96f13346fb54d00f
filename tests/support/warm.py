"""Real processes that start warm: forked from one that has imported torch, Dask and the command line already.

`Forked` is `subprocess.Popen` for commands of Python: the same words, pipes, signals and exit status, without the
seconds of importing. Processes that tests look up in /proc by their words, that have another environment of Python, or
whose way of importing is the claim are started cold, by `subprocess`.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import gc
import io
import itertools
import os
import pickle
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any, ClassVar, NoReturn

IMPORTED = (
    "torch",
    "distributed",
    "matplotlib.pyplot",
    "rich.progress",
    "airprune.cli.compare",
    "airprune.cli.run",
    "airprune.engines.cluster.engine",
    "airprune.engines.cluster.tasks",
    "airprune.rounds.device",
    "airprune.rounds.training.worker",
    "airprune.results.report",
    "airprune.runs",
)
# The libraries read these when they are loaded: there must be no thread before the fork, and workers have one each.
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MOST_BYTES, _MOST_FDS = 200_000, 16


class Forked(subprocess.Popen):
    """`Forked([sys.executable, "-m" MODULE | "-c" CODE | FILE, …])` or `Forked([PROGRAM OF PYTHON, …])`."""

    living: ClassVar[weakref.WeakSet[Forked]] = weakref.WeakSet()  # or not found to have ended yet

    def _execute_child(
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell, p2cread,
        p2cwrite, c2pread, c2pwrite, errread, errwrite, restore_signals, gid, gids, uid, umask, start_new_session,
        process_group,
    ) -> None:  # fmt: skip
        ended, told = os.pipe()
        streams = [given if given != -1 else own for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        asked = {
            "words": [str(word) for word in args],
            "folder": str(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "session": start_new_session,
            "group": process_group,
            "numbers": [0, 1, 2, *pass_fds],
        }
        descriptors = array.array("i", [told, *streams, *pass_fds])
        try:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)
            nursery().sendmsg([pickle.dumps(asked)], [rights])
        finally:
            os.close(told)
            self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        self._ended = os.fdopen(ended, "rb", buffering=0)
        self.pid = int(self._told())
        self._child_created = True
        self.living.add(self)

    def _told(self) -> bytes:
        told = self._ended.read(12)
        assert told, "the process that others are forked from has died"
        return told

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._wait(timeout=0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        with self._waitpid_lock:
            if self.returncode is None:
                line = select.poll()
                line.register(self._ended, select.POLLIN)
                if not line.poll(None if timeout is None else 1000 * timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout)
                self.returncode = int(self._told())
                self._ended.close()
                self.living.discard(self)
        return self.returncode


@functools.cache
def nursery() -> socket.socket:
    """The line to the process that others are forked from; it leaves when this one has ended."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    tests = str(Path(__file__).resolve().parents[1])
    code = f"import sys; sys.path.insert(0, {tests!r}); from support.warm import serve; serve({theirs.fileno()})"
    with theirs:
        subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1")},
        ).returncode = 0  # nobody waits for it
    return ours


def serve(descriptor: int) -> None:
    """Forks whatever is asked for, and tells how it ends."""
    for name in IMPORTED:
        __import__(name)
    sys.path.pop(0)
    gc.freeze()  # what is never looked at is never copied
    line = socket.socket(fileno=descriptor)
    heard, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    waiting: dict[int, int] = {}
    poll = select.poll()
    poll.register(line, select.POLLIN)
    poll.register(heard, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready == heard:
                os.read(heard, 4096)
                for pid, told in _ended(waiting):
                    with contextlib.suppress(BrokenPipeError):
                        os.write(told, b"%12d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                    os.close(told)
                continue
            message, descriptors, _, _ = socket.recv_fds(line, _MOST_BYTES, _MOST_FDS)
            if not message:  # the tests have ended, and so does what they left
                for pid in waiting:
                    os.kill(pid, signal.SIGKILL)
                return
            told, *given = descriptors
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                become(given=given, **pickle.loads(message))
            waiting[pid] = told
            os.write(told, b"%12d" % pid)
            for number in given:
                os.close(number)


def _ended(waiting: dict[int, int]) -> list[tuple[int, int]]:
    """Those who have ended, and whom to tell."""
    found = []
    for pid in list(waiting):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            found.append((pid, waiting.pop(pid)))
    return found


def become(
    *,
    words: list[str],
    folder: str,
    environment: dict[str, str],
    session: bool,
    group: int | None,
    numbers: list[int],
    given: list[int],
) -> NoReturn:
    """Makes the present process what the command would be, and runs it."""
    if session:
        os.setsid()
    elif group is not None and group >= 0:
        os.setpgid(0, group)
    _take(dict(zip(numbers, given, strict=True)))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for path in reversed(environment.get("PYTHONPATH", "").split(os.pathsep)):
        if path not in sys.path:
            sys.path.insert(0, path)
    sys.stdin = os.fdopen(0, closefd=False, encoding="utf-8")
    sys.stdout = _stream(1, "strict", line_buffering=os.isatty(1))
    sys.stderr = _stream(2, "backslashreplace", line_buffering=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    _leave(_status_of(words))


def _stream(number: int, errors: str, *, line_buffering: bool) -> io.TextIOWrapper:
    """As Python opens its own, after the environment of the command."""
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = os.fdopen(number, "wb", buffering=0 if at_once else -1, closefd=False)
    return io.TextIOWrapper(raw, "utf-8", errors, line_buffering=line_buffering, write_through=at_once)


def _status_of(words: list[str]) -> int:
    program, *rest = words
    try:
        if program == sys.executable:
            _run_python(rest)
        else:
            sys.argv = words
            runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _leave(status: int) -> NoReturn:
    """As Python leaves, but for taking apart every module that was imported: a second of work, on copied pages."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 255)


def _take(wanted: dict[int, int]) -> None:
    """{number: the descriptor that is to have it}; all others are closed."""
    above = 1 + max((*wanted, *wanted.values()))
    aside = {}
    for number, descriptor in wanted.items():
        aside[number] = above
        os.dup2(descriptor, above)
        above += 1
    for number, descriptor in aside.items():
        os.dup2(descriptor, number, inheritable=True)
    kept = sorted((*wanted, os.sysconf("SC_OPEN_MAX")))
    for low, high in itertools.pairwise(kept):
        os.closerange(low + 1, high)


def _run_python(words: list[str]) -> None:
    is_safe = words[0] == "-P"
    kind, *rest = words[1:] if is_safe else words
    if kind in ("-c", "-m"):
        sys.argv = [kind, *rest[1:]]
        if not is_safe:
            sys.path.insert(0, "" if kind == "-c" else str(Path.cwd()))
        if kind == "-m":
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        else:
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [kind, *rest]
        if not is_safe:
            sys.path.insert(0, str(Path(kind).parent))
        runpy.run_path(kind, run_name="__main__")
