"""The first page: the idea, the paper, what it costs and saves, and what has been measured, before anything is run."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from airprune.web.pages import page_answer

router = APIRouter()


@router.get("/", include_in_schema=False)
def page(request: Request) -> Response:
    from airprune.web import recorded

    return page_answer(request, "overview", initial=recorded.overview())
