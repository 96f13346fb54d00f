"""Ctrl-C at moments at which no work is under way: no traceback, and the same exit status as ever."""

import signal
import subprocess
import sys

import pytest

from support.processes import PATIENCE_S

# Ctrl-C as soon as somebody looks for a module, or when Python ends.
PROGRAM = """
import atexit, os, signal, sys

def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {moment!r}:
            ctrl_c()

signal.signal(signal.SIGINT, signal.{handler})
sys.meta_path.insert(0, Finder())
if {moment!r} == "the end":
    atexit.register(ctrl_c)
sys.argv[1:] = ["schemes", "--json"]
{program}
"""
ENTRIES = {
    "the command airprune": "from airprune.cli import main; sys.exit(main())",
    "python -m airprune": "import runpy; runpy.run_module('airprune', run_name='__main__')",
}


def interrupted(entry: str, moment: str, *, handler: str = "default_int_handler") -> subprocess.CompletedProcess:
    code = PROGRAM.format(moment=moment, handler=handler, program=ENTRIES[entry])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("module", ["airprune.cli.app", "typer", "airprune.cli.schemes", "numpy"])
def test_ctrl_c_while_modules_are_imported_shows_no_traceback(entry, module):
    done = interrupted(entry, module)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stopped.\n")


@pytest.mark.parametrize("entry", ENTRIES)
def test_ctrl_c_when_all_is_done_loses_no_result(entry):
    done = interrupted(entry, "the end")
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "stopped.\n")
    assert done.stdout == interrupted(entry, "no module").stdout != ""


def test_ctrl_c_stays_ignored_where_it_was():
    done = interrupted("the command airprune", "typer", handler="SIG_IGN")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout
