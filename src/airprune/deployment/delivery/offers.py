"""Manifests of delivered models, signed with the cloud's key.

Versions only grow: to go back to an older model is a new version with the older file, and an old manifest that is shown
again is refused.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from airprune.deployment.identity import Node
from airprune.deployment.identity.signatures import is_of_cloud, signature_of
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.errors import WorkFailed

MAX_MODEL_BYTES = 2**30
_MAX_MANIFEST_BYTES = 2**18


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Describes a delivered model.

    Attributes:
      version: of the delivery; each is larger than the one before.
      job: number of the job that trained it.
      which: final or best.
      run: id of the run, by which a device finds the layers that it keeps to itself.
      scenario: TOML; names the model.
      input_shape: of one sample.
      num_bytes, sha256: of the file.
      graph: operations of the model as ONNX without weights, in base64; empty if there are none.
      graph_weights: names of the tensors that they take.
    """

    federation: str
    version: int
    job: int
    which: str
    run: str
    scenario: str
    input_shape: tuple[int, ...]
    num_classes: int
    num_bytes: int
    sha256: str
    graph: str = ""
    graph_weights: tuple[str, ...] = ()


def signed_offer(manifest: Manifest, node: Node) -> pb.ModelOffer:
    """Returns the manifest with the cloud's signature and certificate."""
    data = json.dumps(asdict(manifest), sort_keys=True).encode()
    return pb.ModelOffer(manifest=data, signature=signature_of(node, data), certificate=node.certificate)


def verified(offer: pb.ModelOffer, node: Node) -> Manifest:
    """Returns the manifest of an offer; raises WorkFailed unless the cloud of this node's federation has signed it."""
    if not is_of_cloud(node, offer.manifest, offer.signature, offer.certificate):
        raise WorkFailed("A model must be signed by the cloud of the federation; it was refused.")
    manifest = _manifest_of(offer.manifest)
    if manifest.federation != node.peer.federation:
        raise WorkFailed(f"A model of the federation {manifest.federation} was refused.")
    return manifest


def _manifest_of(data: bytes) -> Manifest:
    try:
        if len(data) > _MAX_MANIFEST_BYTES:
            raise ValueError("too long")
        values: dict[str, Any] = json.loads(data)
        shape, weights = tuple(map(int, values["input_shape"])), tuple(map(str, values.get("graph_weights", ())))
        manifest = Manifest(**{**values, "input_shape": shape, "graph_weights": weights})
        if not (0 < int(manifest.num_bytes) <= MAX_MODEL_BYTES and int(manifest.version) > 0):
            raise ValueError("out of range")
        bytes.fromhex(manifest.sha256)
    except (ValueError, KeyError, TypeError):
        raise WorkFailed("A manifest of a model is not one that this version can read.") from None
    return manifest
