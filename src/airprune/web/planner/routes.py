"""The addresses of the planner page. All but one are computations: they change nothing and need no token.

The one that writes keeps the planned devices as a table for a run.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import IO, Any, TypeVar

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from airprune.errors import AirpruneError
from airprune.planning.schemes import SCHEMES
from airprune.results.figures.styles import styles_for
from airprune.scenario.presets import presets
from airprune.tables import write_csv
from airprune.web.answers import json_answer
from airprune.web.limits import Busy, Lanes, LimitedStream
from airprune.web.pages import page_answer
from airprune.web.planner import training
from airprune.web.planner.fleets import FleetMemory
from airprune.web.planner.picture import Planned, compared, offered_schemes, picture, plan_scene
from airprune.web.planner.promises import price_of_nines
from airprune.web.planner.scene import Scene, placed_scene, table_scene
from airprune.web.planner.settings import PRESETS, PlannerSettings
from airprune.web.planner.words import words
from airprune.web.site import root_if_allowed
from airprune.wireless.path_loss import PATH_LOSS

Result = TypeVar("Result")

_PIECE_BYTES = 2**16


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    _lanes_of(app).close()


router = APIRouter(lifespan=_lifespan)


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
async def page(request: Request) -> Response:
    """The page with its first plan inside, so that it need not ask for it."""
    query = {name: text for name, text in request.query_params.items() if name != "token"}
    answer, error = None, None
    try:
        answer = await _in_lane(request, query, _answer)
    except AirpruneError as refused:
        error = str(refused)
    except Busy as busy:
        error = busy.detail
    styles = styles_for(list(SCHEMES))
    initial = {
        "presets": {name: PlannerSettings.from_query({"preset": name}).as_json() for name in PRESETS},
        "preset_words": {name: presets()[name] for name in PRESETS},
        "path_losses": list(PATH_LOSS),
        "schemes": [
            {
                "name": name,
                "summary": SCHEMES[name].summary,
                "colour": styles[name].colour,
                "presets": [preset for preset in PRESETS if name in offered_schemes(preset)],
            }
            for name in SCHEMES
            if any(name in offered_schemes(preset) for preset in PRESETS)
        ],
        "answer": answer or await _in_lane(request, {}, _answer),
        "error": error,
    }
    return page_answer(request, "planner", initial=initial)


@router.get("/api/plan", summary="A network or fleet, planned", **_QUERY)
async def plan(request: Request) -> Response:
    return await _in_lane(request, request.query_params, lambda *asked: json_answer(_answer(*asked)))


@router.get("/api/compared", summary="Every scheme on the same devices, up to 20,000 of them", **_QUERY)
async def all_schemes(request: Request) -> Response:
    return json_answer(await _in_lane(request, request.query_params, lambda *asked: compared(_planned(*asked))))


@router.get("/api/promises", summary="What one more nine of on-time probability costs, or null", **_QUERY)
async def promises(request: Request) -> Response:
    return json_answer(
        await _in_lane(request, request.query_params, lambda *asked: price_of_nines(_planned(*asked).found))
    )


@router.get("/api/plan.csv", summary="The plan of every device, as `airprune plan --out` writes it", **_QUERY)
async def plan_csv(request: Request) -> Response:
    return _csv_answer(request, "plan.csv", await _in_lane(request, request.query_params, _plan_file))


@router.get("/api/fleet.csv", summary="The devices as a table that `airprune plan` reads", **_QUERY)
async def fleet_csv(request: Request) -> Response:
    return _csv_answer(request, "fleet.csv", await _in_lane(request, request.query_params, _fleet_file))


def _plan_file(settings: PlannerSettings, memory: FleetMemory) -> IO[bytes]:
    planned = _planned(settings, memory)
    return _csv(planned.fleet.table_columns(planned.plan))


def _fleet_file(settings: PlannerSettings, memory: FleetMemory) -> IO[bytes]:
    scene = _scene(settings, memory)
    fleet = plan_scene(settings, scene).fleet if scene.fleet is None else scene.fleet
    return _csv({"device": fleet.device, "edge": fleet.edge_names[fleet.edge], **fleet.columns})


@router.post("/api/planner/table", summary="The devices as a file for `network.table` of a run", **_QUERY)
async def train_table(request: Request) -> Response:
    """Writes, so it needs the token, and a server that may start runs."""
    root = root_if_allowed(request)

    def kept(settings: PlannerSettings, memory: FleetMemory) -> dict[str, str]:
        with _fleet_file(settings, memory) as file:
            path = training.keep_table(root, file.read())
        return {"network.table": str(path.resolve()), **training.overrides(settings)}

    return json_answer({"overrides": await _in_lane(request, request.query_params, kept)})


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
    lane = _lanes_of(request.app).for_bytes(len(content))
    key, fleet = await lane.run(request, lambda: _memory(request).add(content, name))
    facts = {"num_devices": len(fleet.device), "num_edges": len(fleet.edge_names), "ignored": list(fleet.ignored)}
    return json_answer({"fleet": key, **facts})


async def _in_lane(
    request: Request, query: Mapping[str, str], work: Callable[[PlannerSettings, FleetMemory], Result]
) -> Result:
    """Returns the result of `work` on the settings, done in the lane for plans of this size."""
    settings, memory = PlannerSettings.from_query(query), _memory(request)
    num_devices = settings.effort if settings.fleet is None else len(memory.get(settings.fleet).device)
    return await _lanes_of(request.app).for_devices(num_devices).run(request, lambda: work(settings, memory))


def _answer(settings: PlannerSettings, memory: FleetMemory) -> dict[str, Any]:
    planned = _planned(settings, memory)
    return {
        **picture(planned),
        "words": words(planned),
        "command": None if planned.scene.is_table else " ".join(["airprune plan", *settings.command_words()]),
        "training": training.offer(planned.settings),
    }


def _planned(settings: PlannerSettings, memory: FleetMemory) -> Planned:
    return plan_scene(settings, _scene(settings, memory))


def _scene(settings: PlannerSettings, memory: FleetMemory) -> Scene:
    if settings.fleet is None:
        return placed_scene(settings)
    return table_scene(settings, memory.get(settings.fleet))


def _memory(request: Request) -> FleetMemory:
    memory: FleetMemory = request.app.state.fleets
    return memory


def _lanes_of(app: Any) -> Lanes:
    lanes: Lanes = app.state.lanes
    return lanes


def _csv(columns: Mapping[str, Any]) -> IO[bytes]:
    """The table as a file without a name, so that nothing is left behind however this ends."""
    file = tempfile.TemporaryFile()  # noqa: SIM115, it is read after this
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    write_csv(text, list(columns), list(columns.values()))
    text.detach()
    file.seek(0)
    return file


def _csv_answer(request: Request, name: str, file: IO[bytes]) -> Response:
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Length": str(os.fstat(file.fileno()).st_size),
    }
    return LimitedStream(
        _pieces(file), request.app.state.downloads, media_type="text/csv; charset=utf-8", headers=headers
    )


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
