"""Reads a file, standard input or a stream as UTF-8 text, block by block."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from airprune import files
from airprune.errors import BadTable
from airprune.text import printable

BLOCK_BYTES = 256 * 1024
MAX_BLANK_CHARS = 256 * 1024
MAX_LINE_CHARS = 64 * 1024
MAX_TABLE_BYTES = 2**30

_REASONS: dict[type[Exception], str] = {
    FileNotFoundError: "there is no such file; use - to read standard input",
    IsADirectoryError: "is a folder, not a table",
    PermissionError: "may not be read: permission denied",
}


@contextmanager
def opened(source: Path | str | BinaryIO, *, is_own: bool = True) -> Iterator[tuple[BinaryIO, str]]:
    """Yields the stream and its name in messages; closes what it opened.

    Args:
      is_own: whether the user has named it; else neither links nor pipes are opened, nor what is very large.
    """
    stream, name = _open(source, is_own)
    try:
        yield stream, name
    except OSError as error:
        raise BadTable(name, 0, f"cannot be read: {error.strerror or error}.") from error
    finally:
        if isinstance(source, str | Path) and stream is not getattr(sys.stdin, "buffer", None):
            stream.close()


def _open(source: Path | str | BinaryIO, is_own: bool) -> tuple[BinaryIO, str]:
    if source == "-" and is_own:
        if sys.stdin is None:
            raise BadTable("standard input", 0, "is closed; give a file name instead.")
        return sys.stdin.buffer, "standard input"
    if not isinstance(source, str | Path):
        name = getattr(source, "name", None)
        return source, printable(name) if isinstance(name, str) else "the stream"
    name = printable(str(source))
    try:
        path = Path(source)
        return path.open("rb") if is_own else files.open_to_read(path, max_bytes=MAX_TABLE_BYTES), name
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = _REASONS.get(type(error)) or f"cannot be opened: {getattr(error, 'strerror', None) or error}"
        raise BadTable(name, 0, f"{reason}.") from error


def text_blocks(stream: BinaryIO, source: str) -> Iterator[str]:
    """Yields the stream as text, about `BLOCK_BYTES` at a time, with newlines as ends of lines; refuses other data."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8-sig")(), translate=True)
    line = 1
    num_blank = 0
    block = None
    while block != b"":
        block = b""
        while len(block) < BLOCK_BYTES and (piece := stream.read(BLOCK_BYTES - len(block))):
            block += piece
        if (nul := block.find(b"\0")) >= 0:
            at = line + block.count(b"\n", 0, nul)
            raise BadTable(source, at, "a NUL byte, so this is not text; save the table as CSV in UTF-8.")
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            at = line + error.object.count(b"\n", 0, error.start)
            raise BadTable(source, at, "a byte is not UTF-8; save the table as UTF-8.") from error
        num_blank = num_blank + len(text) if text.isspace() else 0
        if num_blank >= MAX_BLANK_CHARS:
            raise BadTable(source, line, f"{MAX_BLANK_CHARS // 1024} KiB of blank lines; this is not a table.")
        line += text.count("\n")
        if text:
            yield text


def capped(blocks: Iterable[str], source: str, max_bytes: int) -> Iterator[str]:
    """Yields the blocks, and refuses a source beyond a size."""
    size = 0
    for text in blocks:
        size += len(text) if text.isascii() else len(text.encode())
        if size > max_bytes:
            raise BadTable(source, 0, f"longer than {max_bytes:,} bytes; use CSV for a table of this size.")
        yield text
