"""A client of a cluster's scheduler."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from distributed import Client

from airprune.engines.cluster.certificates import security_of
from airprune.errors import UsageError, WorkFailed

_CONNECT_S = 10.0


def connect(scheduler: str, tls: Path | str | None) -> Client:
    """Returns a client of the scheduler at an address or named in a scheduler file."""
    address = scheduler if "://" in scheduler else _address_in(scheduler)
    if address.startswith("tls:") and tls is None:
        raise UsageError(f"The scheduler at {address} wants certificates: engine.tls must name their folder (--tls).")
    if not address.startswith("tls:") and tls is not None:
        raise UsageError(f"engine.tls goes with an address like tls://host:8786, got {address}, which has no TLS.")
    security = None if tls is None else security_of(tls, "client")
    try:
        return Client(address, security=security, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        raise WorkFailed(f"No Dask scheduler answers at {address} ({_short(error)}).") from error


def _address_in(file: str) -> str:
    """Returns the address that a scheduler has written into its file."""
    try:
        address = json.loads(Path(file).read_text())["address"]
        if isinstance(address, str) and "://" in address:
            return address
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UsageError(
        f"Scenario.engine.scheduler must be an address like tls://host:8786 or a scheduler file, got {file!r}."
    )


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def quiet() -> None:
    """Silences Dask's own log: airprune reports what matters, in sentences."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    for name in (*names, "tornado.application", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
