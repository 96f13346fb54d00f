"""Every page without a finding of axe, on a phone and on a desk, light and dark; charts included."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from support.deployed import pretend
from support.web_runs import make_reproduction, make_run, mock_run

pytest_plugins = ["support.browser"]

PAGES = {
    "overview": "/",
    "planner": "/planner",
    "planner without a plan": "/planner?deadline_ms=1",
    "planner with a density": "/planner?num_edges=20&devices_per_edge=100&deadline_ms=600",
    "planner with interference": "/planner?preset=urban-5g",
    "planner with movement and a promise": "/planner?mobility=waypoint&speed_m_per_s=10&start_s=40"
    "&association=best-rate&deadline_ms=90&fading=rayleigh&csi_correlation=0.9&pilots=16&report_bits=1000&on_time=0.95&ground=rate",
    "planner with a refused radio": "/planner?rate=nr-mcs&slice_noise=true",
    "work": "/work?boards=paper*1,raspberry-pi-4*2,accelerator-70*1",
    "work without a plan": "/work?deadline_ms=1",
    "runs": "/runs?run=real&run=b",
    "groups": "/runs?match=&group=each&target=0.5",
    "deployment": "/deployment?of=yard",
    "league": "/league",
    "reproduction": "/reproduction",
}


@pytest.fixture(scope="module")
def sites(serve, tmp_path_factory):
    """One with runs and a reproduction, one with nothing, which shows what comes with airprune."""
    root = tmp_path_factory.mktemp("runs")
    make_run(root / "real")
    mock_run(root / "b", [0.5, 0.7], seed=1)
    make_reproduction(root / "paper")
    pretend(root / "yard")
    return serve(runs_dir=root, allow_run=True), serve(runs_dir=tmp_path_factory.mktemp("none"))


@pytest.mark.parametrize(
    ("width", "colours"),
    [
        (1440, "light"),
        (360, "dark"),
        pytest.param(1440, "dark", marks=pytest.mark.slow),
        pytest.param(360, "light", marks=pytest.mark.slow),
    ],
)
def test_axe_finds_nothing_on_any_page(sites, new_page, width, colours):
    full, empty = sites
    page = new_page(viewport={"width": width, "height": 900}, color_scheme=colours, reduced_motion="reduce")
    page.goto(full.site.address)
    visits = [(full, path) for path in PAGES.values()]
    visits += [(empty, path) for path in ("/runs", "/deployment", "/league", "/reproduction")]
    for site, path in visits:
        page.goto(f"{site.url}{path}")
        if path.startswith(("/planner", "/runs?", "/deployment?")):
            page.wait_for_selector(".js-plotly-plot")
        found = Axe().run(page).response["violations"]
        assert not found, (path, width, colours, [(one["id"], one["nodes"][0]["target"]) for one in found])
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path
