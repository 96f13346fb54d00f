"""The report of a reproduction: verdicts first, then the paper's figures and tables as found here."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from airprune.errors import AirpruneError
from airprune.paper.judging import Verdict
from airprune.paper.profiles import PROFILES, Profile
from airprune.paper.reproduction import ARTEFACTS
from airprune.paper.tidy import Rows, read_rows
from airprune.report.markup import (
    Markup,
    badge,
    details,
    element,
    facts_table,
    image,
    note,
    paragraph,
    plain,
    table,
    tiles,
)
from airprune.report.page import Page, Place, Section, captioned
from airprune.report.reading import Run, is_run, read_json, read_run
from airprune.report.sections import beside, environment_section, repeat_section, seeds_text
from airprune.run_folder import environment

_KINDS = {Verdict.HOLDS: "good", Verdict.PARTLY: "fair", Verdict.FAILS: "bad", Verdict.UNDECIDED: "open"}
_SIGNS = {Verdict.HOLDS: "✓", Verdict.PARTLY: "◐", Verdict.FAILS: "✗", Verdict.UNDECIDED: "?"}
_TABLE2 = ("topology", "scheme", "mean_ms", "spread_ms", "paper_ms", "paper_spread_ms", "deviation")


def page(folder: Path, place: Place) -> Page:
    tables = {path.stem: _rows(path) for path in sorted(folder.glob("*.csv"))}
    claims = _claims(folder)
    run = _any_run(folder / "runs")
    profile = _profile(run)
    return Page(
        kind="Reproduction",
        name="The paper's evaluation, reproduced",
        lead=_lead(profile, tables),
        sections=[
            Section("Summary", _summary(claims)),
            Section("Claims", _claims_table(claims)),
            Section("Figures", _figures(folder, place)),
            Section("Tables", _tables(folder, tables, place)),
            Section("Profile", _profile_facts(profile, tables)),
            environment_section(
                run.environment if run and run.environment else environment(),
                "Where one of the runs was started." if run and run.environment else "Where this report was made.",
            ),
            _repeat(folder, profile, tables),
        ],
    )


def _rows(path: Path) -> Rows | None:
    """A table's rows; None if it cannot be read, e.g. because a line has more cells than the header."""
    try:
        return read_rows(path)
    except (AirpruneError, TypeError, ValueError):
        return None


def _claims(folder: Path) -> list[dict[str, Any]] | None:
    found = read_json(folder / "claims.json")
    return [claim for claim in found if isinstance(claim, dict)] if isinstance(found, list) else None


def _any_run(runs: Path) -> Run | None:
    """A run that tells the profile and the environment."""
    if runs.is_dir():
        for path in sorted(runs.iterdir()):
            if is_run(path) and (run := read_run(path)).scenario is not None:
                return run
    return None


def _profile(run: Run | None) -> Profile | None:
    """The profile that a run's scenario was made by; samples per device tell profiles apart."""
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


def _verdict(claim: dict[str, Any]) -> Verdict | None:
    try:
        return Verdict(str(claim.get("verdict")))
    except ValueError:
        return None


def _summary(claims: list[dict[str, Any]] | None) -> list[Markup]:
    if claims is None:
        return [note("claims.json cannot be read.")]
    counts = Counter(_verdict(claim) for claim in claims)
    facts: dict[str, object] = {
        f"claims: {verdict.value}": badge(f"{_SIGNS[verdict]} {counts[verdict]} of {len(claims)}", _KINDS[verdict])
        for verdict in Verdict
    }
    if counts[None]:
        facts["claims: unknown verdict"] = f"{counts[None]} of {len(claims)}"
    about = (
        "Claims are in our words. Verdicts are computed from the tables in this folder; a claim is counted once per "
        "preset it is judged on. Our own errata count as claims."
    )
    return [tiles(facts), note(about)]


def _claims_table(claims: list[dict[str, Any]] | None) -> list[Markup]:
    if not claims:
        return [note("There is no claim to show.")]
    rows = []
    for claim in claims:
        verdict = _verdict(claim)
        word = (
            badge(f"{_SIGNS[verdict]} {verdict.value}", _KINDS[verdict])
            if verdict
            else badge(f"? {claim.get('verdict')}", "open")
        )
        numbers = claim.get("numbers")
        shown_numbers = (
            details("numbers", facts_table(numbers, label="Numbers")) if isinstance(numbers, dict) and numbers else ""
        )
        reason = element("div", plain(claim.get("reason")), shown_numbers)
        rows.append(
            (plain(claim.get("where")), plain(claim.get("text")), word, plain(claim.get("preset")) or "", reason)
        )
    header = ("where", "claim", "verdict", "preset", "why")
    return [table(header, rows, label="Claims", words=header, class_="claims")]


def _artefact_of(stem: str) -> str | None:
    """fig2-paper-converged → fig2."""
    return next((name for name in ARTEFACTS if stem == name or stem.startswith(f"{name}-")), None)


def _figures(folder: Path, place: Place) -> list[Markup]:
    order = list(ARTEFACTS)
    pictures = []
    for png in folder.glob("*.png"):
        name = _artefact_of(png.stem)
        pictures.append((order.index(name) if name else len(order), png.stem, name, png))
    return [_figure(folder, png, name, place) for _, _, name, png in sorted(pictures, key=lambda entry: entry[:2])]


def _figure(folder: Path, png: Path, name: str | None, place: Place) -> Markup:
    title = ARTEFACTS[name].title if name else png.stem
    preset = png.stem[len(name) + 1 :] if name else ""
    caption = f"{title}{f', {preset}' if preset else ''}."
    tables = [folder / f"{table_name}.csv" for table_name in (ARTEFACTS[name].tables if name else [png.stem])]
    files = [path for path in (*tables, png.with_suffix(".pdf"), png) if path.exists()]
    links = captioned(caption, [place.link_to(path) for path in files])
    return image(
        png, alt=f"{caption} The numbers are in {', '.join(t.name for t in tables)}.", caption=links, class_="wide"
    )


def _tables(folder: Path, tables: dict[str, Rows | None], place: Place) -> list[Markup]:
    found: list[Markup] = []
    for name in ("table1", "table2", "errata"):
        if name in tables:
            rows = tables[name]
            found += [element("h3", ARTEFACTS[name].title), note(place.link_to(folder / f"{name}.csv"))]
            if not rows:
                found.append(note(f"{name}.csv is empty or cannot be read."))
            elif name == "table2" and set(_TABLE2) <= set(rows[0]):
                found.append(_latency_table(rows))
            else:
                header = [str(key) for key in rows[0]]
                cells = [tuple(plain(row[key]) for key in rows[0]) for row in rows]
                found.append(table(header, cells, label=ARTEFACTS[name].title, words=header))
    return found


def _latency_table(rows: Rows) -> Markup:
    def cell(value: Any, form: str) -> object:
        return format(value, form) if isinstance(value, float) else plain(value)

    def percent(value: Any) -> object:
        return f"{round(value, 3) + 0.0:+.1%}" if isinstance(value, float) else plain(value)

    cells = [
        (
            row["topology"],
            row["scheme"],
            f"{cell(row['mean_ms'], '.1f')} ± {cell(row['spread_ms'], '.1f')}",
            f"{cell(row['paper_ms'], 'g')} ± {cell(row['paper_spread_ms'], 'g')}",
            percent(row["deviation"]),
        )
        for row in rows
    ]
    header = ("network", "scheme", "airprune (ms)", "paper (ms)", "deviation")
    return table(header, cells, label="Latency of one edge round", words=("network", "scheme"))


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
        **profile.changes,
    }
    return [facts_table(facts, label="Profile")]


def _repeat(folder: Path, profile: Profile | None, tables: dict[str, Rows | None]) -> Section:
    here = [name for name, artefact in ARTEFACTS.items() if set(artefact.tables) <= set(tables)]
    names = ["all"] if len(here) == len(ARTEFACTS) else [name for name in here if name != "errata"]
    flags = {"quick": ["--quick"], "full": ["--full"]}.get(profile.name, []) if profile else []
    seeds = _seeds(tables)
    if profile is not None and seeds and tuple(seeds) != profile.seeds:
        flags += ["--seeds", seeds_text(seeds)]
    lines = [["airprune", "reproduce", name, *flags, "--out", beside(folder)] for name in names]
    unknown = ["The profile could not be told from the runs; add --quick or --full as needed."]
    return (
        repeat_section(lines, *(unknown if profile is None and _is_training(tables) else []))
        if lines
        else Section("", [])
    )
