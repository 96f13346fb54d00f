"""The addresses of the planner page. All but one are computations: they change nothing and need no token.

The one that writes keeps the planned devices as a table for a run.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from airprune.errors import AirpruneError
from airprune.schemes import SCHEMES
from airprune.styles import styles_for
from airprune.tables import write_csv_atomic
from airprune.web.answers import json_answer
from airprune.web.pages import page_answer
from airprune.web.planner import training
from airprune.web.planner.fleets import FleetMemory
from airprune.web.planner.picture import Planned, compared, picture, plan_scene
from airprune.web.planner.scene import Scene, placed_scene, table_scene
from airprune.web.planner.settings import PlannerSettings
from airprune.web.planner.words import words
from airprune.web.site import root_if_allowed

router = APIRouter()

# Plans that run at once; more would only take each other's time and memory.
_AT_ONCE = threading.BoundedSemaphore(4)


def _parameters() -> list[dict[str, Any]]:
    """The settings as OpenAPI's query parameters."""
    properties = PlannerSettings.model_json_schema()["properties"]
    return [
        {"name": name, "in": "query", "required": False, "description": schema.pop("description", ""), "schema": schema}
        for name, schema in properties.items()
    ]


_REFUSED: dict[int | str, dict[str, Any]] = {
    422: {"description": "A setting breaks its rule", "content": {"application/json": {}}}
}
_QUERY: dict[str, Any] = {"openapi_extra": {"parameters": _parameters()}, "responses": _REFUSED}


@router.get("/planner", include_in_schema=False)
def page(request: Request) -> Response:
    """The page with its first plan inside, so that it need not ask for it."""
    query = {name: text for name, text in request.query_params.items() if name != "token"}
    answer, error = None, None
    try:
        answer = _answer(request, query)
    except AirpruneError as refused:
        error = str(refused)
    styles = styles_for(list(SCHEMES))
    initial = {
        "defaults": PlannerSettings().model_dump(exclude_none=True),
        "schemes": [
            {"name": scheme.name, "summary": scheme.summary, "colour": styles[scheme.name].colour}
            for scheme in SCHEMES.values()
            if scheme.plans_fleets
        ],
        "answer": answer or _answer(request, {}),
        "error": error,
    }
    return page_answer(request, "planner", initial=initial)


@router.get("/api/plan", summary="A network or fleet, planned", **_QUERY)
def plan(request: Request) -> Response:
    return json_answer(_answer(request, request.query_params))


@router.get("/api/compared", summary="Every scheme on the same devices, up to 20,000 of them", **_QUERY)
def all_schemes(request: Request) -> Response:
    with _AT_ONCE:
        return json_answer(compared(_planned(request, request.query_params)))


@router.get("/api/plan.csv", summary="The plan of every device, as `airprune plan --out` writes it", **_QUERY)
def plan_csv(request: Request) -> Response:
    planned = _planned(request, request.query_params)
    return _csv_answer("plan.csv", _csv(planned.scene.fleet.table_columns(planned.plan)))


@router.get("/api/fleet.csv", summary="The devices as a table that `airprune plan` reads", **_QUERY)
def fleet_csv(request: Request) -> Response:
    scene = _scene(request, PlannerSettings.from_query(request.query_params))
    return _csv_answer("fleet.csv", _fleet_content(scene))


def _fleet_content(scene: Scene) -> bytes:
    fleet = scene.fleet
    return _csv({"device": fleet.device, "edge": fleet.edge_names[fleet.edge], **fleet.columns})


@router.post("/api/planner/table", summary="The devices as a file for `network.table` of a run", **_QUERY)
def train_table(request: Request) -> Response:
    """Writes, so it needs the token, and a server that may start runs."""
    root = root_if_allowed(request)
    settings = PlannerSettings.from_query(request.query_params)
    path = training.keep_table(root, _fleet_content(_scene(request, settings)))
    return json_answer({"overrides": {"network.table": str(path.resolve()), **training.overrides(settings)}})


@router.post(
    "/api/fleet",
    summary="Reads a fleet table; the answer's `fleet` names it in later requests",
    responses=_REFUSED,
    openapi_extra={
        "parameters": [{"name": "name", "in": "query", "schema": {"type": "string"}}],
        "requestBody": {"content": {"text/csv": {"schema": {"type": "string"}}}, "required": True},
    },
)
async def add_fleet(request: Request) -> Response:
    content = await request.body()
    name = request.query_params.get("name", "")[:80].strip() or "the table"
    key, fleet = await run_in_threadpool(_memory(request).add, content, name)
    facts = {"num_devices": len(fleet.device), "num_edges": len(fleet.edge_names), "ignored": list(fleet.ignored)}
    return json_answer({"fleet": key, **facts})


def _answer(request: Request, query: Mapping[str, str]) -> dict[str, Any]:
    with _AT_ONCE:
        planned = _planned(request, query)
        return {**picture(planned), "words": words(planned), "training": training.overrides(planned.settings)}


def _planned(request: Request, query: Mapping[str, str]) -> Planned:
    settings = PlannerSettings.from_query(query)
    return plan_scene(settings, _scene(request, settings))


def _scene(request: Request, settings: PlannerSettings) -> Scene:
    if settings.fleet is None:
        return placed_scene(settings)
    return table_scene(settings, _memory(request).get(settings.fleet))


def _memory(request: Request) -> FleetMemory:
    memory: FleetMemory = request.app.state.fleets
    return memory


def _csv(columns: Mapping[str, Any]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write_csv_atomic(path, list(columns), list(columns.values()))
        return path.read_bytes()


def _csv_answer(name: str, content: bytes) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="text/csv; charset=utf-8", headers=headers)
