"""The addresses for starting runs. The token is checked for all of them before they are reached."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, FastAPI
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from airprune.errors import WorkFailed
from airprune.web.answers import json_answer
from airprune.web.runs.names import MAX_NAME_LENGTH, new_folder
from airprune.web.site import root_if_allowed, site_of
from airprune.web.starting.wanted import RunRequest, check
from airprune.web.starting.work import Work, work_of


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.work = Work()
    yield
    await run_in_threadpool(app.state.work.close)


router = APIRouter(lifespan=_lifespan)

Name = Annotated[str, Field(max_length=MAX_NAME_LENGTH)]


class Start(RunRequest):
    """A scenario and the name of its new folder."""

    name: Name


class Resume(BaseModel):
    model_config = ConfigDict(extra="forbid")
    run: Name


@router.get("/api/scenario/form")
def scenario_form() -> Response:
    """Every field of a scenario, and the presets' values."""
    from airprune.web.starting.form import form

    return json_answer(form())


@router.post("/api/scenario/check")
def scenario_check(request: Request, wanted: RunRequest) -> Response:
    """Checks a scenario; an invalid one is refused with the sentence of the command line."""
    return json_answer(check(wanted, site_of(request).runs_dir))


@router.get("/api/work")
def work(request: Request) -> Response:
    """The run at work, or the last one."""
    return json_answer(work_of(request).status())


@router.post("/api/work/start")
def start(request: Request, wanted: Start) -> Response:
    """Starts a run in a new folder of the runs folder."""
    root = root_if_allowed(request)
    folder = new_folder(root, wanted.name)
    work_of(request).start(folder, wanted.name, wanted.scenario().to_toml())
    return json_answer(work_of(request).status())


@router.post("/api/work/resume")
def resume(request: Request, wanted: Resume) -> Response:
    """Continues a run that was stopped."""
    from airprune.web.runs.listing import state_of
    from airprune.web.runs.views import run_named

    root = root_if_allowed(request)
    folder = run_named(root, wanted.run)
    state = state_of(folder)
    if state != "stopped":
        way_out = "choose a stopped one" if state in ("finished", "diverged") else "stop it first"
        raise WorkFailed(f"{wanted.run} is {state}; {way_out}.")
    work_of(request).resume(folder, wanted.run)
    return json_answer(work_of(request).status())


@router.post("/api/work/stop")
def stop(request: Request) -> Response:
    """Stops the run at work as Ctrl-C would; asked again, at once."""
    root_if_allowed(request)
    work_of(request).stop()
    return json_answer(work_of(request).status())
