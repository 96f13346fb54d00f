"""The planner page as a user meets it: in a real browser, against a real server."""

import re

import numpy as np
import pytest

import airprune as ap
from support.processes import wait_for

pytest_plugins = ["support.browser"]

FLEET = "device,edge,snr_db\ncam-1,north,43.0\ncam-2,north,42.0\n<b>cam</b>-3,south,38.9\n"
TILES = ("mean-pruning", "sum-pruning", "mean-upload", "round-ms", "counts")


def visit(page, address):
    page.goto(address)
    page.wait_for_selector("body[data-drawn]")
    return page


def settled(page, act):
    """Does `act` and waits until the picture shows what it asked for."""
    before = page.evaluate("document.body.dataset.drawn")
    act()
    page.wait_for_function("before => document.body.dataset.drawn !== before", arg=before)


def numbers(page):
    """Every figure in words, and the bars of the chart of times."""
    page.locator("#time").scroll_into_view_if_needed()
    page.wait_for_function("() => document.getElementById('time').dataset.drawn === document.body.dataset.drawn")
    tiles = {name: page.text_content(f"#{name}") for name in TILES}
    bars = page.evaluate("document.getElementById('time').data.slice(0, 2).map((trace) => Array.from(trace.y))")
    return {"verdict": page.text_content("#verdict"), "tiles": tiles, "bars": bars}


def set_slider(page, name, value):
    change = """([name, value]) => {
      const slider = document.getElementById(`${name}-slider`);
      slider.value = value;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    }"""
    settled(page, lambda: page.evaluate(change, [name, value]))


def place_of(page, index):
    """Returns a device's place on the screen."""
    page.locator("#map").scroll_into_view_if_needed()
    return page.evaluate(
        """(index) => {
          const map = document.getElementById("map");
          const { xaxis, yaxis } = map._fullLayout;
          const box = map.getBoundingClientRect();
          const devices = map.data.findLast((trace) => Array.isArray(trace.marker?.symbol));
          return [box.left + xaxis._offset + xaxis.d2p(devices.x[index]),
                  box.top + yaxis._offset + yaxis.d2p(devices.y[index])];
        }""",
        index,
    )


def point_at(page, index):
    """Until the map, which may still be drawing itself, tells about the device."""

    def told() -> bool:
        x, y = place_of(page, index)
        page.mouse.move(x + 40, y)
        page.mouse.move(x, y)
        page.wait_for_timeout(200)
        return page.locator("#map .hovertext").count() > 0

    wait_for(told, "the map should tell about the device")


def open_tables(page):
    page.click("#numbers summary")
    page.wait_for_selector("#tables table")


def wait_for_address(page, pattern):
    page.wait_for_function("pattern => new RegExp(pattern).test(location.href)", arg=pattern)


def test_the_page_shows_the_papers_plan_and_forgets_the_token_in_its_address(server, page):
    page.goto(server.site.address)
    assert "token" not in page.url
    page.get_by_role("link", name="Plan a network").click()
    page.wait_for_selector("body[data-drawn]")
    assert page.text_content("#badge") == "fits"
    assert page.text_content("#mean-pruning").startswith("70.1 %")
    assert "token" not in page.url
    assert page.evaluate("sessionStorage.getItem('airprune-token')") == server.site.token
    assert page.locator("nav a[aria-current=page]").text_content() == "Planner"


def test_words_do_not_wait_for_the_charts(server, page):
    page.route("**/plotly.min.js", lambda route: None)  # never answered
    page.goto(f"{server.url}/planner", wait_until="commit")
    page.wait_for_function("() => document.getElementById('mean-pruning')?.textContent.startsWith('70.1')")
    page.wait_for_selector("#compared tbody tr")
    assert page.locator("#compared tbody tr").count() == sum(scheme.plans_fleets() for scheme in ap.SCHEMES.values())
    page.unroute_all(behavior="ignoreErrors")


SLIDERS = {
    "deadline_ms": 40, "bandwidth_mhz": 25, "transmit_power_dbm": 20, "inner_m": 50, "outer_m": 300, "num_edges": 7,
    "devices_per_edge": 6, "cpu_spread": 0.5, "max_pruning": 0.99, "seed": 3, "cpu_ghz": 0.5,
}  # fmt: skip


def test_every_slider_plans_again(server, page):
    visit(page, f"{server.url}/planner")
    sliders = page.locator("#controls input[type=range]").evaluate_all("all => all.map((one) => one.id)")
    assert sorted(sliders) == sorted(f"{name}-slider" for name in SLIDERS)
    paper = numbers(page)
    for name, value in SLIDERS.items():
        set_slider(page, name, value)
        assert numbers(page) != paper, name
        assert page.input_value(f"#{name}") == str(value)
        wait_for_address(page, f"{name}={value}")
        answer = server.client.get("/api/plan", params={name: value}).json()
        assert page.text_content("#mean-pruning").startswith(f"{100 * answer['summary']['mean_pruning']:.1f} %"), name
        settled(page, lambda: page.click("button[type=reset]"))
        assert numbers(page) == paper


def test_number_fields_and_schemes_plan_again_and_bad_numbers_are_explained(server, page):
    visit(page, f"{server.url}/planner")
    settled(page, lambda: page.fill("#deadline_ms", "250"))  # beyond the slider
    assert page.input_value("#deadline_ms-slider") == "250"
    assert "nothing is pruned" in page.text_content("#verdict")
    page.fill("#deadline_ms", "-1")
    page.wait_for_selector("#error:not([hidden])")
    assert "planner.deadline_ms must be in" in page.text_content("#error")
    assert page.get_attribute("#deadline_ms", "aria-invalid") == "true"
    page.faults.clear()  # the browser reports the refused request itself
    settled(page, lambda: page.fill("#deadline_ms", "30"))
    assert page.is_hidden("#error")
    settled(page, lambda: page.select_option("#scheme", "no-pruning"))
    assert page.text_content("#badge") == "late"
    settled(page, lambda: page.click("#compared button[data-scheme=min-max]"))
    assert page.input_value("#scheme") == "min-max"
    settled(page, lambda: page.click("button[type=reset]"))
    assert page.input_value("#scheme") == "optimal"


def test_a_dragged_device_is_planned_where_it_is_dropped_and_its_link_repeats_the_picture(server, page, new_page):
    visit(page, f"{server.url}/planner")
    before = numbers(page)
    x, y = place_of(page, 7)
    page.mouse.move(x, y)
    page.mouse.down()
    settled(page, lambda: page.mouse.move(x + 45, y + 30, steps=6))
    page.mouse.up()
    wait_for_address(page, r"moved=1\.2_")
    page.wait_for_function("() => document.body.dataset.drawn === location.search.slice(1)")
    after = numbers(page)
    assert after["bars"] != before["bars"]
    assert page.input_value("#device") == "7"
    other = visit(new_page(), page.url)
    assert numbers(other) == after
    assert other.url == page.url
    settled(page, lambda: page.click("#put-back"))
    assert numbers(page) == before


def test_dragging_the_ground_pans_and_moves_no_device(server, page):
    visit(page, f"{server.url}/planner")
    x, y = place_of(page, 0)
    box = page.locator("#map").bounding_box()
    page.mouse.move(box["x"] + 90, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 60, steps=4)
    page.mouse.up()
    wait_for(lambda: place_of(page, 0) != [x, y], "the map should have been moved")
    assert "moved" not in page.url


def test_a_finger_moves_a_device(server, new_page):
    page = visit(
        new_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True), f"{server.url}/planner"
    )
    x, y = place_of(page, 3)
    touch = page.context.new_cdp_session(page)

    def send(kind, points):
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    send("touchStart", [{"x": x, "y": y}])
    for step in range(1, 6):
        send("touchMove", [{"x": x + 6 * step, "y": y - 6 * step}])
    send("touchEnd", [])
    wait_for_address(page, r"moved=0\.3_")


def test_the_keyboard_selects_and_moves_devices(server, page):
    visit(page, f"{server.url}/planner")
    page.focus("#map")
    page.keyboard.press("PageDown")
    assert page.input_value("#device") == "1"
    east = float(page.input_value("#east"))
    settled(page, lambda: page.keyboard.press("ArrowRight"))
    assert float(page.input_value("#east")) == pytest.approx(east + 5, abs=0.11)  # places go by tenths of a metre
    settled(page, lambda: page.keyboard.press("Shift+ArrowUp"))
    wait_for_address(page, r"moved=0\.1_")
    assert "Device 1 on edge 0" in page.text_content("#device-words")
    page.fill("#east", "400")
    settled(page, lambda: page.keyboard.press("Enter"))
    assert "m away" in page.text_content("#device-words")


def test_every_control_is_reached_by_tab_and_has_a_name(server, page):
    visit(page, f"{server.url}/planner")
    names = []
    for _ in range(100):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => {
              const at = document.activeElement;
              const label = at.labels?.[0]?.textContent ?? at.getAttribute("aria-label") ?? at.textContent;
              const outline = getComputedStyle(at).outlineStyle;
              return [at.id || at.tagName, (label ?? "").trim(), outline];
            }"""
        )
        names.append(focused[0])
        assert focused[1] or focused[0] == "BODY", focused
        assert focused[2] != "none" or focused[0] == "BODY", f"{focused[0]} shows no focus"
    known = {"theme", "preset", "scheme", "deadline_ms", "deadline_ms-slider", "slice_noise", "reuse", "on_time"}
    assert known | {"ground", "map", "device", "fleet-file", "copy-link"} <= set(names)


def test_an_infeasible_deadline_offers_one_that_works(server, page):
    visit(page, f"{server.url}/planner?deadline_ms=20")
    assert page.text_content("#badge") == "no plan"
    assert "blocked by" in page.text_content("#failures")
    symbols = page.evaluate(
        "document.getElementById('map').data.findLast((t) => Array.isArray(t.marker?.symbol)).marker.symbol"
    )
    assert {"x", "circle-open"} == set(symbols)
    button = page.locator("#use-deadline")
    suggested = re.search(r"Set the deadline to ([\d.]+) ms", button.text_content())[1]
    settled(page, button.click)
    assert page.input_value("#deadline_ms") == suggested
    assert page.text_content("#badge") == "fits"
    assert button.is_hidden()


def test_a_formula_out_of_bounds_offers_the_scheme_that_is_not(server, page):
    visit(page, f"{server.url}/planner?scheme=closed-form")
    settled(page, lambda: page.click("#use-optimal"))
    assert page.text_content("#badge") == "fits"


def test_a_pasted_fleet_is_planned_downloaded_and_repeated_by_its_link(server, page, new_page, serve):
    visit(page, f"{server.url}/planner")
    page.fill("#fleet-text", FLEET)
    settled(page, lambda: page.click("#fleet-use"))
    assert "3 devices on 2 edges" in page.text_content("#fleet-words")
    assert page.is_disabled("#num_edges-slider") and page.is_enabled("#deadline_ms-slider")
    assert page.locator("#device option").all_text_contents() == ["cam-1", "cam-2", "<b>cam</b>-3"]
    set_slider(page, "deadline_ms", 16)
    with page.expect_download() as download:
        page.click("#download-plan")
    lines = download.value.path().read_text().splitlines()
    assert lines[0] == "device,edge,snr_db,bandwidth_share,pruning_ratio,latency_ms"
    problem = ap.PlanProblem(
        full_band_rate_bps=20e6 * np.log2(1 + 10 ** (np.array([43.0, 42.0, 38.9]) / 10)),
        seconds_per_weight=2 * 20 / 3e9,
        edge=np.array([0, 0, 1]),
        deadline_s=0.016,
        max_pruning_ratio=0.95,
    )
    ratios = [float(line.split(",")[4]) for line in lines[1:]]
    np.testing.assert_allclose(ratios, ap.plan(problem).pruning_ratio, rtol=1e-12)  # the same formulas
    wait_for_address(page, "deadline_ms=16.*#table=")
    shown = numbers(page)
    elsewhere = page.url.replace(server.url, serve().url)  # a server that has never seen the table
    other = visit(new_page(), elsewhere)
    other.wait_for_function("() => document.getElementById('counts').textContent.startsWith('3')")
    other.wait_for_function("() => document.body.dataset.drawn.includes('fleet=')")
    assert numbers(other) == shown
    settled(page, lambda: page.click("#fleet-drop"))
    assert page.text_content("#counts").startswith("25")


def test_an_uploaded_file_with_a_fault_is_explained_with_its_line(server, page, tmp_path):
    visit(page, f"{server.url}/planner")
    bad = tmp_path / "bad.csv"
    bad.write_text("device,edge,snr_db\na,x,40\nb,x,forty\n")
    page.set_input_files("#fleet-file", bad)
    page.wait_for_selector("#fleet-error:not([hidden])")
    assert page.text_content("#fleet-error").startswith("bad.csv, line 3: snr_db")
    page.faults.clear()  # the browser reports the refused request itself
    good = tmp_path / "good.csv"
    good.write_text(FLEET)
    settled(page, lambda: page.set_input_files("#fleet-file", good))
    assert page.is_hidden("#fleet-error") and page.text_content("#counts").startswith("3")


def test_the_button_plans_the_chosen_file_where_nothing_is_pasted(server, page, tmp_path):
    visit(page, f"{server.url}/planner")
    file = tmp_path / "fleet.csv"
    file.write_text(FLEET)
    settled(page, lambda: page.set_input_files("#fleet-file", file))
    with page.expect_response("**/api/fleet?*") as answered:
        page.click("#fleet-use")
    assert answered.value.ok
    page.wait_for_function(
        "() => document.getElementById('fleet-words').textContent.startsWith('Planning fleet.csv: 3 ')"
    )
    assert page.is_hidden("#fleet-error") and page.text_content("#counts").startswith("3")
    page.fill("#fleet-text", "device,edge,snr_db\na,x,40\n")  # what is pasted comes first
    settled(page, lambda: page.click("#fleet-use"))
    assert page.text_content("#fleet-words").startswith("Planning the pasted table: 1 ")


def test_names_in_a_fleet_are_text_wherever_they_appear(server, page):
    visit(page, f"{server.url}/planner")
    evil = "<img src=x onerror=document.title='broken'>"
    page.fill("#fleet-text", f"device,edge,snr_db\n{evil},{evil},40\nb,x,41\n")
    settled(page, lambda: page.click("#fleet-use"))
    open_tables(page)
    point_at(page, 0)
    assert page.locator("#tables td").first.text_content() == evil
    assert page.locator("main img").count() == 0 and "broken" not in page.title()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_until_it_is_chosen_and_is_remembered(server, new_page, scheme):
    page = visit(new_page(color_scheme=scheme), f"{server.url}/planner")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark, light = "rgb(20, 24, 29)", "rgb(255, 255, 255)"
    assert page.evaluate(ground) == (dark if scheme == "dark" else light)
    page.click("#theme")
    assert page.text_content("#theme") == "Theme: light" and page.evaluate(ground) == light
    page.click("#theme")
    assert page.evaluate(ground) == dark
    page.wait_for_function("() => document.getElementById('map')._fullLayout.font.color === '#e3e7eb'")
    visit(page, f"{server.url}/planner")
    assert page.text_content("#theme") == "Theme: dark" and page.evaluate(ground) == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(server, page, scheme):
    page.emulate_media(color_scheme=scheme)
    visit(page, f"{server.url}/planner?deadline_ms=20")
    open_tables(page)
    worst = page.evaluate(
        """() => {
          const channel = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
          const light = (rgb) => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
          const parse = (text) => text.match(/[\\d.]+/g).map(Number);
          const ground = (node) => {
            for (let at = node; at; at = at.parentElement) {
              const rgba = parse(getComputedStyle(at).backgroundColor);
              if (rgba.length === 3 || rgba[3] === 1) return rgba;
            }
            return [255, 255, 255];
          };
          const found = [];
          for (const node of document.querySelectorAll("body *:not(script):not(svg *)")) {
            const text = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
            if (!text || node.closest("[hidden]") || node.disabled || !node.getClientRects().length) continue;
            const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))];
            found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.textContent.trim().slice(0, 40)]);
          }
          return found.sort((x, y) => x[0] - y[0])[0];
        }"""
    )
    assert worst[0] >= 4.5, worst  # WCAG AA


def test_no_width_scrolls_sideways(server, page):
    visit(page, f"{server.url}/planner?deadline_ms=20")
    open_tables(page)
    fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    for width in (360, 768, 1100, 1440, 3840):
        page.set_viewport_size({"width": width, "height": 900})
        wait_for(lambda: page.evaluate(fits), f"no scrolling sideways at {width}")  # charts follow a little later


def test_of_many_devices_the_page_says_how_many_it_draws(server, page):
    visit(page, f"{server.url}/planner?num_edges=50&devices_per_edge=200&deadline_ms=1200")
    assert "1,200 of 10,000 devices" in page.text_content("#thinned")
    assert page.text_content("#counts").startswith("10,000")
    open_tables(page)
    assert "The first 200 of 10,000 devices" in page.text_content("#tables")


def test_a_map_of_too_many_devices_is_a_density_and_says_so(server, page):
    visit(page, f"{server.url}/planner?num_edges=50&devices_per_edge=200&deadline_ms=1200&moved=7.33_10_20")
    words = page.text_content("#density-words")
    assert "The map is a density" in words and "all 10,000 devices" in words and "logarithmic" in words
    drawn = page.evaluate("""() => {
      const [cells, ...others] = document.getElementById("map").data;
      const counts = cells.z.flat().filter((z) => z !== null).map((z) => Math.round(10 ** z));
      return { type: cells.type, total: counts.reduce((a, b) => a + b, 0), title: cells.colorbar.title.text,
               marks: others.at(-1).x.length };
    }""")
    side = re.search(r"cell of (\d+ m × \d+ m)", words)[1]
    assert drawn == {"type": "heatmap", "total": 10_000, "title": f"devices per cell of {side}", "marks": 2}
    page.locator("#device").select_option("8")
    page.wait_for_function("() => document.getElementById('device-words').textContent.startsWith('Device 8 ')")
    visit(page, f"{server.url}/planner")
    assert page.locator("#density-words").is_hidden() and page.locator("#mark-words").is_visible()


def test_a_slow_answer_never_replaces_a_newer_one(server, page):
    visit(page, f"{server.url}/planner")
    held = []
    page.route("**/api/plan?deadline_ms=31", lambda route: held.append(route))
    change = """(value) => {
      const slider = document.getElementById("deadline_ms-slider");
      slider.value = value;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    }"""
    page.evaluate(change, 31)
    page.wait_for_timeout(500)  # until it counts as slow
    settled(page, lambda: page.evaluate(change, 45))
    for route in held:
        route.abort()
    assert len(held) == 1
    assert page.evaluate("document.body.dataset.drawn") == "deadline_ms=45"
    assert "45 ms" in page.text_content("#verdict")
    page.unroute_all(behavior="ignoreErrors")


def test_a_link_that_cannot_be_planned_says_why_and_shows_the_paper(server, page):
    visit(page, f"{server.url}/planner?deadline_ms=soon")
    assert "planner.deadline_ms must be a number" in page.text_content("#error")
    assert page.text_content("#mean-pruning").startswith("70.1 %")


def test_the_tables_say_what_the_charts_show(server, page):
    visit(page, f"{server.url}/planner")
    open_tables(page)
    rows = page.locator("#tables table").first.locator("tbody tr")
    assert rows.count() == 25
    answer = server.client.get("/api/plan").json()
    cells = rows.nth(4).locator("td").all_text_contents()
    assert cells[0] == "4" and cells[3] == f"{100 * answer['devices']['ratio'][4]:.2f} %"
    assert cells[7] == f"{answer['devices']['latency_ms'][4]:.3f}"


def test_bars_that_end_at_the_deadline_are_explained(server, page):
    visit(page, f"{server.url}/planner?deadline_ms=30")
    assert page.inner_text("#time-words").startswith("25 of 25 devices end exactly at the deadline")
    visit(page, f"{server.url}/planner?scheme=no-pruning&deadline_ms=30")
    assert page.locator("#time-words").is_hidden()


def test_the_verdict_on_a_pasted_table_stands_where_it_was_pasted(server, page):
    visit(page, f"{server.url}/planner?deadline_ms=16")
    assert page.locator("#fleet-result").is_hidden()
    page.fill("#fleet-text", "device,edge,snr_db\ncam-1,north,43\ncam-2,north,42\n")
    page.click("#fleet-use")
    page.wait_for_selector("#fleet-result:visible")
    assert page.inner_text("#fleet-verdict") == page.inner_text("#verdict")


def test_charts_below_the_fold_are_drawn_once_the_sliders_rest(server, new_page):
    page = visit(new_page(viewport={"width": 1200, "height": 400}), f"{server.url}/planner")
    page.evaluate(
        "() => { const s = document.getElementById('deadline_ms-slider'); s.value = 44; "
        "s.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    drawn = "() => ['map', 'time', 'share'].map((id) => document.getElementById(id).dataset.drawn)"
    wait_for(lambda: page.evaluate(drawn) == ["deadline_ms=44"] * 3, "all charts of the new plan", patience_s=30)


def test_a_planned_fleet_is_handed_to_the_form_that_starts_runs(serve, page, tmp_path):
    server = serve(runs_dir=tmp_path, allow_run=True)
    page.goto(server.site.address)
    visit(page, f"{server.url}/planner?deadline_ms=44")
    page.locator("#train summary").click()
    assert "plan.deadline_s=0.044" in page.inner_text("#train-command")
    page.click("#train-start")
    page.wait_for_url("**/runs*")
    wait_for(lambda: page.inner_text("#check").startswith("Valid."), "the form should be filled in", patience_s=30)
    assert "network.table" in page.inner_text("#check") and "plan.deadline_s = 0.044" in page.inner_text("#check")


# The radio


SWITCHES = {
    "noise": "thermal", "rate": "nr-mcs", "path_loss": "umi", "fading": "rayleigh", "reuse": "1",
    "downlink": "broadcast",
    "mobility": "waypoint",
    "association": "nearest", "placement": "disc",
}  # fmt: skip
FADING = "fading=rayleigh&num_antennas=4&deadline_ms=60"
# The query under which a field means something, and its value.
FIELDS = {
    "carrier_ghz": ("path_loss=umi&deadline_ms=60", "6"), "num_antennas": (FADING, "8"), "num_streams": (FADING, "2"),
    "power_p0_dbm": ("deadline_ms=60", "-75"), "power_alpha": ("power_p0_dbm=-75&deadline_ms=60", "0.9"),
    "station_power_dbm": ("downlink=unicast&deadline_ms=60", "46"), "csi_correlation": (FADING, "0.8"),
    "csi_delay_ms": (f"{FADING}&speed_m_per_s=5", "2"), "pilots": (FADING, "64"), "report_bits": (FADING, "5000"),
    "speed_m_per_s": ("mobility=waypoint&speed_m_per_s=5&start_s=20&deadline_ms=300", "20"),
    "edge_distance_m": ("reuse=1&deadline_ms=90", "400"),
}  # fmt: skip


def as_shown(page, server, query):
    """The page's tiles and sentences are the API's for this query, which tests/web holds to `airprune plan`."""
    answer = server.client.get("/api/plan", params=query).json()
    mean = answer["summary"]["mean_pruning"]
    assert page.text_content("#mean-pruning").startswith(f"{100 * mean:.1f} %" if mean is not None else "–")
    assert page.text_content("#verdict") == answer["words"]["verdict"]
    assert page.locator("#overhead p").all_text_contents() == answer["words"]["overhead"]
    assert page.text_content("#command-line") == answer["command"]
    return answer


@pytest.mark.parametrize("name", SWITCHES)
def test_every_switch_plans_again_and_back(server, page, name):
    visit(page, f"{server.url}/planner?deadline_ms=90")
    before = numbers(page)
    settled(page, lambda: page.select_option(f"#{name}", SWITCHES[name]))
    query = page.evaluate("document.body.dataset.drawn")
    assert f"{name}={SWITCHES[name]}" in query
    answer = as_shown(page, server, dict(pair.split("=") for pair in query.split("&")))
    assert answer["command"] != "airprune plan paper plan.deadline_s=0.09"
    settled(page, lambda: page.click("button[type=reset]"))
    settled(page, lambda: page.fill("#deadline_ms", "90"))
    assert numbers(page) == before


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_the_radio_plans_again(server, page, name):
    query, value = FIELDS[name]
    visit(page, f"{server.url}/planner?{query}")
    assert page.is_visible(f"#{name}")
    settled(page, lambda: page.fill(f"#{name}", value))
    wait_for_address(page, f"{name}={value}")
    drawn = page.evaluate("document.body.dataset.drawn")
    as_shown(page, server, dict(pair.split("=") for pair in drawn.split("&")))


def test_a_checked_switch_plans_with_the_noise_of_slices(server, page):
    visit(page, f"{server.url}/planner?noise=thermal&deadline_ms=60")
    before = page.text_content("#mean-pruning")
    settled(page, lambda: page.check("#slice_noise"))
    assert page.text_content("#mean-pruning") != before
    as_shown(page, server, {"noise": "thermal", "deadline_ms": 60, "slice_noise": "true"})
    settled(page, lambda: page.uncheck("#slice_noise"))
    assert page.text_content("#mean-pruning") == before


def test_a_refused_combination_is_one_sentence_and_the_page_recovers(server, page):
    visit(page, f"{server.url}/planner?rate=nr-mcs&deadline_ms=60")
    before = numbers(page)
    page.check("#slice_noise")
    page.wait_for_selector("#error:not([hidden])")
    assert page.text_content("#error").startswith("Scenario.radio.slice_noise must be false with rate = nr-mcs")
    assert page.get_attribute("#slice_noise", "aria-invalid") == "true"
    assert numbers(page) == before  # the last plan stays
    page.click("#undo")
    assert page.is_hidden("#error") and page.is_hidden("#undo") and not page.is_checked("#slice_noise")
    wait_for_address(page, r"planner\?deadline_ms=60&rate=nr-mcs$")
    page.check("#slice_noise")
    page.wait_for_selector("#error:not([hidden])")
    settled(page, lambda: page.select_option("#rate", "shannon"))  # the other way out
    assert page.is_hidden("#error") and page.is_checked("#slice_noise")
    page.faults.clear()  # the browser reports the refused requests itself


def test_a_preset_sets_all_switches_and_its_link_repeats_it(server, page, new_page):
    visit(page, f"{server.url}/planner?deadline_ms=40")
    settled(page, lambda: page.select_option("#preset", "urban-5g"))
    shown = [page.input_value(f"#{name}") for name in ("rate", "reuse", "path_loss", "fading", "downlink", "ground")]
    assert shown == ["nr-mcs", "1", "umi", "rayleigh", "broadcast", "sinr"]
    assert page.input_value("#num_antennas") == "8" and page.input_value("#deadline_ms") == "200"
    settled(page, lambda: page.select_option("#reuse", "none"))
    wait_for_address(page, r"planner\?preset=urban-5g&reuse=none$")
    after = numbers(page)
    other = visit(new_page(), page.url)
    assert numbers(other) == after and other.input_value("#reuse") == "none"
    settled(page, lambda: page.select_option("#preset", "iot"))
    assert page.input_value("#scheme") == "energy" and page.input_value("#reuse") == "none"
    settled(page, lambda: page.select_option("#preset", "paper"))
    assert "energy" not in page.locator("#scheme option").all_text_contents()
    as_shown(page, server, {})


def test_interference_colours_the_ground_darker_than_bandwidths_of_their_own(server, page):
    visit(page, f"{server.url}/planner?deadline_ms=90&edge_distance_m=500&ground=sinr")
    values = "document.getElementById('map').data[0].z.flat()"
    own = page.evaluate(values)
    assert page.is_hidden("#rise-tile")
    settled(page, lambda: page.select_option("#reuse", "1"))
    shared = page.evaluate(values)
    assert len(own) == len(shared) and all(low < high for low, high in zip(shared, own, strict=True))
    assert re.match(r"\+\d+\.\d dB", page.text_content("#rise"))
    settled(page, lambda: page.select_option("#ground", "rate"))
    assert page.evaluate("document.getElementById('map').data[0].colorbar.title.text") == "Mbit/s"
    settled(page, lambda: page.select_option("#ground", "none"))
    assert page.evaluate("document.getElementById('map').data[0].type") != "heatmap"


def test_the_time_slider_moves_devices_and_asks_for_few_plans(server, page):
    visit(page, f"{server.url}/planner?deadline_ms=400&association=best-rate")
    assert page.is_hidden("#start_s-slider")
    settled(page, lambda: page.select_option("#mobility", "waypoint"))
    assert page.input_value("#speed_m_per_s") == "1.5"  # on foot: devices at rest do not move
    settled(page, lambda: page.fill("#speed_m_per_s", "20"))
    begin, asked = place_of(page, 3), []
    page.on("request", lambda request: asked.append(request.url) if "/api/plan?" in request.url else None)
    slide = """(time) => {
      const slider = document.getElementById("start_s-slider");
      slider.value = time;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    }"""
    for time_s in range(1, 61):
        page.evaluate(slide, time_s)
    page.wait_for_function("() => document.body.dataset.drawn.includes('start_s=60')")
    assert len(asked) < 30  # the last of many is what counts
    assert place_of(page, 3) != begin
    query = {"deadline_ms": 400, "association": "best-rate", "mobility": "waypoint", "speed_m_per_s": 20, "start_s": 60}
    answer = as_shown(page, server, query)
    shown = page.evaluate(
        "Array.from(document.getElementById('map').data.findLast((t) => Array.isArray(t.marker?.symbol)).x)"
    )
    assert shown == answer["devices"]["x_m"]
    assert page.is_disabled("#east")
    x, y = place_of(page, 3)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y + 40, steps=3)
    page.mouse.up()
    assert "moved" not in page.url


def test_one_more_nine_is_priced_and_a_promise_is_kept(server, page):
    query = f"{FADING.replace('60', '40')}&csi_correlation=0.9"
    visit(page, f"{server.url}/planner?{query}")
    assert page.text_content("#badge") == "by chance"
    page.wait_for_selector("#promises tbody tr")
    rows = page.locator("#promises tbody tr")
    asked = dict(pair.split("=") for pair in query.split("&"))
    lines = server.client.get("/api/promises", params=asked).json()
    assert rows.count() == len(lines) == 5
    for row, line in zip(rows.all(), lines, strict=True):
        cells = row.locator("td").all_text_contents()
        assert cells[2] == f"{line['mean_ratio']:.3f}" and cells[4] == f"{1e3 * line['smallest_deadline_s']:.2f}"
    chance = min(server.client.get("/api/plan", params=asked).json()["devices"]["on_time"])
    assert page.text_content("#least-on-time").startswith(f"{100 * chance:.1f} %")
    settled(page, lambda: page.select_option("#on_time", "0.95"))
    assert page.text_content("#badge") == "fits" and page.text_content("#least-on-time").startswith("95.0 %")
    settled(page, lambda: page.fill("#csi_correlation", "1"))
    assert page.is_hidden("#nines") and page.is_hidden("#on-time-tile")


def test_a_table_keeps_its_links_whatever_the_switches_say(server, page):
    visit(page, f"{server.url}/planner?preset=urban-5g")
    page.fill("#fleet-text", FLEET)
    settled(page, lambda: page.click("#fleet-use"))
    for name in ("preset", "rate", "reuse", "slice_noise", "num_antennas", "ground"):
        assert page.is_disabled(f"#{name}"), name
    assert page.is_hidden("#command") and page.is_enabled("#deadline_ms")
    settled(page, lambda: page.click("#fleet-drop"))
    assert page.is_enabled("#rate") and page.input_value("#rate") == "nr-mcs"


def test_a_radio_opens_the_runs_page_with_its_scenario(serve, page):
    server = serve(allow_run=True)
    page.goto(server.site.address)
    visit(page, f"{server.url}/planner?preset=urban-5g&reuse=none&noise=paper&deadline_ms=90")
    page.click("#train summary")
    assert page.text_content("#train-command").startswith("airprune run urban-5g plan.deadline_s=0.09 radio.reuse=none")
    page.click("#train-start")
    page.wait_for_url(re.compile("/runs"))
    page.wait_for_function("() => document.getElementById('preset').value === 'urban-5g'")
    page.wait_for_function("() => /deadline_s/.test(document.getElementById('start-form').innerText)")
