"""Renames what a league's ledger names its runs by, after that has changed: nothing is run again.

PYTHONPATH=src python tools/rekey_ledger.py LEDGER …                      after the rule of `Scenario.hash` has changed
PYTHONPATH=src python tools/rekey_ledger.py --commit LOST=NOW LEDGER …    after a commit has left the history

Every line has a preset and the settings that differ from it, hence the scenario and its hash. A line of a commit that
is not in the history any more names the one that has its code; the lost one stays as `where.lost_commit`. Before that,
`airprune league verify --sample` on those lines says whether the code of NOW makes the same runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path

from airprune.studies.league.ledger import Line, read_ledger, write_ledger


def rekey(ledger: Path, commits: Mapping[str, str] | None = None) -> int:
    """Writes the ledger with the hashes that its scenarios have now, and `commits`; returns the lines that changed."""
    lines, now, hashes = read_ledger(ledger).lines, [], dict[str, str]()
    for line in lines:
        if line.scenario not in hashes:
            hashes[line.scenario] = line.scenario_again().hash
        renamed = dataclasses.replace(line, scenario=hashes[line.scenario], run=hashes[line.scenario][:16])
        now.append(_at_commit(renamed, commits or {}))
    if len(set(hashes.values())) < len(hashes):
        sys.exit("Two runs would have one name.")
    write_ledger(ledger, now)
    return sum(mine != line for mine, line in zip(now, lines, strict=True))


def _at_commit(line: Line, commits: Mapping[str, str]) -> Line:
    lost = str(line.where.get("commit"))
    if lost not in commits:
        return line
    return dataclasses.replace(line, where={**line.where, "commit": commits[lost], "lost_commit": lost})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("ledgers", nargs="+", type=Path, metavar="LEDGER")
    parser.add_argument("--commit", action="append", default=[], metavar="LOST=NOW", help="whole hashes of commits")
    asked = parser.parse_args()
    commits = dict(one.split("=", 1) for one in asked.commit)
    for name in asked.ledgers:
        sys.stdout.write(f"{name}: {rekey(name, commits):,} lines have changed\n")


if __name__ == "__main__":
    main()
