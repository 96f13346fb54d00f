"""The report of one run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from airprune.figures import styles_for
from airprune.paper.training import MEASURES
from airprune.report.drawing import MAX_BARS, device_bars, timeline
from airprune.report.markup import (
    Markup,
    badge,
    code_block,
    details,
    element,
    exact,
    note,
    number,
    paragraph,
    table,
    tiles,
)
from airprune.report.page import Page, Place, Section
from airprune.report.reading import EdgeRound, Run, last_edge_round, read_run
from airprune.report.sections import beside, curves_section, environment_section, repeat_section
from airprune.scenario import Scenario


def page(folder: Path, place: Place) -> Page:
    run = read_run(folder)
    scheme = run.scenario.plan.scheme if run.scenario else "run"
    seed = run.scenario.seed if run.scenario else None
    place.add_table(
        [{"series": scheme, "seed": seed, **{m: row[m] for m in MEASURES}} for row in run.rounds], "curves.csv"
    )
    return Page(
        kind="Run",
        name=run.scenario.name if run.scenario else folder.resolve().name,
        lead=_lead(run),
        sections=[
            Section("Summary", _summary(run)),
            curves_section({scheme: [run.rounds]}, place),
            Section("Last edge round", _devices(run, scheme, place)),
            Section("Scenario", _scenario(run)),
            environment_section(run.environment, "Where the run was started."),
            _repeat(run),
        ],
    )


def _lead(run: Run) -> Markup:
    words: list[object] = [badge(run.state, "good" if run.is_finished else "fair")]
    if run.scenario is not None:
        s = run.scenario
        words.append(
            f" Scheme {s.plan.scheme}, {s.model.name}, data {s.data.name} ({s.data.partition}), seed {s.seed}."
        )
    return paragraph(*words)


def _summary(run: Run) -> list[Markup]:
    last = run.last
    facts = {
        "test accuracy": number(last.get("test_accuracy"), ".2f", " %", scale=100),
        "test loss": number(last.get("test_loss"), ".4f"),
        "simulated time": number(last.get("time_s"), ",.4g", " s"),
        "uploaded weights": number(last.get("uploaded_weights"), ",.0f"),
        "uploaded bits": number(last.get("uploaded_bits"), ",.2f", " Mbit", scale=1e-6),
        "energy": number(last.get("energy_j"), ",.4g", " J"),
        "mean pruning ratio, last round": number(last.get("mean_pruning_ratio"), ".3f"),
        "left-out device rounds": _left_out(run),
    }
    found = [tiles(facts)] if run.rounds else [paragraph("No global round is finished yet.")]
    fates = _fates(run.records)
    if any(fates.values()):
        reasons = ", ".join(f"{count:,} {fate}" for fate, count in fates.items() if count)
        found.append(note(f"Left out, counted once per device and edge round: {reasons}."))
    if run.num_spoilt > 0:
        lines = "1 line" if run.num_spoilt == 1 else f"{run.num_spoilt:,} lines"
        found.append(note(f"{lines} of records.jsonl could not be read and left out."))
    return found


def _left_out(run: Run) -> str:
    left, took_part = (sum(row[name] or 0 for row in run.rounds) for name in ("left_out", "participants"))
    return f"{left:,.0f} of {left + took_part:,.0f}"


def _fates(records: list[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for record in records:
        left_out = record.get("left_out")
        if record["kind"] == "edge" and isinstance(left_out, dict):
            found.update({str(fate): count for fate, count in left_out.items() if isinstance(count, int)})
    return found


def _devices(run: Run, scheme: str, place: Place) -> list[Markup]:
    devices = last_edge_round(run.records)
    if devices is None:
        return [note("No edge round can be read.")]
    place.add_table(devices.rows(), "devices.csv")
    deadline_s = run.scenario.plan.deadline_s if run.scenario else None
    latency = devices.compute_s + devices.uplink_s
    slowest = f" The slowest takes {np.nanmax(latency) * 1e3:.4g} ms." if np.isfinite(latency).any() else ""
    until = "" if deadline_s is None else f", against the deadline of {deadline_s * 1e3:g} ms"
    about = f"Global round {devices.global_round}, edge round {devices.edge_round}; {len(devices.device):,} devices."
    if len(devices.device) > MAX_BARS:
        about += f" The pictures show the {MAX_BARS} slowest; devices.csv has all."
    colour = styles_for([scheme])[scheme].colour
    pictures = [
        place.add_figure(
            timeline(devices, deadline_s=deadline_s),
            "timeline",
            alt=f"Compute and uplink time of each device{until}.{slowest}",
            caption=f"Compute, then uplink, of each device{until}. Lines part the edges.{slowest}",
            table="devices.csv",
        )
    ]
    for name, label in (("bandwidth_share", "bandwidth share"), ("pruning_ratio", "pruning ratio")):
        values = getattr(devices, name)
        span = f"{np.nanmin(values):.3f} to {np.nanmax(values):.3f}" if np.isfinite(values).any() else "no values"
        figure = device_bars(devices, values, label=label, colour=colour)
        caption = f"{label[0].upper()}{label[1:]} of each device: {span}."
        grey = " Grey: left out." if any(fate != "ok" for fate in devices.fate) else ""
        pictures.append(
            place.add_figure(figure, name.replace("_", "-"), alt=caption, caption=caption + grey, table="devices.csv")
        )
    return [note(about), element("div", *pictures, class_="grid"), *_edges(devices)]


def _edges(devices: EdgeRound) -> list[Markup]:
    header = (
        "edge",
        "plan",
        "latency (ms)",
        "shadow price",
        "fewest devices per kept weight",
        "weights kept by nobody",
    )
    rows = [
        (
            row["edge"],
            row["status"],
            number(row["latency_s"], ".4g", scale=1e3),
            number(row["shadow_price"], ".4g"),
            number(row["min_count"], ",.0f"),
            number(row["num_uncovered"], ",.0f"),
        )
        for row in devices.edges
    ]
    return [
        element("h3", "Edges and coverage"),
        table(header, rows, label="Edges and coverage", words=("edge", "plan")),
        note("A weight that no device of an edge kept stays at the edge's previous value."),
        details("All devices in numbers", _device_table(devices)),
    ]


def _device_table(devices: EdgeRound) -> Markup:
    header = ("device", "edge", "fate", "bandwidth share", "pruning ratio", "compute (ms)", "uplink (ms)")
    rows = [
        (
            row["device"],
            row["edge"],
            row["fate"],
            number(row["bandwidth_share"], ".4f"),
            number(row["pruning_ratio"], ".4f"),
            number(row["compute_s"], ".4g", scale=1e3),
            number(row["uplink_s"], ".4g", scale=1e3),
        )
        for row in devices.rows()
    ]
    return table(header, rows, label="Devices", words=("fate",))


def _scenario(run: Run) -> list[Markup]:
    found: list[Markup] = []
    if run.scenario is None:
        found.append(note("scenario.toml is missing or cannot be read as a scenario."))
    else:
        changes = [
            (key, exact(mine), exact(default))
            for key, mine, default in run.scenario.diff(Scenario())
            if key not in ("name", "seed")
        ]
        if changes:
            found.append(paragraph("What differs from the defaults, which are the paper's:"))
            found.append(table(("key", "here", "default"), changes, label="Changes", words=("key", "here", "default")))
        else:
            found.append(paragraph("All values are the defaults, which are the paper's."))
    if run.scenario_text:
        found += [element("h3", "scenario.toml"), code_block(run.scenario_text)]
    return found


def _repeat(run: Run) -> Section:
    file = str(run.path / "scenario.toml")
    lines = [["airprune", "run", file, "--out", beside(run.path)]]
    notes = ["A model or data set of your own, given in Python, is not part of the scenario and must be given again."]
    if not run.is_finished:
        lines.insert(0, ["airprune", "run", file, "--out", str(run.path), "--resume"])
        notes.insert(0, "The first command continues the run, the second repeats it from the start.")
    return repeat_section(lines, *notes) if run.scenario else Section("Repeat it", [])
