"""Holds delivered models on the disk of a node: the current one and the one before it.

STATE/models/VERSION.safetensors     the model
STATE/models/VERSION.offer           its manifest and signature
STATE/models/current.json            {"current": VERSION, "previous": VERSION or null, "newest": VERSION}

`current.json` is replaced in one step after both other files are whole, so a reader always finds a whole model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from dataclasses import dataclass
from pathlib import Path

from airprune.deployment.delivery.offers import MAX_MODEL_BYTES, Manifest, verified
from airprune.deployment.identity import Node
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.errors import UsageError, WorkFailed
from airprune.files import read_bytes, replacing

_MAX_OFFER_BYTES = 2**20


@dataclass(frozen=True)
class Held:
    """The versions that a node has; 0: none.

    Attributes:
      newest: the latest that was delivered, also if an older one is in use.
    """

    current: int = 0
    previous: int = 0
    newest: int = 0


class Shelf:
    """The delivered models of one node.

    Args:
      state: its folder.
    """

    def __init__(self, node: Node, state: Path) -> None:
        self.node, self.folder = node, state / "models"
        self._changing = threading.Lock()

    @property
    def held(self) -> Held:
        try:
            return Held(**json.loads(read_bytes(self.folder / "current.json", max_bytes=4_096)))
        except FileNotFoundError:
            return Held()
        except (OSError, ValueError, TypeError) as error:
            path = self.folder / "current.json"
            raise WorkFailed(
                f"{path} cannot be read ({error}); delete the folder, and the model comes again."
            ) from None

    def path(self, version: int) -> Path:
        return self.folder / f"{version}.safetensors"

    def offer(self, version: int) -> pb.ModelOffer:
        return pb.ModelOffer.FromString(read_bytes(self.folder / f"{version}.offer", max_bytes=_MAX_OFFER_BYTES))

    def manifest(self, version: int) -> Manifest:
        """Returns the manifest of a model that it has, with the signature checked again."""
        try:
            return verified(self.offer(version), self.node)
        except OSError as error:
            raise WorkFailed(f"{self.folder / str(version)}.offer cannot be read: {error.strerror}.") from None

    def content(self, version: int) -> bytes:
        """Returns the bytes of a model that it has; raises WorkFailed if they are not those that were delivered."""
        manifest = self.manifest(version)
        try:
            data = read_bytes(self.path(version), max_bytes=MAX_MODEL_BYTES)
        except OSError as error:
            raise WorkFailed(f"{self.path(version)} cannot be read: {error.strerror}.") from None
        if hashlib.sha256(data).hexdigest() != manifest.sha256:
            raise WorkFailed(
                f"{self.path(version)} is not what was delivered; delete {self.folder} and start the "
                "node again, and the newest model comes again."
            )
        return data

    def find(self, digest: str) -> int:
        """Returns the version with this file; 0 if there is none."""
        held = self.held
        for version in {held.current, held.previous, held.newest} - {0}:
            with contextlib.suppress(WorkFailed):
                if self.manifest(version).sha256 == digest and self.content(version):
                    return version
        return 0

    def put(self, offer: pb.ModelOffer, data: bytes) -> Manifest:
        """Takes a model into use; raises WorkFailed if it is not the one that the cloud has signed, or an old one."""
        manifest = verified(offer, self.node)
        if len(data) != manifest.num_bytes or hashlib.sha256(data).hexdigest() != manifest.sha256:
            raise WorkFailed(f"The file of model {manifest.version} is not the one that was signed; it was refused.")
        with self._changing:
            held = self.held
            if manifest.version <= held.newest:
                raise WorkFailed(f"Model {manifest.version} is older than {held.newest}; it was refused.")
            self.folder.mkdir(parents=True, exist_ok=True)
            plain = pb.ModelOffer(manifest=offer.manifest, signature=offer.signature, certificate=offer.certificate)
            for path, content in (
                (self.path(manifest.version), data),
                (self.folder / f"{manifest.version}.offer", plain.SerializeToString()),
            ):
                with replacing(path) as file:
                    file.write(content)
            self._swap(Held(current=manifest.version, previous=held.current, newest=manifest.version))
        return manifest

    def roll_back(self) -> int:
        """Takes the model before the current one into use again; returns its version."""
        with self._changing:
            held = self.held
            if not held.previous:
                raise UsageError(f"{self.folder} holds no earlier model.")
            self.content(held.previous)
            self._swap(Held(current=held.previous, previous=held.current, newest=held.newest))
            return held.previous

    def _swap(self, held: Held) -> None:
        with replacing(self.folder / "current.json") as file:
            file.write(json.dumps(vars(held)).encode())
        kept = {str(version) for version in (held.current, held.previous, held.newest)}
        for path in self.folder.iterdir():
            if path.suffix in (".safetensors", ".offer") and path.stem not in kept:
                path.unlink(missing_ok=True)
