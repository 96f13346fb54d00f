"""A partition at a glance: the classes of every device, grouped by edge."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike

from airprune.errors import InvalidValue, UsageError, WorkFailed
from airprune.results.figures.curves import new_figure
from airprune.text import printable

# Paul Tol's "muted" scheme: ten hues that differ for every kind of colour vision.
_PALETTE = (
    "#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#DDDDDD",
)  # fmt: skip
_DARK = frozenset({"#332288", "#117733", "#882255", "#AA4499", "#CC6677"})
_EDGE_GAP = 0.7  # in bars
_MOST_NAMED_DEVICES = 60
_LEGEND_ROWS, _LEGEND_LENGTH = 4, 90  # entries below each other, characters beside each other
_LEAST_NAMED_SHARE = 0.035  # of the axis, below which a bar is too narrow for its class


def draw_partition(
    counts: ArrayLike,
    edge: ArrayLike,
    path: Path | str | None = None,
    *,
    class_names: Sequence[str] | None = None,
    with_edges: bool = False,
) -> Figure:
    """Draws stacked bars, one per device: its samples by class.

    Args:
      counts: as partition_table gives.  [num_devices, num_classes]
      edge: of each device.  [num_devices]
      path: the file to write; its ending says the format.
      class_names: for the legend; None for their numbers.
      with_edges: a second panel has the shares of the classes on each edge.
    """
    table, edge_of = np.asarray(counts), np.asarray(edge)
    if table.ndim != 2 or table.size == 0 or table.shape[0] != edge_of.size or edge_of.ndim != 1:
        got = f"shapes {table.shape} and {edge_of.shape}"
        raise InvalidValue("draw_partition.counts", "must be [devices, classes] with one edge per device", got)
    few = len(table) <= _MOST_NAMED_DEVICES
    # Many thin bars become legible when devices with the same main class lie together.
    order = np.lexsort((np.arange(len(table)) if few else table.argmax(axis=1), edge_of))
    table, edge_of = table[order], edge_of[order]
    new_edge = np.concatenate(([0], np.cumsum(edge_of[1:] != edge_of[:-1])))
    gap = max(_EDGE_GAP, 0.1 * len(table) / (new_edge[-1] + 1))
    middle = np.arange(len(table)) + gap * new_edge

    height = float(np.clip(1.4 + 0.2 * (middle[-1] + 1), 2.8, 13.0))
    names = list(map(str, range(table.shape[1]))) if class_names is None else [printable(name) for name in class_names]
    figure, all_axes = new_figure(2 if with_edges else 1, width=5.6 if with_edges else 8.0, height=height)
    axes = all_axes[0]
    axes.grid(False)
    _draw_bars(axes, table, middle, names)
    _name_devices(axes, order, middle)
    _name_edges(axes, edge_of, middle, inches_per_bar=(height - 1.2) / (middle[-1] + 1))
    axes.set_xlim(0, max(1, table.sum(axis=1).max()) * 1.01)
    axes.set_ylim(middle[-1] + 0.8, -0.8)
    axes.set_xlabel("training samples")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if with_edges:
        _draw_edges(all_axes[1], table, edge_of)
    handles, labels = axes.get_legend_handles_labels()
    columns = max(1, min(10, table.shape[1], _LEGEND_LENGTH // max(4, *map(len, labels))))
    most = columns * _LEGEND_ROWS
    figure.legend(
        handles[:most], [*labels[: most - 1], "…"] if len(labels) > most else labels,
        loc="outside upper center", ncols=columns, frameon=False, title="class", handlelength=1.0,
        columnspacing=1.2, handletextpad=0.5,
    )  # fmt: skip
    if path is not None:
        _write(figure, path)
    return figure


def _colours(num_classes: int) -> list[str]:
    if num_classes <= len(_PALETTE):
        return list(_PALETTE[:num_classes])
    return [to_hex(colormaps["cividis"](c / (num_classes - 1))) for c in range(num_classes)]


def _draw_edges(axes: Axes, table: np.ndarray, edge_of: np.ndarray) -> None:
    """Draws the shares of the classes on each edge, and how many samples its devices have."""
    edges = np.unique(edge_of)
    sums = np.array([table[edge_of == edge].sum(axis=0) for edge in edges])
    share = sums / np.maximum(sums.sum(axis=1, keepdims=True), 1)
    start = np.cumsum(share, axis=1) - share
    for c, colour in enumerate(_colours(table.shape[1])):
        axes.barh(np.arange(len(edges)), share[:, c], left=start[:, c], height=0.8, color=colour, edgecolor="white",
                  linewidth=0.6 if len(edges) <= _MOST_NAMED_DEVICES else 0.0)  # fmt: skip
    axes.grid(False)
    axes.set_xlim(0, 1)
    axes.set_ylim(len(edges) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    if len(edges) <= _MOST_NAMED_DEVICES:
        labels = [f"edge {edge}\n{total:,}" for edge, total in zip(edges, sums.sum(axis=1), strict=True)]
        axes.set_yticks(np.arange(len(edges)), labels, fontsize=8)
    else:
        axes.set_yticks([])
    axes.set_xlabel("share of each class on the devices of an edge")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _draw_bars(axes: Axes, table: np.ndarray, middle: np.ndarray, names: Sequence[str]) -> None:
    stop = np.cumsum(table, axis=1)
    start = stop - table
    few = len(table) <= _MOST_NAMED_DEVICES
    half = 0.41 if few else 0.5
    widest = max(1, int(stop[:, -1].max()))
    for c, colour in enumerate(_colours(table.shape[1])):
        left, right, low, high = start[:, c], stop[:, c], middle - half, middle + half
        corners = np.array([[left, low], [right, low], [right, high], [left, high]]).transpose(2, 0, 1)
        # One collection per class: thousands of devices stay quick.
        axes.add_collection(
            PolyCollection(
                list(corners[right > left]),
                facecolor=colour,
                edgecolor="white" if few else colour,
                linewidth=0.6 if few else 0.0,
                label=names[c],
            )
        )
        if few:
            least = max(1, len(names[c]) / 3) * _LEAST_NAMED_SHARE  # a longer name needs a longer bar
            for n in np.flatnonzero(table[:, c] >= least * widest):
                axes.text(
                    (left[n] + right[n]) / 2, middle[n], names[c], ha="center", va="center_baseline", fontsize=7,
                    color="white" if colour in _DARK else "#222222",
                )  # fmt: skip


def _name_devices(axes: Axes, order: np.ndarray, middle: np.ndarray) -> None:
    if len(order) <= _MOST_NAMED_DEVICES:
        axes.set_yticks(middle, [str(n) for n in order], fontsize=7, color="#555555")
    else:
        axes.set_yticks([])
    axes.set_ylabel("edge and device", labelpad=32 if len(order) <= _MOST_NAMED_DEVICES else 48)


def _name_edges(axes: Axes, edge_of: np.ndarray, middle: np.ndarray, *, inches_per_bar: float) -> None:
    edges, first, counts = np.unique(edge_of, return_index=True, return_counts=True)
    roomy = bool(counts.min() * inches_per_bar > 0.45)
    every = 1 if roomy else int(np.ceil(0.15 / (inches_per_bar * counts.mean())))
    for name, start, count in list(zip(edges, first, counts, strict=True))[::every]:
        axes.annotate(
            f"edge {name}" if roomy else str(name),
            xy=(0, middle[start : start + count].mean()),
            xycoords=("axes fraction", "data"),
            xytext=(-24, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            rotation=90 if roomy else 0,
            fontsize=8,
            fontweight="bold",
        )


def _write(figure: Figure, path: Path | str) -> None:
    shown = printable(str(path))
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:  # an ending that matplotlib does not know
        raise UsageError(f"{shown} cannot be drawn: {error}.") from error
    except OSError as error:
        raise WorkFailed(f"{shown} was not written: {error.strerror or error}.") from error
