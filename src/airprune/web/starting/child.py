"""`airprune …` that stops as by Ctrl-C when its standard input ends.

The server that started it holds the other end: it closes it to stop the run, and if the server goes, however that
happens, the system does.
"""

from __future__ import annotations

import os
import signal
import sys
import threading


def main() -> int:
    # A server in the background of a shell script ignores Ctrl-C, and so would we.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=_stop_with_stdin, daemon=True).start()
        from airprune.cli import main as airprune

        return airprune()
    except KeyboardInterrupt:  # before the command was ready for it
        return 130


def _stop_with_stdin() -> None:
    while os.read(0, 1_024):  # not sys.stdin, whose lock would be held when Python ends
        pass
    # To the main thread itself, so that it wakes from whatever it waits for.
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
