"""Link gains over time from a file: ray tracing, network simulators, traffic simulators or measurements.

A row is one link at one time: `time` in seconds, `device` and `station` by name or number, and `gain_db`, or `rate_bps`
of the device alone on the whole bandwidth. Between two rows of a link its gain is linear in dB, or its rate linear;
before the first and after the last it stays as there. A link without rows is out of reach: its gain is 0.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airprune import files
from airprune.checks import FloatArray, quantity
from airprune.errors import InvalidValue
from airprune.text import printable
from airprune.units import db_to_ratio
from airprune.wireless.channel import MAX_BITS_PER_HZ, Radio, gain_of_rate
from airprune.wireless.network import Network

Array = np.ndarray
MAX_TRACE_BYTES = 2**32
GAIN, RATE = "gain_db", "rate_bps"
_MOST_DB = 100.0
_KEY = "network.traces"
_EXAMPLE = "Columns: time, device, station, and gain_db or rate_bps"


@dataclass(frozen=True, kw_only=True, eq=False)
class Traces:
    """Rows of all links, sorted by link and time.

    Attributes:
      device, station: of each link.  [num_links]
      starts, counts: its rows.  [num_links]
      time_s, value: of each row; gains in dB, or rates in bit/s.  [num_rows]
      is_rate: whether values are rates.
    """

    network: Network
    device: Array
    station: Array
    starts: Array
    counts: Array
    time_s: FloatArray
    value: FloatArray
    is_rate: bool

    def gains(self, time_s: float, radio: Radio) -> FloatArray:
        """Returns the gain of every device to every station at a time.  [num_devices, num_stations]"""
        value = self.at(time_s)
        found = np.zeros((self.network.num_devices, self.network.num_edges))
        found[self.device, self.station] = gain_of_rate(value, radio) if self.is_rate else db_to_ratio(value)
        return found

    def at(self, time_s: float) -> FloatArray:
        """Returns the value of every link at a time.  [num_links]"""
        passed = np.add.reduceat((self.time_s <= time_s).astype(np.int64), self.starts)
        before = self.starts + np.maximum(passed - 1, 0)
        after = np.minimum(self.starts + passed, self.starts + self.counts - 1)
        gap_s = self.time_s[after] - self.time_s[before]
        part = np.clip((time_s - self.time_s[before]) / np.where(gap_s > 0.0, gap_s, 1.0), 0.0, 1.0)
        return np.asarray(self.value[before] + part * (self.value[after] - self.value[before]))


def read_traces(path: Path | str, network: Network, radio: Radio) -> Traces:
    """Reads a file of links over time for a network; raises one sentence on what is wrong with it."""
    return traces_of(_columns(Path(path)), network, radio, source=printable(Path(path).name))


def traces_of(columns: Mapping[str, Any], network: Network, radio: Radio, *, source: str = "traces") -> Traces:
    """Returns the traces of columns, one row for each link and time, once they are checked."""
    is_rate = _checked_names(columns, source)
    value_name = RATE if is_rate else GAIN
    names = ("time", "device", "station", value_name)
    arrays = {name: np.asarray(columns[name]) for name in names}
    if len({array.shape for array in arrays.values()}) > 1 or arrays["time"].ndim != 1 or not arrays["time"].size:
        got = ", ".join(f"{name} has shape {array.shape}" for name, array in arrays.items())
        raise InvalidValue(_KEY, f"must have columns of one length in {source}", got)
    time_s = _numbers(arrays["time"], "time", source)
    most = MAX_BITS_PER_HZ * radio.bandwidth_hz if is_rate else _MOST_DB
    value = _numbers(arrays[value_name], value_name, source, at_least=0.0 if is_rate else None, at_most=most)
    if is_rate and radio.rate != "shannon":
        raise InvalidValue("Scenario.radio.rate", "must be shannon with traces of rates", radio.rate, "Or give gain_db")
    device = _places(arrays["device"], network.device_names, "device", source)
    station = _places(arrays["station"], network.edge_names, "station", source)
    link = device * network.num_edges + station
    order = np.lexsort((time_s, link))
    link, time_s, value = link[order], time_s[order], value[order]
    twice = (link[1:] == link[:-1]) & (time_s[1:] == time_s[:-1])
    if twice.any():
        n, k = divmod(int(link[np.argmax(twice)]), network.num_edges)
        got = f"device {network.device_names[n]}, station {network.edge_names[k]} at {time_s[np.argmax(twice)]:g} s"
        raise InvalidValue(_KEY, f"must have one row for each link and time in {source}", f"two of {got}")
    starts = np.flatnonzero(np.r_[True, link[1:] != link[:-1]])
    lost = np.setdiff1d(np.arange(network.num_devices), link // network.num_edges)
    if len(lost):
        rule = f"must have rows of every device in {source}"
        raise InvalidValue(_KEY, rule, f"none of device {network.device_names[int(lost[0])]}")
    return Traces(
        network=network,
        device=link[starts] // network.num_edges,
        station=link[starts] % network.num_edges,
        starts=starts,
        counts=np.diff(starts, append=len(link)),
        time_s=time_s,
        value=value,
        is_rate=is_rate,
    )


def _checked_names(columns: Mapping[str, Any], source: str) -> bool:
    """Returns whether the columns have rates, if they are those of traces."""
    missing = [name for name in ("time", "device", "station") if name not in columns]
    given = [name for name in (GAIN, RATE) if name in columns]
    if missing or len(given) != 1:
        got = f"no {', '.join(missing)}" if missing else " and ".join(given) or f"neither {GAIN} nor {RATE}"
        raise InvalidValue(
            _KEY, f"must have time, device, station and one of {GAIN}, {RATE} in {source}", got, _EXAMPLE
        )
    return given == [RATE]


def _numbers(
    array: Array, name: str, source: str, at_least: float | None = None, at_most: float | None = None
) -> FloatArray:
    if array.dtype.kind not in "iuf":
        raise InvalidValue(f"{_KEY}, column {name}", f"must hold numbers in {source}", f"dtype {array.dtype}")
    field = f"{_KEY}, column {name} of {source},"
    return quantity(field, array.astype(np.float64), at_least=at_least, at_most=at_most)


def _places(column: Array, names: Any, what: str, source: str) -> Array:
    """Returns the number of each device or station, given by name or by number."""
    known = {str(name): place for place, name in enumerate(names)}
    if column.dtype.kind not in "iuU":
        rule = f"must hold names or whole numbers in {source}"
        raise InvalidValue(
            f"{_KEY}, column {what}", rule, f"dtype {column.dtype}", "Save names as text, not as objects"
        )
    labels, place = np.unique(column, return_inverse=True)
    strange = [str(label) for label in labels.tolist() if str(label) not in known]
    if strange:
        few = ", ".join(list(known)[:4]) + (", …" if len(known) > 4 else "")
        rule = f"must name the {what}s of the network in {source}: {few}"
        raise InvalidValue(f"{_KEY}, column {what}", rule, repr(strange[0]))
    return np.array([known[str(label)] for label in labels.tolist()], dtype=np.int64)[place]


def _columns(path: Path) -> dict[str, Array]:
    """Returns the columns of an .npz or .parquet file."""
    shown = printable(str(path))
    if path.suffix not in (".npz", ".parquet"):
        raise InvalidValue(_KEY, "must be an .npz or .parquet file", shown, _EXAMPLE)
    try:
        with files.open_to_read(path, max_bytes=MAX_TRACE_BYTES) as file:
            if path.suffix == ".parquet":
                return _parquet_columns(file, shown)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    except InvalidValue:
        raise
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError) as error:
        reason = getattr(error, "strerror", None) or "it is no such file"
        raise InvalidValue(_KEY, "must be a readable .npz or .parquet file", f"{shown} ({reason})", _EXAMPLE) from None


def _parquet_columns(file: Any, shown: str) -> dict[str, Array]:
    try:
        from pyarrow import parquet
    except ImportError:
        rule, way_out = "must be an .npz file where pyarrow is not installed", "Install pyarrow, or use numpy.savez"
        raise InvalidValue(_KEY, rule, shown, way_out) from None
    table = parquet.read_table(file)
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    return {name: array.astype(str) if array.dtype == object else array for name, array in columns.items()}
