"""Robust against nominal planning: plans that count on a quantile or on the mean of a gain that they know badly."""

from __future__ import annotations

from collections.abc import Mapping

from airprune.studies.radio.rungs import CORRELATION_OF_DB, RUNGS, Rung

ON_TIME = 0.95
NOMINAL, ROBUST = "nominal", "robust"


def promise_name(error_db: int, kind: str) -> str:
    return f"csi-{error_db}db-{kind}"


def _rung(error_db: int, kind: str) -> Rung:
    settings = {**RUNGS["csi"].settings, "radio.csi_correlation": CORRELATION_OF_DB[error_db]}
    if kind == ROBUST:
        settings["plan.on_time"] = ON_TIME
    title = f"{error_db} dB, {'on_time = 0.95' if kind == ROBUST else 'nominal'}"
    about = f"As imperfect CSI with an error of {error_db} dB."
    return Rung(name=promise_name(error_db, kind), title=title, about=about, settings=settings, pressed_as="fading")


PROMISES: Mapping[str, Rung] = {
    promise_name(error_db, kind): _rung(error_db, kind) for error_db in CORRELATION_OF_DB for kind in (NOMINAL, ROBUST)
}
