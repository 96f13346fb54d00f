"""The report of one run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airprune.results.figures.devices import device_bars, timeline
from airprune.results.figures.styles import styles_for
from airprune.results.measures import DEVICE_COLUMNS, MEASURES, TO_TARGET
from airprune.results.report.markup import (
    Markup,
    badge,
    code_block,
    details,
    element,
    note,
    paragraph,
    table,
    tiles,
)
from airprune.results.report.page import Page, Place, Section
from airprune.results.report.reading import MAX_BARS, EdgeRound, Run, last_edge_round, read_run, target_of
from airprune.results.report.sections import beside, curve_rows, curves_section, environment_section, repeat_section
from airprune.results.time_to_target import cost, evaluations, first_reaching, target_text
from airprune.rounds.records import RECORDS_VERSION, EdgeRecord, Record
from airprune.runs.layout import RunFolder
from airprune.runs.measured import measured_s, read_measured
from airprune.scenario import Scenario
from airprune.text import capitalised, clocks_text, counted, exact, number

# Shown in large numbers, of the last global round.
_TILES = ("test_accuracy", "test_loss", "time_s", "uploaded_weights", "uploaded_bits", "energy_j")
_DEPLOYED_TIMES = "Times are those the deployment was planned with, unless they are called measured."
_EDGE_COLUMNS = ("edge_latency_s", "downlink_s", "shadow_price", "min_count", "num_uncovered")


def page(folder: Path, place: Place, target: float | None = None) -> Page:
    run = read_run(folder)
    target = target_of([run]) if target is None else target
    scheme = run.scenario.plan.scheme if run.scenario else "run"
    seed = run.scenario.seed if run.scenario else None
    place.add_table(curve_rows(scheme, seed, run.rounds), "curves.csv")
    return Page(
        kind="Run",
        name=run.scenario.name if run.scenario else folder.resolve().name,
        lead=_lead(run),
        sections=[
            Section("Summary", [*_summary(run), *_to_target(run, target)]),
            curves_section({scheme: [run.rounds]}, place, measures=run.measures),
            Section("Last edge round", _devices(run, scheme, place)),
            Section("Scenario", _scenario(run)),
            environment_section(run.environment, "The machine that started the run."),
            _repeat(run),
        ],
        times=_DEPLOYED_TIMES if run.is_deployed else Page.times,
    )


def _lead(run: Run) -> Markup:
    words: list[object] = [badge(run.state, run.badge_kind)]
    if run.scenario is not None:
        s, folder = run.scenario, RunFolder(run.path)
        app = folder.flower()
        what = f"{s.model.name}, data {s.data.source} ({s.data.partition})"
        if app is not None:
            what = f"Flower app {app.get('app')}, flwr {app.get('flwr')}"
        words.append(f" Scheme {s.plan.scheme}, {what}, seed {s.seed}. " + clocks_text([folder.clock_words(s)]))
    return paragraph(*words)


def _summary(run: Run) -> list[Markup]:
    last = run.last
    facts = {run.measures[name].label: run.measures[name].with_unit(last.get(name)) for name in _TILES}
    if run.is_deployed:
        facts["measured time"] = number(measured_s(read_measured(RunFolder(run.path))), ".4g", " s")
    facts[MEASURES["uploaded_weights"].label] = number(last.get("uploaded_weights"), ",.0f")  # a count, to the last one
    ratio = MEASURES["mean_pruning_ratio"]
    facts[f"{ratio.label}, last round"] = ratio.text(last.get(ratio.name))
    facts[MEASURES["left_out"].label] = _left_out(run)
    found = [tiles(facts)] if run.rounds else [paragraph("No global round is finished yet.")]
    if run.divergence:
        found.append(note(run.divergence))
    fates = _fates(run.records)
    if any(fates.values()):
        reasons = ", ".join(f"{count:,} {fate}" for fate, count in fates.items() if count)
        found.append(note(f"Excluded, counted once per device and edge round: {reasons}."))
    if run.num_damaged > 0:
        found.append(note(f"{counted(run.num_damaged, 'line')} of records.jsonl cannot be read."))
    if run.version > RECORDS_VERSION:
        found.append(
            note(f"The records are of version {run.version}, later than this airprune's {RECORDS_VERSION}: update it.")
        )
    return found


def _to_target(run: Run, target: float | None) -> list[Markup]:
    """Returns the costs of the target, in large numbers."""
    if target is None or not run.rounds:
        return []
    tests = evaluations(run.records)
    reached = first_reaching(tests, target)
    heading = element("h3", f"To {target_text(target)} test accuracy")
    if reached is None:
        return [heading, paragraph("Not reached." if tests else "Never tested.")]
    facts = {MEASURES[name].label: MEASURES[name].with_unit(cost(tests, target, name)) for name in TO_TARGET}
    place = f"global round {reached.global_round}"
    if reached.edge_round is not None:
        place = f"edge round {reached.edge_round} of {place}"
    return [heading, tiles(facts), note(f"The first test at least as good was after {place}.")]


def _left_out(run: Run) -> str:
    left, took_part = (sum(row[name] or 0 for row in run.rounds) for name in ("left_out", "participants"))
    return f"{left:,.0f} of {left + took_part:,.0f}"


def _fates(records: Sequence[Record]) -> Counter[str]:
    found: Counter[str] = Counter()
    for record in records:
        if isinstance(record, EdgeRecord):
            found.update(record.left_out)
    return found


def _devices(run: Run, scheme: str, place: Place) -> list[Markup]:
    devices = last_edge_round(run.records)
    if devices is None:
        return [note("No edge round can be read.")]
    place.add_table(devices.rows(), "devices.csv")
    deadline_s = devices.deadline_s(run.scenario)
    latency = devices.compute_s + devices.uplink_s
    slowest = f" The slowest takes {np.nanmax(latency) * 1e3:.4g} ms." if np.isfinite(latency).any() else ""
    until = "" if deadline_s is None else f", against the deadline of {deadline_s * 1e3:g} ms"
    about = f"Global round {devices.global_round}, edge round {devices.edge_round}; {devices.num_devices:,} devices."
    if devices.sampled_of is not None:
        about += f" Recorded and shown is a random sample of {len(devices.device):,}."
    if len(devices.device) > MAX_BARS:
        about += f" The figures show the {MAX_BARS} slowest; devices.csv has all."
    colour = styles_for([scheme])[scheme].colour
    planned = "Planned c" if run.is_deployed else "C"
    pictures = [
        place.add_figure(
            timeline(devices, deadline_s=deadline_s),
            "timeline",
            alt=f"{planned}ompute and uplink time of each device{until}.{slowest}",
            caption=f"{planned}ompute, then uplink, of each device{until}. Lines part the edges.{slowest}",
            table="devices.csv",
        )
    ]
    for name in ("bandwidth_share", "pruning_ratio"):
        values, label = getattr(devices, name), MEASURES[name].label
        span = f"{np.nanmin(values):.3f} to {np.nanmax(values):.3f}" if np.isfinite(values).any() else "no values"
        figure = device_bars(devices, values, label=label, colour=colour)
        caption = f"{capitalised(label)} of each device: {span}."
        grey = " Grey: excluded." if any(fate != "ok" for fate in devices.fate) else ""
        pictures.append(
            place.add_figure(figure, MEASURES[name].stem, alt=caption, caption=caption + grey, table="devices.csv")
        )
    return [note(about), element("div", *pictures, class_="grid"), *_edges(devices)]


def _edges(devices: EdgeRound) -> list[Markup]:
    is_charged = any(row["downlink_s"] is not None for row in devices.edges)
    columns = [name for name in _EDGE_COLUMNS if name != "downlink_s" or is_charged]
    header = ("edge", "plan", *(MEASURES[name].heading for name in columns))
    rows = [
        (row["edge"], row["status"], *(MEASURES[name].text(row[name]) for name in columns)) for row in devices.edges
    ]
    return [
        element("h3", "Edges and coverage"),
        table(header, rows, label="Edges and coverage", words=("edge", "plan")),
        note("A weight that no device of an edge kept stays at the edge's previous value."),
        details("All devices in numbers", _device_table(devices)),
    ]


def _device_table(devices: EdgeRound) -> Markup:
    names = ("device", "edge", "fate")
    header = (*names, *(MEASURES[name].heading for name in DEVICE_COLUMNS))
    rows = [
        (*(row[name] for name in names), *(MEASURES[name].text(row[name]) for name in DEVICE_COLUMNS))
        for row in devices.rows()
    ]
    return table(header, rows, label="Devices", words=("fate",))


def _scenario(run: Run) -> list[Markup]:
    found: list[Markup] = []
    if run.scenario is None:
        found.append(note(f"scenario.toml is missing or cannot be read as a scenario: {run.trouble}"))
    else:
        changes = [
            (key, exact(mine), exact(default))
            for key, mine, default in run.scenario.diff(Scenario())
            if key not in ("name", "seed")
        ]
        if changes:
            found.append(paragraph("These values differ from the defaults, which are the paper's:"))
            found.append(table(("key", "here", "default"), changes, label="Changes", words=("key", "here", "default")))
        else:
            found.append(paragraph("All values are the defaults, which are the paper's."))
    if run.scenario_text:
        found += [element("h3", "scenario.toml"), code_block(run.scenario_text)]
    return found


def _repeat(run: Run) -> Section:
    file = str(run.path / "scenario.toml")
    lines = [["airprune", "run", file, "--out", beside(run.path), *run.import_words]]
    app = RunFolder(run.path).flower()
    if app is not None:
        lines = [_flower_command(app, run.path, file)]
    notes = ["A model or data set of your own, given in Python, is not part of the scenario and must be given again."]
    if not run.is_finished and not run.divergence:
        start = lines[0][: lines[0].index("--out")]
        lines.insert(0, [*start, "--out", str(run.path), "--resume", *run.import_words])
        notes.insert(0, "The first command continues the run, the second repeats it from the start.")
    return repeat_section(lines, *notes) if run.scenario or run.import_words else Section("Repeat it", [])


def _flower_command(app: Mapping[str, Any], folder: Path, file: str) -> list[str]:
    """Returns the command that runs the Flower app of a folder again."""
    config = app.get("config")
    words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items()) if isinstance(config, dict) else ""
    given = ["--scenario", file, "--compute", str(app.get("compute")), *(["--run-config", words] if words else [])]
    return ["airprune", "flower", str(app.get("folder")), *given, "--out", beside(folder)]
