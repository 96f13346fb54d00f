"""The addresses of the runs page. Runs are named in the query, where nobody shortens `a/../b`."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, FastAPI, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from airprune.results.measures import CURVE_COLUMNS
from airprune.web.answers import json_answer
from airprune.web.limits import LimitedStream, Places
from airprune.web.pages import page_answer
from airprune.web.runs.names import MAX_NAME_LENGTH, checked_parts
from airprune.web.site import site_of
from airprune.web.starting.work import work_of

# What reads run folders takes a moment to import: it is done when first asked for, or when nobody waits, so that
# the planner need not.

_IDLE_S = 1.5
MAX_STREAMS = 32


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.streams = Places(MAX_STREAMS, f"{MAX_STREAMS} pages follow runs already. Close one of them.")
    warming = asyncio.create_task(_import_early())
    yield
    warming.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await warming


async def _import_early() -> None:
    """Once the first page is served, so that nobody waits for it."""
    await asyncio.sleep(_IDLE_S)
    await run_in_threadpool(importlib.import_module, "airprune.web.runs.views")


router = APIRouter(lifespan=_lifespan)

RunName = Annotated[str, Query(max_length=MAX_NAME_LENGTH, description="path of the run from the runs folder")]
RunNames = Annotated[list[str], Query(alias="run", max_length=100, description="one for each run")]
Target = Annotated[float, Query(ge=0, le=1, description="a test accuracy, as a share")]
Round = Annotated[int, Query(ge=1, le=10_000_000)]


@router.get("/runs", include_in_schema=False)
def page(request: Request, run: RunNames = []) -> Response:  # noqa: B006, the framework copies it
    from airprune.web.runs import views

    site = site_of(request)
    initial = {**views.start_page(site.runs_dir, run), "work": work_of(request).status()}
    return page_answer(request, "runs", initial=initial)


@router.get("/api/runs")
def runs(request: Request) -> Response:
    """The runs under the runs folder, last written first."""
    from airprune.web.runs.listing import listing

    return json_answer(listing(site_of(request).runs_dir).latest())


@router.get("/api/runs/curves")
def curves(request: Request, run: RunNames) -> Response:
    """Measures of the named runs by global round, and coverage by edge round."""
    from airprune.web.runs import views

    root = site_of(request).runs_dir
    names = views.names_of_runs(root, run)
    return json_answer({"columns": CURVE_COLUMNS, "curves": [views.curve(root, name) for name in names]})


@router.get("/api/runs/reached")
def reached(request: Request, run: RunNames, target: Target) -> Response:
    """Returns the costs of the named runs to a test accuracy: time, bits, joules and rounds; null if not reached."""
    from airprune.web.runs import reached, views

    root = site_of(request).runs_dir
    return json_answer(reached.reached(root, views.names_of_runs(root, run), target))


@router.get("/api/runs/groups")
def groups(
    request: Request,
    run: RunNames = [],  # noqa: B006
    match: Annotated[str | None, Query(max_length=400, description="in place of names: words of the runs")] = None,
    group: Annotated[str, Query(max_length=200, description="each, seeds, or a key in which they differ")] = "seeds",
    target: Target | None = None,
) -> Response:
    """Hundreds of runs as groups: mean and 95 % interval by global round, and what it took to reach the target."""
    from airprune.web.runs import groups, views

    root = site_of(request).runs_dir
    names = views.names_of_runs(root, run) if match is None else groups.matching(root, match)
    return json_answer(groups.groups(root, names, group, target))


@router.get("/api/runs/devices")
def devices(request: Request, run: RunName, global_round: Round, edge_round: Round) -> Response:
    """Every device of one edge round: its fate, share, pruning ratio and times."""
    from airprune.web.runs import views

    return json_answer(views.devices(site_of(request).runs_dir, run, global_round, edge_round))


@router.get("/api/runs/differences")
def differences(request: Request, run: RunNames) -> Response:
    """The keys in which the scenarios of the named runs differ."""
    from airprune.web.runs import views

    root = site_of(request).runs_dir
    names = views.names_of_runs(root, run)
    return json_answer(views.differing(root, names))


@router.get("/api/runs/events", include_in_schema=False)  # endless, and not JSON
def events(request: Request, run: RunNames = []) -> Response:  # noqa: B006
    """Server-sent events about the list and the named runs; a run that is not there yet may appear."""
    from airprune.web.runs import stream, views

    names = views.checked_names(run)
    for name in names:
        checked_parts(name)
    news = stream.SentEvents(site_of(request).runs_dir, names, work_of(request).status)
    events = stream.stream(news, request.app.state.is_stopping)
    return LimitedStream(events, request.app.state.streams, media_type="text/event-stream")
