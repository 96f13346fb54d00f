"""Reads device tables, one row per device, as planning problems for `plan` and networks for `run`, and writes them.

One table serves both. Every column but `device` and `edge` is optional, as long as one describes the link. A command
ignores columns that it does not need, so the table that `airprune plan --out` writes is a fleet again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from airprune.errors import BadTable, InvalidValue
from airprune.planning.compression_levels import Ladder
from airprune.planning.plan import Plan
from airprune.planning.problem import PlanProblem
from airprune.tables import Column, read_table, write_csv_atomic
from airprune.tables.read import Table
from airprune.units import db_to_ratio, ratio_to_db
from airprune.wireless.channel import Radio, full_band_rate_bps, path_loss_db, snr
from airprune.wireless.latency import seconds_per_weight
from airprune.wireless.network import Network, network_from_columns

RATE = "full_band_rate_bps"
PAPER_BATCH_SAMPLES = 128
_MOST_BITS_PER_HZ = 90.0  # 271 dB; more than any link has, and still a number of dB that a table may hold
_PLACES = ("x_m", "y_m", "edge_x_m", "edge_y_m")
# The paper's values stand in for columns that a fleet does not have.
FLEET_COLUMNS = (
    Column(name="device", kind="label", required=True, explanation="a name or number, unique"),
    Column(name="edge", kind="label", required=True, explanation="the edge server that serves it"),
    Column(name="snr_db", minimum=-300, maximum=300, explanation="dB over the full bandwidth"),
    Column(name="rate_mbps", above=0, explanation="measured Mbit/s of the device alone on the full bandwidth"),
    Column(name=RATE, above=0, explanation="the same in bit/s"),
    Column(name="distance_m", minimum=0, explanation="metres to its edge"),
    Column(name="x_m", explanation="metres east of the cloud"),
    Column(name="y_m", explanation="metres north of the cloud"),
    Column(name="edge_x_m", explanation="metres east of the cloud, of its edge"),
    Column(name="edge_y_m", explanation="metres north of the cloud, of its edge"),
    Column(name="cpu_hz", default=3e9, above=0, explanation="CPU frequency in Hz"),
    Column(name="cycles_per_weight", default=20, minimum=0, explanation="CPU cycles per weight and iteration"),
    Column(name="local_iterations", default=2, minimum=0, explanation="local iterations per round"),
    Column(name="seconds_per_step", above=0, explanation="measured seconds of one iteration with the whole model"),
    Column(name="seconds_per_sample", above=0, explanation="measured seconds to train the whole model on one sample"),
    Column(name="conv_weights", default=18_720, minimum=0, explanation="weights that are never pruned"),
    Column(name="fc_weights", default=25_168, minimum=0, explanation="weights that may be pruned"),
    Column(name="objective_weight", default=1, above=0, explanation="weight of its pruning, e.g. data size"),
    Column(name="fixed_bits", default=0, minimum=0, explanation="bits uploaded whatever is pruned, e.g. a mask"),
    Column(name="extra_seconds", default=0, minimum=0, explanation="compute time whatever is pruned, e.g. a probe"),
)
# Columns that a plan adds to a fleet's table; they are ignored when it is read again.
PLAN_COLUMNS = (
    *("bandwidth_share", "pruning_ratio", "bits_per_weight", "latency_ms"),
    *("first_trained", "last_trained", "local_steps", "compute_ms"),
)
# Columns that `airprune run` takes from the scenario, its model and its clock instead.
_OF_THE_SCENARIO = (
    "cycles_per_weight",
    "local_iterations",
    "conv_weights",
    "fc_weights",
    "objective_weight",
    "fixed_bits",
    "extra_seconds",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fleet:
    """A table of devices, read and checked.

    Attributes:
      device: names as the user wrote them.  [num_devices]
      edge_names: the distinct edges, ascending if they are numbers, else as they first appear.  [num_edges]
      edge: index into `edge_names`.  [num_devices]
      columns: the numeric columns with defaults, `snr_db` always among them; measured ones are NaN where a device was
        not measured.
      ignored: unknown columns, with the nearest known name.
      given: numeric columns that the table has; empty for a fleet that was not read from one.
    """

    device: np.ndarray
    edge_names: np.ndarray
    edge: np.ndarray
    columns: dict[str, np.ndarray]
    ignored: tuple[str, ...]
    given: tuple[str, ...] = ()

    def problem(self, *, bandwidth_hz: float, **limits: Any) -> PlanProblem:
        """Returns the planning problem with `bandwidth_hz` per edge; `limits` are the other fields of `PlanProblem`.

        Measured rates hold for any bandwidth.
        """
        column = self.columns
        rate_bps = full_band_rate_bps(db_to_ratio(column["snr_db"]), bandwidth_hz)
        return PlanProblem(
            full_band_rate_bps=_where_measured(_rate_bps(column), rate_bps),
            seconds_per_weight=_where_measured(self._measured_s_per_weight(), self._counted_s_per_weight()),
            edge=self.edge,
            conv_weights=column["conv_weights"],
            fc_weights=column["fc_weights"],
            objective_weight=column["objective_weight"],
            fixed_bits=column["fixed_bits"],
            extra_seconds=column["extra_seconds"],
            **limits,
        )

    def _counted_s_per_weight(self) -> np.ndarray:
        return seconds_per_weight(
            local_iterations=self.columns["local_iterations"],
            cycles_per_weight=self.columns["cycles_per_weight"],
            cpu_hz=self.columns["cpu_hz"],
        )

    def _measured_s_per_weight(self) -> np.ndarray | None:
        """Returns a_n from the time of a step with the whole model, or of as many samples as the paper's step has."""
        step_s = self.columns.get("seconds_per_step")
        if step_s is None and "seconds_per_sample" in self.columns:
            step_s = PAPER_BATCH_SAMPLES * self.columns["seconds_per_sample"]
        weights = self.columns["conv_weights"] + self.columns["fc_weights"]
        return None if step_s is None else self.columns["local_iterations"] * step_s / np.maximum(weights, 1.0)

    def with_snr(self, places: list[int], snr_db: np.ndarray) -> Fleet:
        """Returns the fleet with the SNR of `snr_db` in place of the measured rate for the devices at `places`."""
        columns = {**self.columns, "snr_db": snr_db}
        for name in columns.keys() & {RATE, "rate_mbps"}:
            columns[name] = columns[name].copy()
            columns[name][places] = np.nan
        return dataclasses.replace(self, columns=columns, given=())

    def ladder(self, value_bits: float) -> Ladder:
        """Returns the levels of compression `ladder` for the fleet's largest model, up to `value_bits` per weight.

        Bits that do not depend on the number of weights, as scales of tensors, belong to `fixed_bits`.
        """
        from airprune.methods.compression import COMPRESSIONS  # a room above this one
        from airprune.methods.compression.base import Wire

        weights = int(np.max(self.columns["conv_weights"] + self.columns["fc_weights"]))
        wire = Wire(value_bits=value_bits, num_weights=weights, num_tensors=1)
        levels = COMPRESSIONS["ladder"]().ladder(wire) or ()
        below = [(level.bits_per_weight, level.error) for level in levels if level.bits_per_weight < value_bits]
        return Ladder(*zip(*below, (value_bits, 0.0), strict=True))

    def table_columns(self, plan: Plan | None = None) -> dict[str, np.ndarray]:
        """Returns the fleet as columns that `read_fleet` and `read_network` take, with the plan's if there is one.

        A fleet that was read has the columns it came with; another one those that differ from the paper's values.
        """
        given = self.given or tuple(column.name for column in FLEET_COLUMNS if self._differs_from_default(column))
        return {
            "device": self.device,
            "edge": self.edge_names[self.edge],
            **{name: self.columns[name] for name in given},
            **({} if plan is None else self._plan_columns(plan)),
        }

    def _differs_from_default(self, column: Column) -> bool:
        values = self.columns.get(column.name)
        return values is not None and (column.default is None or bool(np.any(values != column.default)))

    def device_columns(self, plan: Plan) -> dict[str, np.ndarray]:
        """Returns the plan as columns of the user's table, in the user's order."""
        return {"device": self.device, "edge": self.edge_names[self.edge], **self._plan_columns(plan)}

    def _plan_columns(self, plan: Plan) -> dict[str, np.ndarray]:
        bits = {} if plan.bits_per_weight is None else {"bits_per_weight": plan.bits_per_weight}
        return {
            "bandwidth_share": plan.bandwidth_share,
            "pruning_ratio": plan.pruning_ratio,
            **bits,
            **_work_columns(plan),
            "latency_ms": 1e3 * plan.latency_s,
        }

    def edge_columns(self, plan: Plan) -> dict[str, np.ndarray]:
        """Returns the plan's values per edge."""
        return {
            "edge": self.edge_names,
            "status": plan.status,
            "shadow_price": plan.shadow_price,
            "min_deadline_ms": 1e3 * plan.min_deadline_s,
        }

    def failures(self, plan: Plan) -> list[str]:
        """Returns one sentence per edge without a plan, with the user's names."""
        return [
            plan.failure(int(k), edge_name=str(self.edge_names[k]), device_names=self.device)
            for k in np.flatnonzero(plan.failed)
        ]


def _work_columns(plan: Plan) -> dict[str, np.ndarray]:
    """Returns the chosen work, for schemes that plan it: lowest trained layer, local steps and compute time."""
    if plan.local_steps is None or plan.first_trained is None or plan.compute_s is None:
        return {}
    last = {} if plan.last_trained is None else {"last_trained": plan.last_trained}
    return {
        "first_trained": plan.first_trained,
        **last,
        "local_steps": plan.local_steps,
        "compute_ms": 1e3 * plan.compute_s,
    }


def _where_measured(measured: np.ndarray | None, otherwise: np.ndarray) -> np.ndarray:
    return otherwise if measured is None else np.where(np.isnan(measured), otherwise, measured)


def read_fleet(source: Path | str | BinaryIO) -> Fleet:
    """Reads a fleet from a CSV or JSON file or stream; raises `BadTable` with the line of the first fault."""
    table = _read(source)
    names, edge = _index(table["edge"])
    numbers = {column.name: table[column.name] for column in FLEET_COLUMNS if _is_number_in(column, table)}
    return Fleet(
        device=table["device"],
        edge_names=names,
        edge=edge,
        columns=numbers | {"snr_db": _snr_db(table, numbers)},
        ignored=_unknown(table),
        given=tuple(column.name for column in FLEET_COLUMNS if column.name in table.present & numbers.keys()),
    )


def _is_number_in(column: Column, table: Table) -> bool:
    return column.kind == "number" and column.name in table


def _snr_db(table: Table, numbers: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the SNR of the table; else that of the measured rate on the paper's bandwidth, or of the distance."""
    radio = Radio()
    snr_db = np.array(numbers.get("snr_db", np.full(table.num_rows, np.nan)))
    rate_bps, distance_m = _rate_bps(numbers), _distance_m(numbers)
    if rate_bps is not None:
        needed = np.isnan(snr_db) & ~np.isnan(rate_bps)
        bits_per_hz = np.minimum(rate_bps[needed] / radio.bandwidth_hz, _MOST_BITS_PER_HZ)
        snr_db[needed] = ratio_to_db(np.expm1(bits_per_hz * np.log(2.0)))
    if distance_m is not None:
        needed = np.isnan(snr_db) & ~np.isnan(distance_m)
        snr_db[needed] = ratio_to_db(snr(db_to_ratio(-path_loss_db(distance_m[needed], radio)), radio))
    if np.isnan(snr_db).any():
        row = int(np.flatnonzero(np.isnan(snr_db))[0])
        column = next(name for name in ("snr_db", "rate_mbps", RATE, "distance_m", *_PLACES) if name in table.present)
        raise table.error(row, f"{column} is empty")
    return snr_db


def _rate_bps(numbers: Mapping[str, np.ndarray]) -> np.ndarray | None:
    return 1e6 * numbers["rate_mbps"] if "rate_mbps" in numbers else numbers.get(RATE)


def _distance_m(numbers: Mapping[str, np.ndarray]) -> np.ndarray | None:
    if "distance_m" in numbers:
        return numbers["distance_m"]
    if not all(name in numbers for name in _PLACES):
        return None
    return np.hypot(numbers["x_m"] - numbers["edge_x_m"], numbers["y_m"] - numbers["edge_y_m"])


def write_fleet(fleet: Fleet, path: Path | str, plan: Plan | None = None) -> None:
    """Writes the fleet as a CSV table, with its plan if there is one; the file appears whole or not at all."""
    columns = fleet.table_columns(plan)
    write_csv_atomic(path, list(columns), list(columns.values()))


def _index(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if labels.dtype != object:
        names, index = np.unique(labels, return_inverse=True)
        return names, index.astype(np.int64)
    position: dict[Any, int] = {}
    index = np.fromiter((position.setdefault(label, len(position)) for label in labels), np.int64, len(labels))
    names = np.empty(len(position), dtype=object)
    names[:] = list(position)
    return names, index


def read_network(source: Path | str | BinaryIO, *, batch_samples: int = PAPER_BATCH_SAMPLES) -> Network:
    """Reads the network of a device table: `distance_m`, or positions of devices and of their edges.

    In their place it may have the measured `snr_db` of every link, or its rate (`rate_mbps` or `full_band_rate_bps`, as
    `airprune deploy calibrate` writes it with each device's `seconds_per_sample`). The model, its iterations and cycles
    per weight are the scenario's.

    Args:
      batch_samples: samples of one step, for `seconds_per_step`.
    """
    return network_and_columns(source, batch_samples=batch_samples)[0]


def network_and_columns(
    source: Path | str | BinaryIO, *, batch_samples: int = PAPER_BATCH_SAMPLES, is_quoted: bool = True
) -> tuple[Network, frozenset[str]]:
    """Returns (the network, the columns that the table has); `is_quoted` as of `read_table`."""
    try:
        return _network_and_columns(_read(source, is_quoted=is_quoted), batch_samples)
    except InvalidValue as error:
        raise error if is_quoted else error.without_value() from None


def _network_and_columns(table: Table, batch_samples: int) -> tuple[Network, frozenset[str]]:
    names = ("device", "snr_db", RATE, "distance_m", "x_m", "y_m", "cpu_hz", "seconds_per_sample")
    columns = {name: table[name] for name in names if name in table}
    rate_bps = _rate_bps(table.columns)
    if rate_bps is not None:
        columns[RATE] = rate_bps
    for name in {RATE, "snr_db"} & columns.keys():
        _check_filled(table, columns[name])
    if "seconds_per_step" in table:
        columns["seconds_per_sample"] = table["seconds_per_step"] / batch_samples
    columns["edge"] = table["edge"] if table["edge"].dtype != object else table["edge"].astype(str)
    if "edge_x_m" not in table or "edge_y_m" not in table:
        return network_from_columns(columns), table.present
    places: dict[Any, tuple[float, float]] = {}
    for row, (label, x, y) in enumerate(zip(columns["edge"], table["edge_x_m"], table["edge_y_m"], strict=True)):
        if places.setdefault(label, (float(x), float(y))) != (x, y):
            raise table.error(row, "its edge has another position on an earlier line; an edge has one position")
    return network_from_columns(columns, edge_position_m=places), table.present


def _check_filled(table: Table, measured: np.ndarray) -> None:
    if np.isnan(measured).any():
        row = int(np.flatnonzero(np.isnan(measured))[0])
        raise table.error(row, "the link of this device is empty; a network needs every link measured, or positions")


def unused_by_runs(source: Path | str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns (columns that a run takes from its scenario instead, unknown ones with the nearest name)."""
    table = _read(source)
    return tuple(name for name in _OF_THE_SCENARIO if name in table.present), _unknown(table)


def _unknown(table: Table) -> tuple[str, ...]:
    """Returns the columns that are neither read nor added by `plan --out`."""
    return tuple(text for text in table.ignored if text.partition(" ")[0] not in PLAN_COLUMNS)


def _read(source: Path | str | BinaryIO, *, is_quoted: bool = True) -> Table:
    """Reads the table, and checks that it describes every link, and only once."""
    table = read_table(source, FLEET_COLUMNS, unique="device", is_quoted=is_quoted)
    for one, other in (("rate_mbps", RATE), ("seconds_per_step", "seconds_per_sample")):
        if one in table and other in table:
            raise BadTable(table.source, 1, f"{one} and {other} are the same quantity; give one of them.")
    if not {"snr_db", "rate_mbps", RATE, "distance_m"} & table.present and not set(_PLACES) <= table.present:
        raise BadTable(
            table.source,
            1,
            "missing snr_db (dB over the full bandwidth), or in its place rate_mbps, distance_m or x_m, y_m, edge_x_m, "
            f"edge_y_m; found {', '.join(sorted(table.present))}{_nearest(table) if is_quoted else ''}.",
        )
    return table


def _nearest(table: Table) -> str:
    hints = [text for text in table.ignored if "did you mean" in text]
    return f"; {hints[0]}" if hints else ""
