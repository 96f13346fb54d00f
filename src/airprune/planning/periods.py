"""Computes numbers of edge rounds and local steps by the rules of Hier-Local-QSGD (Liu, Zhang, Song, Letaief)."""

from __future__ import annotations

import math


def best_edge_rounds(*, delay_ratio: float, devices_per_edge: float, edge_share: float) -> int:
    """Returns E* = ⌈√(t_ec / t_de · (N / K − 1 / q_de) / (1 / q_de))⌉, at least 1.

    Args:
      delay_ratio: t_ec / t_de, an upload from an edge to the cloud over one from a device to its edge.
      devices_per_edge: N / K.
      edge_share: q_de, share of an update that the device's compressor keeps, in (0, 1].
    """
    lost = 1.0 / edge_share
    return max(1, math.ceil(math.sqrt(max(delay_ratio * (devices_per_edge - lost) / lost, 0.0))))


def local_steps_at(first: int, *, loss_ratio: float, rate_ratio: float = 1.0) -> int:
    """Returns τ(t) = ⌈τ(0) √(F(t) / F(0) · η(0) / η(t))⌉, at least 1: fewer local steps as the loss falls.

    Args:
      first: τ(0).
      loss_ratio: F(t) / F(0).
      rate_ratio: η(0) / η(t).
    """
    return max(1, math.ceil(first * math.sqrt(loss_ratio * rate_ratio)))
