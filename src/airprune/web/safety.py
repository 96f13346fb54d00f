"""Who may ask what. A page of this machine is reachable from every other page that the user has open, so:

- Host must be a name of this server, or another site could point its own name here (DNS rebinding): 421.
- Origin, when there is one, must be this server: 403.
- A request that may change something needs the token of the printed address, in the header `X-Airprune-Token`: 403.
  Every method but GET and HEAD counts as such, unless its path is in `PURE`: a computation that leaves nothing behind.
- A body may have so many bytes and no more, whatever its Content-Length says: 413.

Reading needs no token: other sites cannot read the answers, other users of this machine can.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airprune.web.answers import refusal
from airprune.web.site import Site

TOKEN_HEADER = "X-Airprune-Token"
MAX_FLEET_BYTES = 64 * 2**20
MAX_BODY_BYTES = 2**20

# Computations sent by POST for their size alone: the answer depends on the body and nothing is kept but a memory of it.
PURE = frozenset({"/api/fleet"})
BODY_LIMITS = {"/api/fleet": MAX_FLEET_BYTES}

# Plotly writes style attributes and a style sheet of its own; scripts come from this server alone.
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, *, site: Site) -> None:
        self.app = app
        self.site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, _with_headers(send))
        # A web socket is left unanswered, which closes it: no page has one.

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            self._check(scope["method"], scope["path"], headers)
            limit = BODY_LIMITS.get(scope["path"], MAX_BODY_BYTES)
            _check_length(headers.get("content-length", ""), limit)
        except HTTPException as error:
            await refusal(error.status_code, error.detail)(scope, receive, send)
        else:
            await self.app(scope, _counted(receive, limit), send)

    def _check(self, method: str, path: str, headers: Headers) -> None:
        host = headers.get("host", "").lower()
        if host not in self.site.allowed_hosts:
            raise HTTPException(421, f"Host must be a name of this server, got {host[:80]!r}. Open {self.site.origin}")
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host}":
            raise HTTPException(403, f"Origin must be http://{host}, got {origin[:80]!r}. Open this server's page.")
        if method not in ("GET", "HEAD") and path not in PURE:
            self._check_token(headers.get(TOKEN_HEADER, ""))

    def _check_token(self, given: str) -> None:
        if not secrets.compare_digest(given.encode("latin-1"), self.site.token.encode()):
            got = "another one" if given else "none"
            raise HTTPException(
                403, f"{TOKEN_HEADER} must be the token of this server, got {got}. Open the address that it printed."
            )


def _check_length(declared: str, limit: int) -> None:
    if declared.isascii() and declared.isdigit() and (len(declared) > 18 or int(declared) > limit):
        raise _too_long(limit)


def _too_long(limit: int) -> HTTPException:
    size = f"{limit // 2**20} MiB"
    return HTTPException(413, f"request.body must have at most {size}, got more. Larger files: use the command line.")


def _counted(receive: Receive, limit: int) -> Receive:
    """`receive` that stops a body at the limit, since Content-Length may be absent or a lie."""
    received = 0

    async def counting() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise _too_long(limit)
        return message

    return counting


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending
