"""`airprune export`: the trained model of a run, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from airprune.cli.console import say


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    kind: Annotated[
        Literal["pt", "onnx"],
        typer.Option("--format", help="`pt`: tensors for `load_state_dict`; `onnx`: the whole model (extra export)."),
    ] = "pt",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write.  [default: final.pt or final.onnx in RUN]")
    ] = None,
) -> None:
    """Export the trained model of a run, for PyTorch or as ONNX.

    A model of your own is exported as ONNX from Python: `airprune.runs.exporting.export_onnx(run, file, model=…)`.

    Example: `airprune export runs/paper-seed0 --format onnx`
    """
    from airprune.runs.exporting import export_onnx, export_state_dict

    write = export_onnx if kind == "onnx" else export_state_dict
    written = write(run, out or run / f"final.{kind}")
    say(f"{written.stat().st_size:,} bytes:")
    typer.echo(str(written))
