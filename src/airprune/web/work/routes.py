"""The addresses of the work page: computations, which change nothing and need no token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from airprune.errors import AirpruneError
from airprune.web.answers import json_answer
from airprune.web.limits import Busy, Lanes
from airprune.web.pages import page_answer
from airprune.web.work.boards import KINDS, LAYER_NAMES
from airprune.web.work.picture import part_name, picture
from airprune.web.work.settings import WorkSettings

router = APIRouter()


def _parameters() -> list[dict[str, Any]]:
    """The settings as OpenAPI's query parameters."""
    properties = WorkSettings.model_json_schema()["properties"]
    return [
        {"name": name, "in": "query", "required": False, "description": schema.pop("description", ""), "schema": schema}
        for name, schema in properties.items()
    ]


@router.get("/work", include_in_schema=False)
async def page(request: Request) -> Response:
    """The page with its first plan inside."""
    query = {name: text for name, text in request.query_params.items() if name != "token"}
    answer, error = None, None
    try:
        answer = await _answer(request, query)
    except AirpruneError as refused:
        error = str(refused)
    except Busy as busy:
        error = busy.detail
    initial = {
        "defaults": WorkSettings().model_dump(),
        "kinds": [
            {"name": kind.name, "label": kind.label, "source": kind.source, "is_assumed": kind.is_assumed}
            for kind in KINDS.values()
        ],
        "parts": [part_name(first) for first in range(len(LAYER_NAMES))],
        "answer": answer or await _answer(request, {}),
        "error": error,
    }
    return page_answer(request, "work", initial=initial)


@router.get(
    "/api/planned-work",
    summary="The work of boards on one edge, planned and tried",
    openapi_extra={"parameters": _parameters()},
    responses={422: {"description": "A setting breaks its rule", "content": {"application/json": {}}}},
)
async def planned_work(request: Request) -> Response:
    return json_answer(await _answer(request, request.query_params))


async def _answer(request: Request, query: Mapping[str, str]) -> dict[str, Any]:
    settings = WorkSettings.from_query(query)
    lanes: Lanes = request.app.state.lanes
    return await lanes.for_devices(len(settings.kinds)).run(request, lambda: picture(settings))
