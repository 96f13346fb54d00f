"""The documentation says what is true: its snippets run, its links and tests exist."""

import contextlib
import importlib
import json
import re
import subprocess
import sys
import textwrap
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest
from benchmarks import evaluated
from tools import device_table, promise_table, related_table, scenario_table

import airprune as ap
from airprune.cli import main
from airprune.engines import ENGINES
from airprune.methods import Recipe
from airprune.methods.objectives import Objective
from airprune.methods.registration import registries
from airprune.runs.layout import RunFolder
from airprune.scenario import presets
from airprune.settings.toml_text import flat, word
from airprune.studies.conformance import check
from support import docs_blocks
from support.each import each
from support.tiny import blobs, tiny_scenario

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
SNIPPET = re.compile(r"<!-- tested -->\n *```python\n(.*?)\n *```(?:\n```text\n(.*?)\n```)?", re.DOTALL)


def snippets(page: str) -> list[tuple[str, str | None]]:
    return [(textwrap.dedent(code), output) for code, output in SNIPPET.findall((ROOT / page).read_text())]


def test_the_method_of_the_contributing_guide_keeps_every_rule(monkeypatch, unregistered):
    """Its component and its recipe, as if their lines stood in the lists."""
    ((code, _),) = snippets("CONTRIBUTING.md")
    module = types.ModuleType("contributed")
    monkeypatch.setitem(sys.modules, "contributed", module)
    exec(compile(code, "CONTRIBUTING.md", "exec"), module.__dict__)
    kinds = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Objective))
    ap.register(next(kind for kind in kinds if kind is not Objective))
    found = docs_blocks.blocks((ROOT / "CONTRIBUTING.md").read_text())
    (table,) = (tomllib.loads(block.content) for block in found if block.kind == "toml" and block.is_tested)
    for name, facts in table.items():
        ap.register(Recipe.of(name, facts))
    findings = [*check("dyn", kind="objectives", processes=False), *check("dyn", kind="methods", processes=False)]
    alpha = {"objective__name": "dyn", "objective__dyn__alpha": 0.1}
    assert last_loss(**alpha) != last_loss(**alpha | {"objective__dyn__alpha": 0.0})
    assert {finding.rule for finding in findings if not finding.kept} == set()
    assert {"fully open equals plain averaging", "a device that did not arrive leaves no trace"} <= {
        f.rule for f in findings
    }


def last_loss(**changes: Any) -> float:
    *_, last = ap.run(tiny_scenario(**changes), dataset=blobs())
    return float(last["train_loss"])


def test_the_files_that_an_addition_cost_exist_and_are_counted():
    table = (ROOT / "CONTRIBUTING.md").read_text().split("| what | files in src |")[1].split("\n\n")[0]
    counted = re.findall(r"^\| [^|]+ \| (\d+) \| (.+) \|$", table, re.MULTILINE)
    assert len(counted) >= 10
    for number, how in counted:
        paths = re.findall(r"`(\S+\.(?:py|toml))`", how)
        assert len(paths) == int(number), how
        assert all((ROOT / "src/airprune" / path).is_file() for path in paths), how


@pytest.mark.parametrize("page", [page.name for page in ROOT.glob("docs/*.md") if SNIPPET.search(page.read_text())])
def test_the_snippets_of_a_docs_page_run_in_order_and_print_what_they_say(page, tmp_path):
    """As a user would run them: in a script of its own, from an empty folder."""
    found = snippets(f"docs/{page}")
    script = tmp_path / "snippets.py"
    script.write_text("\n".join(code for code, _ in found))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == "".join(output + "\n" for _, output in found if output).splitlines()


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_every_code_block_is_run_or_read_or_has_a_reason_not_to(page):
    before = None
    for block in docs_blocks.blocks(page.read_text()):
        docs_blocks.check(block, before)
        before = block


def test_no_block_escapes_the_reader_of_blocks():
    for page in PAGES:
        text = page.read_text()
        assert len(docs_blocks.blocks(text)) == len(re.findall(r"^ *```\w+$", text, re.MULTILINE)), page.name


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("airprune fly", "no command"),
        ("airprune run smoke --fast", "--fast"),
        ("airprune run smoke plan.dead_line=1", "no key plan.dead_line"),
        ("scripts/fly", "no script"),
    ],
)
def test_a_command_that_does_not_exist_is_seen(command, complaint):
    with pytest.raises(AssertionError, match=complaint):
        docs_blocks.check_command(command)


LONG_PAGES = ("compare.md", "run.md")  # several small trainings: half a minute or more


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page.name, marks=pytest.mark.slow) if page.name in LONG_PAGES else page.name
        for page in sorted(ROOT.glob("docs/*.md"))
        if docs_blocks.steps(page.read_text())
    ],
)
def test_the_commands_of_a_page_work_one_after_the_other_and_print_what_it_shows(page, tmp_path):
    """As a user would run them: in a shell, from a folder with the fleet of the quickstart."""
    docs_blocks.follow((ROOT / "docs" / page).read_text(), tmp_path, timeout_s=300)


def test_a_command_that_fails_or_prints_something_else_is_seen(tmp_path):
    page = "```bash\n{}\n```\n```text\na … c\n```\n"
    for number, (command, is_right) in enumerate({"echo 'a b c'": True, "echo 'a b'": False, "false": False}.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        expected = contextlib.nullcontext() if is_right else pytest.raises(AssertionError)
        with expected:
            docs_blocks.follow(page.format(command), folder, timeout_s=10)


def test_a_block_is_run_unless_a_comment_gives_the_reason_not_to():
    page = "```bash\necho a\n```\n<!-- not run: needs a lab -->\n```bash\nssh lab\n```\n"
    assert [step.script for step in docs_blocks.steps(page)] == ["echo a\n"]
    with pytest.raises(AssertionError, match="without a reason"):
        docs_blocks.check(docs_blocks.Block("bash", "ssh lab\n", "not run", ""), None)
    smaller = docs_blocks.blocks("<!-- run with: seed=1 -->\n```bash\nairprune run smoke\nls\n```\n")
    assert docs_blocks.steps("<!-- run with: seed=1 -->\n```bash\nairprune run smoke\nls\n```\n")[0].script == (
        "airprune run smoke seed=1\nls"
    )
    assert smaller[0].is_run


def test_the_table_of_kinds_names_what_can_be_registered_and_where_it_is_chosen():
    table = (ROOT / "docs/your-own.md").read_text().split("| kind | class |")[1].split("\n\n")[0]
    rows = re.findall(r"\| `(airprune[.\w]+)` \| (?:`\[\w+\.NAME\]`|none) \| (.+) \|", table)
    kinds = {getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]) for name, _ in rows}
    assert kinds == set(registries())
    keys = set(flat(ap.Scenario().to_dict()))
    assert {key for _, chosen in rows for key in re.findall(r"`([\w.]+)`", chosen)} <= keys


def test_a_file_of_ones_own_serves_the_command_line(tmp_path, capsys, unregistered, blank_pictures):
    """The snippets' definitions, named with --import."""
    found = [code for code, _ in snippets("docs/your-own.md") if "class Smoothed" in code or "Recipe(" in code]
    kept = "\n".join(
        line for code in found for line in code.splitlines() if not line.startswith(("*_, last", "print("))
    )
    file = tmp_path / "my_methods.py"
    file.write_text(f"import airprune as ap\n{kept}\n")
    words = ["method=smooth-freezing", "aggregation.smoothed.keep=0.2", "rounds.global_rounds=1", "--engine", "serial"]
    assert main(["run", "smoke", *words, "--out", str(tmp_path / "run"), "--import", str(file)]) == 0
    assert "keep = 0.2" in (tmp_path / "run/scenario.toml").read_text()
    capsys.readouterr()


def test_a_model_and_data_of_ones_own_take_less_than_ten_lines():
    code, _ = snippets("docs/model-and-data.md")[0]
    assert len([line for line in code.splitlines() if line]) < 10


def tables() -> str:
    """Returns the pages with the tables of settings and records, one after the other."""
    return "".join(page.read_text() for page in scenario_table.PAGES)


def test_the_models_that_are_evaluated_both_ways_are_those_of_the_recorded_league():
    page = evaluated.PAGE.read_text()
    assert page == evaluated.up_to_date(page), "run: benchmarks/evaluated.py --table"
    recorded = {line.scenario: line.played.accuracy for line in evaluated.lines()}
    shared = [row for row in evaluated.read() if row["scenario"] in recorded]
    assert len(shared) == 5 * len(evaluated.METHODS)
    assert all(row["as_trained"] == recorded[row["scenario"]] for row in shared)


def test_every_key_of_a_scenario_is_explained_with_its_default():
    assert tables() == scenario_table.up_to_date(tables()), "run: .venv/bin/python tools/scenario_table.py"
    shown = dict(re.findall(r"^\| `([a-z_0-9.-]+)` \| `([^`]+)` \|", tables(), re.MULTILINE))
    for key, default in flat(ap.Scenario().to_dict()).items():
        assert word(shown[key]) == ("none" if default is None else default), key


def test_every_method_is_on_the_page_of_related_systems_with_its_honest_name():
    page = related_table.PAGE.read_text()
    assert page == related_table.up_to_date(page), "run: .venv/bin/python tools/related_table.py"
    assert all(f"| `{name}` | *{recipe.label}*:" in page for name, recipe in ap.METHODS.items())


def test_every_preset_and_every_engine_is_in_the_reference():
    page = tables()
    for name in presets():
        assert f"| `{name}` |" in page, name
    for name in ENGINES:
        assert f"| `{name}` |" in page, name


def test_every_field_of_a_record_is_explained_and_no_other():
    everything = {
        "diagnostics__gradients": True,
        "diagnostics__sub_models": True,
        "rounds__evaluate_every": "edge",
        "rounds__global_rounds": 1,
        "topology__name": "tree",
        "topology__tree__nodes": [1],
        "topology__tree__rounds": [1],
        "selection__name": "random-share",
        "selection__random-share__share": 0.5,
        "records__devices": 1,
    }
    tuned = {"plan__scheme": "air-budget", "compression__name": "ladder", "plan__deadline_s": "auto"}
    topologies = [{"topology__name": name, "rounds__global_rounds": 1} for name in ("lan", "fog", "tiers")]
    written: dict[str, set[str]] = {}
    diverges = {"train__learning_rate": 1e30}
    charged = {"radio__downlink": "broadcast"}
    work = {"plan__scheme": "work", "masking__name": "whole", "compression__name": "ladder", "stop__target": 0.0}
    blocks = {"method": "cocofl", "rounds__global_rounds": 1}
    hidden = {"method": "secure-sums", "rounds__global_rounds": 1}
    on_air = {"method": "over-the-air", "rounds__global_rounds": 1}
    exploding = {"attack__kind": "scaled", "attack__strength": 1e20, "aggregation__rollback": 10.0}
    alone = {**exploding, "attack__share": 0.25, "network__num_edges": 4, "network__devices_per_edge": 1}
    below = {"topology__name": "tree", "topology__tree__nodes": [1], "topology__tree__rounds": [1]}
    hostile = (exploding, alone, {**alone, **below})  # which explode at an edge, at the cloud, at a node below it
    for changes in ({**everything, **tuned, **charged}, *topologies, work, blocks, hidden, on_air, diverges, *hostile):
        with contextlib.suppress(ap.Diverged):
            for record in ap.run(tiny_scenario(**changes), dataset=blobs()):
                written.setdefault(record["kind"], set()).update(record)
    page = tables()
    never: dict[str, set[str]] = {"edge": set(), "node": set(), "global": {"asked"}}
    for kind, unwritten in never.items():  # fields that can be read, though no run writes them yet
        table = page.split(f"<!-- fields: {kind}_record -->")[1].split("<!-- end -->")[0]
        explained = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
        assert explained - unwritten == written[kind], kind


def test_every_file_of_a_run_folder_is_explained(tmp_path):
    for _ in ap.run(tiny_scenario(rounds__global_rounds=1), out=tmp_path, dataset=blobs()):
        pass
    page = (ROOT / "docs/run-folder.md").read_text()
    assert RunFolder(tmp_path).is_finished
    for file in (file for file in tmp_path.rglob("*") if file.is_file() and not file.name.startswith(".")):
        assert f"| `{file.relative_to(tmp_path)}` |" in page


@each("page", PAGES)
def test_every_relative_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@each("page", PAGES)
def test_every_test_that_a_page_names_exists(page):
    text = page.read_text()
    for file, test in re.findall(r"`(test_\w+)\.py(?:::(\w+))?`", text):
        (home,) = (ROOT / "tests").rglob(f"{file}.py")
        assert f"def {test}" in home.read_text(), (file, test)
    everything = "".join(file.read_text() for file in ROOT.glob("tests/*/test_*.py"))
    for test in re.findall(r"[`:](test_(?!accuracy_)\w+_\w+_\w+)`", text):  # fields such as test_loss are shorter
        assert f"def {test}(" in everything, test


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text().split()) < 900


def test_the_numbers_of_the_promise_follow_from_the_recorded_league():
    if "purpose" not in json.loads(promise_table.LEDGER.read_text().splitlines()[0]):
        pytest.skip("the recorded league has the earlier form")
    page = promise_table.PAGE.read_text()
    assert page == promise_table.up_to_date(page, promise_table.results()), "run: tools/promise_table.py"


def test_the_tables_on_device_clocks_follow_from_the_recorded_league():
    found = device_table.standings(ROOT / "build/no-league", device_table.read_ledger(device_table.LEDGER))
    page = device_table.PAGE.read_text()
    assert page == device_table.updated(page, found), "run: tools/device_table.py"
