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
from collections.abc import Iterator
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

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build/screenshots"
PAGES = {
    **{"overview": "/", "planner": "/planner", "work": "/work", "runs": "/runs"},
    **{"league": "/league", "reproduction": "/reproduction"},
}
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
    ("work", "light", "web-work.png", 1000),
    ("runs", "light", "web-runs.png", 1000),
    ("reproduction", "light", "web-reproduction.png", 1000),
)


def make_runs(folder: Path) -> None:
    """Three schemes over three seeds, seconds each."""
    scenario = ap.Scenario.preset("smoke").with_values({"rounds.global_rounds": 6, "engine.name": "serial"})
    ap.compare(scenario, schemes=["optimal", "min-max", "no-pruning"], seeds=[0, 1, 2], out=folder / "compare")


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


def keep_shown() -> None:
    """The documentation's pictures, in 256 colours as they have few."""
    for name, look, file, _ in SHOWN:
        picture = Image.open(OUT / f"{name}-{look}.png").convert("RGB").quantize(256, dither=Image.Dither.NONE)
        picture.save(ROOT / "docs/images" / file, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, help="the folder of a documentation site, e.g. build/docs")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_ARGUMENTS))
        site = None if options.site is None else options.site.resolve()
        os.chdir(name)  # so that pages name the folder `runs`, not one of this machine
        runs = Path("runs")
        make_runs(runs)
        with pages_of(runs) as origin:
            take(browser, origin, PAGES)
        if site is not None:
            with folder_of(site) as origin:
                take(browser, origin, DOCS_PAGES)
        browser.close()
    keep_shown()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
