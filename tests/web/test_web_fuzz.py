"""Whatever is sent to any address of the server: never a server error, always JSON, nothing written."""

import contextlib
import string
import warnings

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from airprune.web.safety import TOKEN_HEADER
from support.web_runs import make_reproduction, make_run

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the tool's own dependencies
    import schemathesis
    from schemathesis import GenerationMode

pytest_plugins = ["support.browser"]

EXAMPLES = 15
NASTY = st.sampled_from(["..", "../..", "/etc/passwd", "\0", "%00", "a\\b", "", ".", "x" * 3000, "<img>", "\n", "٣"])
TOML = st.text(alphabet=string.printable, max_size=80) | st.sampled_from(
    ["base = 'smoke'", "a = " + "[" * 3000, "x" * 99 + ".y" * 150 + "=1", "seed = 1e999", "seed = " + "9" * 5000]
)


@pytest.fixture(scope="module")
def fuzzed(serve, tmp_path_factory):
    root = tmp_path_factory.mktemp("fuzzed")
    make_run(root / "run", rounds__global_rounds=1)
    make_reproduction(root / "paper")
    server = serve(runs_dir=root)
    before = sorted(root.rglob("*"))
    yield server
    assert sorted(root.rglob("*")) == before


def checked(answer) -> None:
    assert answer.status_code < 500, (answer.request.url, answer.text[:500])
    if answer.headers["content-type"].startswith("application/json"):
        value = answer.json()
        assert answer.status_code < 400 or set(value) == {"error"}, answer.text[:500]


def operations(server):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schema = schemathesis.openapi.from_dict(server.client.get("/openapi.json").json())
        return [result.ok() for result in schema.get_all_operations()]


def request_of(case, server) -> httpx.Request | None:
    """A drawn case with the token; None if not even a client can spell it."""
    asked = case.as_transport_kwargs(base_url=server.url)
    given = {key: asked[key] for key in ("params", "json") if asked.get(key) is not None}
    if isinstance(data := asked.get("data"), bytes | str):
        given["content"] = data
    headers = {**dict(asked.get("headers") or {}), TOKEN_HEADER: server.site.token}
    try:
        return server.client.build_request(asked["method"], asked["url"], headers=headers, **given)
    except (httpx.InvalidURL, ValueError, TypeError):
        return None


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_address_of_the_schema_has_a_server_error(fuzzed, mode):
    found = operations(fuzzed)
    assert {"/api/runs/curves", "/api/work/start", "/api/scenario/check"} <= {operation.path for operation in found}
    for operation in found:
        cases = operation.as_strategy(generation_mode=mode)

        @settings(max_examples=EXAMPLES, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        @given(case=cases)
        def send(case) -> None:
            request = request_of(case, fuzzed)
            if request is not None:
                checked(fuzzed.client.send(request))

        with contextlib.suppress(Unsatisfiable):  # an address without parameters has nothing to get wrong
            send()


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(name=NASTY | st.text(max_size=40), number=st.integers() | st.floats() | st.text(max_size=5))
def test_no_name_has_a_server_error(fuzzed, name, number):
    for path, parameters in (
        ("/runs", {"run": name}),
        ("/reproduction", {"folder": name}),
        ("/league", {"folder": name}),
        ("/api/league/file", {"folder": name, "file": name}),
        ("/api/runs/curves", {"run": ["run", name]}),
        ("/api/runs/devices", {"run": "run", "global_round": number, "edge_round": number}),
        ("/api/reproduction/file", {"folder": "paper", "file": name}),
    ):
        checked(fuzzed.client.get(path, params=parameters))


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(toml=TOML, key=st.text(max_size=20) | st.sampled_from(["seed", "plan.scheme", "network.table"]), value=TOML)
def test_no_scenario_has_a_server_error(fuzzed, toml, key, value):
    headers = {TOKEN_HEADER: fuzzed.site.token}
    for body in ({"toml": toml}, {"preset": "smoke", "overrides": {key: value}}, {"preset": toml}, [toml], toml):
        checked(fuzzed.client.post("/api/scenario/check", json=body, headers=headers))
