"""The first messages on a link: a child dials its parent and says hello; the parent admits it by its certificate."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Container
from dataclasses import replace

from google.protobuf.message import Message

from airprune import __version__
from airprune.deployment.identity import Node, Parent, Peer, Role, Stranger, admit, channel_credentials, peer_of
from airprune.deployment.identity.peers import Unlisted
from airprune.deployment.identity.renewal import Renewal
from airprune.deployment.peer_facts import software_digest
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import PROTOCOL, check_versions
from airprune.deployment.transport import Limits, Link, LinkLost, dial
from airprune.errors import AirpruneError, WorkFailed

_log = logging.getLogger("airprune")
# Between tries to reach a parent.
RETRY_S = 0.5
# Between looks at the age of a certificate.
_LOOK_S = 600.0


class NotAdmitted(WorkFailed):
    """A peer may not join; `is_final`: trying again is of no use."""

    def __init__(self, sentence: str, *, is_final: bool = False) -> None:
        super().__init__(sentence)
        self.is_final = is_final


async def dial_parent(node: Node, parent: Parent, limits: Limits) -> Link:
    """Returns a link to the parent; raises LinkLost as `dial` does."""
    credentials = channel_credentials(node)
    link = await dial(parent.address, credentials=credentials, server_name=parent.server_name, limits=limits)
    link.name = parent.name
    return link


async def say_hello(link: Link) -> pb.Welcome:
    """Introduces this node to its parent and returns the welcome, which says how large payloads may be."""
    await link.send(pb.Hello(protocol=PROTOCOL, version=__version__, software=software_digest()))
    welcome = (await link.receive()).message
    if not isinstance(welcome, pb.Welcome):
        raise WorkFailed(f"{link.name} must answer a hello with a welcome, got {type(welcome).__name__}.")
    link.limits = replace(link.limits, max_payload_bytes=welcome.max_payload_bytes)
    return welcome


def admit_child(
    link: Link,
    hello: Message,
    *,
    federation: str,
    role: Role,
    names: Container[str],
    online: Container[str],
    denied: Container[str],
    stays: bool,
) -> Peer:
    """Returns the peer that has dialled, and names the link after it; raises `NotAdmitted` if it may not join.

    Args:
      names: of the members that join here.
      online: names of those that have a connection already.
      denied: serial numbers of revoked certificates.
      stays: whether members may be added: then one that is not listed yet tries again.
    """
    try:
        peer = admit(link.peer.certificate_pem, federation=federation, role=role, names=names, denied=denied)
    except Stranger as stranger:
        with contextlib.suppress(Stranger):  # by its certificate, so that it can be named
            known = peer_of(link.peer.certificate_pem)
            link.name = known.name if known.federation == federation else link.name
        if stays and isinstance(stranger, Unlisted):
            raise NotAdmitted(f"{stranger} It will, once members.toml in the cloud's kit names it.") from None
        raise NotAdmitted(str(stranger), is_final=True) from None
    link.name = peer.name
    if not isinstance(hello, pb.Hello):
        raise NotAdmitted(f"The first message must be a hello, got {type(hello).__name__}.")
    if trouble := check_versions(hello.protocol, hello.version):
        raise NotAdmitted(trouble, is_final=True)
    if peer.name in online:
        raise NotAdmitted(f"{peer.name} is connected already; each identity has one connection.")
    return peer


async def keep_certificate(renewal: Renewal, link: Link) -> None:
    """Asks the parent for a new certificate whenever that is due, for as long as the link lasts."""
    with contextlib.suppress(LinkLost):
        while True:
            if (request := renewal.request()) is not None:
                await link.send(request)
            await asyncio.sleep(_LOOK_S)


def take_certificate(renewal: Renewal, answer: pb.Certificate) -> bool:
    """Takes a renewed certificate into use, for connections to come; returns whether it is another one now."""
    try:
        if not renewal.take(answer):
            return False
    except (AirpruneError, OSError) as error:
        _log.warning("%s", error)
        return False
    _log.info("The certificate was renewed.")
    return True


def log_if_new(sentence: str, last: str) -> str:
    """Logs the sentence unless it is the last one again; returns it, for the next call."""
    if sentence != last:
        _log.info("%s", sentence)
    return sentence
