"""The report of a reproduction: verdicts first, then the paper's figures and tables as found here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airprune import files
from airprune.errors import AirpruneError
from airprune.results.measures import MEASURES, TO_TARGET
from airprune.results.report.markup import (
    Markup,
    captioned,
    element,
    facts_table,
    image,
    note,
    paragraph,
    readable,
    table,
    tiles,
)
from airprune.results.report.page import Page, Place, Section
from airprune.results.report.reading import Run, is_run, read_run
from airprune.results.report.sections import beside, environment_section, repeat_section, seeds_text
from airprune.results.tidy import Rows, read_rows
from airprune.runs.lines import read_json
from airprune.studies.claims import verdict_of
from airprune.studies.claims.table import claims_table, verdict_counts
from airprune.studies.paper import to_target
from airprune.studies.paper.profiles import PROFILES, Profile
from airprune.studies.paper.reproduction import ARTEFACTS, SHOWN_TABLES

# The columns of the table of claims, and the keys of a claim.
_CLAIMS = {"where": "where", "claim": "text", "verdict": "verdict", "preset": "preset", "why": "reason"}
_TARGET = ("preset", "series", "seed", "target_accuracy", "reached", *TO_TARGET)
_TABLE2 = ("topology", "scheme", "mean_ms", "spread_ms", "paper_ms", "paper_spread_ms", "deviation")


def page(folder: Path, place: Place, target: float | None = None) -> Page:
    tables = {path.stem: rows_of(path) for path in sorted(folder.glob("*.csv"))}
    claims = claims_in(folder)
    run = any_run(folder / "runs")
    profile = profile_of(run)
    return Page(
        kind="Reproduction",
        name="The paper's evaluation, reproduced",
        lead=_lead(profile, tables),
        sections=[
            Section("Summary", _summary(claims)),
            Section("Claims", [claims_table(claims, _CLAIMS) if claims else note("There is no claim to show.")]),
            Section("Figures", [_figure(picture, place) for picture in figures_in(folder)]),
            Section("Tables", _tables(folder, tables, place)),
            Section("Profile", _profile_facts(profile, tables)),
            _environment(run),
            _repeat(folder, profile, tables),
        ],
    )


def _environment(run: Run | None) -> Section:
    if run is not None and run.environment:
        return environment_section(run.environment, "The machine that started one of the runs.")
    from airprune.runs.environment import environment

    return environment_section(environment(), "The machine that made this report.")


def rows_of(path: Path) -> Rows | None:
    """Reads the rows of a table; None if it cannot be read, e.g. because a line has more cells than the header."""
    try:
        return read_rows(path)
    except (AirpruneError, TypeError, ValueError):
        return None


def claims_in(folder: Path) -> list[dict[str, Any]] | None:
    """Reads the entries of claims.json; None if it cannot be read."""
    found = read_json(folder / "claims.json")
    return [claim for claim in found if isinstance(claim, dict)] if isinstance(found, list) else None


def any_run(runs: Path) -> Run | None:
    """Returns a run that shows the profile and the environment."""
    if files.is_folder(runs):
        for path in sorted(runs.iterdir()):
            if files.is_folder(path) and is_run(path) and (run := read_run(path)).scenario is not None:
                return run
    return None


def profile_of(run: Run | None) -> Profile | None:
    """Returns the profile that a run's scenario was made by; profiles differ in their samples per device."""
    if run is None or run.scenario is None:
        return None
    scenario = run.scenario
    for profile in PROFILES.values():
        if scenario.data.train_samples == profile.samples_per_device * scenario.num_devices:
            return profile
    return None


def _is_training(tables: dict[str, Rows | None]) -> bool:
    return any(ARTEFACTS[name].training is not None for name in tables if name in ARTEFACTS)


def _lead(profile: Profile | None, tables: dict[str, Rows | None]) -> Markup:
    if profile is not None:
        return paragraph(f"{profile.note[0].upper()}{profile.note[1:]}.")
    return paragraph("An unknown profile." if _is_training(tables) else "Planning alone: nothing was trained.")


def _summary(claims: list[dict[str, Any]] | None) -> list[Markup]:
    if claims is None:
        return [note("claims.json cannot be read.")]
    facts: dict[str, object] = {f"claims: {verdict.value}": count for verdict, count in verdict_counts(claims).items()}
    if num_unknown := sum(verdict_of(claim) is None for claim in claims):
        facts["claims: unknown verdict"] = f"{num_unknown} of {len(claims)}"
    about = (
        "Claims are in our words. Verdicts are computed from the tables in this folder; a claim is counted once per "
        "preset it is judged on. Our own errata count as claims."
    )
    return [tiles(facts), note(about)]


def _artefact_of(stem: str) -> str | None:
    """Returns the table or figure of a file name: fig2-paper-converged → fig2."""
    return next((name for name in ARTEFACTS if stem == name or stem.startswith(f"{name}-")), None)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure of the folder and the files that belong to it.

    Attributes:
      artefact: the name of the table or figure of the paper; None if it is none of them.
      tables: files with its numbers; they may be missing.
    """

    png: Path
    artefact: str | None
    caption: str
    tables: list[Path]

    @property
    def alt(self) -> str:
        return f"{self.caption} The numbers are in {', '.join(table.name for table in self.tables)}."

    @property
    def files(self) -> list[Path]:
        pictures = (self.png.with_suffix(suffix) for suffix in (".pdf", ".svg", ".png"))
        return [path for path in (*self.tables, *pictures) if path.exists()]


def figures_in(folder: Path) -> list[Picture]:
    """Returns the figures of a folder in the paper's order; others after them."""
    order = list(ARTEFACTS)
    found = []
    for png in folder.glob("*.png"):
        name = _artefact_of(png.stem)
        found.append((order.index(name) if name else len(order), png.stem, _picture(png, name)))
    return [picture for _, _, picture in sorted(found, key=lambda entry: entry[:2])]


def _picture(png: Path, name: str | None) -> Picture:
    title = ARTEFACTS[name].title if name else png.stem
    preset = png.stem[len(name) + 1 :] if name else ""
    tables = ARTEFACTS[name].tables if name else [png.stem]
    return Picture(
        png=png,
        artefact=name,
        caption=f"{title}{f', {preset}' if preset else ''}.",
        tables=[png.with_name(f"{table}.csv") for table in tables],
    )


def _figure(picture: Picture, place: Place) -> Markup:
    links = captioned(picture.caption, [place.link_to(path) for path in picture.files])
    return image(picture.png, alt=picture.alt, caption=links, class_="wide")


def _tables(folder: Path, tables: dict[str, Rows | None], place: Place) -> list[Markup]:
    found: list[Markup] = []
    for name, title in SHOWN_TABLES.items():
        if name in tables:
            rows = tables[name]
            found += [element("h3", title), note(place.link_to(folder / f"{name}.csv"))]
            if rows:
                header, cells, words = shown_table(name, rows)
                found.append(table(header, cells, label=title, words=words))
            else:
                found.append(note(f"{name}.csv is empty or cannot be read."))
    return found


def shown_table(name: str, rows: Rows) -> tuple[Sequence[str], list[tuple[object, ...]], Sequence[str]]:
    """Returns (header, cells, columns that hold words) of one of `SHOWN_TABLES` as people read it."""
    if name == "table2" and set(_TABLE2) <= set(rows[0]):
        return (
            ("network", "scheme", "airprune (ms)", "paper (ms)", "deviation"),
            _latencies(rows),
            ("network", "scheme"),
        )
    if name.endswith("_target") and set(_TARGET) <= set(rows[0]):
        words = ("preset", "series", "target", "reached")
        headings = (*words, *(MEASURES[measure].heading for measure in TO_TARGET), "time ÷ no pruning")
        return headings, to_target.shown_rows(rows), words
    header = [str(key) for key in rows[0]]
    return header, [tuple(readable(row[key]) for key in rows[0]) for row in rows], header


def _latencies(rows: Rows) -> list[tuple[object, ...]]:
    def cell(value: Any, form: str) -> object:
        return format(value, form) if isinstance(value, float) else readable(value)

    def percent(value: Any) -> object:
        return f"{round(value, 3) + 0.0:+.1%}" if isinstance(value, float) else readable(value)

    return [
        (
            row["topology"],
            row["scheme"],
            f"{cell(row['mean_ms'], '.1f')} ± {cell(row['spread_ms'], '.1f')}",
            f"{cell(row['paper_ms'], 'g')} ± {cell(row['paper_spread_ms'], 'g')}",
            percent(row["deviation"]),
        )
        for row in rows
    ]


def _seeds(tables: dict[str, Rows | None]) -> list[int]:
    found = {row.get("seed") for name, rows in tables.items() if name.startswith("fig") for row in rows or []}
    return sorted(int(seed) for seed in found if isinstance(seed, float) and seed == seed and 0 <= seed < 2**53)


def _profile_facts(profile: Profile | None, tables: dict[str, Rows | None]) -> list[Markup]:
    if profile is None:
        return []
    facts = {
        "profile": profile.name,
        "note": profile.note,
        "seeds": seeds_text(_seeds(tables)) or seeds_text(profile.seeds),
        "presets": ", ".join(profile.presets),
        "samples per device": profile.samples_per_device,
        "target accuracy": profile.target_accuracy,
        **profile.changes,
    }
    return [facts_table(facts, label="Profile")]


def _repeat(folder: Path, profile: Profile | None, tables: dict[str, Rows | None]) -> Section:
    here = [name for name, artefact in ARTEFACTS.items() if next(iter(artefact.tables)) in tables]
    names = ["all"] if len(here) == len(ARTEFACTS) else [name for name in here if name != "errata"]
    flags = {"quick": ["--quick"], "full": ["--full"]}.get(profile.name, []) if profile else []
    seeds = _seeds(tables)
    if profile is not None and seeds and tuple(seeds) != profile.seeds:
        flags += ["--seeds", seeds_text(seeds)]
    lines = [["airprune", "reproduce", name, *flags, "--out", beside(folder)] for name in names]
    if not lines:
        return Section("", [])
    unknown = ["The runs do not show which profile was used; add --quick or --full as needed."]
    return repeat_section(lines, *(unknown if profile is None and _is_training(tables) else []))
