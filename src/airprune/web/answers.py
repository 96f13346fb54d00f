"""Answers of the server: strict JSON, and every error as `{"error": one sentence}`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from airprune import files
from airprune.errors import AirpruneError, UsageError
from airprune.text import shown

MAX_FILE_BYTES = 8 * 2**20

_KNOWN = {
    404: "There is nothing at {path}. The pages are /, /planner, /work, /runs, /league and /reproduction.",
    405: "{path} does not take {method}. See /openapi.json for what it takes.",
    400: "request.body must be JSON in UTF-8, got something else. See /openapi.json.",
}


def json_text(value: Any) -> str:
    """Strict JSON in ASCII, so that half a surrogate pair in a name cannot break it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json_text(value), status, headers, media_type="application/json")


def refusal(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    return json_answer({"error": sentence}, status, headers)


def file_answer(path: Path, types: Mapping[str, str]) -> Response:
    """A file's content: pictures to be shown, the rest to be saved; `types` by suffix."""
    try:
        content = files.read_bytes(path, max_bytes=MAX_FILE_BYTES)
    except OSError:
        raise HTTPException(404, f"{path.name} cannot be read.") from None
    place = "inline" if path.suffix == ".png" else f'attachment; filename="{path.name}"'
    return Response(content, media_type=types[path.suffix], headers={"Content-Disposition": place})


def numbers(values: np.ndarray) -> list[Any]:
    """An array as a JSON list; NaN and infinities as null."""
    listed: list[Any] = values.tolist()
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return [value if math.isfinite(value) else None for value in listed]
    return listed


def number_or_null(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def answer_errors(app: FastAPI) -> None:
    """Makes every error of `app` one sentence in JSON."""

    @app.exception_handler(AirpruneError)
    async def deliberate(request: Request, error: AirpruneError) -> Response:
        return refusal(422 if isinstance(error, UsageError) else 409, str(error))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        sentence = str(error.detail)
        if " " not in sentence or error.status_code in (404, 405) or "parsing the body" in sentence:
            path = shown(request.url.path).strip("'\"")
            known = _KNOWN.get(error.status_code, "{path} cannot answer: " + sentence)
            sentence = sentence if sentence.endswith(".") else known.format(path=path, method=request.method)
        return refusal(error.status_code, sentence, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return refusal(422, _complaint(error.errors()[0]))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        return refusal(500, "The server failed on this request, which is a fault of airprune. See its terminal.")


def _complaint(first: Mapping[str, Any]) -> str:
    """The first of the framework's complaints in this package's words."""
    field = ".".join(str(part)[:60] for part in first["loc"]) or "request"
    rule = str(first["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    return f"{field} must be {rule}, got {shown(first.get('input'))}. See /openapi.json."
