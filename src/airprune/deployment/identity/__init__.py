"""Identities of a deployment: an authority, a credentials bundle ("kit") for each node, roles, a deny list.

peers        role and name of a node, as its certificate says them; who is admitted
members      the nodes of a federation: the cloud's list
node         a node's kit: whom it dials, where it listens, its certificate and key
denied       certificates that are refused before they expire
kits         making a federation; renewing and revoking a node
growth       adding, removing and moving nodes
enrolment    certificates for devices that show a one-time code
renewal      certificates renewed before they expire, over the connection of a node
signatures   what the cloud has signed
"""

from airprune.deployment.identity.denied import load_denied
from airprune.deployment.identity.growth import add_devices, add_edge, move, remove
from airprune.deployment.identity.kits import make_federation, renew, revoke
from airprune.deployment.identity.members import Members, load_members
from airprune.deployment.identity.node import (
    Node,
    Parent,
    channel_credentials,
    load_node,
    save_parents,
    saved_parents,
    server_credentials,
)
from airprune.deployment.identity.peers import Peer, Role, Stranger, admit, peer_of, serial_of

__all__ = [
    "Role", "Peer", "Stranger", "peer_of", "serial_of", "admit",
    "Members", "load_members",
    "Node", "Parent", "load_node", "save_parents", "saved_parents",
    "load_denied",
    "make_federation", "renew", "revoke",
    "add_devices", "add_edge", "remove", "move",
    "server_credentials", "channel_credentials",
]  # fmt: skip
