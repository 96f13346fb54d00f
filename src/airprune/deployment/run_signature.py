"""Signs what defines a run with the cloud's key: edges pass it on to devices, and cannot change it."""

from __future__ import annotations

import json

from airprune.deployment.identity import Node
from airprune.deployment.identity.signatures import is_of_cloud, signature_of
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.errors import WorkFailed


def sign_run(welcome: pb.Welcome, node: Node) -> None:
    """Puts the signature of the cloud and its certificate into a welcome."""
    welcome.signature = signature_of(node, _statement(welcome, node.peer.federation))
    welcome.certificate = node.certificate


def check_run(welcome: pb.Welcome, node: Node) -> None:
    """Raises WorkFailed unless the cloud of this node's federation has signed the run of a welcome."""
    statement = _statement(welcome, node.peer.federation)
    if not is_of_cloud(node, statement, welcome.signature, welcome.certificate):
        raise WorkFailed(f"Run {welcome.run} must be signed by the cloud of the federation; it was refused.")


def _statement(welcome: pb.Welcome, federation: str) -> bytes:
    """Returns what is signed: the scenario, digests of the code that it needs, and the shapes that follow from it."""
    facts = {
        "federation": federation,
        "run": welcome.run,
        "scenario": welcome.scenario,
        "input_shape": list(welcome.input_shape),
        "num_classes": welcome.num_classes,
        "num_devices": welcome.num_devices,
        "num_edges": welcome.num_edges,
        "packages": dict(welcome.packages),
    }
    return b"airprune run\n" + json.dumps(facts, sort_keys=True).encode()
