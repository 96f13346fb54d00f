"""Cloud, edges and devices: places, CPU frequencies, association.

A network is frozen data with one device order throughout. "Flat" is the paper's non-hierarchical
baseline: the cloud's own base station serves every device, all in one band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from airprune.checks import FloatArray, one_number, quantity, whole_number
from airprune.errors import InvalidValue, UnknownName
from airprune.randomness import rng_for
from airprune.units import db_to_ratio

Topology = Literal["hierarchical", "flat"]


@dataclass(frozen=True)
class LogUniform:
    """CPU frequencies whose logarithm is uniform between two ends: as many from 1 to 2 GHz as from 2 to 4 GHz."""

    low: float
    high: float

    def __post_init__(self) -> None:
        one_number("LogUniform.low", self.low, above=0.0)
        one_number("LogUniform.high", self.high, at_least=self.low)


CpuHz = float | tuple[float, float] | LogUniform | Sequence[float] | FloatArray


@dataclass(frozen=True)
class Ring:
    """Devices between two distances from their station, at any angle.

    uniform_in "distance" makes the distance uniform (crowding the inside); "area" makes the density
    per square metre uniform.
    """

    inner_m: float
    outer_m: float
    uniform_in: Literal["distance", "area"] = "distance"

    def __post_init__(self) -> None:
        quantity("Ring.inner_m", self.inner_m, at_least=0.0)
        quantity("Ring.outer_m", self.outer_m, above=0.0, at_least=self.inner_m, way_out="Swap the two?")
        if self.uniform_in not in ("distance", "area"):
            raise UnknownName("Ring.uniform_in", self.uniform_in, ("distance", "area"))

    def offsets_m(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Positions relative to the station; the first ones do not depend on `count`.  [count, 2]"""
        across, around = rng.random((count, 2)).T  # row by row: one device's two numbers stay together
        if self.uniform_in == "distance":
            distance = self.inner_m + (self.outer_m - self.inner_m) * across
        else:
            distance = np.sqrt(self.inner_m**2 + (self.outer_m**2 - self.inner_m**2) * across)
        angle = 2.0 * np.pi * around
        return np.column_stack((distance * np.cos(angle), distance * np.sin(angle)))


@dataclass(frozen=True)
class Disc:
    """Devices uniform over the area of a disc, but no nearer to the station than `min_distance_m`."""

    radius_m: float
    min_distance_m: float = 1.0

    def __post_init__(self) -> None:
        quantity("Disc.min_distance_m", self.min_distance_m, at_least=0.0)
        quantity("Disc.radius_m", self.radius_m, above=0.0, at_least=self.min_distance_m)

    def offsets_m(self, rng: np.random.Generator, count: int) -> FloatArray:
        return Ring(self.min_distance_m, self.radius_m, uniform_in="area").offsets_m(rng, count)


Placement = Ring | Disc


class Numbered(Sequence[str]):
    """("0", "1", …), so many of them, without holding them."""

    def __init__(self, count: int) -> None:
        self._numbers = range(count)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, place: Any) -> Any:
        found = self._numbers[place]
        return str(found) if isinstance(found, int) else tuple(map(str, found))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbered):
            return len(self) == len(other)
        return isinstance(other, tuple) and len(self) == len(other) and tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))


# The paper's network. It states no map; the rings are those that reproduce Table II.
PAPER_NUM_EDGES = 5
PAPER_DEVICES_PER_EDGE = 5
PAPER_CPU_HZ = 3e9
PAPER_HFL_RING = Ring(118.0, 152.0)
PAPER_FLAT_RING = Ring(580.0, 790.0)
PAPER_EDGE_DISTANCE_M = 685.0  # the middle of the flat ring, so that flat() resembles it


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """Places, CPUs and association of all devices.

    Attributes:
      topology: "hierarchical" (an edge serves its devices) or "flat" (the cloud serves all).
      cloud_position_m: [2]
      edge_position_m: [num_edges, 2]; empty when flat.
      device_position_m: [num_devices, 2]
      edge: index of the station, and band, serving each device; all 0 when flat.  [num_devices]
      cpu_hz: f_n.  [num_devices]
      link_snr: measured mean signal over noise to the serving station, a plain ratio; None: it follows from the
        distance. Places then do not affect the links.  [num_devices]
      full_band_rate_bps: in its place the measured mean r_n to the serving station; None likewise.  [num_devices]
      seconds_per_sample: measured, of training the whole model; NaN or None: as the clock says.  [num_devices]
      device_names, edge_names: for people; "0", "1", … unless given, made when they are read.
    """

    topology: Topology = "hierarchical"
    cloud_position_m: FloatArray
    edge_position_m: FloatArray
    device_position_m: FloatArray
    edge: NDArray[np.int64]
    cpu_hz: FloatArray
    link_snr: FloatArray | None = None
    full_band_rate_bps: FloatArray | None = None
    seconds_per_sample: FloatArray | None = None
    device_names: Sequence[str] = ()
    edge_names: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.topology not in ("hierarchical", "flat"):
            raise UnknownName("Network.topology", self.topology, ("hierarchical", "flat"))
        self._freeze("cloud_position_m", quantity("Network.cloud_position_m", self.cloud_position_m), (2,))
        edges = quantity("Network.edge_position_m", self.edge_position_m)
        num_edges = len(edges) if edges.ndim and self.topology != "flat" else 0
        self._freeze("edge_position_m", edges, (num_edges, 2))
        devices = quantity("Network.device_position_m", self.device_position_m)
        self._freeze("device_position_m", devices, (len(devices) if devices.ndim else 0, 2))
        count = self.num_devices
        if count == 0 or self.num_edges == 0:
            raise InvalidValue("Network", "must have at least one edge and one device", f"{self.num_edges} and {count}")
        cpu_hz = quantity("Network.cpu_hz", self.cpu_hz, above=0.0, way_out="Example: cpu_hz = 3e9")
        self._freeze("cpu_hz", np.broadcast_to(cpu_hz, (count,)) if cpu_hz.ndim == 0 else cpu_hz, (count,))
        if self.link_snr is not None:
            self._freeze("link_snr", quantity("Network.link_snr", self.link_snr, at_least=0.0), (count,))
        if self.full_band_rate_bps is not None:
            rate = quantity("Network.full_band_rate_bps", self.full_band_rate_bps, above=0.0)
            self._freeze("full_band_rate_bps", rate, (count,))
        if self.seconds_per_sample is not None:
            measured_s = np.asarray(self.seconds_per_sample, dtype=np.float64)
            quantity("Network.seconds_per_sample", measured_s[~np.isnan(measured_s)], above=0.0)
            self._freeze("seconds_per_sample", measured_s, (count,))
        edge = np.asarray(self.edge)
        if not np.issubdtype(edge.dtype, np.integer) or np.any((edge < 0) | (edge >= self.num_edges)):
            raise InvalidValue("Network.edge", f"must hold whole numbers in 0..{self.num_edges - 1}", edge.tolist())
        self._freeze("edge", edge.astype(np.int64), (count,))
        self._name("device_names", count)
        self._name("edge_names", self.num_edges)

    def _freeze(self, field: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
        if array.shape != shape:
            raise InvalidValue(f"Network.{field}", f"must have shape {shape}", array.shape)
        array = array.copy()
        array.setflags(write=False)
        object.__setattr__(self, field, array)

    def _name(self, field: str, count: int) -> None:
        given = getattr(self, field)
        if not len(given) or given == Numbered(count):
            object.__setattr__(self, field, Numbered(count))
            return
        names = tuple(str(name) for name in given)
        if len(names) != count or len(set(names)) != count:
            raise InvalidValue(f"Network.{field}", f"must be {count} different names", names)
        object.__setattr__(self, field, names)

    @property
    def num_devices(self) -> int:
        return len(self.device_position_m)

    @property
    def num_edges(self) -> int:
        """Number of bands that are planned separately: K, or 1 when flat."""
        return 1 if self.topology == "flat" else len(self.edge_position_m)

    @property
    def has_measured_links(self) -> bool:
        """True if links are known by measurement, of each device to its own edge alone."""
        return self.link_snr is not None or self.full_band_rate_bps is not None

    @property
    def link_distance_m(self) -> FloatArray:
        """Each device to the station that serves it, on the ground.  [num_devices]"""
        flat = self.topology == "flat"
        station = self.cloud_position_m if flat else self.edge_position_m[self.edge]
        dx, dy = (self.device_position_m - station).T
        return np.hypot(dx, dy)

    def flat(self) -> Network:
        """The same devices, all sharing the cloud's one band over the long link."""
        if self.has_measured_links:
            raise InvalidValue(
                "Network.link_snr",
                "describes links to edges, and a flat network has none",
                "a table with snr_db or full_band_rate_bps",
                "Give distance_m or places",
            )
        return Network(
            topology="flat",
            cloud_position_m=self.cloud_position_m,
            edge_position_m=np.empty((0, 2)),
            device_position_m=self.device_position_m,
            edge=np.zeros(self.num_devices, dtype=np.int64),
            cpu_hz=self.cpu_hz,
            seconds_per_sample=self.seconds_per_sample,
            device_names=self.device_names,
            edge_names=("cloud",),
        )


def place_hierarchical(
    *,
    num_edges: int = PAPER_NUM_EDGES,
    devices_per_edge: int | Sequence[int] = PAPER_DEVICES_PER_EDGE,
    placement: Placement = PAPER_HFL_RING,
    edge_distance_m: float = PAPER_EDGE_DISTANCE_M,
    cpu_hz: CpuHz = PAPER_CPU_HZ,
    seed: int,
) -> Network:
    """Edges evenly on a circle around the cloud, devices placed around their edge, edge by edge.

    Each edge has its own stream, so its i-th device stays put (relative to the edge) when devices are
    added to it or to another edge.

    Args:
      devices_per_edge: N_k: one number for all edges, or one per edge.
      cpu_hz: f_n: one number, a tuple (low, high) to sample from uniformly, a LogUniform, or a list per device.
    """
    num_edges = whole_number("place_hierarchical.num_edges", num_edges, at_least=1)
    per_edge = [devices_per_edge] * num_edges if np.ndim(devices_per_edge) == 0 else devices_per_edge
    sizes = [whole_number("place_hierarchical.devices_per_edge", size) for size in per_edge]  # type: ignore[union-attr]
    if len(sizes) != num_edges:
        raise InvalidValue(
            "place_hierarchical.devices_per_edge", f"must have one entry for each of {num_edges} edges", sizes
        )
    radius = one_number("place_hierarchical.edge_distance_m", edge_distance_m, at_least=0.0)
    angle = 2.0 * np.pi * np.arange(num_edges) / num_edges
    edges = radius * np.column_stack((np.cos(angle), np.sin(angle)))
    offsets = [placement.offsets_m(rng_for(seed, "placement", k), size) for k, size in enumerate(sizes)]
    edge = np.repeat(np.arange(num_edges), sizes)
    return Network(
        cloud_position_m=np.zeros(2),
        edge_position_m=edges,
        device_position_m=edges[edge] + np.concatenate(offsets),
        edge=edge,
        cpu_hz=_cpu_hz(cpu_hz, sizes, seed=seed),
    )


def place_flat(
    *,
    num_devices: int = PAPER_NUM_EDGES * PAPER_DEVICES_PER_EDGE,
    placement: Placement = PAPER_FLAT_RING,
    cpu_hz: CpuHz = PAPER_CPU_HZ,
    seed: int,
) -> Network:
    """Devices placed around the cloud, which serves them all; `cpu_hz` as in place_hierarchical."""
    num_devices = whole_number("place_flat.num_devices", num_devices, at_least=1)
    return Network(
        topology="flat",
        cloud_position_m=np.zeros(2),
        edge_position_m=np.empty((0, 2)),
        device_position_m=placement.offsets_m(rng_for(seed, "placement"), num_devices),
        edge=np.zeros(num_devices, dtype=np.int64),
        cpu_hz=_cpu_hz(cpu_hz, [num_devices], seed=seed),
        edge_names=("cloud",),
    )


def network_from_columns(
    columns: Mapping[str, Sequence[Any] | NDArray[Any]],
    *,
    topology: Topology = "hierarchical",
    edge_position_m: Mapping[Any, Sequence[float]] | None = None,
    edge_distance_m: float = PAPER_EDGE_DISTANCE_M,
    cpu_hz: float = PAPER_CPU_HZ,
) -> Network:
    """A network from the columns of a table, one row per device, the cloud at (0, 0).

    Columns: `device`, `edge` (names or whole numbers; edges are numbered in sorted order; not read when
    flat), then `x_m, y_m` or `distance_m` to the serving station, or in their place the link's measured `snr_db` or
    `full_band_rate_bps`, and optionally `cpu_hz` and `seconds_per_sample`. Others are ignored.

    Distances alone make no map. Every edge then stands at (0, edge_distance_m) and its devices beside it,
    which keeps link_distance_m equal to distance_m to the last bit; only flat() sees where the edge is.

    Args:
      edge_position_m: label to (x, y). Needed with `x_m, y_m`; with `distance_m` it moves the edges.
      cpu_hz: for tables without that column.
    """
    flat = topology == "flat"
    measured = next((name for name in ("full_band_rate_bps", "snr_db") if name in columns), None)
    if flat or {"distance_m", "x_m"} & columns.keys():
        measured = None
    by_distance = "distance_m" in columns
    where = [] if measured else ["distance_m"] if by_distance else ["x_m", "y_m"]
    count = _check_columns(columns, ["device", *([] if flat else ["edge"]), *where])
    labels, edge = ([], np.zeros(count, dtype=np.int64)) if flat else _number_edges(columns["edge"])
    if edge_position_m is not None:
        if lost := [label for label in labels if label not in edge_position_m]:
            raise InvalidValue(
                "network_from_columns.edge_position_m",
                "must have every edge of the table",
                f"none for {lost}",
            )
        edges = np.array([edge_position_m[label] for label in labels], dtype=np.float64).reshape(-1, 2)
    elif measured or by_distance or flat:
        away = quantity("network_from_columns.edge_distance_m", edge_distance_m, at_least=0.0)
        edges = np.tile([0.0, float(away)], (len(labels), 1))
    else:
        raise InvalidValue(
            "network_from_columns.edge_position_m",
            "must be given with x_m, y_m",
            None,
            "Or give the column distance_m instead",
        )
    if measured:
        positions = edges[edge]
    elif by_distance:
        distance = quantity("columns.distance_m", columns["distance_m"], at_least=0.0)
        station = np.zeros((count, 2)) if flat else edges[edge]
        positions = station + np.column_stack((distance, np.zeros(count)))
    else:
        positions = np.column_stack([quantity(f"columns.{name}", columns[name]) for name in ("x_m", "y_m")])
    return Network(
        topology=topology,
        cloud_position_m=np.zeros(2),
        edge_position_m=edges,
        device_position_m=positions,
        edge=edge,
        cpu_hz=quantity("columns.cpu_hz", columns.get("cpu_hz", cpu_hz), above=0.0),
        link_snr=db_to_ratio(quantity("columns.snr_db", columns["snr_db"])) if measured == "snr_db" else None,
        full_band_rate_bps=np.asarray(columns[measured]) if measured == "full_band_rate_bps" else None,
        seconds_per_sample=np.asarray(columns["seconds_per_sample"]) if "seconds_per_sample" in columns else None,
        device_names=tuple(str(name) for name in columns["device"]),
        edge_names=("cloud",) if flat else tuple(str(label) for label in labels),
    )


_OPTIONAL = ("cpu_hz", "snr_db", "full_band_rate_bps", "seconds_per_sample")


def _check_columns(columns: Mapping[str, Sequence[Any] | NDArray[Any]], needed: list[str]) -> int:
    """The number of rows, once all needed columns are there and equally long."""
    if missing := [name for name in needed if name not in columns]:
        raise InvalidValue(
            "network_from_columns.columns",
            f"must have {', '.join(needed)}",
            f"no {', '.join(missing)}",
            "Positions are x_m, y_m or distance_m; a measured snr_db or full_band_rate_bps stands for one",
        )
    lengths = {name: len(columns[name]) for name in [*needed, *_OPTIONAL] if name in columns}
    if len(set(lengths.values())) != 1:
        raise InvalidValue("network_from_columns.columns", "must all be equally long", lengths)
    return lengths["device"]


def _number_edges(column: Sequence[Any] | NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    labels = np.asarray(column)
    if labels.dtype.kind not in "iuU":
        raise InvalidValue("columns.edge", "must hold names or whole numbers", labels.tolist())
    known, number = np.unique(labels, return_inverse=True)
    return known.tolist(), number.astype(np.int64)


def _cpu_hz(cpu_hz: CpuHz, sizes: Sequence[int], *, seed: int) -> FloatArray:
    """Fixed values as they are; a (low, high) tuple sampled per edge, from streams apart from placement's."""
    if isinstance(cpu_hz, LogUniform):
        ratio = cpu_hz.high / cpu_hz.low
        return np.concatenate([cpu_hz.low * ratio ** rng_for(seed, "cpu", k).random(n) for k, n in enumerate(sizes)])
    if not isinstance(cpu_hz, tuple):
        return quantity("cpu_hz", cpu_hz, above=0.0, way_out="Example: cpu_hz = 3e9")
    if len(cpu_hz) != 2:
        raise InvalidValue("cpu_hz", "must be (low, high) when a tuple", cpu_hz, "Use a list for one value per device")
    low = one_number("cpu_hz range, low end,", cpu_hz[0], above=0.0)
    high = one_number("cpu_hz range, high end,", cpu_hz[1], at_least=low)
    return np.concatenate([low + (high - low) * rng_for(seed, "cpu", k).random(size) for k, size in enumerate(sizes)])
