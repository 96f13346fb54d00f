"""Results that come with the package, shown before anything is run: those of the documentation's tables.

`recorded.json` is made from docs/promise.md, docs/reproduction.md and docs/league-results.md by
`tools/recorded_results.py`; a test compares.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from importlib import resources
from typing import Any

from airprune.studies.claims import Verdict

_INTERVAL = re.compile(r"([−+-]?[\d.]+)(?: ± ([\d.]+))?")
_WORDS = ("rank", "method", "origin")


@functools.cache
def _results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((resources.files("airprune.web") / "recorded.json").read_text("utf-8"))
    return found


def overview() -> dict[str, Any]:
    """Returns the price in accuracy, the verdicts and the first rows of the league's standings."""
    claims = reproduction()
    division = league()["divisions"][0]
    return {
        "prices": prices(),
        "about_prices": _results()["promise"]["about"].rstrip(":"),
        "verdicts": claims["verdicts"],
        "num_claims": claims["num_claims"],
        "exceptions": [claim for claim in claims["claims"] if claim["verdict"]["word"] != Verdict.HOLDS.value],
        "about_reproduction": claims["profile"],
        "league": division,
        "about_league": league()["note"],
    }


def prices() -> list[dict[str, Any]]:
    """Returns each method's tuned accuracy, its difference to no pruning, and its costs on all links."""
    header, *rows = _results()["promise"]["rows"]
    return [_price(dict(zip(header, row, strict=True))) for row in rows]


def _price(row: dict[str, str]) -> dict[str, Any]:
    difference = _INTERVAL.fullmatch(row["difference to no pruning"])
    return {
        "method": row[""],
        "accuracy": row["accuracy %"],
        "difference": row["difference to no pruning"],
        "points": float(difference[1].replace("−", "-")) if difference else None,
        "half_width": float(difference[2]) if difference and difference[2] else None,
        "rate": row["learning rate"],
        "time": row["time s"],
        "bits": row["Mbit, all links"],
        "energy": row["energy J"],
    }


def reproduction() -> dict[str, Any]:
    """Returns the shape of a reproduction folder's view, without figures and tables."""
    found = _results()["reproduction"]
    counts = Counter(claim["verdict"] for claim in found["claims"])
    return {
        "name": None,
        "profile": found["about"],
        "claims": _claims(found),
        "num_claims": len(found["claims"]),
        "verdicts": [verdict.as_json(counts[verdict]) for verdict in Verdict],
        "pictures": [],
        "tables": [],
    }


def _claims(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**claim, "verdict": Verdict(claim["verdict"]).as_json(1), "numbers": []} for claim in found["claims"]]


def league() -> dict[str, Any]:
    """Returns the shape of a league folder's view, without figures."""
    found = _results()["league"]
    divisions = [
        {**division, "tables": [_table(table) for table in division["tables"]], "picture": None}
        for division in found["divisions"]
    ]
    return {
        "name": None,
        "note": found["about"],
        "is_readable": True,
        "divisions": divisions,
        "claims": _claims(found),
        "files": [],
    }


def _table(table: dict[str, Any]) -> dict[str, Any]:
    return {**table, "words": [i for i, name in enumerate(table["header"]) if name in _WORDS]}
