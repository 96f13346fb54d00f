"""A fleet as users keep it, one row per device, turned into a planning problem and back into rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from airprune.channel import full_band_rate_bps
from airprune.compression import COMPRESSIONS
from airprune.compression.base import Wire
from airprune.latency import seconds_per_weight
from airprune.network import Network, network_from_columns
from airprune.planning import Ladder, Plan, PlanProblem
from airprune.tables import Column, read_table
from airprune.units import db_to_ratio

# The paper's values stand in for columns that a fleet does not have.
FLEET_COLUMNS = (
    Column(name="device", kind="label", required=True, explanation="a name or number, unique"),
    Column(name="edge", kind="label", required=True, explanation="the edge server that serves it"),
    Column(name="snr_db", required=True, minimum=-300, maximum=300, explanation="dB over the full band"),
    Column(name="cpu_hz", default=3e9, above=0, explanation="Hz"),
    Column(name="cycles_per_weight", default=20, minimum=0, explanation="CPU cycles per weight and iteration"),
    Column(name="local_iterations", default=2, minimum=0, explanation="iterations per round"),
    Column(name="conv_weights", default=18_720, minimum=0, explanation="weights that are never pruned"),
    Column(name="fc_weights", default=25_168, minimum=0, explanation="weights that may be pruned"),
    Column(name="objective_weight", default=1, above=0, explanation="how much its pruning counts, e.g. data size"),
    Column(name="fixed_bits", default=0, minimum=0, explanation="bits uploaded whatever is pruned, e.g. a mask"),
    Column(name="extra_seconds", default=0, minimum=0, explanation="compute time whatever is pruned, e.g. a probe"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fleet:
    """A fleet table, read and checked.

    Attributes:
      device: names as the user wrote them.  [num_devices]
      edge_names: the distinct edges, ascending if they are numbers, else as they first appear.  [num_edges]
      edge: index into `edge_names`.  [num_devices]
      columns: the numeric columns, defaults filled in.
      ignored: columns nobody asked for, with the nearest known name.
    """

    device: np.ndarray
    edge_names: np.ndarray
    edge: np.ndarray
    columns: dict[str, np.ndarray]
    ignored: tuple[str, ...]

    def problem(self, *, bandwidth_hz: float, **limits: Any) -> PlanProblem:
        """The planning problem with `bandwidth_hz` per edge; `limits` are the other fields of `PlanProblem`."""
        column = self.columns
        return PlanProblem(
            full_band_rate_bps=full_band_rate_bps(db_to_ratio(column["snr_db"]), bandwidth_hz),
            seconds_per_weight=seconds_per_weight(
                local_iterations=column["local_iterations"],
                cycles_per_weight=column["cycles_per_weight"],
                cpu_hz=column["cpu_hz"],
            ),
            edge=self.edge,
            conv_weights=column["conv_weights"],
            fc_weights=column["fc_weights"],
            objective_weight=column["objective_weight"],
            fixed_bits=column["fixed_bits"],
            extra_seconds=column["extra_seconds"],
            **limits,
        )

    def ladder(self, value_bits: float) -> Ladder:
        """The codes of compression `ladder` for the fleet's largest model, up to `value_bits` per weight.

        What a code sends whatever the number of weights, as the scales of its tensors, belongs to `fixed_bits`.
        """
        weights = int(np.max(self.columns["conv_weights"] + self.columns["fc_weights"]))
        coded = COMPRESSIONS["ladder"]
        wire = Wire(value_bits=value_bits, num_weights=weights, num_tensors=1)
        assert coded.ladder is not None
        codes = [code for code in coded.ladder(coded.Options(), wire) if code.bits_per_weight < value_bits]
        return Ladder([*(code.bits_per_weight for code in codes), value_bits], [*(code.error for code in codes), 0.0])

    def device_columns(self, plan: Plan) -> dict[str, np.ndarray]:
        """The plan as columns of the user's table, in the user's order."""
        bits = {} if plan.bits_per_weight is None else {"bits_per_weight": plan.bits_per_weight}
        return {
            "device": self.device,
            "edge": self.edge_names[self.edge],
            "bandwidth_share": plan.bandwidth_share,
            "pruning_ratio": plan.pruning_ratio,
            **bits,
            "latency_ms": 1e3 * plan.latency_s,
        }

    def edge_columns(self, plan: Plan) -> dict[str, np.ndarray]:
        """What the plan says of each edge."""
        return {
            "edge": self.edge_names,
            "status": plan.status,
            "shadow_price": plan.shadow_price,
            "min_deadline_ms": 1e3 * plan.min_deadline_s,
        }

    def failures(self, plan: Plan) -> list[str]:
        """One sentence per edge without a plan, with the user's names."""
        return [
            plan.failure(int(k), edge_name=str(self.edge_names[k]), device_names=self.device)
            for k in np.flatnonzero(plan.failed)
        ]


def read_fleet(source: Path | str | BinaryIO) -> Fleet:
    """Reads a fleet from a CSV or JSON file or stream; raises `BadTable` with the line of the first fault."""
    table = read_table(source, FLEET_COLUMNS, unique="device")
    names, edge = _index(table["edge"])
    numbers = {column.name: table[column.name] for column in FLEET_COLUMNS if column.kind == "number"}
    return Fleet(device=table["device"], edge_names=names, edge=edge, columns=numbers, ignored=table.ignored)


def _index(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if labels.dtype != object:
        names, index = np.unique(labels, return_inverse=True)
        return names, index.astype(np.int64)
    position: dict[Any, int] = {}
    index = np.fromiter((position.setdefault(label, len(position)) for label in labels), np.int64, len(labels))
    names = np.empty(len(position), dtype=object)
    names[:] = list(position)
    return names, index


NETWORK_COLUMNS = (
    Column(name="device", kind="label", required=True, explanation="a name or number, unique"),
    Column(name="edge", kind="label", required=True, explanation="the edge server that serves it"),
    Column(name="distance_m", minimum=0, explanation="metres to its edge; or give places"),
    Column(name="snr_db", minimum=-300, maximum=300, explanation="or the measured mean dB over the full band"),
    Column(name="full_band_rate_bps", above=0, explanation="or the measured mean bit/s over the full band"),
    Column(name="x_m", explanation="metres east of the cloud"),
    Column(name="y_m", explanation="metres north of the cloud"),
    Column(name="edge_x_m", explanation="where its edge stands"),
    Column(name="edge_y_m", explanation="where its edge stands"),
    Column(name="cpu_hz", default=3e9, above=0, explanation="Hz"),
    Column(name="seconds_per_sample", above=0, explanation="measured, of training the whole model"),
)


def read_network(source: Path | str | BinaryIO) -> Network:
    """Reads who is where from a CSV or JSON table: `distance_m`, or places of devices and of their edges.

    In their place may stand the measured `snr_db` of every link, as fleets for `airprune plan` have it, or its
    `full_band_rate_bps`, as `airprune deploy calibrate` writes it with each device's `seconds_per_sample`.
    """
    table = read_table(source, NETWORK_COLUMNS, unique="device")
    edges = ("edge", "edge_x_m", "edge_y_m")
    columns = {column.name: table[column.name] for column in NETWORK_COLUMNS if column.name in table}
    columns = {name: array for name, array in columns.items() if name not in edges}
    columns["edge"] = table["edge"] if table["edge"].dtype != object else table["edge"].astype(str)
    if "edge_x_m" not in table or "edge_y_m" not in table:
        return network_from_columns(columns)
    places: dict[Any, tuple[float, float]] = {}
    for row, (label, x, y) in enumerate(zip(columns["edge"], table["edge_x_m"], table["edge_y_m"], strict=True)):
        if places.setdefault(label, (float(x), float(y))) != (x, y):
            raise table.error(row, f"edge {label} stands at {places[label]} on an earlier line; an edge has one place")
    return network_from_columns(columns, edge_position_m=places)
