"""The addresses of the overview, which shows the results of the package, and of the league and reproduction pages."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from airprune.web.answers import file_answer, json_answer
from airprune.web.pages import page_answer
from airprune.web.results.folders import TYPES
from airprune.web.runs.names import MAX_NAME_LENGTH
from airprune.web.site import site_of

router = APIRouter()

Folder = Annotated[str, Query(max_length=MAX_NAME_LENGTH, description="path from the runs folder")]
File = Annotated[str, Query(max_length=200)]


@router.get("/", include_in_schema=False)
def overview(request: Request) -> Response:
    from airprune.web import recorded

    return page_answer(request, "overview", initial=recorded.overview())


def _add_page(name: str, content: str) -> None:
    """Adds the page `name`, the content of a folder, and the files of one; `views` are imported when asked for."""

    def views() -> Any:
        return importlib.import_module(f"airprune.web.results.{name}")

    @router.get(f"/{name}", include_in_schema=False)
    def page(request: Request, folder: Folder | None = None) -> Response:
        return page_answer(request, name, initial=views().start(site_of(request).runs_dir, folder))

    @router.get(f"/api/{name}", name=name, description=f"{content} of one {name} folder.")
    def shown(request: Request, folder: Folder) -> Response:
        return json_answer(views().view(site_of(request).runs_dir, folder))

    @router.get(
        f"/api/{name}/file", response_class=Response, description=f"A figure (PNG, PDF) or table of one {name} folder."
    )
    def file(request: Request, folder: Folder, file: File) -> Response:
        return file_answer(views().file_of(site_of(request).runs_dir, folder, file), TYPES)


_add_page("league", "Tracks with standings, and claims with verdicts,")
_add_page("reproduction", "Claims with verdicts, figures and tables")
