"""`airprune data`: the datasets, their files, and their partition over devices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.text import Text

from airprune.checks import whole_number
from airprune.cli.console import print_json, say, stdout_console
from airprune.cli.options import AsJson, Changes, FleetTable, ScenarioName
from airprune.cli.scenario_argument import scenario_from
from airprune.cli.tables import plain_table, print_table
from airprune.data import DATASETS, PARTITIONS, fetch_dataset, load_dataset, partition, partition_table

_ROWS_SHOWN = 40

data = typer.Typer(
    help="List and fetch datasets, and show how devices share them.", no_args_is_help=True, rich_markup_mode="markdown"
)

Name = Annotated[str, typer.Argument(metavar="NAME", help=f"One of {', '.join(DATASETS)}.")]
DataDir = Annotated[Path | None, typer.Option(metavar="DIR", help="Look here first, and keep fetched files here.")]


@data.command("list")
def list_datasets(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the datasets and where their files are on this machine."""
    places = {name: entry.find(data_dir) if entry.find else None for name, entry in DATASETS.items()}
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "summary": entry.summary,
                    "num_train": entry.num_train,
                    "num_test": entry.num_test,
                    "num_classes": entry.num_classes,
                    "feature_shape": list(entry.feature_shape),
                    "needs_files": entry.needs_files,
                    "folder": str(places[name]) if places[name] else None,
                }
                for name, entry in DATASETS.items()
            ]
        )
        return
    numbers = ("train", "test", "classes")
    table = plain_table("dataset", *numbers, "what it is", numbers=numbers)
    found = plain_table("dataset", "files", paths=["files"])
    for name, entry in DATASETS.items():
        table.add_row(name, f"{entry.num_train:,}", f"{entry.num_test:,}", str(entry.num_classes), entry.summary)
        where = (
            str(places[name] or f"not here: airprune data fetch {name}")
            if entry.needs_files
            else "generated when needed"
        )
        found.add_row(name, Text(where))
    print_table(table)
    stdout_console().print()
    print_table(found)


@data.command()
def fetch(name: Name, data_dir: DataDir = None) -> None:
    """Fetch and verify the files of a dataset; prints their folder.

    Example: `airprune data fetch fashion-mnist`
    """
    folder, way = fetch_dataset(name, data_dir=data_dir)
    if folder is None:
        say(f"Dataset {name} has no files: it is {way}.")
        return
    say(f"Dataset {name} is verified; source: {way}.")
    typer.echo(str(folder))


@data.command()
def show(
    name: Name,
    kind: Annotated[str, typer.Option("--partition", metavar="NAME", help=f"One of {', '.join(PARTITIONS)}.")] = "iid",
    devices: Annotated[int, typer.Option(metavar="N", help="Number of devices.")] = 25,
    edges: Annotated[int, typer.Option(metavar="N", help="Number of edges; devices are spread evenly.")] = 5,
    classes_per_device: Annotated[int, typer.Option(metavar="N", help="For shards, edge-iid and edge-non-iid.")] = 2,
    alpha: Annotated[float, typer.Option(metavar="ALPHA", help="For dirichlet: small is skewed, large is even.")] = 0.5,
    size_spread: Annotated[float, typer.Option(metavar="SIGMA", help="Log-normal spread of data sizes; 0: equal.")] = 0,
    train_samples: Annotated[
        int | None, typer.Option(metavar="N", help="Use this many training samples.  [default: all]")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="SEED", help="Seed of subset and partition.")] = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the partition as PNG, PDF or SVG.")] = None,
) -> None:
    """Show the samples of each class that every device would hold.

    Example: `airprune data show glyphs --partition dirichlet --devices 25 --edges 5 --out partition.png`
    """
    whole_number("--devices", devices, at_least=1, at_most=1_000_000)
    whole_number("--edges", edges, at_least=1, at_most=devices, way_out="Every edge needs a device.")
    dataset = load_dataset(name, data_dir=data_dir, train_samples=train_samples, test_samples=1, seed=seed)
    edge = np.arange(devices) * edges // devices
    classes = dataset.train_y if dataset.train_y.ndim == 1 else np.zeros(dataset.num_train, dtype=np.int64)
    parts = partition(
        classes,
        edge=edge,
        kind=kind,
        seed=seed,
        classes_per_device=classes_per_device,
        alpha=alpha,
        size_spread=size_spread,
        owner=dataset.train_owner,
    )
    counts = partition_table(classes, parts, dataset.num_classes if classes is dataset.train_y else 1)
    if out is not None:
        from airprune.results.figures.partition import draw_partition  # drawing takes time to import

        draw_partition(counts, edge, out)
        say(f"Partition of {devices:,} devices drawn to {out}")
    if as_json:
        rows = [{"device": n, "edge": int(edge[n]), "counts": counts[n].tolist()} for n in range(devices)]
        print_json({"dataset": name, "partition": kind, "seed": seed, "devices": rows})
    elif out is None:
        _show(counts, edge, f"{name}, {kind}: samples of each class on each device")


@data.command("partition")
def show_partition(
    scenario: ScenarioName,
    overrides: Changes = None,
    fleet: FleetTable = None,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the partition as PNG, PDF or SVG.")] = None,
) -> None:
    """Show the samples that every device and edge of a scenario would train on.

    Prints a warning for every edge without samples of a class, and for devices without test samples of their own.

    Example: `airprune data partition smoke data.path=people.csv data.owner_column=name data.partition=natural`
    """
    from airprune.results.partition import partition_of

    found = partition_of(scenario_from(scenario, overrides or [], fleet=fleet))
    if out is not None:
        found.draw(out)
        say(f"Partition of {len(found.sizes):,} devices drawn to {out}")
    if as_json:
        print_json({"partition": found.name, "classes": list(found.class_names), "devices": found.rows(),
                    "edges": found.edge_rows(), "warnings": list(found.warnings)})  # fmt: skip
        return
    stdout_console().print(found.summary, highlight=False, soft_wrap=True)
    stdout_console().print()
    _print_rows(found.rows(), found.class_names, "By device")
    stdout_console().print()
    _print_rows(found.edge_rows(), found.class_names, "By edge")
    for sentence in found.warnings:
        say(f"warning: {sentence}")


def _print_rows(rows: list[dict[str, Any]], class_names: Sequence[str], title: str) -> None:
    keys = [key for key in rows[0] if key != "counts"]
    headings = (*(key.replace("_", " ") for key in keys), *class_names)
    table = plain_table(*headings, numbers=headings, title=title)
    for row in rows[:_ROWS_SHOWN]:
        cells = (f"{row[key]:,}" if isinstance(row[key], int) else str(row[key]) for key in keys)
        table.add_row(*cells, *(f"{count:,}" if count else "·" for count in row["counts"]))
    print_table(table, keys=len(keys))
    if len(rows) > _ROWS_SHOWN:
        say(f"{len(rows) - _ROWS_SHOWN:,} more; --json lists and --out partition.png draws all.")


def _show(counts: np.ndarray, edge: np.ndarray, title: str) -> None:
    headings = ("device", "edge", "samples", *map(str, range(counts.shape[1])))
    table = plain_table(*headings, numbers=headings, title=title)
    for n in range(min(len(counts), _ROWS_SHOWN)):
        cells = (f"{count:,}" if count else "·" for count in counts[n].tolist())
        table.add_row(str(n), str(edge[n]), f"{counts[n].sum():,}", *cells)
    print_table(table, keys=3)
    if len(counts) > _ROWS_SHOWN:
        say(f"{len(counts) - _ROWS_SHOWN:,} more devices; --json lists and --out partition.png draws all.")
