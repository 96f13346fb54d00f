"""The TOML files of a kit: their reading and the kinds of values in them."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from airprune.errors import InvalidValue, UsageError
from airprune.settings import toml_text
from airprune.settings.section import Text

_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
MAX_PORT = 65_535


def read_table(path: Path) -> dict[str, Any]:
    """Returns the file's values; raises with one sentence if it is missing or is no TOML."""
    return toml_text.parse(_decoded(read_file(path), path), source=str(path))


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"{path} is missing; copy the whole kit (credentials bundle) that `airprune deploy init` made."
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidValue(str(path), "must be UTF-8 text", f"byte 0x{content[error.start]:02x}") from None


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_host(text: str) -> bool:
    """True if it is an IP address or can be the name of a machine."""
    return is_ip(text) or (_HOST.fullmatch(text) is not None and not text.rpartition(".")[2].isdecimal())


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def checked_address(text: str) -> str:
    """Returns the text if it is host:port; raises InvalidValue otherwise."""
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    good = (
        (is_host(host[1:-1]) if bracketed else is_host(host) and ":" not in host)
        and port.isascii()
        and port.isdecimal()
        and 0 < int(port[:6]) <= MAX_PORT
    )
    if not good:
        raise InvalidValue("An address", "must be host:port", repr(text), "Example: 192.168.1.10:8701")
    return text


Address = Annotated[Text, AfterValidator(checked_address)]
