"""The results that the web pages show before anything was run, read out of the documentation's tables.

.venv/bin/python tools/recorded_results.py     brings src/airprune/web/recorded.json up to date
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FILE = ROOT / "src/airprune/web/recorded.json"
_ROW = re.compile(r"(?<!\\)\|")


def tables(text: str) -> list[list[list[str]]]:
    """Every table of a page as rows of plain cells, its header first."""
    found: list[list[list[str]]] = []
    rows: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([plain(cell) for cell in _ROW.split(line.strip())[1:-1]])
        elif rows:
            found.append([rows[0], *rows[2:]])  # the second line is the rule below the header
            rows = []
    return found


def plain(cell: str) -> str:
    """Without emphasis, code marks and links."""
    cell = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell.strip().replace("\\|", "|"))
    return re.sub(r"(\*\*|`)(.+?)\1", r"\2", cell)


def paragraph(text: str, beginning: str) -> str:
    """The paragraph that begins so, as one line."""
    found = next(part for part in text.split("\n\n") if part.startswith(beginning))
    return plain(found.replace("\n", " "))


def promise(page: str) -> dict[str, Any]:
    return {"about": paragraph(page, "Tuned learning rates"), "rows": tables(page)[0]}


def reproduction(page: str) -> dict[str, Any]:
    _, *rows = tables(page)[0]
    return {"about": paragraph(page, "Made by"), "claims": [_claim(*row) for row in rows]}


def _claim(where: str, claim: str, verdict: str, reason: str) -> dict[str, str]:
    text, preset = re.fullmatch(r"(.*?)(?: \((paper[\w-]*)\))?", claim).groups()  # type: ignore[union-attr]
    return {"where": where, "text": text, "preset": preset or "", "verdict": verdict, "reason": reason}


def league(page: str) -> dict[str, Any]:
    ranked, _, claims = page.partition("\n## Claims\n")
    about, *tracks = re.split(r"^## (?:Division|Track) ", ranked, flags=re.MULTILINE)
    return {
        "about": paragraph(about, "Made by"),
        "divisions": [_track(track) for track in tracks],
        "claims": [_claim(*row) for table in tables(claims)[:1] for row in table[1:]],
    }


def _track(text: str) -> dict[str, Any]:
    own = text.split("\n## ")[0]
    name, title = own.splitlines()[0].split(": ", 1)
    standings, diagnostics = tables(own)[:2]
    notes = [plain(line[2:]) for line in own.splitlines() if line.startswith("- ")]
    named = [{"title": title, "header": rows[0], "rows": rows[1:]} for title, rows in _titled(standings, diagnostics)]
    return {"name": name, "title": title, "about": own.split("\n\n")[1], "tables": named, "notes": notes}


def _titled(standings: list[list[str]], diagnostics: list[list[str]]) -> list[tuple[str, list[list[str]]]]:
    return [("Standings", standings), ("Diagnostics", diagnostics)]


def recorded() -> str:
    """The file's text, as the documentation has it now."""
    docs = ROOT / "docs"
    results = {
        "promise": promise((docs / "promise.md").read_text()),
        "reproduction": reproduction((docs / "reproduction.md").read_text()),
        "league": league((docs / "league-results.md").read_text()),
    }
    return json.dumps(results, ensure_ascii=False, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(recorded())
