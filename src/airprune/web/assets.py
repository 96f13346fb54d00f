"""Scripts, styles and icons under /static: read once, compressed once, cached by browsers for ever."""

from __future__ import annotations

import functools
import gzip
import hashlib
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from airprune.web import charts

router = APIRouter()

PLOTLY = "plotly.min.js"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FOREVER = "public, max-age=31536000, immutable"


def packaged(name: str) -> Traversable:
    """A file of the package's folder `static`."""
    return resources.files("airprune.web") / "static" / name


@functools.cache
def _names() -> frozenset[str]:
    own = (entry.name for entry in (resources.files("airprune.web") / "static").iterdir())
    return frozenset({PLOTLY, *(name for name in own if name.endswith(tuple(TYPES)))})


@functools.cache
def static_version() -> str:
    """Part of every address under /static: it changes with the content, so browsers may always cache the files."""
    digest = hashlib.sha256()
    for name in sorted(_names()):
        digest.update(name.encode() + _content(name))
    return digest.hexdigest()[:12]


@functools.cache
def _content(name: str) -> bytes:
    return charts.script() if name == PLOTLY else packaged(name).read_bytes()


@functools.cache
def _compressed(name: str) -> bytes:
    return gzip.compress(_content(name), 6, mtime=0)


@router.get("/static/{version}/{name}", include_in_schema=False)
def static(request: Request, version: str, name: str) -> Response:
    if version != static_version() or name not in _names():
        raise HTTPException(404)
    headers = {"Cache-Control": _FOREVER, "Vary": "Accept-Encoding"}
    content = _content(name)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"], content = "gzip", _compressed(name)
    return Response(content, media_type=TYPES["." + name.rpartition(".")[2]], headers=headers)


@router.get("/favicon.ico", include_in_schema=False)
def icon() -> Response:
    return Response(_content("icon.svg"), media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})
