"""Access rules. A page of this machine is reachable from every other page that the user has open, so:

- Host must be a name of this server, or another site could point its own name here (DNS rebinding): 421.
- Origin, when there is one, must be this server: 403.
- A request that may change something needs the token of the printed address, in the header `X-Airprune-Token`: 403.
  Every method but GET and HEAD counts as such, unless its path is in `PURE`: a computation that leaves nothing behind.
- A body may have so many bytes and no more, whatever its Content-Length says: 413. What all bodies may take together
  is in `limits`.

Reading needs no token: other sites cannot read the answers, other users of this machine can. A private site wants it
for reading too, all but its scripts and styles: 401. The printed address then leaves a cookie, which opens the other
pages and the streams. A browser sends cookies to every port of a host, so this one is not the token but made from it:
who gets hold of it may read, and change nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from string import Template

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airprune.web.answers import refusal
from airprune.web.assets import packaged, static_version
from airprune.web.limits import Uploads
from airprune.web.site import Site

TOKEN_HEADER = "X-Airprune-Token"
MAX_FLEET_BYTES = 64 * 2**20
MAX_BODY_BYTES = 2**20

# Computations sent by POST for their size alone: the answer depends on the body and nothing is kept but a memory of it.
PURE = frozenset({"/api/fleet"})
BODY_LIMITS = {"/api/fleet": MAX_FLEET_BYTES}
# What a private site shows to everybody: what comes with airprune and says nothing of its runs.
OPEN_PATHS = ("/static/", "/favicon.ico")
LOCKED = "This server is private. Open the address that airprune web has printed in its terminal."

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
        self.uploads = Uploads()
        self._reading_key = hmac.new(site.token.encode(), b"reading", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, _with_headers(send))
        # A web socket is left unanswered, which closes it: no page has one.

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        limit = BODY_LIMITS.get(scope["path"], MAX_BODY_BYTES)
        try:
            self._check(scope["method"], scope["path"], headers)
            if self.site.private and not scope["path"].startswith(OPEN_PATHS):
                send = self._admitted(scope, headers, send)
            _check_length(headers.get("content-length", ""), limit)
        except HTTPException as error:
            await _refusal(error, headers)(scope, receive, send)
            return
        async with self.uploads.watched(receive, _has_body(headers)) as watched:
            with contextlib.suppress(ClientDisconnect):  # in the middle of its own request
                await self.app(scope, _counted(watched, limit), send)

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
        if not _is_same(given, self.site.token):
            got = "another one" if given else "none"
            raise HTTPException(
                403, f"{TOKEN_HEADER} must be the token of this server, got {got}. Open the address that it printed."
            )

    def _admitted(self, scope: Scope, headers: Headers, send: Send) -> Send:
        """Returns `send` for a client that may read, else raises 401; the printed address earns the cookie."""
        cookie = cookie_parser(headers.get("cookie", "")).get(self.site.cookie_name, "")
        if _is_same(headers.get(TOKEN_HEADER, ""), self.site.token) or _is_same(cookie, self._reading_key):
            return send
        if not _is_same(QueryParams(scope["query_string"]).get("token", ""), self.site.token):
            raise HTTPException(401, LOCKED, {"WWW-Authenticate": "AirpruneToken"})
        marks = f"{self.site.cookie_name}={self._reading_key}; Path=/; HttpOnly; SameSite=Strict"
        return _with_cookie(send, marks)


def _is_same(given: str, secret: str) -> bool:
    """Takes the same time wherever they differ."""
    return secrets.compare_digest(given.encode(errors="replace"), secret.encode())


def _refusal(error: HTTPException, headers: Headers) -> Response:
    """A sentence in JSON; for a browser that wanted a page of a private site, a page."""
    if error.status_code != 401 or "text/html" not in headers.get("accept", ""):
        return refusal(error.status_code, error.detail, error.headers)
    page = Template(packaged("locked.html").read_text("utf-8"))
    return HTMLResponse(page.substitute(base=f"/static/{static_version()}", sentence=error.detail), 401, error.headers)


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


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


def _with_cookie(send: Send, cookie: str) -> Callable[[Message], Awaitable[None]]:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).append("Set-Cookie", cookie)
        await send(message)

    return sending
