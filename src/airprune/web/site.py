"""The settings of one running server."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, kw_only=True)
class Site:
    """One running server.

    Attributes:
      runs_dir: the folder whose runs are shown.
      host, port: where it listens.
      allow_run: whether the page may start runs.
      private: whether the token guards reading too.
      token: guards every request that changes something; new for each server.
    """

    runs_dir: Path = Path("runs")
    host: str = "127.0.0.1"
    port: int = 8765
    allow_run: bool = False
    private: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def origin(self) -> str:
        return f"http://{bracketed(self.host)}:{self.port}"

    @property
    def address(self) -> str:
        """Returns the address to open in a browser."""
        return f"{self.origin}/?token={self.token}"

    @property
    def cookie_name(self) -> str:
        """With the port: all servers of a host share their cookies."""
        return f"airprune-{self.port}"

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """The Host headers that are answered: any other name led here by a trick of DNS."""
        names = {*LOOPBACK_NAMES, bracketed(self.host).lower()}
        bare = names if self.port == 80 else set()  # browsers leave out the port that is usual
        return frozenset({f"{name}:{self.port}" for name in names} | bare)


def bracketed(host: str) -> str:
    """A host as it stands in an address: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def site_of(request: Request) -> Site:
    """The site that a request came to."""
    site: Site = request.app.state.site
    return site


def root_if_allowed(request: Request) -> Path:
    """The runs folder of a server that may write there; 403 for any other."""
    site = site_of(request)
    if not site.allow_run:
        raise HTTPException(403, "This server does not start runs. Start it as: airprune web RUNS_DIR --allow-run")
    return site.runs_dir
