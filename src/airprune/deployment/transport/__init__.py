"""One stream between a child and its parent: heartbeats, payloads in chunks, limits before memory.

frames   what may arrive and in which order: a pure class, bytes in, packets or a refusal out
links    a link as its owner sees it: send, receive, refuse, close
client   the child's side
server   the parent's side
"""

from airprune.deployment.transport.client import dial
from airprune.deployment.transport.frames import Assembler, BadFrame, Limits, Packet, Sealed
from airprune.deployment.transport.links import Link, LinkLost, Refused, Remote
from airprune.deployment.transport.server import Server

__all__ = [
    "dial",
    "Server",
    "Link",
    "Remote",
    "Limits",
    "Packet",
    "Sealed",
    "LinkLost",
    "Refused",
    "Assembler",
    "BadFrame",
]
