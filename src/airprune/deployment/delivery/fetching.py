"""A node that is offered a model gets it from its parent, takes it into use, and says so."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from airprune.deployment.checks import MAX_WORDS
from airprune.deployment.delivery.offers import verified
from airprune.deployment.delivery.shelf import Shelf
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport import Link, Packet
from airprune.errors import AirpruneError

_log = logging.getLogger("airprune")


class Fetching:
    """Follows the offers of one parent, in a running event loop."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._offer: pb.ModelOffer | None = None

    async def take_offer(self, link: Link, offer: pb.ModelOffer) -> bool:
        """Asks for the file of an offer, unless it is here already; returns whether the node holds the model now."""
        try:
            manifest = verified(offer, self.shelf.node)
            held = self.shelf.held
            if manifest.version <= held.newest:
                await link.send(pb.ModelHeld(version=held.current))
                return manifest.version == held.newest
            known = await asyncio.to_thread(self.shelf.find, manifest.sha256)
            if known:
                data = await asyncio.to_thread(self.shelf.content, known)
                return await self._put(link, offer, data)
        except (AirpruneError, OSError) as error:
            await self._refuse(link, error)
            return False
        self._offer = offer
        most = max(link.limits.max_payload_bytes, manifest.num_bytes)
        link.limits = replace(link.limits, max_payload_bytes=most)
        await link.send(pb.ModelRequest(digest=manifest.sha256))
        return False

    async def take_file(self, link: Link, packet: Packet) -> bool:
        """Takes the file that was asked for; returns whether the node holds the model now."""
        offer, self._offer = self._offer, None
        if offer is None or verified(offer, self.shelf.node).sha256 != getattr(packet.message, "digest", ""):
            return False
        return await self._put(link, offer, bytes(packet.payload))

    async def _put(self, link: Link, offer: pb.ModelOffer, data: bytes) -> bool:
        try:
            manifest = await asyncio.to_thread(self.shelf.put, offer, data)
        except (AirpruneError, OSError) as error:
            await self._refuse(link, error)
            return False
        _log.info("Holds model %d (%s of job %d).", manifest.version, manifest.which, manifest.job)
        await link.send(pb.ModelHeld(version=manifest.version))
        return True

    async def _refuse(self, link: Link, error: Exception) -> None:
        _log.warning("%s", error)
        await link.send(pb.ModelHeld(trouble=str(error)[:MAX_WORDS]))
