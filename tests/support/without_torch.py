"""Commands and pages in a process that refuses the packages of the extra `train`.

Run as a program in a folder that holds a run, `run`, and a table, `fleet.csv`: prints what each command said, as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

COMMANDS = (
    "plan fleet.csv --deadline-ms 16",
    "plan fleet.csv --solve bandwidth --target-pruning 0.2",
    "schemes",
    "methods",
    "methods frozen-pruning",
    "methods --components",
    "scenarios paper",
    "scenarios --schema",
    "data list",
    "doctor",
    "reproduce table2 --placements 2",
    "report run",
)
REFUSED = (
    "run smoke",
    "compare smoke",
    "sweep smoke seed=0-1",
    "league --quick",
    "advise fleet.csv",
    "profile smoke",
    "methods --check frozen-pruning",
    "reproduce fig2 --quick",
    "deploy demo",
)
PAGES = ("/", "/api/plan?deadline_ms=30", "/runs", "/api/runs")


def main() -> None:
    from airprune.extras import EXTRAS, install_command

    for name in EXTRAS["train"]:
        sys.modules[name] = None  # type: ignore[assignment]
    answers: dict[str, Any] = {words: called(words) for words in (*COMMANDS, *REFUSED)}
    answers |= {path: asked(path) for path in PAGES}
    answers |= {"ap.run": from_python(), "way in": install_command("train")}
    sys.stdout.write(json.dumps(answers))


def called(words: str) -> tuple[int, str, str]:
    """Exit status, and what went to stdout and stderr."""
    from airprune.cli import main as airprune

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = airprune(words.split())
    return status, out.getvalue(), err.getvalue()


def asked(path: str) -> int:
    """The status of a page's answer."""
    import asyncio

    import httpx

    from airprune.web.app import create_app
    from airprune.web.site import Site

    site = Site(runs_dir=Path(), host="127.0.0.1", allow_run=False)
    app = create_app(site)

    async def answer() -> int:
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=site.origin) as client,
        ):
            return (await client.get(path)).status_code

    return asyncio.run(answer())


def from_python() -> str:
    """What the call that trains says."""
    import airprune as ap

    try:
        ap.run(ap.Scenario.preset("smoke"))
    except ap.UsageError as error:
        return f"{type(error).__name__}: {error}"
    return "it ran"


if __name__ == "__main__":
    main()
