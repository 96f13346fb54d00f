"""`airprune deploy verify`: whether edges have made of their uploads what they said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from airprune.cli.console import print_json, say
from airprune.cli.deploy.watching import RunPath, run_folder
from airprune.cli.options import AsJson
from airprune.errors import InvalidValue
from airprune.text import counted


def verify(
    run: RunPath,
    edge: Annotated[
        list[str],
        typer.Option(metavar="NAME=FOLDER", help="An edge's kit, or the folder of its state; repeat it for others."),
    ],
    as_json: AsJson = False,
) -> None:
    """Add up again what edges kept with `--keep-uploads`, and compare it with the records of the cloud.

    Ends with status 1 if something differs. Nothing is trained again, so this works on any machine.

    Example: `airprune deploy verify runs/yard --edge e0=kits/e0 --edge e1=kits/e1`
    """
    from airprune.deployment.verification import edges_of, verified_rounds

    folder, kept = run_folder(run), _folders(edge)
    rounds = []
    for found in verified_rounds(folder, kept):
        rounds.append(found)
        if not as_json:
            place = f"{found.edge}, global round {found.global_round}, edge round {found.edge_round}"
            typer.echo(f"{place}: {found.verdict} ({counted(found.num_uploads, 'upload')})")
            for difference in found.differences:
                typer.echo(f"  {difference}")
    num_wrong = sum(found.verdict == "differs" for found in rounds)
    missing = [name for name in edges_of(folder) if name not in kept]
    if as_json:
        lines = [{**asdict(found), "verdict": found.verdict} for found in rounds]
        print_json({"rounds": lines, "num_wrong": num_wrong, "not_verified": missing})
    else:
        verdict = f"{counted(num_wrong, 'edge round')} of {len(rounds):,} differ" if num_wrong else "nothing differs"
        say(f"{counted(len(rounds), 'edge round')}: {verdict}.")
        if missing:
            say(f"Not verified, because no folder was given: {', '.join(missing)}.")
    if num_wrong:
        raise typer.Exit(1)


def _folders(words: Sequence[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for word in words:
        name, equals, place = word.partition("=")
        if not (name and equals and place):
            raise InvalidValue("--edge", "must be NAME=FOLDER", repr(word), "Example: --edge e0=kits/e0")
        if name in found:
            raise InvalidValue("--edge", "must be given once for each edge", f"{name} twice")
        found[name] = Path(place)
    return found
