"""The pages in headless Chromium against a server on this machine: how long, how many bytes.

    .venv/bin/python benchmarks/web.py [--load 2] [--devices 25,10000,1000000]

1. What a first visit of each page transfers, compressed as it comes, its answers and charts included.
2. The time to the first paint of the planner.
3. From a move of the deadline's slider to the painted picture, for small and very large networks.

Then 2 and 3 again while as many processes as `--load` says do nothing but compute. Needs the extras `web` and `test`,
and a Chromium.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator

from playwright.sync_api import Browser, Page, sync_playwright

from airprune.web.serve import listen, server_of
from airprune.web.site import Site

PAGES = (
    "/",
    "/planner",
    "/planner?num_edges=50&devices_per_edge=20000&deadline_ms=150000",
    "/runs",
    "/league",
    "/reproduction",
)
# A task queued from the frame after the charts in view have been drawn runs when that frame has been painted.
MOVE = """
(value) => new Promise((done) => {
  const slider = document.getElementById("deadline_ms-slider");
  const watch = new MutationObserver(() => {
    watch.disconnect();
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => done(performance.now() - start);
    requestAnimationFrame(() => port2.postMessage(null));
  });
  watch.observe(document.body, { attributes: true, attributeFilter: ["data-drawn"] });
  const start = performance.now();
  slider.value = value;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
})
"""
FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
EDGES = 50
DESK = {"width": 1440, "height": 900}


def transferred(browser: Browser, address: str) -> tuple[int, int]:
    """(bytes over the wire, requests) of a visit by a browser that has nothing in its cache."""
    context = browser.new_context(viewport=DESK)
    page = context.new_page()
    sizes: list[int] = []
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    network.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    page.goto(address, wait_until="networkidle", timeout=120_000)
    page.wait_for_timeout(500)
    context.close()
    return sum(sizes), len(sizes)


def first_paints(page: Page, url: str, visits: int = 5) -> list[float]:
    paints = []
    for _ in range(visits):
        page.goto(f"{url}/planner")
        page.wait_for_selector("body[data-drawn]")
        page.wait_for_timeout(500)
        paints.append(page.evaluate(FIRST_PAINT))
    return paints


def slider(page: Page, url: str, num_devices: int) -> list[float]:
    """Fewer moves of very many devices, which take seconds each, at deadlines for which there are plans."""
    edges = 5 if num_devices < 1_000 else EDGES if num_devices > 50_000 else 100
    first_ms, step_ms, moves = (30, 2, 15) if num_devices <= 50_000 else (150_000, 2_000, 5)
    page.goto(
        f"{url}/planner?num_edges={edges}&devices_per_edge={num_devices // edges}&deadline_ms={2 * first_ms}",
        timeout=120_000,
    )
    page.wait_for_selector("body[data-drawn]", timeout=120_000)
    page.wait_for_timeout(1500)
    return [page.evaluate(MOVE, first_ms + step_ms * i) for i in range(moves)]


def spread(times: list[float]) -> str:
    return f"median {statistics.median(times):,.0f} ms, at most {max(times):,.0f} ms"


@contextlib.contextmanager
def load(num_processes: int) -> Iterator[None]:
    """Processes that compute for nothing."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(num_processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def main(num_load: int, sizes: list[int], pages: tuple[str, ...]) -> None:
    listening = listen("127.0.0.1", 0)
    site = Site(port=listening.getsockname()[1])
    server = server_of(site, log_level="critical")
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for address in pages:
            num_bytes, requests = transferred(browser, site.origin + address)
            print(f"{address}: {num_bytes / 1e3:,.0f} kB in {requests} requests at a first visit", flush=True)
        page = browser.new_page(viewport=DESK)
        for beside in sorted({0, num_load}):
            where = f"beside {beside} busy processes, " if beside else ""
            with load(beside):
                print(f"{where}first paint of the planner: {spread(first_paints(page, site.origin))}", flush=True)
                for count in sizes:
                    found = spread(slider(page, site.origin, count))
                    print(f"{where}slider to picture, {count:,} devices: {found}", flush=True)
        browser.close()
    server.should_exit = True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--load", type=int, default=2, help="busy processes of the second measurement; 0: leave it out")
    parser.add_argument("--devices", default="25,10000,1000000", help="sizes of networks, joined by commas")
    options = parser.parse_args()
    main(options.load, [int(size) for size in options.devices.split(",")], PAGES)
