"""`airprune web --private`: nothing but scripts and styles without the token; the printed address lets a browser in."""

import re

import httpx
import pytest

from airprune.web import safety
from airprune.web.app import create_app
from airprune.web.site import Site
from support.web_process import web_process
from support.web_runs import make_run

pytest_plugins = ["support.browser"]

PAGES = ("/", "/planner", "/work", "/runs", "/league", "/reproduction")
WRONG = ("", "wrong", "ÿ", "\ud800", "0" * 32)


@pytest.fixture(scope="module")
def private(serve, tmp_path_factory):
    root = tmp_path_factory.mktemp("private")
    make_run(root / "my-secret-run", rounds__global_rounds=1)
    return serve(runs_dir=root, private=True)


def paths() -> list[str]:
    return [*PAGES, *create_app(Site()).openapi()["paths"], "/openapi.json", "/api/runs/events", "/nothing", "/?token="]


def test_every_page_and_every_address_of_the_api_wants_the_token(private):
    tried = 0
    for path in paths():
        for method in ("GET", "HEAD", "POST", "DELETE"):
            answer = private.client.request(method, path, params={"run": "my-secret-run"})
            wanted = 401 if method in ("GET", "HEAD") or path in safety.PURE else 403
            assert answer.status_code == wanted, (method, path)
            assert "my-secret-run" not in answer.text and "set-cookie" not in answer.headers
            tried += 1
    assert tried >= 100
    assert private.client.get("/api/plan").json() == {"error": safety.LOCKED}


def test_a_wrong_token_is_none(private):
    for wrong in (*WRONG, private.site.token[:-1], private.site.token + "x"):
        plain = wrong.encode("latin-1", "replace").decode("latin-1")
        cookie = {private.site.cookie_name: plain.encode("ascii", "replace").decode()}
        for options in (
            {"params": {"token": wrong.encode("utf-8", "replace").decode()}},
            {"headers": {safety.TOKEN_HEADER: plain.encode("latin-1")}},
            {"headers": {"Cookie": "; ".join(f"{name}={value}" for name, value in cookie.items())}},
        ):
            assert private.client.get("/api/runs", **options).status_code == 401, (wrong, options)


def test_the_printed_address_leaves_a_cookie_that_reads_everything_and_changes_nothing(private):
    with httpx.Client(base_url=private.url, timeout=60) as browser:
        answer = browser.get("/", params={"token": private.site.token})
        assert answer.status_code == 200
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        assert private.site.token not in cookie, "whoever gets the cookie has not got the token"
        for path in (*PAGES, "/api/plan", "/openapi.json"):
            assert browser.get(path).status_code == 200
        assert browser.post("/api/fleet", content=b"device,edge,snr_db\na,x,40\n").status_code == 200
        with browser.stream("GET", "/api/runs/events") as events:
            assert events.status_code == 200
        assert browser.post("/api/work/stop").status_code == 403
        assert browser.get("/", headers={"Host": "evil.example"}).status_code == 421


def test_programs_read_with_the_header(private):
    assert private.client.get("/api/runs", headers=private.with_token).status_code == 200


def test_a_browser_is_shown_a_page_that_says_what_to_do(private):
    answer = private.client.get("/runs", headers={"Accept": "text/html,*/*"})
    assert answer.status_code == 401 and answer.headers["content-type"].startswith("text/html")
    assert "Open the address that airprune web has printed" in answer.text
    for name, value in safety.HEADERS.items():
        assert answer.headers[name] == value
    style = re.search(r'href="(/static/[^"]+/style\.css)"', answer.text)[1]
    assert private.client.get(style).status_code == 200, "what comes with airprune is open"


def test_a_site_that_is_not_private_sets_no_cookie(server):
    answer = server.client.get("/", params={"token": server.site.token})
    assert answer.status_code == 200 and "set-cookie" not in answer.headers


def test_the_command_takes_private(tmp_path):
    with web_process(tmp_path, "--private") as server:
        assert server.get("/api/plan").status_code == 401
        assert server.get("/", params={"token": server.token}).status_code == 200
        assert "Traceback" not in server.stop()


@pytest.mark.slow
def test_the_pages_work_in_a_browser_once_the_printed_address_was_opened(private, new_page):
    page = new_page(viewport={"width": 360, "height": 640}, color_scheme="dark")
    page.goto(f"{private.url}/runs")
    assert page.get_by_role("heading", name="Private").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.faults.clear()  # the browser reports the 401
    page.goto(private.site.address)
    assert "token" not in page.url
    page.goto(f"{private.url}/runs")
    page.get_by_text("my-secret-run").first.wait_for()
    with page.expect_response(lambda answer: "/api/runs/events" in answer.url) as answer:
        page.reload()
    assert answer.value.status == 200
