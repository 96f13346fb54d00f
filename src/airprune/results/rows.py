"""Records as rows of plain numbers, each under a name that says whether it is of this round or since the start.

A global record counts time, bits and joules since the start, an edge record of one round alone, under the same names.
Side by side in one table they would be mistaken for each other, so here they are

    total_uploaded_bits    since the start
    round_uploaded_bits    of this round: global or edge, as the row is

and what is of one round or of the model by its nature (`latency_s`, `train_loss`, `test_accuracy`) keeps its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from airprune.rounds.records import About, EdgeRecord, GlobalRecord, Per, Record

TOTAL, ROUND = "total_", "round_"
Row = dict[str, Any]


@cache
def fields_per(cls: type[Record], *kinds: Per) -> tuple[str, ...]:
    """Returns the fields of a record whose values belong to one of these."""
    hints = get_type_hints(cls, include_extras=True)
    about = {
        name: next(found for found in get_args(hint) if isinstance(found, About))
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
    }
    return tuple(name for name, found in about.items() if found.per in kinds)


def cumulative() -> tuple[str, ...]:
    """Returns the fields that global records count since the start."""
    return fields_per(GlobalRecord, Per.SINCE_START)


def global_row(record: GlobalRecord) -> Row:
    """Returns a global round: its own numbers, and the totals so far; None where nothing was measured."""
    own = (*fields_per(GlobalRecord, Per.ROUND, Per.THIS_ROUND, Per.MODEL),)
    return {name: getattr(record, name) for name in own} | {
        f"{TOTAL}{name}": getattr(record, name) for name in cumulative()
    }


def global_rows(records: Iterable[Record]) -> list[Row]:
    """Returns all global rounds of a run, each also with its additions to the totals."""
    rows: list[Row] = []
    for record in records:
        if isinstance(record, GlobalRecord):
            row = global_row(record)
            added = {f"{ROUND}{name}": _added(row, rows[-1] if rows else None, name) for name in cumulative()}
            rows.append(row | added)
    return rows


def _added(row: Row, before: Row | None, name: str) -> float | None:
    now, then = row[f"{TOTAL}{name}"], 0 if before is None else before[f"{TOTAL}{name}"]
    return None if now is None or then is None else now - then


def edge_row(record: EdgeRecord) -> Row:
    """Returns an edge round as a whole."""
    row: Row = {}
    for name in fields_per(EdgeRecord, Per.ROUND):
        value = getattr(record, name)
        value = sum(value.values()) if isinstance(value, dict) else value
        row[f"{ROUND}{name}" if name in cumulative() else name] = value
    waited = [seconds for seconds in record.edge_latency_s if seconds is not None]
    return row | {"latency_s": max(waited, default=None)}


def device_rows(record: EdgeRecord) -> list[Row]:
    """Returns every device of an edge round."""
    names = [name for name in fields_per(EdgeRecord, Per.DEVICE) if getattr(record, name) is not None]
    where = {"global_round": record.global_round, "edge_round": record.edge_round}
    lists = [getattr(record, name) for name in names]
    return [where | dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]
