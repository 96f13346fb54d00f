"""Finds the known columns among the names of a table."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Sequence

from airprune.tables.columns import Column, Refused, cell_shown, clipped
from airprune.text import printable


class Header:
    """The known columns, with those that were present and the unknown names.

    Attributes:
      is_quoted: whether messages may show contents of the table.
    """

    def __init__(self, columns: Sequence[Column], *, is_quoted: bool = True) -> None:
        self.is_quoted = is_quoted
        self.known = {column.name: column for column in columns}
        self.required = ", ".join(column.name for column in columns if column.required)
        self.present: set[str] = set()
        self._unknown: dict[str, None] = {}

    def places(self, names: Iterable[str]) -> dict[str, int]:
        """Returns the position of each known column among `names`, a CSV header or the keys of one JSON object."""
        place: dict[str, int] = {}
        for index, name in enumerate(name.strip().lower() for name in names):
            if name in place:
                raise Refused(f"the column {cell_shown(name)} occurs twice", rule="a column occurs twice")
            if name:  # spreadsheets leave unnamed columns at the end
                place[name] = index
        missing = [column for name, column in self.known.items() if column.required and name not in place]
        if missing:
            raise Refused(self._complaint(missing, list(place)), rule=f"missing {_wanted(missing)}")
        if len(self._unknown) < 1000:
            self._unknown.update(dict.fromkeys(name for name in place if name not in self.known))
        found = {name: place[name] for name in self.known if name in place}
        self.present.update(found)
        return found

    def said(self, refused: Refused) -> str:
        return refused.problem if self.is_quoted else refused.rule

    def ignored(self) -> tuple[str, ...]:
        """Returns the unknown names, each with the nearest absent column."""
        absent = [name for name in self.known if name not in self.present]
        texts = []
        for name in itertools.islice(self._unknown, 20):
            near = difflib.get_close_matches(name[:64], absent, n=1)
            texts.append(printable(clipped(name)) + (f" (did you mean {near[0]}?)" if near else ""))
        return tuple(texts)

    def _complaint(self, missing: Sequence[Column], found: Sequence[str]) -> str:
        listed = ", ".join(printable(clipped(name)) for name in found[:12]) or "nothing"
        if len(found) > 12:
            listed += f" and {len(found) - 12} more"
        others = [name[:64] for name in found[:200] if name not in self.known]
        near = difflib.get_close_matches(missing[0].name, others, n=1)
        hint = f"; perhaps rename {cell_shown(near[0])} to {missing[0].name}" if near else ""
        return f"missing {_wanted(missing)}; found {listed}{hint}"


def _wanted(missing: Sequence[Column]) -> str:
    wanted = ", ".join(column.name for column in missing)
    return f"{wanted} ({missing[0].explanation})" if len(missing) == 1 and missing[0].explanation else wanted
