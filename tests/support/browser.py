"""A real server on loopback and a real browser, for the tests of the web pages.

Name this file in `pytest_plugins` of a test module to have its fixtures:

    serve    serve(runs_dir=…, allow_run=…) → a running `Server`, stopped after the module
    server   one of them with the defaults
    page     a new tab of a headless Chromium that fails the test on console errors and on requests that leave
             the server it was sent to; tabs of a module share their cache and what they store
    new_page the same in a fresh profile, with any options of a browser context: viewport, color_scheme, has_touch…
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from airprune.web.serve import listen, server_of
from airprune.web.site import Site

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@dataclass(frozen=True)
class Server:
    """A site that is being served. `client` speaks to it as a program would, without Origin and token."""

    site: Site
    client: httpx.Client

    @property
    def url(self) -> str:
        return self.site.origin

    @property
    def with_token(self) -> dict[str, str]:
        return {"X-Airprune-Token": self.site.token}


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    running: list[tuple[uvicorn.Server, threading.Thread, httpx.Client]] = []

    def start(**settings: Any) -> Server:
        settings.setdefault("runs_dir", tmp_path_factory.mktemp("runs"))
        listening = listen("127.0.0.1", 0)
        site = Site(port=listening.getsockname()[1], **settings)
        runner = server_of(site, log_level="critical")
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        client = httpx.Client(base_url=site.origin, timeout=60.0)
        client.get("/")  # answered as soon as the server is up, since the socket listens already
        running.append((runner, thread, client))
        return Server(site, client)

    yield start
    for runner, thread, client in running:
        client.close()
        runner.should_exit = True
        thread.join(timeout=30)


@pytest.fixture(scope="module")
def server(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), playwright.chromium.executable_path)
        if not Path(path).exists():
            pytest.fail("The browser tests need Chromium, and none was found; run scripts/test, which gets it.")
        chromium = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM_ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def shared_context(browser: Any) -> Iterator[Any]:
    context = _context(browser)
    yield context
    context.close()


@pytest.fixture
def watch() -> Iterator[Callable[[Any], Any]]:
    """watch(page): afterwards, fails the test on what went wrong in it. `page.faults` may be cleared of what is due."""
    faults: list[str] = []
    hosts: set[str] = set()

    def watched(page: Any) -> Any:
        page.on("console", lambda message: message.type in ("error", "warning") and faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: hosts.add(httpx.URL(request.url).netloc.decode()))
        page.faults = faults
        return page

    yield watched
    assert not faults, faults
    outside = {host for host in hosts if host and not host.startswith("127.0.0.1:")}
    assert not outside, f"requests left the server: {outside}"


@pytest.fixture
def new_page(browser: Any, watch: Callable[[Any], Any]) -> Iterator[Callable[..., Any]]:
    contexts: list[Any] = []

    def make(**options: Any) -> Any:
        contexts.append(_context(browser, **options))
        return watch(contexts[-1].new_page())

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def page(shared_context: Any, watch: Callable[[Any], Any]) -> Iterator[Any]:
    tab = watch(shared_context.new_page())
    yield tab
    tab.close()


def _context(browser: Any, **options: Any) -> Any:
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    context.set_default_timeout(60_000)
    return context
