"""Downloads from public mirrors, with limits on time and size."""

from __future__ import annotations

import http.client
import sys
import time
import urllib.error
import urllib.request

from airprune.errors import raise_if_exhausted

_PIECE = 1 << 16
_TIMEOUT_S = 15.0  # of each wait for the server
_TOTAL_S = 600.0  # of the whole download, against a server that drips


class NotAvailable(Exception):
    """A source that does not have the data; the message says why."""


def download(url: str, *, max_bytes: int) -> bytes:
    """Downloads the file at `url`, at most `max_bytes` long. Progress goes to stderr if that is a terminal."""
    request = urllib.request.Request(url, headers={"User-Agent": "airprune"})
    give_up = time.monotonic() + _TOTAL_S
    content = bytearray()
    label = url.rpartition("/")[2]
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            while piece := response.read(_PIECE):
                content += piece
                if len(content) > max_bytes:
                    raise NotAvailable(f"{label} is larger than {max_bytes:,} bytes")
                if time.monotonic() > give_up:
                    raise NotAvailable(f"{label} took longer than {_TOTAL_S:g} s")
                _progress(label, len(content), total)
    except urllib.error.HTTPError as error:
        raise NotAvailable(f"{label}: HTTP status {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, OSError):
            raise_if_exhausted(reason)
        raise NotAvailable(str(getattr(reason, "strerror", None) or reason) or type(error).__name__) from None
    finally:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
    if total is not None and len(content) != total:
        raise NotAvailable(f"{label} broke off after {len(content):,} of {total:,} bytes")
    return bytes(content)


def _progress(label: str, done: int, total: int | None) -> None:
    if sys.stderr.isatty():
        share = f" of {total / 1e6:.1f}" if total else ""
        sys.stderr.write(f"\r{label}: {done / 1e6:.1f}{share} MB")
        sys.stderr.flush()
