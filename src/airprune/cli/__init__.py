"""The command line: one file per command, each a thin rim over the Python calls.

Results go to stdout and nothing else does; messages and progress go to stderr. Exit status 0 is success, 1 means that
the work failed or has no solution, 2 that the request was wrong.
"""

from airprune.cli.app import main

__all__ = ["main"]
