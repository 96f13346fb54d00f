"""The frame around each page: navigation, its script and its style, all from this installation."""

from __future__ import annotations

from dataclasses import dataclass
from string import Template
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse

import airprune
from airprune.web.answers import json_text
from airprune.web.assets import PLOTLY, packaged, static_version
from airprune.web.site import site_of


@dataclass(frozen=True)
class Page:
    """A page of the navigation: `static/NAME.html` is its <main>, `static/NAME.js` its script, STYLE.css its style."""

    name: str
    path: str
    title: str
    style: str


PAGES = (
    Page("overview", "/", "Overview", "overview"),
    Page("planner", "/planner", "Planner", "planner"),
    Page("work", "/work", "Work", "planner"),
    Page("runs", "/runs", "Runs", "runs"),
    Page("deployment", "/deployment", "Deployment", "deployment"),
    Page("league", "/league", "League", "results"),
    Page("reproduction", "/reproduction", "Reproduction", "results"),
)


def page_answer(request: Request, name: str, *, initial: Any = None, title: str = "") -> HTMLResponse:
    """Returns the named page; `initial` is any JSON value, found by its script with `initialData()`."""
    page = next(page for page in PAGES if page.name == name)
    site = site_of(request)
    base = f"/static/{static_version()}"
    facts = {
        "allow_run": site.allow_run,
        "runs_dir": str(site.runs_dir),
        "version": airprune.__version__,
        "plotly": f"{base}/{PLOTLY}",
    }
    text = Template(packaged("shell.html").read_text("utf-8")).substitute(
        title=title or page.title,
        version=airprune.__version__,
        base=base,
        page=page.name,
        style=page.style,
        navigation="\n".join(_link(other, current=other is page) for other in PAGES),
        main=packaged(f"{page.name}.html").read_text("utf-8"),
        site=_embedded(facts),
        initial=_embedded(initial),
    )
    return HTMLResponse(text)


def _link(page: Page, *, current: bool) -> str:
    here = ' aria-current="page"' if current else ""
    return f'<li><a href="{page.path}"{here}>{page.title}</a></li>'


def _embedded(value: Any) -> str:
    """Returns JSON that cannot end the <script> it stands in."""
    return json_text(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
