"""Runs and their folders: start, record, checkpoint, resume, compare.

    layout        the files of a run folder, and all reading of it; no torch
    lock          one writer per folder
    checkpoint    named arrays and facts in a file with a checksum
    lines         files that grow by whole lines, JSON that may be damaged
    followed      such a file read as it grows, in bounded memory
    record_reader the one reader of records.jsonl
    store         the state of devices, on disk
    writer        writes a run folder while its run goes on
    driver        `run`, which ties a run to its folder and its engine
    trace         `trace_round`: a run up to one edge round, and all that happened in it; `round_trace` has its value
    exporting     the trained model as a torch module, a file of tensors, ONNX
    environment   versions, commit and machine

A record is appended first, then the checkpoint that knows the record file's length takes the old one's place. A run
that is killed in between resumes from the older checkpoint and cuts the extra lines off, so it ends in the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airprune.runs.driver import InProcess, Records, run

__all__ = ["InProcess", "Records", "run"]


def __getattr__(name: str) -> Any:
    """Imported when first used, so that reading a folder does not wait for torch."""
    if name in __all__:
        from airprune.runs import driver

        return getattr(driver, name)
    raise AttributeError(f"module 'airprune.runs' has no attribute {name!r}")
