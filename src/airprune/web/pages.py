"""The frame around each page: navigation, scripts and styles, all out of this installation."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from string import Template
from typing import Any

from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import airprune
from airprune.web.answers import json_text
from airprune.web.site import site_of

router = APIRouter()

_FOREVER = "public, max-age=31536000, immutable"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class Page:
    """A page of the navigation: `static/NAME.html` is what stands in its <main>, `static/NAME.js` its script."""

    name: str
    path: str
    title: str


PAGES = (
    Page("planner", "/", "Planner"),
    Page("runs", "/runs", "Runs"),
    Page("league", "/league", "League"),
    Page("reproduction", "/reproduction", "Reproduction"),
)


def page_answer(request: Request, name: str, *, initial: Any = None, title: str = "") -> HTMLResponse:
    """The named page; `initial` is any JSON value, found by its script with `initialData()`."""
    page = next(page for page in PAGES if page.name == name)
    site = site_of(request)
    facts = {"allow_run": site.allow_run, "runs_dir": str(site.runs_dir), "version": airprune.__version__}
    text = Template(_file("shell.html").read_text("utf-8")).substitute(
        title=title or page.title,
        version=airprune.__version__,
        base=f"/static/{static_version()}",
        page=page.name,
        navigation="\n".join(_link(other, current=other is page) for other in PAGES),
        main=_file(f"{page.name}.html").read_text("utf-8"),
        site=_embedded(facts),
        initial=_embedded(initial),
    )
    return HTMLResponse(text)


def _link(page: Page, *, current: bool) -> str:
    here = ' aria-current="page"' if current else ""
    return f'<li><a href="{page.path}"{here}>{page.title}</a></li>'


def _embedded(value: Any) -> str:
    """JSON that cannot end the <script> it stands in."""
    return json_text(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _file(name: str) -> Traversable:
    return resources.files("airprune.web") / "static" / name


@functools.cache
def _assets() -> dict[str, Traversable]:
    """What /static serves, by name; plotly's script comes out of its own installed package."""
    own = (entry for entry in (resources.files("airprune.web") / "static").iterdir())
    assets = {entry.name: entry for entry in own if entry.name.endswith(tuple(_TYPES))}
    assets["plotly.min.js"] = resources.files("plotly") / "package_data" / "plotly.min.js"
    return assets


@functools.cache
def static_version() -> str:
    """Part of every address under /static: it changes with the content, so browsers may always cache the files."""
    digest = hashlib.sha256(metadata.version("plotly").encode())
    for name, entry in sorted(_assets().items()):
        if name != "plotly.min.js":
            digest.update(name.encode() + entry.read_bytes())
    return digest.hexdigest()[:12]


@functools.lru_cache(maxsize=64)
def _content(name: str) -> bytes:
    return _assets()[name].read_bytes()


@router.get("/static/{version}/{name}", include_in_schema=False)
def static(version: str, name: str) -> Response:
    if version != static_version() or name not in _assets():
        raise HTTPException(404)
    kind = _TYPES["." + name.rpartition(".")[2]]
    return Response(_content(name), media_type=kind, headers={"Cache-Control": _FOREVER})


@router.get("/favicon.ico", include_in_schema=False)
def icon() -> Response:
    return Response(_content("icon.svg"), media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})
