"""Facts about a connected node beside its measurements: its certificate, its software, when it was last connected."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from dataclasses import dataclass

from google.protobuf.message import Message

from airprune.deployment.identity.peers import Stranger, expiry_of, serial_of
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport import Link
from airprune.methods.registration import package_digest

_HEX = re.compile(r"[0-9a-f]{1,64}")


@dataclass(frozen=True, kw_only=True)
class PeerFacts:
    """A node as its parent has seen it last; None where that is unknown.

    Attributes:
      serial: of its certificate, hex.
      expires_s: when that ends, in seconds since 1970.
      software: SHA-256 of the files of airprune that it runs, hex.
      seen_s: when it was connected last, in seconds since 1970.
    """

    serial: str | None = None
    expires_s: float | None = None
    software: str | None = None
    seen_s: float | None = None


@functools.cache
def software_digest() -> str:
    """Returns the SHA-256 of the files of airprune that this process runs."""
    return package_digest("airprune")


def peer_message(link: Link, hello: Message) -> pb.Presence.Peer:
    """Returns what a link shows of the node at its other end."""
    software = hello.software if isinstance(hello, pb.Hello) else ""
    pem = link.peer.certificate_pem
    return pb.Presence.Peer(serial=serial_of(pem), expires_s=expiry_of(pem), software=_hex(software) or "")


def with_renewed(peer: pb.Presence.Peer, answer: pb.Certificate) -> pb.Presence.Peer:
    """Returns the message with the expiry of a renewed certificate; its serial stays that of the connection."""
    renewed = pb.Presence.Peer()
    renewed.CopyFrom(peer)
    with contextlib.suppress(Stranger):
        renewed.expires_s = expiry_of(answer.certificate)
    return renewed


def facts_in(peer: pb.Presence.Peer, seen_s: float) -> PeerFacts:
    """Reads such a message, of which an edge may have written anything."""
    known = math.isfinite(peer.expires_s) and peer.expires_s > 0
    return PeerFacts(
        serial=_hex(peer.serial),
        expires_s=peer.expires_s if known else None,
        software=_hex(peer.software),
        seen_s=seen_s,
    )


def _hex(text: str) -> str | None:
    return text if _HEX.fullmatch(text) else None
