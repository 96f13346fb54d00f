"""The page docs/claims.md: every claim, what it compares, its old and its new verdict, and why they differ.

.venv/bin/python tools/claims_table.py [--league LEAGUE_JSON] [--reproduction CLAIMS_JSON]

LEAGUE_JSON is `league.json` of `airprune league --claims`, CLAIMS_JSON is `claims.json` of `airprune reproduce all`.
Verdicts that are not given stay as the page has them; a claim without one, or of a source with fewer seeds than its
first look, is shown as not run yet. Old verdicts are in tools/old_verdicts.json, collected from the pages of league and
reproduction before the rules of docs/league.md applied.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from airprune.studies.claims.decision import SEQUENTIAL
from airprune.studies.league.claims import LeagueClaim
from airprune.studies.league.schedule import SCHEDULES
from airprune.studies.league.sources import CLAIMS
from airprune.studies.paper.reproduction import CLAIMS as PAPER_CLAIMS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/claims.md"
OLD = ROOT / "tools/old_verdicts.json"
NOT_RUN, UNDECIDED = "not run yet", "cannot be decided"
# How an effect is shown: factor, format and unit.
_UNITS = {
    "accuracy": (100.0, "+.1f", "points"),
    "loss": (1.0, "+.3f", "of loss"),
    "share saved": (100.0, "+.1f", "% saved"),
}
HEAD = "| claim | source | old verdict | verdict | seeds | effect | why it changed |\n|---|---|---|---|---|---|---|"
LEAGUE, PAPER, COMPARED = "league", "paper", "compared"
LEAD = """# Claims and their verdicts

Every claim that airprune judges: those of the methods' sources, by `airprune league --claims`, and those of the
paper, by `airprune reproduce all`. [Run a league](league.md#claims) has the rules: tuned arms, the source's own
comparison, a smallest effect that matters, 5, 10 or 20 seeds. The first two tables set each verdict beside the one that
came before these rules, and say why it changed. An effect is a difference in points of accuracy, or the share of a cost
that is saved, with its interval; of a claim of several parts, that of the first part that keeps it from holding. A
claim of a source is *not run yet* until all arms have five seeds; *so far* says that more seeds may decide it."""


def cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def effect_text(found: Mapping[str, Any]) -> str:
    """Returns the effect in points or percent with its interval, and δ."""
    effect, interval = found.get("effect"), found.get("interval")
    if effect is None:
        return "–"
    low, high = (interval or [None, None])[:2]
    scale, form, unit = _UNITS[found.get("unit") or "accuracy"]
    shown = [format(scale * value, form) if value is not None else "–" for value in (effect, low, high)]
    needed = found.get("seeds_needed")
    more = f"; about {needed:,} seeds would decide" if needed and found.get("verdict") == UNDECIDED else ""
    return f"{shown[0]} ({shown[1]} … {shown[2]}) {unit}, δ = {scale * found['delta']:.3g}{more}"


def row(name: str, where: str, old: Mapping[str, Any], found: Mapping[str, Any] | None, remark: str = "") -> str:
    """Returns the line of one claim; without a verdict, that it has not run yet."""
    verdict = NOT_RUN if found is None else f"**{found['verdict']}**" + _untuned(found) + remark
    seeds = "–" if found is None or found.get("seeds") is None else found["seeds"]
    effect = "–" if found is None else effect_text(found)
    why = old.get("why", "")
    if found is not None and found["verdict"] == old.get("verdict"):
        why = f"unchanged. {why}".strip()
    if found is not None and found["verdict"] == "not testable here":
        why = f"{why} {found['reason']}".strip()
    cells = (f"`{name}`", where, old.get("verdict", "–"), verdict, seeds, effect, why)
    return f"| {' | '.join(map(cell, cells))} |"


def _untuned(found: Mapping[str, Any]) -> str:
    return ", untuned" if found.get("tuned") is False else ""


def is_run(found: Mapping[str, Any] | None) -> bool:
    """False for a claim of a source whose runs are too few for its first look."""
    return found is not None and (found["verdict"] != UNDECIDED or (found.get("seeds") or 0) >= SEQUENTIAL.at[0])


def so_far(found: Mapping[str, Any]) -> str:
    """Returns a remark on a claim of which more seeds may decide all or a part, while those have not run."""
    is_last = not found.get("open") or (found.get("seeds") or 0) >= SEQUENTIAL.at[-1]
    return "" if is_last else f" so far: {found['seeds']} of {SEQUENTIAL.at[-1]} seeds"


def league_rows(found: Mapping[str, Mapping[str, Any]], old: Mapping[str, Any]) -> list[str]:
    names = {new: was for was, new in old["renamed"].items()}
    rows = []
    for claim in CLAIMS:
        mine = found.get(claim.name)
        known = mine if is_run(mine) else None
        before = old["league"].get(names.get(claim.name, claim.name), {})
        rows.append(row(claim.name, claim.where, before, known, so_far(known) if known else ""))
    return rows


def paper_rows(found: Mapping[str, Mapping[str, Any]], old: Mapping[str, Any]) -> list[str]:
    return [
        row(claim.name, claim.where, old["paper"].get(claim.name, {}), found.get(claim.name)) for claim in PAPER_CLAIMS
    ]


def comparisons(claims: Iterable[LeagueClaim]) -> str:
    """Returns the sentence of the source and what is compared, by claim."""
    base = SCHEDULES["default"].scenario()
    parts = []
    for claim in claims:
        arms = ", ".join(f"*{name}*" for name in claim.scenarios(base))
        differing = ", ".join(f"`{key}`" for key in claim.differs)
        parts.append(
            f"**`{claim.name}`** ({claim.where}). {claim.text}\n\n"
            f"- Source: {claim.statement}\n"
            f"- Its baseline: {claim.baseline}. Its assumption: {claim.assumption}. Its measure: {claim.measure}.\n"
            f"- Scene: {claim.scene.words}. Arms: {arms}; they differ in {differing}.\n"
        )
    return "\n".join(parts).rstrip()


def marked(name: str, text: str) -> str:
    return f"<!-- {name} -->\n{text}\n<!-- end {name} -->"


def kept(page: str, name: str) -> dict[str, str]:
    """Returns the lines of a table that the page has, by claim."""
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end {name} -->", page, re.DOTALL)
    lines = found.group(1).splitlines() if found else []
    return {match.group(1): line for line in lines if (match := re.match(r"\| `([a-z0-9-]+)` \|", line))}


def table(name: str, rows: list[str], page: str, has_new: bool) -> str:
    """Returns the table; a claim without a new verdict keeps the line that the page has, unless it had none."""
    lines = []
    before = kept(page, name)
    for line in rows:
        claim = re.match(r"\| `([a-z0-9-]+)` \|", line)
        assert claim is not None
        is_new = has_new and NOT_RUN not in line
        lines.append(line if is_new else before.get(claim.group(1), line))
    return marked(name, "\n".join([HEAD, *lines]))


def counted(rows: Iterable[str]) -> str:
    """Returns how many claims have each verdict, old and new."""
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in rows if line.startswith("| `")]
    both = []
    for place, words in ((2, "old"), (3, "new")):
        counts = Counter(one[place].strip().strip("*").split("**")[0] for one in cells)
        both.append(f"{words}: {', '.join(f'{verdict} {n}' for verdict, n in counts.most_common())}")
    return "; ".join(both)


def page_text(
    league: Mapping[str, Mapping[str, Any]] | None, paper: Mapping[str, Mapping[str, Any]] | None, page: str = ""
) -> str:
    old = json.loads(OLD.read_text())
    leagues = table(LEAGUE, league_rows(league or {}, old), page, league is not None)
    papers = table(PAPER, paper_rows(paper or {}, old), page, paper is not None)
    return (
        "\n\n".join(
            [
                LEAD,
                "## Claims of the methods' sources",
                f"{len(CLAIMS)} claims; {counted(leagues.splitlines())}.",
                leagues,
                "## Claims of the paper",
                f"{len(PAPER_CLAIMS)} claims; {counted(papers.splitlines())}. Arms have the preset's learning rate "
                "unless the claim says tuned; costs of a schedule do not depend on it.",
                papers,
                "## What is compared",
                marked(COMPARED, comparisons(CLAIMS)),
            ]
        )
        + "\n"
    )


def read(path: Path | None, key: str) -> dict[str, Mapping[str, Any]] | None:
    if path is None:
        return None
    found = json.loads(path.read_text())
    claims = found["claims"] if isinstance(found, dict) else found
    return {claim[key]: claim for claim in claims}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--league", type=Path, help="league.json of a league with --claims")
    parser.add_argument("--reproduction", type=Path, help="claims.json of a reproduction")
    given = parser.parse_args()
    page = PAGE.read_text() if PAGE.exists() else ""
    PAGE.write_text(page_text(read(given.league, "name"), read(given.reproduction, "claim"), page))


if __name__ == "__main__":
    main()
