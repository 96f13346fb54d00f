"""The addresses of the league page."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from airprune.web.answers import file_answer, json_answer
from airprune.web.pages import page_answer
from airprune.web.runs.names import MAX_NAME_LENGTH
from airprune.web.site import site_of

router = APIRouter()

Folder = Annotated[str, Query(max_length=MAX_NAME_LENGTH, description="path from the runs folder")]


@router.get("/league", include_in_schema=False)
def page(request: Request, folder: Folder | None = None) -> Response:
    from airprune.web.league import views

    return page_answer(request, "league", initial=views.start_page(site_of(request).runs_dir, folder))


@router.get("/api/league")
def league(request: Request, folder: Folder) -> Response:
    """Divisions with standings, and claims with verdicts, of one league folder."""
    from airprune.web.league import views

    return json_answer(views.league(site_of(request).runs_dir, folder))


@router.get("/api/league/file", response_class=Response)
def file(request: Request, folder: Folder, file: Annotated[str, Query(max_length=200)]) -> Response:
    """A picture (PNG, PDF) or table (CSV, LaTeX) of one league folder."""
    from airprune.web.league import views

    return file_answer(views.file_of(site_of(request).runs_dir, folder, file), views.TYPES)
