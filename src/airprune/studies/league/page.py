"""The league's report: one self-contained HTML file, made from the league's document alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airprune.results.report.markup import (
    Markup,
    captioned,
    details,
    element,
    image,
    join,
    link,
    note,
    paragraph,
    table,
    tiles,
)
from airprune.results.report.page import Page, Section, page_text
from airprune.results.report.sections import environment_section, seeds_text
from airprune.studies.claims.table import claims_table, verdict_counts
from airprune.studies.league.tables import ORIGIN
from airprune.tables import write_text_atomic
from airprune.text import counted

PAGE = "league.html"
# The columns of the table of claims, and the keys of a claim.
_CLAIMS = {"source": "where", "claim": "text", "verdict": "verdict", "why": "reason"}


def write_page(folder: Path, document: Mapping[str, Any]) -> Path:
    """Writes the report into a folder whose figures are written."""
    path = folder / PAGE
    write_text_atomic(path, page_text(page(folder, document)), follow_link=False)
    return path


def page(folder: Path, document: Mapping[str, Any]) -> Page:
    from airprune.runs.environment import environment

    tracks: Sequence[Mapping[str, Any]] = document["divisions"]
    return Page(
        kind="League",
        name="Every method, one network, one clock",
        lead=_lead(document),
        sections=[
            *(Section(f"Track {one['name']}: {one['title']}", _track(folder, one)) for one in tracks),
            Section("Claims", _claims(document["claims"])),
            Section("Ablations", [part for one in document.get("ablations", []) for part in _ablation(folder, one)]),
            Section("Not run", _dropped(document.get("dropped", []))),
            Section("Files", [_files()]),
            environment_section(environment(), "The machine that made this report."),
        ],
    )


def _lead(document: Mapping[str, Any]) -> Markup:
    tracks = document["divisions"]
    methods = {row["method"] for one in tracks for row in one["rows"] if row["is_method"]}
    seeds = document["seeds"]
    words = f"{counted(len(methods), 'method')} in {counted(len(tracks), 'track')}, "
    words += f"{'seed' if len(seeds) == 1 else 'seeds'} "
    text = f"{words}{seeds_text(seeds)}, on the scenario {document['scenario']}; {document['note']}."
    if document.get("cpu_hours"):
        text += f" {document['runs']:,} runs, {document['cpu_hours']:.2g} CPU-hours."
    return paragraph(text)


def _dropped(cells: Sequence[str]) -> list[Markup]:
    """Returns the rows that a budget has left out; nothing if there are none."""
    return [note(f"The budget ended before these rows were complete: {', '.join(cells)}.")] if cells else []


def _track(folder: Path, track: Mapping[str, Any]) -> list[Markup]:
    standings, diagnostics = track["tables"]
    stem = Path(track["picture"]).stem
    first = f"Track {track['name']}: accuracy against simulated seconds, bits on all links and a model's joules."
    alt = f"{first} {_leaders(standings)} The numbers are in league.csv."
    links = [link(name, name) for name in (f"{stem}.png", f"{stem}.pdf", f"{stem}.svg", "league.csv")]
    return [
        paragraph(track["about"]),
        tiles(_facts(track)),
        image(
            folder / track["picture"],
            alt=alt,
            caption=captioned(f"{first} Large markers: cloud models that no other beats; grey: all others.", links),
            class_="wide",
        ),
        _shown(standings, [row.get("departures") or "" for row in track["rows"]]),
        element("h3", diagnostics["title"]),
        _shown(diagnostics),
        element("h3", "How to read it"),
        element("ul", *(element("li", words) for words in track["notes"]), class_="notes"),
    ]


def _facts(track: Mapping[str, Any]) -> dict[str, object]:
    """Returns the methods that lead by accuracy, and by cost."""
    rows = [row for row in track["rows"] if row["is_method"]]
    facts: dict[str, object] = {}
    for title, key, best in (
        ("most accurate at equal time", "accuracy_time", max),
        ("most accurate after all rounds", "accuracy_rounds", max),
        ("first at the target", "time_to_target_s", min),
        ("fewest bits to the target", "bits_to_target", min),
        ("fewest joules to the target (model)", "joules_to_target", min),
    ):
        known = [row for row in rows if isinstance(row[key], float)]
        facts[title] = best(known, key=lambda row: row[key])["method"] if known else "none"
    return facts


def _leaders(standings: Mapping[str, Any]) -> str:
    return " ".join(f"{row[1]}: {row[2]} %." for row in standings["rows"][:5])


def _shown(found: Mapping[str, Any], departures: Sequence[str] = ()) -> Markup:
    """Returns a table with the origin, if there is one, under the name, and departures from the source to unfold."""
    header, rows = found["header"], found["rows"]
    if header[-1] == ORIGIN:
        header, at = header[:-1], header.index("method")
        rows = [
            [_named(row[at], row[-1], departs) if i == at else cell for i, cell in enumerate(row[:-1])]
            for row, departs in zip(rows, departures, strict=True)
        ]
    looks = f"league {found['title'].lower()}"
    return table(header, rows, label=found["title"], words=found["words"], class_=looks)


def _named(name: str, origin: str, departures: str) -> Markup:
    words = element("span", name, element("span", origin, class_="origin"))
    return element("div", words, details("departures", element("p", departures))) if departures else words


def _claims(claims: Sequence[dict[str, Any]]) -> list[Markup]:
    """Returns the claims of the sources with their verdicts; nothing if no claim was judged."""
    if not claims:
        return []
    facts: dict[str, object] = {verdict.value: count for verdict, count in verdict_counts(claims).items()}
    about = "Claims are in our words; their arms are tuned as the methods are, and run on more seeds until decided."
    return [tiles(facts), claims_table(claims, _CLAIMS), note(about)]


def _ablation(folder: Path, found: Mapping[str, Any]) -> list[Markup]:
    """Returns an ablation's figure with its conclusion."""
    stem = Path(found["picture"]).stem
    links = [link(name, name) for name in (f"{stem}.png", f"{stem}.pdf", f"{stem}.svg")]
    alt = f"{found['title']}: {found['conclusion']}"
    picture = image(folder / found["picture"], alt=alt, caption=captioned(found["title"], links), class_="wide")
    return [element("h3", found["title"]), picture, paragraph(found["conclusion"])]


def _files() -> Markup:
    files = {"league.csv": "all numbers", "league.tex": "the standings for a paper", "league.json": "for programs"}
    lines = [element("li", link(name, name), f": {what}") for name, what in files.items()]
    return join([element("ul", *lines), note("The folder runs/ holds every run; the same command repeats none.")])
