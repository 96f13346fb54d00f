"""Pictures of the pages for docs/images, and of every page in light, in dark and on a narrow screen to look at.

As a program (scripts/screenshots): `--site FOLDER` also takes pictures of a documentation site made by scripts/docs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import airprune as ap
from airprune.web.serve import listen, server_of
from airprune.web.site import Site
from support.browser import CHROMIUM_ARGUMENTS, CHROMIUM_NAMES
from support.federation import Processes, rows_of

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build/screenshots"
PAGES = {
    **{"overview": "/", "planner": "/planner", "planner-radio": "/planner?preset=urban-5g", "work": "/work"},
    **{"runs": "/runs", "league": "/league", "reproduction": "/reproduction"},
}
NEEDS_NO_RUNS = {"planner", "planner-radio", "work"}
FLEET_PAGES = {"deployment": "/deployment"}
DOCS_PAGES = {"docs-home": "/index.html", "docs-equations": "/equations.html", "docs-python": "/python.html"}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1440, "height": 1000}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1440, "height": 1000}, "color_scheme": "dark"},
    "narrow": {"viewport": {"width": 360, "height": 800}, "color_scheme": "light", "has_touch": True},
}
# What the documentation shows: (page, look, file, height).
SHOWN = (
    ("overview", "light", "web-overview.png", 1000),
    ("planner", "light", "web-planner-light.png", 1250),
    ("planner", "dark", "web-planner-dark.png", 1250),
    ("planner-radio", "light", "web-planner-radio.png", 1000),
    ("work", "light", "web-work.png", 1000),
    ("runs", "light", "web-runs.png", 1000),
    ("deployment", "light", "web-deployment.png", 1000),
    ("reproduction", "light", "web-reproduction.png", 1000),
)


def make_runs(folder: Path) -> None:
    """Three schemes over three seeds, seconds each."""
    scenario = ap.Scenario.preset("smoke").with_values({"rounds.global_rounds": 6, "engine.name": "serial"})
    ap.compare(scenario, schemes=["optimal", "min-max", "no-pruning"], seeds=[0, 1, 2], out=folder / "compare")


@contextmanager
def fleet_at_work(folder: Path) -> Iterator[Path]:
    """The kit of a fleet's cloud: one job has ended and its model is delivered, a device is killed, a job runs."""
    folder.mkdir()
    small = ["model.name=mlp", "data.train_samples=360", "data.test_samples=40", "radio.bandwidth_hz=2e6"]
    small += ["engine.name=serial", "rounds.edge_rounds=2"]
    with Processes(folder, num_edges=2, devices_per_edge=3, standby_edges=1) as fleet:
        for name in fleet.edges:
            fleet.start(name)
        for name, slowdown in zip(fleet.devices, (1, 2, 1, 4, 1, 1), strict=True):
            fleet.start(name, "--slowdown", str(slowdown))
        kit = fleet.kits / "cloud"
        fleet.serve("--authority", str(fleet.kits))
        submitted = fleet.ask("submit", kit, "deployed", *small, "rounds.global_rounds=2", "--deliver", "final")
        fleet.wait_for_job(int(submitted))
        fleet.kill("d4")
        second = int(fleet.ask("submit", kit, "deployed", *small, "rounds.global_rounds=200", "--wait", "5"))
        fleet.wait_for_job(second, "running")
        fleet.wait_for(lambda: any(kit.glob(f"state/runs/job-{second:04d}-*")), "its folder is made")
        fleet.wait_for(lambda: len(rows_of(fleet.job_folder(second) / "measured.jsonl")) > 50, "ten edge rounds")
        yield kit


@contextmanager
def pages_of(runs: Path) -> Iterator[str]:
    listening = listen("127.0.0.1", 0)
    site = Site(port=listening.getsockname()[1], runs_dir=runs)
    server = server_of(site, log_level="critical")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    yield site.origin
    server.should_exit = True
    thread.join(timeout=30)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def folder_of(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def take(browser: Any, origin: str, pages: dict[str, str]) -> None:
    for look, options in LOOKS.items():
        context = browser.new_context(**options)
        for name, path in pages.items():
            tab = context.new_page()
            tab.goto(origin + path, wait_until="networkidle")
            if name == "runs" and tab.get_by_role("button", name="Compare all").count():
                tab.get_by_role("button", name="Compare all").click()
                tab.wait_for_load_state("networkidle")
            tab.wait_for_timeout(1500)  # until charts have settled
            heights = {shown[3] for shown in SHOWN if shown[:2] == (name, look)} or {options["viewport"]["height"]}
            tab.set_viewport_size({"width": options["viewport"]["width"], "height": heights.pop()})
            tab.wait_for_timeout(500)
            tab.screenshot(path=OUT / f"{name}-{look}.png")
            _say(f"{name}-{look}.png")
            tab.close()
        context.close()


def keep_shown(pages: Collection[str]) -> None:
    """The documentation's pictures of these pages, in 256 colours as they have few."""
    for name, look, file, _ in (shown for shown in SHOWN if shown[0] in pages):
        picture = Image.open(OUT / f"{name}-{look}.png").convert("RGB").quantize(256, dither=Image.Dither.NONE)
        picture.save(ROOT / "docs/images" / file, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, help="the folder of a documentation site, e.g. build/docs")
    parser.add_argument("--only", help="one page, e.g. deployment")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_ARGUMENTS))
        site = None if options.site is None else options.site.resolve()
        os.chdir(name)  # so that pages name the folder `runs`, not one of this machine
        runs = Path("runs")
        pages, fleet_pages = ({k: v for k, v in of.items() if options.only in (None, k)} for of in (PAGES, FLEET_PAGES))
        if pages:
            runs.mkdir()
            if pages.keys() - NEEDS_NO_RUNS:
                make_runs(runs)
            with pages_of(runs) as origin:
                take(browser, origin, pages)
        if fleet_pages:
            with fleet_at_work(Path(name) / "lab") as kit, pages_of(kit) as origin:
                take(browser, origin, fleet_pages)
        if site is not None:
            with folder_of(site) as origin:
                take(browser, origin, DOCS_PAGES)
        browser.close()
    keep_shown({**pages, **fleet_pages})


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
