"""Bits that went over each kind of link since the start of a run, from its records.

Records hold transfers that cost time or energy. The rest follows from the devices that took part: a station sends a
whole model to every selected device, and every node sends one up when its parent combines its children. With
`radio.downlink` all of it is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airprune.rounds.records import EdgeRecord, GlobalRecord, NodeRecord, Record


@dataclass(frozen=True, kw_only=True)
class LinkBits:
    """Bits since the start.

    Attributes:
      uplink: from devices to the stations, or to the cloud where they do that themselves.
      d2d: between devices.
      backhaul: up from the stations, at all levels; among them where one averages for all; down too
        where the downlink is charged.
      downlink: from the stations to their devices.
    """

    uplink: float = 0.0
    d2d: float = 0.0
    backhaul: float = 0.0
    downlink: float = 0.0


def link_bits(records: Iterable[Record], *, model_bits: float, has_backhaul: bool = True) -> LinkBits:
    """Returns the bits of all finished global rounds."""
    found = link_bits_by_round(records, model_bits=model_bits, has_backhaul=has_backhaul)
    return list(found.values())[-1] if found else LinkBits()


def link_bits_by_round(
    records: Iterable[Record], *, model_bits: float, has_backhaul: bool = True
) -> dict[int, LinkBits]:
    """Returns the bits after each global round, by its number. Recorded numbers take precedence over derived ones.

    Args:
      model_bits: of a whole model.
      has_backhaul: True if stations are separate from the cloud.
    """
    found: dict[int, LinkBits] = {}
    asked, sent_up = 0, 0
    waiting: dict[int, set[int]] = {}  # nodes with a model for their parent, by links below the cloud; edges: −1
    for record in records:
        if isinstance(record, EdgeRecord):
            asked += len(record.device)
            waiting.setdefault(-1, set()).update(record.edge_id)
        elif isinstance(record, NodeRecord):
            sent_up += len(waiting.pop(record.level + 1, set()) or waiting.pop(-1, set()))
            waiting.setdefault(record.level, set()).update(record.node)
        elif isinstance(record, GlobalRecord):
            sent_up += sum(len(nodes) for nodes in waiting.values())
            waiting.clear()
            derived = sent_up * model_bits if has_backhaul else 0.0
            found[record.global_round] = LinkBits(
                uplink=record.uploaded_bits or 0.0,
                d2d=record.d2d_bits or 0.0,
                backhaul=derived if record.backhaul_bits is None else record.backhaul_bits,
                downlink=asked * model_bits if record.downlink_bits is None else record.downlink_bits,
            )
    return found


__all__ = ["LinkBits", "link_bits", "link_bits_by_round"]
