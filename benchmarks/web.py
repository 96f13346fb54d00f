"""From a move of the deadline's slider to the painted picture, in headless Chromium against a server on this machine.

    .venv/bin/python benchmarks/web.py

Also the time to the first paint of the page. Needs the extras `web` and `test`, and a Chromium.
"""

from __future__ import annotations

import shutil
import statistics
import threading

from playwright.sync_api import Page, sync_playwright

from airprune.web.serve import listen, server_of
from airprune.web.site import Site

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


def slider(page: Page, url: str, devices_per_edge: int, num_edges: int = 5, moves: int = 15) -> list[float]:
    page.goto(f"{url}/planner?num_edges={num_edges}&devices_per_edge={devices_per_edge}&deadline_ms=60")
    page.wait_for_selector("body[data-drawn]")
    page.wait_for_timeout(1500)
    return [page.evaluate(MOVE, 30 + 2 * i) for i in range(moves)]


def main() -> None:
    listening = listen("127.0.0.1", 0)
    site = Site(port=listening.getsockname()[1])
    server = server_of(site, log_level="critical")
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    with sync_playwright() as playwright:
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        paints = []
        for _ in range(5):
            page.goto(f"{site.origin}/planner")
            page.wait_for_timeout(1500)
            paints.append(page.evaluate(FIRST_PAINT))
        print(f"first paint: median {statistics.median(paints):.0f} ms, at most {max(paints):.0f} ms")
        for devices_per_edge, num_edges in ((5, 5), (100, 100)):
            times, count = slider(page, site.origin, devices_per_edge, num_edges), devices_per_edge * num_edges
            middle = statistics.median(times)
            print(f"slider to picture, {count:,} devices: median {middle:.0f} ms, at most {max(times):.0f} ms")
        browser.close()
    server.should_exit = True


if __name__ == "__main__":
    main()
