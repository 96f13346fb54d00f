"""`airprune deploy deliver | models | rollback | predict`: trained models, from the cloud to devices that use them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from airprune.cli.console import print_json, say
from airprune.cli.deploy.fleet import CloudKit, JobNumber, clock, registry
from airprune.cli.deploy.nodes import Kit, StateDir, node_of, state_folder
from airprune.cli.options import AsJson
from airprune.cli.tables import plain_table, print_table
from airprune.errors import UnknownName, UsageError
from airprune.text import MISSING, printable


def deliver(
    kit: CloudKit,
    job: JobNumber,
    best: Annotated[bool, typer.Option("--best", help="The best model in place of the final one.")] = False,
    to: Annotated[
        list[str] | None, typer.Option(metavar="DEVICE", help="Only to this device; may be repeated.")
    ] = None,
    state_dir: StateDir = None,
) -> None:
    """Deliver the model of a finished job to the devices; prints its version.

    Devices fetch it between jobs, verify the cloud's signature and replace the model that they had in one step.

    Example: `airprune deploy deliver lab/cloud 3`
    """
    from airprune.deployment.fleet.releases import model_file
    from airprune.deployment.fleet.service import runs_folder
    from airprune.deployment.identity import load_members
    from airprune.runs.layout import RunFolder

    found, known = registry(kit, state_dir), load_members(kit).all_devices
    for name in to or ():
        if name not in known:
            raise UnknownName("device", name, known)
    which = "best" if best else "final"
    model_file(RunFolder(runs_folder(state_folder(state_dir, kit)) / found.job(job).folder_name), which)
    typer.echo(str(found.deliver(job, which, to or ()).version))


def models(kit: CloudKit, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List the delivered models of a fleet, and which of its nodes hold which.

    Example: `airprune deploy models lab/cloud`
    """
    from airprune.deployment.identity import load_members

    found, members = registry(kit, state_dir), load_members(kit)
    names = {*members.edges, *members.all_devices}
    deliveries, held = found.deliveries(), [one for one in found.held() if one.name in names]
    if as_json:
        print_json({"deliveries": [asdict(one) for one in deliveries], "held": [asdict(one) for one in held]})
        return
    table = plain_table("version", "job", "model", "delivered", "held by", numbers=("version", "job"))
    for one in deliveries:
        holders = ", ".join(node.name for node in held if node.version == one.version)
        table.add_row(str(one.version), str(one.job), one.which, clock(one.created_s), holders or MISSING)
    print_table(table)
    for node in held:
        if node.trouble:
            say(f"{node.name}: {printable(node.trouble)}")


def rollback(kit: Kit, state_dir: StateDir = None) -> None:
    """Go back to the model before the current one: on one device with its kit, in the whole fleet with the cloud's.

    Example: `airprune deploy rollback lab/cloud`
    """
    from airprune.deployment.delivery.shelf import Shelf
    from airprune.deployment.identity import Role, load_node

    node, state = load_node(kit), state_folder(state_dir, kit)
    if node.peer.role is not Role.CLOUD:
        typer.echo(str(Shelf(node, state).roll_back()))
        return
    found = registry(kit, state_dir)
    deliveries = found.deliveries()
    earlier = [one for one in deliveries if (one.job, one.which) != (deliveries[-1].job, deliveries[-1].which)]
    if not earlier:
        raise UsageError("The fleet has been delivered one model at the most; there is none to go back to.")
    again = found.deliver(earlier[-1].job, earlier[-1].which)
    typer.echo(str(again.version))
    say(f"Version {again.version} is the {again.which} model of job {again.job} again.")


def predict(
    kit: Kit,
    data: Annotated[
        str, typer.Option(metavar="SOURCE", help="Samples: a folder with x.npy, an .npz file with x, package:function.")
    ],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the scores as .npy.")] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Predict with the model that this device holds; prints the labels, and latency and memory.

    Needs no torch for the paper's CNN. With y beside x, the accuracy is printed too.

    Example: `airprune deploy predict kit --data samples.npz`
    """
    import numpy as np

    from airprune.deployment.delivery.prediction import predict as scores_of
    from airprune.deployment.delivery.shelf import Shelf
    from airprune.deployment.identity import Role
    from airprune.deployment.own_data import inputs_of
    from airprune.files import atomic_file

    node, state = node_of(kit, Role.DEVICE), state_folder(state_dir, kit)
    x, y = inputs_of(data)
    found = scores_of(Shelf(node, state), x, state=state)
    if out is not None:
        with atomic_file(out) as file:
            np.save(file, found.scores)
    accuracy = None if y is None else float((found.labels == y).mean())
    if as_json:
        print_json(
            {
                "version": found.version,
                "labels": found.labels.tolist(),
                "kernel": found.kernel,
                "personal": found.is_personal,
                "latency_s": found.latency_s,
                "latency_p95_s": found.latency_p95_s,
                "peak_bytes": found.peak_bytes,
                "accuracy": accuracy,
            }
        )
        return
    typer.echo("\n".join(map(str, found.labels.tolist())))
    words = f"Model {found.version}, kernel {found.kernel}: {1e3 * found.latency_s:.2f} ms per sample"
    words += f" (95 %: {1e3 * found.latency_p95_s:.2f} ms), {found.peak_bytes / 2**20:.0f} MiB of memory at the most"
    say(words + (f", accuracy {accuracy:.1%}." if accuracy is not None else "."))
