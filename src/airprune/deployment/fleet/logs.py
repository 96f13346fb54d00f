"""Logs as JSON lines: a line per event, with its time, level, node and job."""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import logging.handlers
from collections.abc import Iterator
from pathlib import Path

from airprune.errors import UsageError
from airprune.text import plain

FILE = "log.jsonl"
_MOST_BYTES, _NUM_OLD = 2**23, 2


class PlainLines(logging.Formatter):
    """Writes sentences without control characters but line ends, whoever chose their words."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(plain(line) for line in super().format(record).split("\n"))


class JsonLines(logging.Formatter):
    """Writes a log record as one JSON object: time (UTC), level, node, job and message; of errors the traceback."""

    def __init__(self, node: str, job: int | None = None) -> None:
        super().__init__()
        self._fixed = {"node": node, **({} if job is None else {"job": job})}

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), **self._fixed, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(line, ensure_ascii=False)
        return text if text.isprintable() else json.dumps(line)


@contextlib.contextmanager
def logged_to(path: Path, *, node: str, job: int | None = None) -> Iterator[None]:
    """Appends the program's log to a file meanwhile; of a file that grows long, the older part moves to FILE.1."""
    try:
        handler = logging.handlers.RotatingFileHandler(path, maxBytes=_MOST_BYTES, backupCount=_NUM_OLD, delay=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
    handler.setFormatter(JsonLines(node, job))
    logger = logging.getLogger("airprune")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
