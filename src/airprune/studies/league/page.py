"""The league's page: one self-contained HTML file, made from the league's document alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airprune.results.report.markup import (
    Markup,
    badge,
    details,
    element,
    facts_table,
    image,
    join,
    link,
    note,
    paragraph,
    table,
    tiles,
)
from airprune.results.report.page import Page, Section, captioned, page_text
from airprune.results.report.sections import environment_section, seeds_text
from airprune.studies.claims import Verdict
from airprune.studies.league.tables import ORIGIN
from airprune.studies.paper.report import verdict_of
from airprune.tables import write_text_atomic
from airprune.text import counted

PAGE = "league.html"


def write_page(folder: Path, document: Mapping[str, Any]) -> Path:
    """Of a folder whose pictures are written."""
    path = folder / PAGE
    write_text_atomic(path, page_text(page(folder, document)), follow_link=False)
    return path


def page(folder: Path, document: Mapping[str, Any]) -> Page:
    from airprune.runs.environment import environment  # asks torch for its version

    divisions: Sequence[Mapping[str, Any]] = document["divisions"]
    return Page(
        kind="League",
        name="Every method, one network, one clock",
        lead=_lead(document),
        sections=[
            *(Section(f"Division {one['name']}: {one['title']}", _division(folder, one)) for one in divisions),
            Section("Claims", claims_table(document["claims"])),
            Section("Files", [_files()]),
            environment_section(environment(), "Where this page was made."),
        ],
    )


def _lead(document: Mapping[str, Any]) -> Markup:
    divisions = document["divisions"]
    methods = {row["method"] for one in divisions for row in one["rows"] if row["is_method"]}
    seeds = document["seeds"]
    words = f"{counted(len(methods), 'method')} in {counted(len(divisions), 'division')}, "
    words += f"{'seed' if len(seeds) == 1 else 'seeds'} "
    text = f"{words}{seeds_text(seeds)}, on the scenario {document['scenario']}; {document['note']}."
    return paragraph(text)


def _division(folder: Path, division: Mapping[str, Any]) -> list[Markup]:
    standings, conduct = division["tables"]
    stem = Path(division["picture"]).stem
    first = f"Division {division['name']}: accuracy against simulated seconds, uploaded bits and joules."
    alt = f"{first} {_leaders(standings)} The numbers are in league.csv."
    links = [link(name, name) for name in (f"{stem}.png", f"{stem}.pdf", f"{stem}.svg", "league.csv")]
    return [
        paragraph(division["about"]),
        tiles(_facts(division)),
        image(
            folder / division["picture"],
            alt=alt,
            caption=captioned(f"{first} Large markers: cloud models that nobody beats; grey: everybody else.", links),
            class_="wide",
        ),
        _shown(standings),
        element("h3", conduct["title"]),
        _shown(conduct),
        element("h3", "How to read it"),
        element("ul", *(element("li", words) for words in division["notes"]), class_="notes"),
    ]


def _facts(division: Mapping[str, Any]) -> dict[str, object]:
    """Who leads by accuracy, and by cost."""
    rows = [row for row in division["rows"] if row["is_method"]]
    facts: dict[str, object] = {}
    for title, key, best in (
        ("most accurate at equal time", "accuracy_time", max),
        ("most accurate after all rounds", "accuracy_rounds", max),
        ("first at the target", "time_to_target_s", min),
        ("fewest bits to the target", "bits_to_target", min),
        ("fewest joules to the target", "joules_to_target", min),
    ):
        known = [row for row in rows if isinstance(row[key], float)]
        facts[title] = best(known, key=lambda row: row[key])["method"] if known else "nobody"
    return facts


def _leaders(standings: Mapping[str, Any]) -> str:
    return " ".join(f"{row[1]}: {row[2]} %." for row in standings["rows"][:5])


def _shown(found: Mapping[str, Any]) -> Markup:
    """With the origin, if told, under the name."""
    header, rows = found["header"], found["rows"]
    if header[-1] == ORIGIN:
        header, at = header[:-1], header.index("method")
        rows = [[_named(row[at], row[-1]) if i == at else cell for i, cell in enumerate(row[:-1])] for row in rows]
    looks = f"league {found['title'].lower()}"
    return table(header, rows, label=found["title"], words=found["words"], class_=looks)


def _named(name: str, origin: str) -> Markup:
    return element("span", name, element("span", origin, class_="origin"))


def claims_table(claims: Sequence[dict[str, Any]]) -> list[Markup]:
    """What the sources claim, and what was found; nothing if no claim was judged."""
    if not claims:
        return []
    counts = Counter(verdict_of(claim) for claim in claims)
    facts: dict[str, object] = {
        verdict.value: badge(f"{verdict.sign} {counts[verdict]} of {len(claims)}", verdict.badge) for verdict in Verdict
    }
    rows = []
    for claim in claims:
        verdict = verdict_of(claim) or Verdict.UNDECIDED
        numbers = details("numbers", facts_table(claim["numbers"], label="Numbers")) if claim["numbers"] else ""
        word = badge(f"{verdict.sign} {verdict.value}", verdict.badge)
        rows.append((claim["where"], claim["text"], word, element("div", claim["reason"], numbers)))
    header = ("source", "claim", "verdict", "why")
    about = "Claims are in our words; verdicts are computed from untuned runs over the same seeds."
    return [tiles(facts), table(header, rows, label="Claims", words=header, class_="claims"), note(about)]


def _files() -> Markup:
    files = {"league.csv": "all numbers", "league.tex": "the standings for a paper", "league.json": "for programs"}
    lines = [element("li", link(name, name), f": {what}") for name, what in files.items()]
    return join([element("ul", *lines), note("The folder runs/ holds every run; the same command repeats none.")])
