"""Is this tree faster than another commit? `scripts/bench [BASE] [--turns 3] [--data NAME]`

`training.py --measure` of the present tree runs on a checkout of BASE (default: HEAD) and on the present tree in turns,
so that a change of the machine's speed meets both. Printed are the medians, and present ÷ base of each turn as its
median and range; above 1 is faster for speeds, below 1 for times. What only the present tree measures comes first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from yardstick import ROOT, checkout, give_kernel


def measured(tree: Path, options: list[str]) -> dict[str, float]:
    """What a tree's own benchmark finds: modules may have moved between two trees."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(tree / "benchmarks" / "training.py"), "--measure", *options]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"The benchmark failed on {tree} (exit {done.returncode}); see above.")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.splitlines()[0])
    parser.add_argument("base", nargs="?", default="HEAD", help="commit to compare the present tree with")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--data", help="of which data set the images are; random ones if it is left out")
    options = parser.parse_args()
    images = [] if options.data is None else ["--data", options.data]
    if options.turns < 1:
        parser.error(f"--turns must be ≥ 1, got {options.turns}")
    command = ["git", "rev-parse", "--verify", "--quiet", f"{options.base}^{{commit}}"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    if not commit:
        parser.error(f"BASE must name a commit, got {options.base}; `git log --oneline` lists them")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        tree = Path(folder) / "tree"
        checkout(commit, tree)
        give_kernel(tree)
        turns = [(measured(tree, images), measured(ROOT, images)) for _ in range(options.turns)]
    print(f"{'':38}{'base':>9}{'present':>9}   present ÷ base, median of {options.turns} (range)")
    for name in [name for name in turns[0][1] if name not in turns[0][0]]:
        present = statistics.median(turn[1][name] for turn in turns)
        print(f"{name:38}{'–':>9}{present:>9{',.0f' if present > 100 else '.3f'}}")
    for name in [name for name in turns[0][0] if name in turns[0][1]]:
        base, present = (statistics.median(turn[which][name] for turn in turns) for which in (0, 1))
        ratios = [turn[1][name] / turn[0][name] for turn in turns]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        unit = ",.0f" if base > 100 else ".3f"
        print(f"{name:38}{base:>9{unit}}{present:>9{unit}}   {spread}")


if __name__ == "__main__":
    main()
