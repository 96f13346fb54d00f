"""`write_report`: recognises a folder, makes its sections, and writes the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from airprune.errors import UsageError, WorkFailed
from airprune.results.figures.curves import FORMATS, PaperColumn
from airprune.results.report.page import Page, Place, page_text
from airprune.results.report.reading import is_run, seed_runs
from airprune.tables import write_text_atomic


def write_report(
    folder: Path | str,
    out: Path | str | None = None,
    *,
    target: float | None = None,
    paper: str | None = None,
    formats: Sequence[str] = (),
) -> Path:
    """Writes the report of a run, comparison or reproduction folder; returns its path.

    Args:
      out: the file, by default `report.html` in the folder. Figures of runs and comparisons are also kept beside it,
        as PNG and tidy CSV, tables of comparisons as LaTeX, in `figures/`
        (in `NAME-figures/` if the file is not called report.html).
      target: the accuracy that time, bits and joules are given for; by default the scenarios' `rounds.target_accuracy`,
        a reproduction's own, and of comparisons what all runs reach.
      paper: "single" or "double": curves as wide as one or both columns of an IEEE paper.
      formats: "pdf", "svg" or both: figures in these formats too, which takes longer than the report itself.
    """
    folder = Path(folder)
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"--formats must be of {', '.join(FORMATS)}, got {name!r}. Example: --formats pdf,svg")
    sections = _sections_for(folder)
    out = folder / "report.html" if out is None else Path(out)
    if out.suffix.lower() not in (".html", ".htm") or out.is_dir():
        raise UsageError(f"--out must be a file that ends in .html, got {str(out)!r}. Example: --out report.html")
    if not out.parent.is_dir():
        raise UsageError(f"{out} cannot be written: its folder does not exist; create it first.")
    try:
        column = None if paper is None else PaperColumn(paper)
        page = sections(folder, Place(out, folder, column, formats), target)
    except OSError as error:  # a folder that is read-only, a full disk
        raise WorkFailed(
            f"{out} was not written: {error.strerror or error}; choose another place with --out."
        ) from error
    write_text_atomic(out, page_text(page), follow_link=False)
    return out


def _sections_for(folder: Path) -> Callable[[Path, Place, float | None], Page]:
    """Returns the function for such a folder; imported alone: a run's report needs none of the paper's figures."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} must be a run, comparison or reproduction folder, but it {what}.")
    if os.path.lexists(folder / "claims.json"):
        from airprune.studies.paper import report

        return report.page
    if is_run(folder):
        from airprune.results.report import run

        return run.page
    if seed_runs(folder):
        from airprune.results.report import comparison

        return comparison.page
    raise UsageError(
        f"{folder} is not a folder that can be reported: it has neither scenario.toml (a run), sub-folders like "
        "optimal-seed0 (a comparison) nor claims.json (a reproduction)."
    )
