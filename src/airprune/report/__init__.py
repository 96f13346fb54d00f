"""Reports: one self-contained HTML page about a run, a comparison or a reproduction.

    reading        what a folder holds, as far as it can be read
    drawing        pictures that only reports have: devices side by side, one panel per file
    markup         text and tables as HTML; whatever comes from a file is escaped
    page           the page around the sections, and its looks
    run            the sections of one run
    comparison     … of several variants over several seeds
    target         … of what it took them to reach an accuracy
    reproduction   … of the paper's tables, figures and claims

A page needs no network, no script and no file beside it. The same folder gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_report(
    folder: Path | str,
    out: Path | str | None = None,
    *,
    target: float | None = None,
    paper: str | None = None,
    formats: Sequence[str] = (),
) -> Path:
    """Writes the report of a folder; see `write.write_report`. Imported late: reading a folder needs no pictures."""
    from airprune.report import write

    return write.write_report(folder, out, target=target, paper=paper, formats=formats)


__all__ = ["write_report"]
