"""Processes that tests start warm are to a test what `subprocess` starts cold."""

import os
import signal
import subprocess
import sys

import pytest

from support.warm import Forked

TELLS = """
import os, sys
print(sys.argv, __name__, os.getcwd(), os.environ["COLOUR"], os.getsid(0) == os.getpid(), sys.stdin.read())
print(sorted(int(n) for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")), file=sys.stderr)
"""
LEAVES = "import atexit, threading; atexit.register(print, 'last'); threading.Timer(0.01, print, ['first']).start()"
PIPES = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (TELLS, 0),
        (TELLS + "sys.exit(7)", 7),
        (TELLS + "sys.exit('no')", 1),
        (TELLS + "os.kill(os.getpid(), 15)", -signal.SIGTERM),
        (LEAVES, 0),
    ],
)
def test_words_streams_folder_environment_and_status_are_those_of_a_cold_start(tmp_path, code, status):
    ends = []
    for start in (subprocess.Popen, Forked):
        kept, line = os.pipe()
        process = start(
            [sys.executable, "-c", code, "a", "b c"],
            cwd=tmp_path,
            env={**os.environ, "COLOUR": "dark red"},
            pass_fds=[line],
            start_new_session=True,
            **PIPES,
        )
        out, err = process.communicate("given", timeout=60)
        ends.append((process.returncode, out, err.replace(str(line), "line")))
        os.close(kept), os.close(line)
    assert ends[0] == ends[1] and ends[0][0] == status


def test_a_signal_reaches_it_and_waiting_for_it_is_bounded():
    process = Forked([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"], **PIPES)
    process.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.01)
    assert process.poll() is None and process in Forked.living
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL and process not in Forked.living


def test_an_error_is_shown_and_is_status_1():
    process = Forked([sys.executable, "-c", "raise ArithmeticError('no more sums')"], **PIPES)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and err.count("Traceback") == 1 and err.endswith("ArithmeticError: no more sums\n")


def test_it_has_imported_torch_before_it_is_asked():
    process = Forked([sys.executable, "-c", "import sys; sys.exit('torch' in sys.modules)"])
    assert process.wait(timeout=60) == 1
