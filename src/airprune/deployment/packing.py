"""Arrays that travel between cloud and edges: an edge round's orders, and what the edge reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from airprune.components.component import ModelShape
from airprune.deployment.digests import digest_of
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import state_digest
from airprune.errors import WorkFailed
from airprune.methods.compression.packing import num_bytes
from airprune.methods.masking.core.coverage import coverage_of
from airprune.rounds.sums import WHOLE, DeviceStatistics, EdgeResult, Failure
from airprune.rounds.wire import packed, unpacked

Array = np.ndarray
_SLOTS, _VALUES, _REPORTS = "slots/", "values/", "reports/"


@dataclass(frozen=True, kw_only=True, eq=False)
class Station:
    """Holds an edge's model and slots between rounds.

    Attributes:
      model: w_k.  [num_state]
      slots: the memory of its step.
    """

    model: Array
    slots: Mapping[str, Array] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Digest by which cloud and edge know that both have the same."""
        return state_digest(self.model, self.slots)


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundArrays:
    """Goes with an `EdgeRound`: the station if the edge does not have it; what masking and objective broadcast."""

    station: Station | None
    mask: Array | None
    values: Mapping[str, Array] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        mask = {} if self.mask is None else {"told": self.mask}
        return packed({**_of_station(self.station), **mask, **_under(_VALUES, self.values)}, {})

    @classmethod
    def from_bytes(cls, data: bytes) -> RoundArrays:
        arrays, _ = unpacked(data) if len(data) else ({}, {})
        return cls(station=_station(arrays), mask=arrays.get("told"), values=_below(_VALUES, arrays))


def order_digest(message: pb.EdgeRound, arrays: RoundArrays) -> str:
    """Returns the digest of all orders of an edge, hex. The model is in it by its own digest, sent along or not."""
    rest = replace(arrays, station=None).to_bytes()
    return digest_of(message.SerializeToString(deterministic=True), rest).hex()


@dataclass(frozen=True, kw_only=True, eq=False)
class ReportArrays:
    """Goes with an `EdgeReport`: what the uploads add up to, and the station if the cloud has ordered it."""

    station: Station | None
    held: Array
    kept_by: Array
    statistics: DeviceStatistics
    reports: Mapping[str, Array]
    suspected: tuple[int, ...] = ()
    rolled_back: bool = False

    @classmethod
    def of(cls, result: EdgeResult, station: Station | None) -> ReportArrays:
        return cls(
            station=station,
            held=result.held,
            kept_by=result.kept_by,
            statistics=result.statistics,
            reports=result.reports,
            suspected=result.suspected,
            rolled_back=result.rolled_back,
        )

    def to_bytes(self) -> bytes:
        columns = [np.asarray(getattr(self.statistics, f.name), dtype=np.float64) for f in fields(DeviceStatistics)]
        arrays: dict[str, Array] = {
            "held": np.packbits(self.held),
            "kept_by": self.kept_by.astype(np.min_scalar_type(int(self.kept_by.max(initial=0)))),
            "statistics": np.column_stack(columns),
        }
        if self.suspected or self.rolled_back:  # first the verdict, then the devices
            arrays["verdict"] = np.array([self.rolled_back, *self.suspected], dtype=np.int64)
        return packed({**arrays, **_of_station(self.station), **_under(_REPORTS, self.reports)}, {})

    @classmethod
    def from_bytes(cls, data: bytes, shape: ModelShape) -> ReportArrays:
        arrays, _ = unpacked(data)
        try:
            _check(arrays["held"].shape == (num_bytes(shape.num_state),))
            held = np.unpackbits(arrays["held"], count=shape.num_state).astype(bool)
            kept_by, rows = arrays["kept_by"].astype(np.int64), arrays["statistics"]
            _check(kept_by.shape == (shape.prunable_weights,))
            _check(rows.ndim == 2 and rows.shape[1] == len(fields(DeviceStatistics)) and rows.dtype == np.float64)
            whole = rows[:, [f.name in WHOLE for f in fields(DeviceStatistics)]]
            _check(bool(np.all((whole >= 0) & (whole < 2**53))))
            verdict = arrays.get("verdict", np.zeros(1, dtype=np.int64))
            _check(verdict.ndim == 1 and len(verdict) >= 1 and verdict.dtype == np.int64)
        except (KeyError, ValueError, TypeError) as error:
            raise WorkFailed(f"An edge's report cannot be read ({type(error).__name__}).") from None
        station = _station(arrays)
        if station is not None:
            _check(station.model.shape == (shape.num_state,))
        return cls(
            station=station,
            held=held,
            kept_by=kept_by,
            statistics=DeviceStatistics.of([tuple(row) for row in rows.tolist()]),
            reports=_below(_REPORTS, arrays),
            suspected=tuple(verdict[1:].tolist()),
            rolled_back=bool(verdict[0]),
        )

    def result(self, model: Array, failures: tuple[Failure, ...]) -> EdgeResult:
        """Returns the result as a simulated edge gives it; `model` is what the cloud knows of the edge's."""
        return EdgeResult(
            combined=model,
            held=self.held,
            kept_by=self.kept_by,
            coverage=coverage_of(self.kept_by, len(self.statistics.device)),
            statistics=self.statistics,
            failures=failures,
            reports=self.reports,
            suspected=self.suspected,
            rolled_back=self.rolled_back,
        )


def _check(fits: bool) -> None:
    if not fits:
        raise WorkFailed("An edge's report has arrays of another shape than this model's.")


def _of_station(station: Station | None) -> dict[str, Array]:
    return {} if station is None else {"model": station.model, **_under(_SLOTS, station.slots)}


def _station(arrays: Mapping[str, Array]) -> Station | None:
    return Station(model=arrays["model"], slots=_below(_SLOTS, arrays)) if "model" in arrays else None


def _under(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + name: array for name, array in arrays.items()}


def _below(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
