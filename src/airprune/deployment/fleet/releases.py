"""Models of finished jobs, as they are delivered."""

from __future__ import annotations

import base64
import hashlib
import logging
from dataclasses import replace
from pathlib import Path

from airprune.deployment.about import read_about
from airprune.deployment.delivery.graphs import made_graph
from airprune.deployment.delivery.offers import MAX_MODEL_BYTES, Manifest, signed_offer
from airprune.deployment.delivery.prediction import has_native_kernel
from airprune.deployment.fleet.registry import Delivery, Job
from airprune.deployment.identity import Node
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.errors import AirpruneError, UsageError, WorkFailed
from airprune.files import read_bytes
from airprune.runs import checkpoint
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario

_log = logging.getLogger("airprune")


def model_file(folder: RunFolder, which: str) -> Path:
    """Returns the file of a job's model; raises UsageError if there is none."""
    path = folder.best_file if which == "best" else folder.final_file
    if not checkpoint.is_whole(path):
        way_out = "set stop.keep_best=true in its scenario" if which == "best" else "wait until it has ended"
        raise UsageError(f"{folder.path} has no {which} model; {way_out}.")
    return path


def release(node: Node, delivery: Delivery, job: Job, folder: RunFolder) -> tuple[pb.ModelOffer, bytes]:
    """Returns the signed offer of a delivery and its file."""
    path = model_file(folder, delivery.which)
    try:
        content = read_bytes(path, max_bytes=MAX_MODEL_BYTES)
    except OSError as error:
        raise WorkFailed(f"{path} cannot be delivered: {error.strerror}.") from None
    about, scenario = read_about(folder), folder.scenario()
    shape, num_classes = tuple(about["model"]["input_shape"]), about["model"]["num_classes"]
    manifest = Manifest(
        federation=node.peer.federation,
        version=delivery.version,
        job=job.number,
        which=delivery.which,
        run=about["run"],
        scenario=scenario.to_toml(),
        input_shape=shape,
        num_classes=num_classes,
        num_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    if not has_native_kernel(scenario):
        manifest = _with_graph(manifest, scenario)
    offer = signed_offer(manifest, node)
    offer.devices.extend(delivery.devices)
    return offer, content


def _with_graph(manifest: Manifest, scenario: Scenario) -> Manifest:
    """Returns the manifest with what devices without torch need for models that the native kernel does not compute."""
    try:
        graph, names = made_graph(scenario, input_shape=manifest.input_shape, num_classes=manifest.num_classes)
    except AirpruneError as error:
        _log.warning("Model %d has no ONNX graph, so devices need torch to predict. %s", manifest.version, error)
        return manifest
    return replace(manifest, graph=base64.b64encode(graph).decode(), graph_weights=names)
