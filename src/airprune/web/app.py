"""The application: its routers behind the guard."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

import airprune
from airprune.web import assets
from airprune.web.answers import answer_errors
from airprune.web.deployment import routes as deployment
from airprune.web.limits import MAX_DOWNLOADS, Lanes, Places
from airprune.web.planner import routes as planner
from airprune.web.planner.fleets import FleetMemory
from airprune.web.results import routes as results
from airprune.web.runs import routes as runs
from airprune.web.safety import Guard
from airprune.web.site import Site
from airprune.web.starting import routes as starting
from airprune.web.work import routes as work

# Newer frameworks can report to collectors named in the environment; this server sends no reports.
_SILENT: Any = dict.fromkeys(("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False)

ROUTERS = (
    assets.router,
    planner.router,
    work.router,
    runs.router,
    deployment.router,
    results.router,
    starting.router,
)
_COMPRESSED_FROM_BYTES = 1_000


def create_app(site: Site) -> FastAPI:
    """Returns the whole site. The framework's own documentation pages stay off: they load scripts from elsewhere."""
    app = FastAPI(title="airprune", version=airprune.__version__, docs_url=None, redoc_url=None, telemetry=_SILENT)
    app.state.site = site
    app.state.fleets = FleetMemory()
    app.state.lanes = Lanes()
    app.state.downloads = Places(
        MAX_DOWNLOADS, f"{MAX_DOWNLOADS} tables are being sent already. Try again in a moment."
    )
    app.state.is_stopping = lambda: False
    for router in ROUTERS:
        app.include_router(router)
    answer_errors(app)
    app.add_middleware(GZipMiddleware, minimum_size=_COMPRESSED_FROM_BYTES, compresslevel=4)
    app.add_middleware(Guard, site=site)
    return app
