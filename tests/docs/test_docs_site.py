"""The documentation site: builds without a warning, loads nothing from elsewhere, and has what its pages promise."""

import functools
import http.server
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

pytest_plugins = ["support.browser"]

ROOT = Path(__file__).parents[2]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_page_of_the_documentation_is_a_page_of_the_site(site):
    pages = {path.stem for path in ROOT.glob("docs/*.md")} | {"CONTRIBUTING", "CHANGELOG"}
    assert pages <= {path.stem for path in site.glob("*.html")}
    text = (site / "index.html").read_text()
    assert all(f'href="{page}.html"' in text for page in pages - {"index"}), "not in the navigation"


def test_the_reference_is_made_from_docstrings_and_from_the_command_line(site):
    python = (site / "python.html").read_text()
    assert "A failed solve" in python or "PlanProblem" in python
    assert "smallest_deadline_s" in python and "full_band_rate_bps" in python
    cli = (site / "cli.html").read_text()
    assert "airprune deploy calibrate" in cli and "--allow-run" in cli
    assert "top-k" in (site / "components.html").read_text()


def test_equations_are_drawn_by_the_browser_itself(site, address, page):
    page.goto(f"{address}/theory.html")
    assert page.locator("math").count() > 20 and "$`" not in page.inner_text("article")
    assert page.locator(".equation math").first.bounding_box()["width"] > 60
    assert page.locator(".equation msqrt").count() == 1


def test_pages_and_search_load_nothing_from_elsewhere(address, page):
    """The tab of these tests fails on every request that leaves the server."""
    for name in ("index", "quickstart", "concepts", "settings-methods", "python", "reproduction"):
        page.goto(f"{address}/{name}.html")
    page.fill(".md-search__input", "deadline")
    page.wait_for_selector(".md-search-result__item")


@pytest.mark.parametrize(("width", "colours"), [pytest.param(360, "light", marks=pytest.mark.slow), (1440, "dark")])
def test_axe_finds_nothing_on_pages_with_code_tables_and_equations(address, new_page, width, colours):
    page = new_page(viewport={"width": width, "height": 900}, color_scheme=colours)
    for name in ("index", "concepts", "settings-methods", "theory", "cli"):
        page.goto(f"{address}/{name}.html")
        found = Axe().run(page).response["violations"]
        assert not found, [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found]
