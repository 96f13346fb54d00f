"""Fleet tables that the page has sent, remembered by their content for as long as there is room."""

from __future__ import annotations

import hashlib
import io
import threading
from collections import OrderedDict

from airprune.errors import BadTable, UsageError
from airprune.planning.fleet import Fleet, read_fleet

MAX_ROWS = 1_000_000


class FleetMemory:
    """The tables used last, up to `max_rows` rows in all."""

    def __init__(self, max_rows: int = 2 * MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._fleets: OrderedDict[str, Fleet] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, content: bytes, name: str) -> tuple[str, Fleet]:
        """(key, fleet); the key is the SHA-256 of the content. Raises `BadTable` as `airprune plan` does."""
        key = hashlib.sha256(content).hexdigest()
        stream = io.BytesIO(content)
        stream.name = name  # what messages call it
        fleet = read_fleet(stream)
        if len(fleet.device) > MAX_ROWS:
            raise BadTable(name, 0, f"more than {MAX_ROWS:,} rows; use `airprune plan`, which takes more.")
        with self._lock:
            self._fleets[key] = fleet
            self._fleets.move_to_end(key)
            while sum(len(kept.device) for kept in self._fleets.values()) > self._max_rows:
                self._fleets.popitem(last=False)
        return key, fleet

    def get(self, key: str) -> Fleet:
        with self._lock:
            if key not in self._fleets:
                raise UsageError(
                    f"planner.fleet must be a table that this server still holds, got {key[:12]}…. Load the file again."
                )
            self._fleets.move_to_end(key)
            return self._fleets[key]
