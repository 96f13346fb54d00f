"""`write_report`: recognises a folder, has its sections made, and writes the page."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from airprune.errors import UsageError, WorkFailed
from airprune.figures import PaperColumn
from airprune.report import comparison, reproduction, run
from airprune.report.page import Page, Place, page_text
from airprune.report.reading import is_run, seed_runs
from airprune.tables import write_text_atomic


def write_report(
    folder: Path | str, out: Path | str | None = None, *, target: float | None = None, paper: str | None = None
) -> Path:
    """Writes the report of a run, comparison or reproduction folder; the page's path.

    Args:
      out: the page, by default `report.html` in the folder. Pictures of runs and comparisons are also kept beside it,
        as PNG, PDF, SVG and tidy CSV, tables of comparisons as LaTeX, in `figures/`
        (in `NAME-figures/` if the page is not called report.html).
      target: the accuracy that time, bits and joules are told for; by default the scenarios' `rounds.target_accuracy`,
        a reproduction's own, and of comparisons what all runs reach.
      paper: "single" or "double": curves as wide as one or both columns of an IEEE paper.
    """
    folder = Path(folder)
    sections = _sections_for(folder)
    out = folder / "report.html" if out is None else Path(out)
    if out.suffix.lower() not in (".html", ".htm") or out.is_dir():
        raise UsageError(f"--out must be a file that ends in .html, got {str(out)!r}. Example: --out report.html")
    if not out.parent.is_dir():
        raise UsageError(f"{out} cannot be written: its folder does not exist; create it first.")
    try:
        page = sections(folder, Place(out, None if paper is None else PaperColumn(paper)), target)
    except OSError as error:  # a folder that is read-only, a full disk
        raise WorkFailed(
            f"{out} was not written: {error.strerror or error}; choose another place with --out."
        ) from error
    write_text_atomic(out, page_text(page), follow_link=False)
    return out


def _sections_for(folder: Path) -> Callable[[Path, Place, float | None], Page]:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise UsageError(f"{folder} must be a run, comparison or reproduction folder, but it {what}.")
    if os.path.lexists(folder / "claims.json"):
        return reproduction.page
    if is_run(folder):
        return run.page
    if seed_runs(folder):
        return comparison.page
    raise UsageError(
        f"{folder} is not a folder that can be reported: it has neither scenario.toml (a run), sub-folders like "
        "optimal-seed0 (a comparison) nor claims.json (a reproduction)."
    )
