"""The addresses of the Deployment page. Deployments are named as runs are: by their path from the runs folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from airprune.text import shown
from airprune.web.answers import json_answer
from airprune.web.pages import page_answer
from airprune.web.runs.names import MAX_NAME_LENGTH
from airprune.web.site import site_of

router = APIRouter()

Name = Annotated[str, Query(max_length=MAX_NAME_LENGTH, description="path of its folder from the runs folder")]
Job = Annotated[int, Query(ge=1, le=10**9, description="of a fleet: the job whose uploads are shown")]
Known = Annotated[str, Query(max_length=64, description="version of the answer that is known already")]


@router.get("/deployment", include_in_schema=False)
def page(request: Request, of: Name | None = None, job: Job | None = None) -> Response:
    root = site_of(request).runs_dir
    found = _deployments(root)
    chosen = of if of is not None else found[0] if found else None
    initial: dict[str, Any] = {"deployments": found, "chosen": chosen, "job": job, "answer": None, "error": None}
    if chosen is not None:
        try:
            initial["answer"] = _picture(root, chosen, job, None)
        except HTTPException as missing:
            initial["error"] = missing.detail
    return page_answer(request, "deployment", initial=initial)


@router.get("/api/deployments")
def deployments(request: Request) -> Response:
    """Fleets and runs on real machines below the runs folder, fleets first."""
    return json_answer({"deployments": _deployments(site_of(request).runs_dir)})


@router.get("/api/deployment")
def deployment(request: Request, of: Name, job: Job | None = None, known: Known | None = None) -> Response:
    """A deployment: nodes, alerts, jobs, uploads against deadlines, delivered models."""
    return json_answer(_picture(site_of(request).runs_dir, of, job, known))


def _deployments(root: Path) -> list[str]:
    from airprune.web.runs.listing import listing

    found: list[str] = listing(root).latest()["deployments"]
    return found


def _picture(root: Path, name: str, job: int | None, known: str | None) -> dict[str, Any]:
    from airprune.web.deployment import picture
    from airprune.web.runs.finding import is_deployment
    from airprune.web.runs.names import folder_named

    path = folder_named(root, name)
    if not is_deployment(path):
        raise HTTPException(404, f"{shown(name)} is no deployment: it has no status.json and no measured.jsonl.")
    return picture.picture(path, name, job, known)
