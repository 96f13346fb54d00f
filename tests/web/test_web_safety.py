"""The web server refuses what it must: strangers' names and origins, changes without the token, bodies without end."""

import hashlib
import json
import re
import signal
import socket
import sys
from importlib import resources
from pathlib import Path

import httpx
import pytest

from airprune.cli import main
from airprune.errors import WorkFailed
from airprune.extras import install_command
from airprune.web import charts, safety
from airprune.web.app import create_app
from airprune.web.site import Site
from support.each import each
from support.processes import airprune, start_airprune

pytest_plugins = ["support.browser"]

FLEET = "device,edge,snr_db\na,x,40\n"
PAGES = ["/", "/planner", "/work", "/runs", "/league", "/reproduction"]


def refused(answer, status):
    """The one sentence of a refusal."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert list(body) == ["error"] and body["error"].strip()
    return body["error"]


@each(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost", "", "a@127.0.0.1:{port}"]
)
@each("path", ["/", "/api/plan", "/openapi.json", "/nothing"])
def test_a_strange_host_is_misdirected(server, host, path):
    answer = server.client.get(path, headers={"Host": host.format(port=server.site.port)})
    assert "Host must be a name of this server" in refused(answer, 421)


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "LOCALHOST:{port}"])
def test_the_names_of_this_machine_are_answered(server, host):
    assert server.client.get("/", headers={"Host": host.format(port=server.site.port)}).status_code == 200


def test_the_host_given_on_the_command_line_is_answered_and_no_other():
    site = Site(host="192.168.7.7", port=80)
    assert {"192.168.7.7", "192.168.7.7:80", "localhost"} <= site.allowed_hosts
    assert "192.168.7.8" not in site.allowed_hosts
    assert "[fe80::1]:9" in Site(host="fe80::1", port=9).allowed_hosts


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "", "https://127.0.0.1:{port}"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_strange_origin_is_refused_even_with_the_token(server, origin, method):
    headers = {"Origin": origin.format(port=server.site.port), **server.with_token}
    answer = server.client.request(
        method, "/api/fleet" if method == "POST" else "/api/plan", headers=headers, content=FLEET
    )
    assert "Origin must be" in refused(answer, 403)


def test_the_servers_own_origin_is_welcome(server):
    headers = {"Origin": server.url}
    assert server.client.post("/api/fleet", headers=headers, content=FLEET).status_code == 200
    headers = {"Origin": f"http://localhost:{server.site.port}"}  # does not match the Host that was asked
    assert server.client.post("/api/fleet", headers=headers, content=FLEET).status_code == 403


@each("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WHATEVER"])
@each("token", [None, "", "wrong", "ÿ"])
def test_no_change_without_the_token(server, method, token):
    headers = {} if token is None else {safety.TOKEN_HEADER: token.encode("latin-1")}
    for path in ("/", "/api/plan", "/api/runs", "/nothing"):
        answer = server.client.request(method, path, headers=headers)
        assert safety.TOKEN_HEADER in refused(answer, 403)


def test_with_the_token_a_change_reaches_the_application(server):
    assert "does not take PUT" in refused(server.client.put("/api/plan", headers=server.with_token), 405)


def test_only_computations_are_open_without_the_token():
    app = create_app(Site())
    open_to_all = {
        path
        for path, methods in app.openapi()["paths"].items()
        for method in methods
        if method != "get" and path in safety.PURE
    }
    assert open_to_all == safety.PURE == {"/api/fleet"}


def test_tokens_are_long_and_new_and_never_shown(server):
    assert Site().token != Site().token and len(Site().token) >= 32
    assert server.site.token not in repr(server.site)
    for page in PAGES:
        assert server.site.token not in server.client.get(page, params={"token": server.site.token}).text


def raw(server, line, *headers):
    """The answer to a request as it stands, which httpx would tidy."""
    request = "\r\n".join([f"{line} HTTP/1.1", f"Host: 127.0.0.1:{server.site.port}", *headers, "", ""])
    answer = b""
    with socket.create_connection(("127.0.0.1", server.site.port), timeout=20) as connection:
        connection.sendall(request.encode())
        while not answer.endswith(b"}") and (piece := connection.recv(65536)):
            answer += piece
    return answer.decode()


def test_a_declared_length_beyond_the_limit_is_refused_before_the_body(server):
    for length in (safety.MAX_FLEET_BYTES + 1, 10**17, 10**19):
        answer = raw(server, "POST /api/fleet", f"Content-Length: {length}")
        assert answer.startswith("HTTP/1.1 413") and "at most 64 MiB" in answer


def test_a_body_without_declared_length_is_stopped_at_the_limit(server, monkeypatch):
    monkeypatch.setitem(safety.BODY_LIMITS, "/api/fleet", 2**20)
    rows = b"device,edge,snr_db\n" + b"".join(b"%d,0,40\n" % n for n in range(50_000))

    def chunks(count):
        yield rows[:1000]
        yield from [b"# " + b"x" * 998] * count

    assert "at most 1 MiB" in refused(server.client.post("/api/fleet", content=chunks(1100)), 413)
    assert server.client.post("/api/fleet", content=iter([rows])).status_code == 200
    monkeypatch.undo()
    answer = server.client.post("/api/nothing", headers=server.with_token, content=b"x" * (safety.MAX_BODY_BYTES + 1))
    assert "at most 1 MiB" in refused(answer, 413)


def test_every_answer_carries_the_safety_headers(server):
    static = re.search(r'src="(/static/[^"]+/planner\.js)"', server.client.get("/planner").text)[1]
    for path in (*PAGES, static, "/api/plan", "/api/plan.csv", "/api/plan?seed=x", "/nothing", "/openapi.json"):
        headers = server.client.get(path).headers
        for name, value in safety.HEADERS.items():
            assert headers[name] == value, (path, name)
        expected = "public, max-age=31536000, immutable" if path == static else "no-store"
        assert headers["cache-control"] == expected, path
    assert server.client.get("/", headers={"Host": "evil.example"}).headers["x-content-type-options"] == "nosniff"


def test_the_policy_lets_no_script_in_but_the_servers_own():
    rules = dict(rule.strip().split(" ", 1) for rule in safety.POLICY.split(";"))
    assert rules["default-src"] == rules["script-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert "eval" not in safety.POLICY and "http" not in safety.POLICY


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_no_script_inside_and_load_nothing_from_elsewhere(server, page):
    text = server.client.get(page).text
    for attributes, content in re.findall(r"<script\b([^>]*)>(.*?)</script>", text, re.DOTALL):
        assert 'type="application/json"' in attributes or ("src=" in attributes and not content)
    assert not re.findall(r"<[^>]+\son\w+=", text)
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)


def test_what_stands_in_an_address_cannot_become_markup(server):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    for params in ({"scheme": evil}, {"moved": evil}, {evil: "1"}, {"fleet": evil}):
        answer = server.client.get("/planner", params=params)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text and "<img" not in answer.text
        embedded = re.search(r'id="initial-data">(.*?)</script>', answer.text, re.DOTALL)[1]
        assert json.loads(embedded)["error"]


@pytest.mark.parametrize(
    "path", ["/docs", "/redoc", "/static/x/planner.js", "/static/", "/nothing%00", "/%ff%fe", "/a b<script>"]
)
def test_what_is_not_there_is_said_in_a_sentence(server, path):
    assert "There is nothing at" in refused(server.client.get(path), 404)


@pytest.mark.parametrize(
    "name",
    ["../app.py", "..%2fapp.py", "%2e%2e/app.py", "....//app.py", "shell.html", "/etc/passwd", "planner.js%00.css"],
)
def test_static_files_are_a_fixed_list(server, name):
    version = re.search(r"/static/(\w+)/", server.client.get("/").text)[1]
    assert raw(server, f"GET /static/{version}/{name}").startswith("HTTP/1.1 404")


def test_plotly_comes_out_of_the_installed_package_unless_its_smaller_build_was_fetched(tmp_path, monkeypatch):
    installed = resources.files("plotly") / "package_data" / "plotly.min.js"
    small = b"the smaller build"
    monkeypatch.setenv("AIRPRUNE_DATA", str(tmp_path))
    monkeypatch.setattr(charts, "SHA256", hashlib.sha256(small).hexdigest())
    charts.script.cache_clear()
    assert charts.script() == installed.read_bytes()
    monkeypatch.setattr(charts, "PACKAGE", FakePackage(small))
    assert charts.fetch().read_bytes() == small
    assert charts.script() == small
    charts.small_file().write_bytes(b"broken")
    charts.script.cache_clear()
    assert charts.script() == installed.read_bytes()
    monkeypatch.setattr(charts, "PACKAGE", FakePackage(b"another one"))
    with pytest.raises(WorkFailed, match="not the one known to work"):
        charts.fetch()
    charts.script.cache_clear()


class FakePackage:
    version, label = "1", "npm package of a test"

    def __init__(self, content):
        self.content = content

    def read(self, max_bytes):
        return {name: self.content for name in max_bytes}


def test_answers_are_compressed_for_those_who_can_read_that_and_events_never(server):
    address = re.search(r'src="(/static/[^"]+/planner\.js)"', server.client.get("/planner").text)[1]
    for path in ("/", "/planner", address, "/openapi.json"):
        packed = server.client.get(path, headers={"Accept-Encoding": "gzip"})
        plain = server.client.get(path, headers={"Accept-Encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
        assert packed.headers["vary"] == "Accept-Encoding"
        assert packed.content == plain.content
        assert int(packed.headers["content-length"]) < len(plain.content) / 2
    with server.client.stream("GET", "/api/runs/events", headers={"Accept-Encoding": "gzip"}) as events:
        assert "content-encoding" not in events.headers


@pytest.mark.parametrize("page", PAGES)
def test_only_pages_with_a_chart_load_plotly_and_none_waits_for_it(server, page):
    markup, *_ = server.client.get(page).text.split('<script type="application/json"')
    assert "plotly.min.js" not in markup


def test_everything_static_is_served_with_its_kind(server):
    base = re.search(r'src="(/static/\w+)/', server.client.get("/").text)[1]
    folder = resources.files("airprune.web") / "static"
    names = [entry.name for entry in folder.iterdir() if not entry.name.endswith(".html")]
    assert {"style.css", "common.js", "icon.svg"} <= set(names)
    for name in names:
        answer = server.client.get(f"{base}/{name}")
        assert answer.content == (folder / name).read_bytes()
        kind = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}[name.rpartition(".")[2]]
        assert answer.headers["content-type"].startswith(kind)


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn", "plotly"])
def test_without_its_packages_the_command_says_what_to_install(missing, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["web"]) == 2
    assert capsys.readouterr().err == f"error: airprune web needs the package {missing}: {install_command()}\n"


def test_the_command_prints_its_address_serves_and_stops(tmp_path):
    process = start_airprune("web", tmp_path, "--port", 0)
    try:
        address = process.stdout.readline().strip()
        match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=[\w-]{32}", address)
        assert match, address
        assert httpx.get(address, timeout=30).status_code == 200
        taken = airprune("web", "--port", match[1])
        assert taken.returncode == 1 and f"--port must be free, got {match[1]}" in taken.stderr
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == "" and "Traceback" not in err and "GET" not in err  # no access log


@pytest.mark.parametrize("arguments", [["--port", "70000"], ["--port", "x"], ["--host", "192.0.2.1", "--port", "0"]])
def test_wrong_usage_of_the_command_is_one_sentence(arguments, capsys):
    assert main(["web", *arguments]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: ")


def test_the_wheel_carries_the_static_files():
    patterns = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert '"web/static/*"' in patterns
