"""The addresses of the reproduction page."""

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


@router.get("/reproduction", include_in_schema=False)
def page(request: Request, folder: Folder | None = None) -> Response:
    from airprune.web.reproduction import views

    return page_answer(request, "reproduction", initial=views.start_page(site_of(request).runs_dir, folder))


@router.get("/api/reproduction")
def reproduction(request: Request, folder: Folder) -> Response:
    """Claims with verdicts, pictures and tables of one reproduction folder."""
    from airprune.web.reproduction import views

    return json_answer(views.reproduction(site_of(request).runs_dir, folder))


@router.get("/api/reproduction/file", response_class=Response)
def file(request: Request, folder: Folder, file: Annotated[str, Query(max_length=200)]) -> Response:
    """A picture (PNG, PDF) or table (CSV) of one reproduction folder."""
    from airprune.web.reproduction import views

    return file_answer(views.file_of(site_of(request).runs_dir, folder, file), views.TYPES)
