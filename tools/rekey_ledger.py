"""Renames the runs of a league's ledger after the rule of `Scenario.hash` has changed: nothing is run again.

PYTHONPATH=src python tools/rekey_ledger.py LEDGER

Every line has a preset and the settings that differ from it, hence the scenario and its hash.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from airprune.studies.league.ledger import read_ledger, write_ledger


def rekey(ledger: Path) -> int:
    """Writes the ledger with the hashes that its scenarios have now; returns how many lines have changed."""
    lines, now, hashes = read_ledger(ledger).lines, [], dict[str, str]()
    for line in lines:
        if line.scenario not in hashes:
            hashes[line.scenario] = line.scenario_again().hash
        now.append(dataclasses.replace(line, scenario=hashes[line.scenario], run=hashes[line.scenario][:16]))
    if len(set(hashes.values())) < len(hashes):
        sys.exit("Two runs would have one name.")
    write_ledger(ledger, now)
    return sum(mine.run != line.run for mine, line in zip(now, lines, strict=True))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(f"{name}: {rekey(Path(name)):,} lines have changed\n")
