"""Given to `airprune web --import`: a scheme that takes $SLOW_SCHEME_S, or 1, for many devices, like a huge fleet."""

import os
import time

import airprune as ap
from airprune.planning.schemes.equal_resolved import EqualResolved

TAKES_S = float(os.environ.get("SLOW_SCHEME_S", "1"))


class Slow(EqualResolved):
    name = "slow"
    summary = "for tests of the web page"

    def allocate(self, problem):
        if problem.num_devices > 20_000:
            time.sleep(TAKES_S)
        return super().allocate(problem)


ap.register(Slow)
