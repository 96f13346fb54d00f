"""What an edge must not forget: its model, its last report, and which uploads have counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from airprune.deployment.packing import Station
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import RoundKey
from airprune.runs import checkpoint

Counted = Mapping[RoundKey, Mapping[int, str]]
Reported = tuple[pb.EdgeReport, bytes]


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeState:
    """Of one run.

    Attributes:
      station: the model, and the memory of the edge's step; None before the cloud has sent one.
      report: of the last round, without the station; None before there was one.
      counted: digests of uploads, by round and device; see `round_machine`.
    """

    station: Station | None = None
    report: Reported | None = None
    counted: Counted = field(default_factory=dict)

    def has_reported(self, key: RoundKey) -> bool:
        return self.report is not None and key_of(self.report[0]) == key

    def save(self, path: Path) -> None:
        """In one step; OSError if it cannot be written."""
        assert self.station is not None and self.report is not None
        report, payload = self.report
        arrays = {"model": self.station.model, "report": np.frombuffer(payload, np.uint8)}
        arrays |= {f"slots/{name}": array for name, array in self.station.slots.items()}
        counted = [[k.global_round, k.edge_round, {str(d): x for d, x in c.items()}] for k, c in self.counted.items()]
        checkpoint.write(path, arrays, {"report": report.SerializeToString().hex(), "counted": counted})

    @classmethod
    def load(cls, path: Path, *, run: str, slots: Iterable[str]) -> EdgeState:
        """An empty one if there is no file."""
        if not path.exists():
            return cls()
        arrays, facts = checkpoint.read(path)
        return cls(
            station=Station(model=arrays["model"], slots={name: arrays[f"slots/{name}"] for name in slots}),
            report=(pb.EdgeReport.FromString(bytes.fromhex(facts["report"])), arrays["report"].tobytes()),
            counted={
                RoundKey(run, q, e): {int(device): digest for device, digest in counted.items()}
                for q, e, counted in facts["counted"]
            },
        )


def key_of(message: pb.EdgeReport | pb.EdgeRound) -> RoundKey:
    return RoundKey(message.run, message.global_round, message.edge_round)
