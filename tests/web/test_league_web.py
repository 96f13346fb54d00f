"""The league page over HTTP and in a real browser: standings, picture, claims; nothing else of the folder."""

import json

import pytest

from airprune.web import recorded
from support.league import make_league
from support.web_runs import HOSTILE

pytest_plugins = ["support.browser"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    make_league(root / "season")
    return root


@pytest.fixture(scope="module")
def site(serve, root):
    return serve(runs_dir=root)


def league(server, folder: str):
    answer = server.client.get("/api/league", params={"folder": folder})
    assert answer.status_code == 200, answer.text
    return answer.json()


def file_answer(server, name: str):
    return server.client.get("/api/league/file", params={"folder": "season", "file": name})


def test_a_league_is_told_as_its_document_says(site, root):
    answer, document = league(site, "season"), json.loads((root / "season" / "league.json").read_text())
    (division,), (written,) = answer["divisions"], document["divisions"]
    assert [table["rows"] for table in division["tables"]] == [table["rows"] for table in written["tables"]]
    assert division["notes"] == written["notes"] and division["picture"]["file"] == "league-A.png"
    assert answer["claims"][0]["verdict"] == {"sign": "✓", "word": "holds", "kind": "good", "count": 1}


def test_pictures_and_tables_of_a_league_are_served_and_nothing_else(site, root):
    for name, kind in (("league-A.png", "image/png"), ("league.csv", "text/csv"), ("league.tex", "text/plain")):
        answer = file_answer(site, name)
        assert answer.headers["content-type"].startswith(kind)
        assert answer.content == (root / "season" / name).read_bytes()
    (root / "season" / "league-B.png").symlink_to("/etc/passwd")
    for name in ("league.json", "league.html", "league-B.png", "league-Z.png", "../x", "/etc/passwd", ""):
        assert file_answer(site, name).status_code == 404, name
    assert site.client.get("/api/league", params={"folder": "nowhere"}).status_code == 404


def test_a_broken_document_is_no_server_error(serve, tmp_path):
    broken = [
        "",
        "[]",
        '{"divisions": 3, "claims": [1]}',
        '{"divisions": [{"tables": [{"header": [1], "rows": [[], 5]}]}]}',
    ]
    for i, content in enumerate([*broken, "[" * 9999]):
        (tmp_path / f"league{i}").mkdir()
        (tmp_path / f"league{i}" / "league.json").write_text(content)
    server = serve(runs_dir=tmp_path)
    for i in range(len(broken) + 1):
        assert league(server, f"league{i}")["claims"] in ([], [{}])
        assert server.client.get("/league", params={"folder": f"league{i}"}).status_code == 200


def test_the_page_shows_standings_with_origins_picture_notes_and_claims(site, page):
    page.goto(f"{site.url}/league")
    rows = page.locator("#standings tbody tr")
    rows.first.wait_for()
    assert rows.count() == 8 and "fp32" in rows.first.inner_text()
    assert "as published" in page.locator("#standings .origin", has_text="as published").first.inner_text()
    page.wait_for_function("document.querySelector('#picture img').naturalWidth > 100")
    assert page.locator("#notes li").count() > 5
    assert page.locator("#claims .badge").inner_text() == "✓ holds"
    assert page.inner_text("#lead").startswith("Of 5 methods in track A (the paper's), fp32 ◇ is first; accuracy after")


def test_recorded_claims_stay_visible_beside_those_of_a_folder(site, page):
    page.goto(f"{site.url}/league")
    page.locator("#claims .badge").first.wait_for()
    assert page.locator("#recorded-claims .claims > table > tbody > tr").count() == len(recorded.league()["claims"])
    assert page.locator("#claims .claims > table > tbody > tr").count() == 1


def test_text_from_a_file_is_never_markup(serve, tmp_path, page):
    table = {
        "title": HOSTILE,
        "header": ["rank", "method", "origin"],
        "rows": [["1", HOSTILE, HOSTILE]],
        "words": ["method"],
    }
    division = {"name": HOSTILE, "title": HOSTILE, "about": HOSTILE, "tables": [table], "notes": [HOSTILE]}
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "league.json").write_text(json.dumps({"note": HOSTILE, "divisions": [division], "claims": []}))
    page.goto(f"{serve(runs_dir=tmp_path).url}/league")
    page.locator("#standings tbody tr").first.wait_for()
    assert page.title() == "League · airprune" and page.locator("main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone(site, new_page, scheme):
    phone = new_page(viewport={"width": 360, "height": 800}, color_scheme=scheme)
    phone.goto(f"{site.url}/league")
    phone.locator("#standings tbody tr").first.wait_for()
    assert phone.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_without_a_league_the_page_says_how_to_play_one(serve, tmp_path, page):
    page.goto(f"{serve(runs_dir=tmp_path).url}/league")
    assert page.locator("#none-command").inner_text() == f"airprune league --quick --out {tmp_path}/league"
