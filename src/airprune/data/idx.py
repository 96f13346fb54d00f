"""Reads the IDX format of MNIST: two zero bytes, a type, the number of axes, their lengths, the values."""

from __future__ import annotations

import hashlib
import io
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from airprune import files
from airprune.errors import raise_if_exhausted

_UNSIGNED_BYTES = 0x08
_GZIP_MAGIC = b"\x1f\x8b"
_PIECE = 1 << 20


class BadFile(Exception):
    """A file that is not what it should be; the message completes `<path> …`."""


def parse_idx(content: bytes) -> NDArray[np.uint8]:
    """Returns the array in an uncompressed IDX file of unsigned bytes; read-only, over `content` itself."""
    if len(content) < 4 or content[:2] != b"\0\0":
        raise BadFile(f"is not IDX: it must begin with two zero bytes, got {content[:4].hex(' ') or 'an empty file'}")
    kind, num_axes = content[2], content[3]
    if kind != _UNSIGNED_BYTES:
        raise BadFile(f"must hold unsigned bytes (IDX type 0x08), got type 0x{kind:02x}")
    start = 4 + 4 * num_axes
    if num_axes == 0 or len(content) < start:
        raise BadFile(f"is truncated: {num_axes} axes do not fit its {len(content)} bytes")
    shape = tuple(int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4))
    expected = 1
    for length in shape:
        expected *= length  # Python's integers: hostile lengths cannot overflow
    if len(content) - start != expected:
        raise BadFile(f"must hold {expected:,} values for shape {shape}, got {len(content) - start:,}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def unpacked(content: BinaryIO, *, max_bytes: int) -> bytes:
    """Returns the content of a file, gzip or plain. Stops at `max_bytes`: a small file cannot fill the memory."""
    head = content.read(2)
    if head != _GZIP_MAGIC:
        plain = head + content.read(max_bytes - len(head) + 1)
        if len(plain) > max_bytes:
            raise BadFile(f"is larger than the {max_bytes:,} bytes it should have")
        return plain
    decoder = zlib.decompressobj(wbits=31)
    pieces, size = [], 0
    piece = head + content.read(_PIECE)
    while piece and not decoder.eof:
        try:
            pieces.append(decoder.decompress(piece, max_bytes + 1 - size))
        except zlib.error as error:
            raise BadFile(f"is damaged gzip ({error})") from None
        size += len(pieces[-1])
        if size > max_bytes:
            raise BadFile(f"unpacks to more than the {max_bytes:,} bytes it should have")
        piece = decoder.unconsumed_tail or content.read(_PIECE)
    if not decoder.eof:
        raise BadFile("is truncated gzip")
    return b"".join(pieces)


def verified(content: BinaryIO, *, sha256: str, num_bytes: int) -> bytes:
    """Returns the uncompressed contents, or raises BadFile if they are not the published ones."""
    blob = unpacked(content, max_bytes=num_bytes)
    if len(blob) != num_bytes:
        raise BadFile(f"must have {num_bytes:,} bytes uncompressed, got {len(blob):,}")
    got = hashlib.sha256(blob).hexdigest()
    if got != sha256:
        raise BadFile(f"must have SHA-256 {sha256[:12]}… uncompressed, got another")
    return blob


def verified_file(path: Path, *, sha256: str, num_bytes: int) -> bytes:
    try:
        with files.open_to_read(path) as file:
            return verified(file, sha256=sha256, num_bytes=num_bytes)
    except OSError as error:
        raise_if_exhausted(error)
        raise BadFile(f"cannot be read ({error.strerror or error})") from None


def verified_bytes(content: bytes, *, sha256: str, num_bytes: int) -> bytes:
    return verified(io.BytesIO(content), sha256=sha256, num_bytes=num_bytes)
