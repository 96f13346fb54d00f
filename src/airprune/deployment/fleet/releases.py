"""Models of finished jobs, as they are delivered."""

from __future__ import annotations

import hashlib
from pathlib import Path

from airprune.deployment.delivery.offers import MAX_MODEL_BYTES, Manifest, signed_offer
from airprune.deployment.fleet.registry import Delivery, Job
from airprune.deployment.identity import Node
from airprune.deployment.job_run import read_about
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.errors import UsageError, WorkFailed
from airprune.files import read_bytes
from airprune.runs import checkpoint
from airprune.runs.layout import RunFolder


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
    about = read_about(folder)
    manifest = Manifest(
        federation=node.peer.federation,
        version=delivery.version,
        job=job.number,
        which=delivery.which,
        run=about["run"],
        scenario=folder.scenario().to_toml(),
        input_shape=tuple(about["model"]["input_shape"]),
        num_classes=about["model"]["num_classes"],
        num_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    offer = signed_offer(manifest, node)
    offer.devices.extend(delivery.devices)
    return offer, content
