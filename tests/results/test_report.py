"""Reports: self-contained pages that tell what a folder holds, however hostile or broken its files are."""

import csv
import json
import re
import shlex
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

import airprune as ap
from airprune.cli import main
from airprune.errors import UsageError
from airprune.results.figures.curves import new_figure, save_figure
from airprune.results.report.markup import element, paragraph, table
from airprune.runs.layout import RunFolder
from airprune.studies.comparison import scheme_variants
from airprune.studies.write_report import write_report
from support.tiny import blobs, tiny_file, tiny_scenario

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
VOID = {"meta", "img"}


class Outline(HTMLParser):
    """Tags, attributes and text of a page; fails on tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, tag: str, name: str) -> list[str]:
        return [value for t, n, value in self.attributes if (t, n) == (tag, name)]


def outline(page: Path) -> Outline:
    return Outline(page.read_text(encoding="utf-8"))


def csv_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def make_run(out: Path, *, stop_after: int | None = None, **changes) -> Path:
    records = ap.run(tiny_scenario(**changes), out=out, dataset=blobs())
    for count, _ in enumerate(records, start=1):
        if count == stop_after:
            records.close()
            break
    return out


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("finished") / "run", name="tiny")


@pytest.fixture(scope="module")
def finished_page(finished, tmp_path_factory) -> Path:
    """In a folder of its own, with pictures drawn in full."""
    return write_report(finished, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def comparison_page(comparison, tmp_path_factory) -> Path:
    return write_report(comparison, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def run_folder(finished, tmp_path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(finished, tmp_path / "run", ignore=shutil.ignore_patterns("report.html", "figures")))


def without_checksums(folder: Path) -> None:
    """As of a run made before there were any, or damaged: what records say cannot be compared with anything."""
    (folder / "final.safetensors").unlink()
    shutil.rmtree(folder / "checkpoint")


@pytest.fixture
def sketches(monkeypatch, blank_png):
    """Pictures are laid out, which is where bad values show, but saved blank."""

    def savefig(figure, file, **_):
        figure.draw_without_rendering()
        file.write(blank_png)

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("comparison") / "compared"
    for variant in scheme_variants(tiny_scenario(plan__deadline_s=0.0004), ["optimal", "no-pruning"]):
        for seed in (0, 1):
            list(ap.run(variant.scenario.with_("seed", seed), out=variant.folder(out, seed).path, dataset=blobs()))
    return out


@pytest.fixture
def reproduction(tmp_path) -> Path:
    out = tmp_path / "reproduction"
    out.mkdir()
    verdicts = ("holds", "holds", "holds in part", "does not hold", "cannot be decided")
    claims = [
        {
            "claim": f"claim-{i}",
            "where": f"Fig. {i}",
            "text": f"Claim number {i}.",
            "preset": "paper",
            "verdict": verdict,
            "reason": f"reason {i}",
            "numbers": {"ρ = 0.5": "0.81 ± 0.02"},
        }
        for i, verdict in enumerate(verdicts)
    ]
    (out / "claims.json").write_text(json.dumps(claims))
    (out / "table1.csv").write_text("parameter,printed\nBandwidth,20 MHz\n")
    (out / "table2.csv").write_text(
        "topology,scheme,mean_ms,spread_ms,paper_ms,paper_spread_ms,deviation\nHFL,optimal,30.04,0.5,30,0,0.0012\n"
    )
    (out / "fig6.csv").write_text("cpu_hz,share\n1e9,0.2\n")
    figure, _ = new_figure(1)
    save_figure(figure, out / "fig6.png", out / "fig6.pdf")
    return out


def assert_self_contained(page: Path) -> None:
    text, found = page.read_text(encoding="utf-8"), outline(page)
    assert not re.search(r"https?://|//cdn|@import|url\(", text)
    assert not {"script", "link", "iframe", "object", "base"} & set(found.tags)
    assert all(value.startswith("data:image/png;base64,") for value in found.values("img", "src"))
    assert not any(name.startswith("on") or name in ("srcset", "style") for _, name, _ in found.attributes)
    assert all(found.values("img", "alt")) and len(found.values("img", "alt")) == found.tags.count("img")


# Any page


def test_every_page_is_self_contained_and_every_picture_has_words(finished_page, comparison_page, reproduction):
    for page in (finished_page, comparison_page, write_report(reproduction)):
        assert_self_contained(page)


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("kind", ["finished", "comparison", "reproduction"])
def test_contents_lead_to_every_section(kind, request):
    page = outline(write_report(request.getfixturevalue(kind)))
    targets = [value[1:] for value in page.values("a", "href") if value.startswith("#")]
    assert targets == page.values("section", "id")
    first = "what-this-comparison-shows" if kind == "comparison" else "summary"
    assert targets[0] == first and targets[-1] == "repeat-it"


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("kind", ["finished", "comparison", "reproduction"])
def test_links_lead_to_files_that_exist(kind, request, tmp_path):
    page = write_report(request.getfixturevalue(kind), tmp_path / "elsewhere.html")
    links = [value for value in outline(page).values("a", "href") if not value.startswith("#")]
    assert links and all((tmp_path / link).exists() for link in links)


def test_the_same_folder_gives_the_same_bytes(finished, finished_page, tmp_path):
    again = write_report(finished, tmp_path / "report.html")
    a, b = (re.sub(r'href="[^"]*"', "", page.read_text()) for page in (finished_page, again))
    assert a == b


# Runs


def test_a_run_page_tells_the_last_round_and_how_to_repeat_it(finished, finished_page):
    last = json.loads((finished / "records.jsonl").read_text().splitlines()[-1])
    text = outline(finished_page).text
    assert "finished" in text and "unfinished" not in text
    for words in (
        f"{last['test_accuracy'] * 100:.2f} %",
        f"{last['test_loss']:.4f}",
        f"{last['uploaded_weights']:,}",
        f"{last['uploaded_bits'] / 1e6:,.2f} Mbit",
        f"airprune run {finished}/scenario.toml --out {finished}-again",
        'scheme = "optimal"',
        json.loads((finished / "environment.json").read_text())["torch"],
    ):
        assert words in text


@pytest.mark.usefixtures("blank_pictures")
def test_the_command_of_a_run_page_repeats_the_run_to_the_byte(tmp_path, capsys):
    assert main(["run", str(tiny_file(tmp_path)), "--engine", "serial", "--out", str(tmp_path / "run")]) == 0
    page = outline(write_report(tmp_path / "run"))
    command = next(word for word in page.words if word.startswith("airprune run")).split()
    assert main(command[1:]) == 0
    first, second = (tmp_path / name / "records.jsonl" for name in ("run", "run-again"))
    assert first.read_bytes() == second.read_bytes()


def test_pictures_are_kept_as_png_and_tidy_csv(finished_page):
    figures = finished_page.with_name("figures")
    assert {path.suffix for path in figures.iterdir()} == {".png", ".csv"}
    stems = {path.stem for path in figures.glob("*.png")}
    measures = [
        f"{measure}-{axis}" for measure in ("accuracy", "loss") for axis in ("rounds", "time", "bits", "energy")
    ]
    assert stems >= {*measures, "pruning-rounds", "timeline", "bandwidth-share", "pruning-ratio"}
    rows = csv_rows(figures / "curves.csv")
    assert [row["global_round"] for row in rows] == ["1.0", "2.0"] and rows[0]["series"] == "optimal"
    devices = csv_rows(figures / "devices.csv")
    assert [row["device"] for row in devices] == [str(i) for i in range(6)]


@pytest.mark.usefixtures("blank_pictures")
def test_a_page_says_how_to_get_its_pictures_for_a_paper_and_that_command_makes_them(finished, tmp_path, command):
    folder = shutil.copytree(finished, tmp_path / "my run")
    words = next(word for word in outline(write_report(folder)).words if word.startswith("airprune report"))
    assert not list(folder.glob("figures/*.pdf"))
    status, out, _ = command(*shlex.split(words)[1:])
    assert status == 0 and out.strip() == str(folder / "report.html")
    stems = [{path.stem for path in folder.glob(f"figures/*.{kind}")} for kind in ("png", "pdf", "svg")]
    assert len(stems[0]) >= 12 and stems[0] == stems[1] == stems[2]
    assert "airprune report" not in outline(folder / "report.html").text


@pytest.mark.usefixtures("blank_pictures")
def test_pictures_that_were_drawn_for_a_paper_are_drawn_again_with_the_page(finished, tmp_path):
    page = write_report(finished, tmp_path / "report.html", formats=["svg"])
    old = page.with_name("figures") / "loss-rounds.svg"
    old.write_text("of an earlier state of the run")
    write_report(finished, page)
    assert old.read_bytes() == page.with_name("figures").joinpath("loss-rounds.png").read_bytes()  # blank, as all
    assert "figures/loss-rounds.svg" in outline(page).values("a", "href")
    assert not list(tmp_path.glob("figures/*.pdf"))


def test_an_unknown_format_of_pictures_is_refused_before_any_is_drawn(finished, tmp_path, command):
    status, _, said = command("report", finished, "--out", tmp_path / "page.html", "--formats", "pdf,eps")
    assert status == 2 and "--formats must be of png, pdf, svg, got 'eps'" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("blank_pictures")
def test_a_page_of_another_name_has_figures_of_its_own(finished, tmp_path):
    write_report(finished, tmp_path / "mine.html")
    assert (tmp_path / "mine-figures" / "curves.csv").exists() and not (tmp_path / "figures").exists()


@pytest.mark.usefixtures("blank_pictures")
def test_coverage_and_left_out_devices_are_told(tmp_path):
    folder = make_run(tmp_path / "run", plan__deadline_s=0.0004, events__dropout_probability=0.4)
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    rounds = [record for record in records if record["kind"] == "global"]
    left, took_part = (sum(record[name] for record in rounds) for name in ("left_out", "participants"))
    text = outline(write_report(folder)).text
    assert left > 0 and f"{left} of {left + took_part}" in text
    edge = [record for record in records if record["kind"] == "edge"][-1]
    assert all(f" {entry['num_uncovered']:,} " in text for entry in edge["coverage"])


@pytest.mark.usefixtures("blank_pictures")
def test_an_unfinished_run_says_so_and_how_to_continue(tmp_path):
    text = outline(write_report(make_run(tmp_path / "run", stop_after=4))).text
    assert "unfinished: 1 of 2 global rounds" in text and "--resume" in text


@pytest.mark.usefixtures("sketches")
def test_a_run_without_a_global_round_shows_its_devices(tmp_path):
    page = outline(write_report(make_run(tmp_path / "run", stop_after=1)))
    assert "No global round is finished yet." in page.text
    assert page.tags.count("img") == 3  # timeline, shares, ratios


@pytest.mark.usefixtures("sketches")
def test_a_run_never_evaluated_has_no_accuracy_curves(tmp_path):
    page = write_report(make_run(tmp_path / "run", rounds__evaluate_every="never"))
    assert {path.stem for path in (tmp_path / "run/figures").glob("*.png")} & {
        "accuracy-rounds",
        "loss-rounds",
    } == set()
    assert_self_contained(page)


@pytest.mark.usefixtures("sketches")
def test_damaged_lines_are_counted_and_the_rest_is_shown(run_folder):
    records = run_folder / "records.jsonl"
    whole = records.read_bytes()
    without_checksums(run_folder)
    records.write_bytes(b"\xff\xfe rubbish\n" + whole[:-20])  # the last line, a global round, is torn
    text = outline(write_report(run_folder)).text
    assert "2 lines of records.jsonl cannot be read" in text


@pytest.mark.usefixtures("sketches")
@pytest.mark.parametrize(
    "spoilt",
    [
        {"device": [1, 2]},
        {"device": "no list"},
        {"fate": None},
        {"compute_s": [1e400] * 6},
        {"compute_s": [10**400] * 6},
        {"coverage": [{"no": "edge"}]},
        {"coverage": "nothing", "edge_status": None, "left_out": {"late": "many"}},
        {"global_round": [], "edge_id": {}},
        {"time_s": "late", "test_accuracy": True, "left_out": [], "uploaded_bits": 10**400},
    ],
)
def test_records_of_the_wrong_shape_do_not_stop_a_report(run_folder, spoilt):
    records = [json.loads(line) | spoilt for line in (run_folder / "records.jsonl").read_text().splitlines()]
    without_checksums(run_folder)
    (run_folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert_self_contained(write_report(run_folder))


@pytest.mark.usefixtures("sketches")
def test_a_folder_without_readable_scenario_and_environment_still_has_a_report(run_folder):
    (run_folder / "scenario.toml").write_text("plan = { deadline_s = -1 <b>")
    (run_folder / "environment.json").write_text("[")
    page = outline(write_report(run_folder))
    assert "cannot be read as a scenario" in page.text and "environment.json is missing" in page.text
    assert "b" not in page.tags and page.tags.count("img") >= 9


@pytest.mark.usefixtures("sketches")
def test_names_and_records_cannot_inject(tmp_path):
    folder = make_run(tmp_path / "run", name=HOSTILE)
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for record in records:
        if record["kind"] == "edge":
            record |= {"fate": [HOSTILE + "\ud800$\\frac$"] * 6, "edge_status": [HOSTILE] * 2, "left_out": {HOSTILE: 3}}
    without_checksums(folder)
    (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "environment.json").write_text(json.dumps({HOSTILE: HOSTILE}))
    with (folder / "scenario.toml").open("a") as file:
        file.write(f"# </code></pre>{HOSTILE}\n")
    page = write_report(folder)
    assert_self_contained(page)
    assert "<script>alert(1)</script>" in outline(page).text  # as words


def test_a_page_holds_no_control_characters_and_a_dash_for_no_value():
    """Of whatever a file holds: NUL, an escape sequence, a turn of the reading direction, half a surrogate pair."""
    bad = "a\0b\x1b[31mc\u202ed\ud800<e>"
    cells = re.findall(r"<td>(.*?)</td>", table(("name",), [(bad,), (None,)], label="x", words=("name",)))
    assert cells == ["a\ufffdb\ufffd[31mc\ufffdd?&lt;e&gt;", "–"]
    assert paragraph(bad) == element("p", bad) == f"<p>{cells[0]}</p>"


@pytest.mark.usefixtures("sketches")
def test_a_large_fleet_is_drawn_in_part_and_listed_in_full(run_folder):
    records = [json.loads(line) for line in (run_folder / "records.jsonl").read_text().splitlines()]
    for record in records:
        if record["kind"] == "edge":
            record |= {
                name: value * 50 for name, value in record.items() if isinstance(value, list) and len(value) == 6
            }
            record["device"] = list(range(300))
    without_checksums(run_folder)
    (run_folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    text = outline(write_report(run_folder)).text
    assert "The figures show the 60 slowest" in text and "100 more rows" in text
    assert len((run_folder / "figures/devices.csv").read_text().splitlines()) == 301


# Comparisons


def test_a_comparison_page_has_intervals_curves_and_differences(comparison_page):
    page = outline(comparison_page)
    assert "2 variants over 2 seeds" in page.text
    assert "plan.scheme" in page.text
    assert re.search(r"100\.00 ± |\d\d\.\d\d ± \d", page.text)
    rows = csv_rows(comparison_page.with_name("figures") / "curves.csv")
    assert {(row["series"], row["seed"]) for row in rows} == {(v, s) for v in ("optimal", "no-pruning") for s in "01"}


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("target", [0.0, 1.0])
def test_a_comparison_page_tells_what_a_target_took(comparison, tmp_path, target):
    page = outline(write_report(comparison, tmp_path / "page.html", target=target))
    assert "time ÷ that of no-pruning" in page.text
    for row in csv_rows(tmp_path / "page-figures/target.csv"):
        records = RunFolder(comparison / f"{row['series']}-seed{row['seed']}").records()
        reached = [r["time_s"] for r in records if r["kind"] == "global" and r["test_accuracy"] >= target]
        assert row["reached"] == str(bool(reached))
        assert row["time_to_target_s"] == (str(reached[0]) if reached else "")


@pytest.mark.usefixtures("blank_pictures")
def test_a_run_page_tells_what_the_target_took(finished, tmp_path):
    first = next(r for r in RunFolder(finished).records() if r["kind"] == "global")
    page = outline(write_report(finished, tmp_path / "page.html", target=0.0))
    assert "To 0 % test accuracy" in page.text and f"{first['time_s']:.4g} s" in page.text
    assert "To " not in outline(write_report(finished, tmp_path / "without.html")).text


@pytest.mark.usefixtures("blank_pictures")
def test_a_comparison_page_gives_the_command_that_repeats_it(comparison):
    command = next(word for word in outline(write_report(comparison)).words if word.startswith("airprune compare"))
    assert "--schemes no-pruning,optimal --seeds 0-1" in command
    assert "/no-pruning-seed0/scenario.toml" in command


@pytest.mark.usefixtures("blank_pictures")
def test_variants_with_changes_of_their_own_are_repeated_by_also(comparison, tmp_path):
    folder = Path(shutil.copytree(comparison, tmp_path / "compared"))
    make_run(folder / "patient-seed0", plan__deadline_s=0.00212345678, seed=0)
    command = next(word for word in outline(write_report(folder)).words if word.startswith("airprune compare"))
    assert "--also 'patient: plan.scheme=optimal plan.deadline_s=0.00212345678'" in command


@pytest.mark.usefixtures("sketches")
def test_unfinished_runs_do_not_blur_the_estimates(comparison, tmp_path):
    folder = Path(shutil.copytree(comparison, tmp_path / "compared"))
    run = folder / "optimal-seed1"
    without_checksums(run)
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    (run / "records.jsonl").write_text("".join(lines[:3]))
    text = outline(write_report(folder)).text
    assert "unfinished: 3 of 4 runs" in text and "unfinished: 1 of 2 global rounds" in text and "1 of 2" in text


@pytest.mark.usefixtures("sketches")
def test_a_variant_without_records_is_listed(comparison, tmp_path):
    folder = Path(shutil.copytree(comparison, tmp_path / "compared"))
    for seed in (0, 1):
        without_checksums(folder / f"optimal-seed{seed}")
    (folder / "optimal-seed0" / "records.jsonl").write_text("")
    (folder / "optimal-seed1" / "records.jsonl").unlink()
    assert "optimal" in outline(write_report(folder)).text


@pytest.mark.usefixtures("sketches")
def test_folder_names_cannot_inject_nor_break_a_picture(comparison, tmp_path):
    folder = Path(shutil.copytree(comparison, tmp_path / "<b>compared"))
    for i, name in enumerate(("<svg onload=alert(1)>$\\frac$ 漢", "_$x^{$")):
        (folder / f"optimal-seed{i}").rename(folder / f"{name}-seed{i}")
    page = write_report(folder)
    assert_self_contained(page)
    assert not {"b", "svg"} & set(outline(page).tags)


# Reproductions


def test_a_reproduction_page_counts_verdicts_and_shows_everything(reproduction):
    page = outline(write_report(reproduction))
    for words in ("✓ 2 of 5", "◐ 1 of 5", "✗ 1 of 5", "? 1 of 5", "Claim number 3.", "reason 4", "ρ = 0.5"):
        assert words in page.text
    assert "30.0 ± 0.5" in page.text and "+0.1%" in page.text and "20 MHz" in page.text
    assert {"fig6.csv", "fig6.pdf", "fig6.png"} <= set(page.values("a", "href"))
    assert page.tags.count("img") == 1
    assert f"airprune reproduce fig6 --out {reproduction}-again" in page.text


def test_the_profile_is_told_from_a_run(reproduction):
    from airprune.studies.paper.profiles import PROFILES

    scenario = PROFILES["quick"].scenario("paper-converged", 0, {})
    run = reproduction / "runs" / "0123"
    run.mkdir(parents=True)
    (run / "scenario.toml").write_text(scenario.to_toml())
    (run / "environment.json").write_text('{"torch": "from-the-run"}')
    (reproduction / "fig4.csv").write_text("preset,series,seed\npaper-converged,a,0\npaper-converged,a,1\n")
    text = outline(write_report(reproduction)).text
    assert "Quick profile: 100 samples per device" in text and "from-the-run" in text
    assert f"airprune reproduce fig4 --quick --seeds 0-1 --out {reproduction}-again" in text


def test_claims_and_tables_cannot_inject(reproduction):
    claim = dict.fromkeys(("claim", "where", "text", "preset", "verdict", "reason"), HOSTILE)
    (reproduction / "claims.json").write_text(json.dumps([claim | {"numbers": {HOSTILE: [HOSTILE]}}, 7, None]))
    (reproduction / "table1.csv").write_text(f"a,{HOSTILE}\n{HOSTILE},1\n")
    (reproduction / "fig9<i>.png").write_bytes((reproduction / "fig6.png").read_bytes())
    page = write_report(reproduction)
    assert_self_contained(page)
    assert "i" not in outline(page).tags


@pytest.mark.parametrize("claims", ["", "{}", '[{"verdict": []}]', "[" * 100_000])
def test_broken_files_of_a_reproduction_leave_the_rest(reproduction, claims):
    (reproduction / "claims.json").write_text(claims)
    (reproduction / "table1.csv").write_text("a,b\n1,2,3,4\n")
    (reproduction / "table2.csv").write_bytes(b"\xff\xfe")
    (reproduction / "fig2.png").write_text("no picture")
    page = outline(write_report(reproduction))
    assert page.tags.count("img") == 1 and "fig2.png is not a readable PNG file" in page.text


# Errors and the command


@pytest.mark.parametrize("what", ["missing", "file", "empty"])
def test_what_is_no_such_folder_is_refused_in_a_sentence(what, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / what)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1


@pytest.mark.parametrize("out", ["records.jsonl", "folder.html", "no/such/report.html"])
def test_a_page_replaces_nothing_but_pages(finished, tmp_path, out):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(UsageError):
        write_report(finished, tmp_path / out)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]


@pytest.mark.usefixtures("blank_pictures")
def test_the_command_prints_the_path_of_the_page(finished, tmp_path, capsys):
    assert main(["report", str(finished), "--out", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'page.html'}\n"
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
