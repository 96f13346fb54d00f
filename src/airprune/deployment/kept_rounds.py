"""Rounds that an edge keeps on disk, whole enough to be repeated on any machine.

STATE/uploads-RUN/Q-E/orders.bin            the cloud's orders
                      orders.safetensors    the edge's model before the round, and what its devices were sent
                      DEVICE.upload         the uploads that counted
                      opening.safetensors   what opened their sum, if they were hidden

Q and E count from 0.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from airprune.deployment.digests import Bytes
from airprune.deployment.packing import RoundArrays
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import RoundKey
from airprune.deployment.secure.opening import Opening
from airprune.errors import WorkFailed

_MESSAGE, _ARRAYS, _OPENING, _UPLOAD = "orders.bin", "orders.safetensors", "opening.safetensors", ".upload"


@dataclass(frozen=True, kw_only=True, eq=False)
class KeptRound:
    """Holds one round of an edge.

    Attributes:
      orders: as they came.
      arrays: with the station that the round began with, sent along or not.
      uploads: those that counted, by device.
      opening: of a secure sum that was opened.
    """

    orders: pb.EdgeRound
    arrays: RoundArrays
    uploads: Mapping[int, Bytes]
    opening: Opening | None = None

    def save(self, place: Path) -> None:
        """Writes the round in one step, in place of what was there."""
        partial = place.with_name(f"{place.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        (partial / _MESSAGE).write_bytes(self.orders.SerializeToString(deterministic=True))
        (partial / _ARRAYS).write_bytes(self.arrays.to_bytes())
        for device, data in self.uploads.items():
            (partial / f"{device}{_UPLOAD}").write_bytes(data)
        if self.opening is not None:
            (partial / _OPENING).write_bytes(self.opening.to_bytes())
        shutil.rmtree(place, ignore_errors=True)
        partial.rename(place)

    @classmethod
    def load(cls, place: Path) -> KeptRound:
        """Reads a kept round; raises WorkFailed with a sentence if it cannot be read."""
        try:
            uploads = {int(path.stem): path.read_bytes() for path in sorted(place.glob(f"*{_UPLOAD}"))}
            orders = pb.EdgeRound.FromString((place / _MESSAGE).read_bytes())
            arrays = RoundArrays.from_bytes((place / _ARRAYS).read_bytes())
            opened = place / _OPENING
            opening = Opening.from_bytes(opened.read_bytes()) if opened.exists() else None
        except FileNotFoundError as error:
            raise WorkFailed(f"{error.filename} is missing.") from None
        except OSError as error:
            raise WorkFailed(f"{error.filename} cannot be read: {error.strerror}.") from None
        except (DecodeError, ValueError, KeyError, TypeError):
            raise WorkFailed(f"{place} holds something else than a kept round.") from None
        return cls(orders=orders, arrays=arrays, uploads=uploads, opening=opening)


def kept_folder(state_folder: Path, run: str) -> Path:
    return state_folder / f"uploads-{run}"


def kept_place(state_folder: Path, key: RoundKey) -> Path:
    return kept_folder(state_folder, key.run) / f"{key.global_round}-{key.edge_round}"
