"""The command line: one file per command, each a thin rim over the Python calls.

Results go to stdout and nothing else does; messages and progress go to stderr. Exit status 0 is success, 1 means that
the work failed or has no solution, 2 that the request was wrong, 130 that Ctrl-C stopped it.
"""

from __future__ import annotations

from airprune.cli.stopping import leave_at_ctrl_c

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit status; without arguments the command that this process was started as."""
    if arguments is None:
        leave_at_ctrl_c()  # before anything that takes time to import
    from airprune.cli.app import run_command

    return run_command(arguments)
