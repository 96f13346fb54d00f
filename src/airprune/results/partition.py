"""Shows a partition before training: samples of each class on each device and edge, as rows, text and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from airprune.data import Dataset, partition_table
from airprune.data.holdings import IntArray
from airprune.errors import InvalidValue
from airprune.scenario import Scenario
from airprune.scenario.data import classes_of, dataset_of, held_out_by_device, samples_by_device
from airprune.scenario.scenario import checked_scenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_NAMED = 6


@dataclass(frozen=True, kw_only=True, eq=False)
class PartitionTable:
    """The samples of each class on each device; printed, a line for each device and edge.

    Attributes:
      counts: training samples.  [num_devices, num_classes]
      edge: of each device.  [num_devices]
      class_names: of the columns of `counts`.
      owner: the owner of each device, or how many it has; empty without owners.  [num_devices]
      num_tests: test samples of each device's own; None if devices have none.  [num_devices]
    """

    name: str
    counts: IntArray
    edge: IntArray
    class_names: tuple[str, ...]
    owner: tuple[str, ...] = ()
    num_tests: IntArray | None = None

    def __post_init__(self) -> None:
        if self.counts.ndim != 2 or self.edge.shape != self.counts.shape[:1] or not self.counts.size:
            rule = "must be [devices, classes] with one edge per device"
            raise InvalidValue("PartitionTable.counts", rule, f"shapes {self.counts.shape} and {self.edge.shape}")

    @cached_property
    def sizes(self) -> IntArray:
        """Returns the number of training samples of each device.  [num_devices]"""
        return self.counts.sum(axis=1)

    @cached_property
    def edges(self) -> IntArray:
        return np.unique(self.edge)

    @cached_property
    def edge_counts(self) -> IntArray:
        """Returns the samples of each class on the devices of each edge.  [num_edges, num_classes]"""
        return np.array([self.counts[self.edge == edge].sum(axis=0) for edge in self.edges])

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Returns a sentence for everything that training is likely to suffer from."""
        found = []
        if len(empty := np.flatnonzero(self.sizes == 0)):
            found.append(f"{_counted(empty, 'device')} without samples, which cannot train.")
        for edge, held in zip(self.edges.tolist(), self.edge_counts, strict=True):
            if len(lacking := np.flatnonzero(held == 0)):
                names = [self.class_names[c] for c in lacking[:_MOST_NAMED]] + ["…"] * (len(lacking) > _MOST_NAMED)
                found.append(
                    f"Edge {edge} has no samples of {len(lacking)} of {len(held)} classes: {', '.join(names)}."
                )
        if self.num_tests is not None and len(untested := np.flatnonzero(self.num_tests == 0)):
            whose = "its" if len(untested) == 1 else "their"
            found.append(f"{_counted(untested, 'device')} without test samples of {whose} own.")
        return tuple(found)

    @property
    def summary(self) -> str:
        """Returns one line: devices, edges, sizes, classes per device."""
        sizes, held = self.sizes, np.count_nonzero(self.counts, axis=1)
        return (
            f"{self.name}: {len(sizes):,} devices on {len(self.edges):,} edges, {int(sizes.sum()):,} training samples; "
            f"{_range(sizes)} per device, median {np.median(sizes):,.0f}; "
            f"{_range(held)} of {self.counts.shape[1]} classes per device"
        )

    def rows(self) -> list[dict[str, Any]]:
        """Returns one mapping per device: device, edge, owner, samples, test_samples, counts."""
        found = []
        for n, counts in enumerate(self.counts.tolist()):
            row: dict[str, Any] = {"device": n, "edge": int(self.edge[n])}
            if self.owner:
                row["owner"] = self.owner[n]
            row["samples"] = int(self.sizes[n])
            if self.num_tests is not None:
                row["test_samples"] = int(self.num_tests[n])
            found.append(row | {"counts": counts})
        return found

    def edge_rows(self) -> list[dict[str, Any]]:
        """Returns one mapping per edge: edge, devices, samples, counts."""
        return [
            {"edge": edge, "devices": int(np.sum(self.edge == edge)), "samples": sum(counts), "counts": counts}
            for edge, counts in zip(self.edges.tolist(), self.edge_counts.tolist(), strict=True)
        ]

    def draw(self, path: Path | str | None = None) -> Figure:
        """Draws devices and edges as stacked bars by class; the ending of the file says its format."""
        from airprune.results.figures.partition import draw_partition  # drawing takes time to import

        return draw_partition(self.counts, self.edge, path, class_names=self.class_names, with_edges=True)

    def __str__(self) -> str:
        parts = [self.summary, "", *_lines(self.rows(), self.class_names), ""]
        return "\n".join([*parts, *_lines(self.edge_rows(), self.class_names), "", *self.warnings]).rstrip()


def partition_of(scenario: Scenario, dataset: Any = None) -> PartitionTable:
    """Returns the partition that a run of this scenario trains on; `dataset` as for `run`."""
    from airprune.models.losses.own import criteria_of

    checked_scenario("partition_of.scenario", scenario).check_names()
    loss = criteria_of(scenario).loss if not scenario.train.loss.startswith("own:") else None
    data = dataset_of(scenario, dataset, targets="any" if loss is None else loss.targets)
    network = scenario.build_network()
    samples = samples_by_device(scenario, data, network)
    classes = classes_of(data.train_y, data)
    has_classes = bool(data.num_classes) and data.train_y.ndim == 1
    num_classes = data.num_classes if has_classes else 1
    names = (data.class_names or tuple(map(str, range(num_classes)))) if has_classes else ("samples",)
    tests = held_out_by_device(scenario, data, samples)
    return PartitionTable(
        name=f"{data.name if dataset is not None else scenario.data.source}, {scenario.data.partition}",
        counts=partition_table(classes, samples, num_classes),
        edge=network.edge,
        class_names=names,
        owner=_owners(data, samples) if scenario.data.partition == "natural" else (),
        num_tests=None if tests is None else np.array([len(own) for own in tests]),
    )


def _owners(data: Dataset, samples: Sequence[Any]) -> tuple[str, ...]:
    assert data.train_owner is not None  # the partition natural needs owners
    found = []
    for own in samples:
        owners = np.unique(data.train_owner[own]).tolist()
        first = data.owner_names[owners[0]] if data.owner_names else str(owners[0])
        found.append(first if len(owners) == 1 else f"{len(owners)} owners")
    return tuple(found)


def _range(values: IntArray) -> str:
    least, most = int(values.min()), int(values.max())
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _counted(devices: IntArray, word: str) -> str:
    if len(devices) == 1:
        return f"1 {word} ({devices[0]}) is"
    named = ", ".join(map(str, devices[:_MOST_NAMED])) + (", …" if len(devices) > _MOST_NAMED else "")
    return f"{len(devices):,} {word}s ({named}) are"


def _lines(rows: list[dict[str, Any]], class_names: Sequence[str]) -> list[str]:
    """Returns the rows as text, columns aligned right; a dot for no samples."""
    keys = [key for key in rows[0] if key != "counts"]
    cells = [[*(key.replace("_", " ") for key in keys), *class_names]]
    for row in rows:
        numbers = [f"{row[key]:,}" if isinstance(row[key], int) else str(row[key]) for key in keys]
        cells.append([*numbers, *(f"{count:,}" if count else "·" for count in row["counts"])])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
