"""A user's components, from a script, a file or a package, are seen alike by every command, page and worker."""

import hashlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import safetensors.numpy
from pydantic import Field, field_validator

import airprune as ap
from airprune.cli import main
from airprune.components.component import paper_shape
from airprune.components.registry import Registry
from airprune.errors import InvalidValue, UnknownName, UsageError
from airprune.methods import Recipe, registration
from airprune.methods.masking import MASKINGS
from airprune.methods.masking.base import Masking, SubModel
from airprune.methods.masking.probe import Probe
from airprune.methods.registration import import_file, register, registries
from airprune.methods.selection import SELECTIONS
from airprune.runs.layout import RunFolder
from airprune.studies.campaign.whole_run import WholeRun
from airprune.web.starting.form import form
from support.processes import PATIENCE_S, wait_for
from support.tiny import TINY_TOML, final_bytes, tiny_file

pytest_plugins = ["support.browser"]
pytestmark = pytest.mark.usefixtures("unregistered", "blank_pictures", "warm_workers")

OWN = Path(__file__).parents[1] / "support" / "own_methods.py"
SERIAL = {"method": "own-recipe", "engine.name": "serial"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """With a scenario, a file of components, and `serial`: a finished run of them in one process, made once."""
    place = tmp_path_factory.mktemp("own")
    tiny_file(place)
    (place / "own_methods.py").write_bytes(OWN.read_bytes())
    arguments = ["--engine", "serial", "--import", place / "own_methods.py", "--out", place / "serial"]
    assert main([str(word) for word in ("run", place / "tiny.toml", "method=own-recipe", *arguments)]) == 0
    return place


def own_file(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def run_script(*arguments: object, **environment: str) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done


def weights(folder: Path) -> dict[str, bytes]:
    arrays = safetensors.numpy.load_file(folder / "final.safetensors")
    return {name: array.tobytes() for name, array in arrays.items()}


def named(name, **values):
    """The paper's masking under another name."""
    return type("Mine", (Probe,), {"name": name, **values})


NAMESAKE = """\
import airprune as ap
from airprune.methods.masking.probe import Probe

ap.register(type("Namesake", (Probe,), {{"name": {name!r}}}))
"""


# The same bytes wherever the work is done


def test_two_worker_processes_end_in_the_bytes_of_one_process(folder, tmp_path, command):
    arguments = ["--engine", "processes", "--workers", 2, "--import", folder / "own_methods.py"]
    assert command("run", folder / "tiny.toml", "method=own-recipe", "--out", tmp_path / "two", *arguments)[0] == 0
    assert final_bytes(tmp_path / "two") == final_bytes(folder / "serial")


def test_memory_of_an_own_masking_changes_its_masks(folder, tmp_path):
    import_file(folder / "own_methods.py")
    scenario = ap.Scenario.load(folder / "tiny.toml").with_values(SERIAL)
    *_, last = ap.run(scenario.with_("masking.fading.decay", 0.0), out=tmp_path / "forgetful")
    assert last["mean_pruning_ratio"] > 0
    assert weights(tmp_path / "forgetful") != weights(folder / "serial")
    assert list((folder / "serial" / "memory").iterdir())


@pytest.mark.parametrize("engine", ["processes", "dask"])
def test_components_and_options_of_a_script_travel_to_workers(folder, tmp_path, engine):
    if engine == "dask":
        pytest.importorskip("distributed")
    run_script(OWN, folder / "tiny.toml", engine, tmp_path / "run")
    assert weights(tmp_path / "run") == weights(folder / "serial")
    assert (tmp_path / "run" / "records.jsonl").read_bytes() == (folder / "serial" / "records.jsonl").read_bytes()
    noted = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert "masking fading" in noted["registered_by_script"] and "imported" not in noted


def test_a_sweep_takes_components_of_a_file_to_its_workers(folder, tmp_path, command):
    words = ["method=own-recipe", "selection.name=even,everyone", "rounds.global_rounds=1"]
    options = ["--out", tmp_path / "sweep", "--workers", 2, "--import", folder / "own_methods.py", "--json"]
    status, out, err = command("sweep", folder / "tiny.toml", *words, *options)
    assert status == 0, err
    assert [row["seeds"] for row in json.loads(out)["rows"]] == [[0], [0]]


def test_a_sweep_hands_its_runs_out_as_text(folder):
    """A Dask scheduler unpickles tasks, and knows nobody's options."""
    import_file(folder / "own_methods.py")
    scenario = ap.Scenario.load(folder / "tiny.toml").with_values(SERIAL)
    task = WholeRun(folder=folder, toml=scenario.to_toml())
    assert b"airprune_import" not in pickle.dumps(task)
    assert task.scenario.hash == scenario.hash


def test_compare_and_report_know_a_recipe_of_a_file(folder, tmp_path, command):
    given = ["--import", folder / "own_methods.py"]
    options = ["--methods", "own-recipe", "--engine", "serial", "--out", tmp_path / "both", "--json"]
    status, out, _ = command("compare", folder / "tiny.toml", "rounds.global_rounds=1", *options, *given)
    assert status == 0 and list(json.loads(out)) == ["own-recipe"]
    status, out, err = command("report", folder / "serial", "--out", tmp_path / "page.html", *given)
    page = (tmp_path / "page.html").read_text()
    assert status == 0 and err == "" and "masking.fading.decay" in page
    assert f"--import {folder / 'own_methods.py'}" in page


def test_an_importance_and_a_selection_of_a_file_run(folder):
    import_file(folder / "own_methods.py")
    changes = {"masking.probe.importance": "saliency", "selection.name": "even", "engine.name": "serial"}
    record = next(ap.run(ap.Scenario.load(folder / "tiny.toml").with_values(changes)))
    assert record["device"] == [0, 2]


# Options


def test_options_of_an_own_component_have_defaults_and_a_table(folder):
    import_file(folder / "own_methods.py")
    plain = ap.Scenario.from_text('[masking]\nname = "fading"')
    assert plain.masking.fading.decay == 0.5 and "[masking.fading]" in plain.to_toml()
    given = ap.Scenario.from_text('[masking]\nname = "fading"\n[masking.fading]\ndecay = 0.25')
    assert given.masking.fading.decay == 0.25 and given.hash != plain.hash
    assert ap.Scenario.from_text(given.to_toml()) == given


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("decay=2", "Scenario.masking.fading.decay must be in [0, 1], got 2. Example: decay = 0.5"),
        ("dekay=1", "Scenario.masking.fading.dekay is unknown; did you mean 'decay'? known: decay, label."),
        ("label=3", 'Scenario.masking.fading.label must be text, got 3. Example: label = "x"'),
    ],
)
def test_a_wrong_option_of_an_own_component_is_one_sentence(folder, command, words, sentence):
    given = ["masking.name=fading", f"masking.fading.{words}", "--import", folder / "own_methods.py"]
    assert command("run", folder / "tiny.toml", *given) == (2, "", f"error: {sentence}\n")


def test_components_that_share_options_are_told_apart_in_messages():
    for name in ("random-share", "best-channel", "random-share"):
        with pytest.raises(InvalidValue, match=f"^Scenario.selection.{name}.share must be"):
            ap.Scenario().with_values({"selection.name": name, f"selection.{name}.share": 2.0})


def test_options_with_a_required_field_or_a_validator_complain_in_one_sentence():
    class Odd(Probe):
        name = "odd"

        level: int
        table: dict = Field(default={})

        @field_validator("level")
        @classmethod
        def _odd(cls, level):
            if level % 2 == 0:
                raise ValueError("even levels are of no use")
            return level

    register(Odd)
    for table, words in (
        ({}, "Scenario.masking.odd.level must be given"),
        ({"level": 2}, "Scenario.masking.odd.level must be valid, got 2: even levels are of no use"),
        ({"level": "x"}, "Scenario.masking.odd.level must be a whole number, got 'x'"),
        ({"level": 1, "table": 3}, "Scenario.masking.odd.table must be a table, got 3"),
    ):
        with pytest.raises(UsageError, match=re.escape(words)):
            ap.Scenario().with_values({"masking": {"name": "odd", "odd": table}})


# Registering


@pytest.mark.parametrize("name", ["", "a.b", "two words", "name", "x" * 61, "probe"])
def test_a_name_that_cannot_be_used_is_refused(name):
    known = list(MASKINGS)
    with pytest.raises(InvalidValue, match="The name of a component of masking must"):
        register(named(name))
    assert list(MASKINGS) == known


def test_what_is_no_component_is_refused():
    with pytest.raises(InvalidValue, match=r"^register must be given one of Channel, .*Recipe, got int"):
        register(3)
    with pytest.raises(UsageError, match=r"^Masking is a class to derive from, not a value with functions"):
        register(Masking(name="mine", summary="", choose=lambda view: SubModel()))
    with pytest.raises(InvalidValue, match=r"^register must be given the class Probe, got a value of it"):
        register(Probe())


def test_a_class_without_a_method_that_its_kind_must_have_is_refused():
    unfinished = type("Unfinished", (Masking,), {"name": "unfinished"})
    for attempt in (register, lambda kind: kind()):
        with pytest.raises(UsageError, match=r"^Unfinished 'unfinished' must define choose; "):
            attempt(unfinished)
    assert "unfinished" not in MASKINGS


def test_no_option_is_called_like_what_a_class_says_of_itself():
    with pytest.raises(UsageError, match=r"^Scenario\.masking\.probe\.summary is unknown; known: "):
        ap.Scenario().with_values({"masking.probe.summary": "mine"})


def test_the_same_name_again_replaces_what_a_script_registered():
    for summary in ("first", "second"):
        assert register(named("mine", summary=summary)) is MASKINGS["mine"]
    assert MASKINGS["mine"].summary == "second" and list(MASKINGS).count("mine") == 1


# --import


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\ny = = 2\n", "mine.py, line 2, cannot be imported: SyntaxError: invalid syntax.\n"),
        ("x = 1\n\nraise ValueError('two\\nlines')", "line 3, cannot be imported: ValueError: two lines.\n"),
        ("import nosuchmodule", "ModuleNotFoundError: No module named 'nosuchmodule'.\n"),
        ("import sys; sys.exit(3)", "SystemExit: it leaves with status 3.\n"),
        ("\x00", "cannot be imported"),
        (
            "from airprune.masking.base import Masking",
            "line 1, cannot be imported: ModuleNotFoundError: No module named 'airprune.masking'; "
            "it is airprune.methods.masking here, see docs/your-own.md.\n",
        ),
        ("import airprune.nosuchmodule", "No module named 'airprune.nosuchmodule'; see docs/your-own.md.\n"),
        ("from airprune.methods.masking.base import Options", "see docs/your-own.md.\n"),
        (
            "from airprune.methods.masking import Masking\nMasking(name='mine', choose=print)",
            "line 2, cannot be imported: Masking is a class to derive from, not a value with functions",
        ),
        (
            "from airprune.methods.objectives import Objective\nObjective(name='mine', adjust=print)",
            "line 2, cannot be imported: Objective is a class to derive from, not a value with functions",
        ),
        (NAMESAKE.format(name="probe"), "line 4, cannot be imported: The name of a component of masking must not be"),
    ],
)
def test_a_file_that_cannot_be_imported_is_one_sentence(tmp_path, command, text, words):
    status, out, err = command("schemes", "--import", own_file(tmp_path, text))
    assert (status, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1 and words in err


def test_import_wants_a_readable_file(tmp_path, command):
    for words, got in (
        (["--import", "nowhere.py"], "'nowhere.py' (No such file or directory)"),
        (["--import", tmp_path], f"'{tmp_path}' (Is a directory)"),
        (["--import"], "nothing"),
        (["--import="], "nothing"),
        (["--import", "--json"], "'--json'"),
    ):
        status, out, err = command("schemes", *words)
        assert (status, out) == (2, "") and f"got {got}." in err and err.startswith("error: --import must ")


def test_a_file_that_fails_leaves_nothing_registered(tmp_path):
    path = own_file(tmp_path, NAMESAKE.format(name="mine") + "raise RuntimeError\n")
    with pytest.raises(UsageError, match=r"line 5, cannot be imported: RuntimeError\.$"):
        import_file(path)
    assert "mine" not in MASKINGS and registration.setup_payload() is None


def test_a_file_that_registers_nothing_is_noted(tmp_path, command):
    status, out, err = command("schemes", "--import", own_file(tmp_path, "x = 1\n"))
    assert status == 0 and "optimal" in out
    assert err.startswith("note: ") and "registers nothing" in err


def test_a_file_may_be_given_twice_and_another_may_not_take_its_names(tmp_path, command):
    (tmp_path / "sub").mkdir()
    mine = own_file(tmp_path, NAMESAKE.format(name="mine"))
    again = tmp_path / "sub" / ".." / "mine.py"
    assert command("schemes", "--import", mine, f"--import={again}")[0] == 0
    other = own_file(tmp_path / "sub", NAMESAKE.format(name="mine") + "# another\n")
    status, _, err = command("schemes", "--import", other)
    assert status == 2
    assert err == f"error: {other} registers masking 'mine', which {mine} has registered already; rename one.\n"
    assert registration.origin_of("masking", "mine") == str(mine)


def test_files_of_one_name_in_two_folders_are_both_known(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        import_file(own_file(tmp_path / name, NAMESAKE.format(name=name)))
    assert {"one", "two"} <= set(MASKINGS) and len({file.module for file in registration.imported_files()}) == 2


# What a run folder knows of files


def test_the_environment_notes_files_and_what_they_register(folder):
    noted = json.loads((folder / "serial" / "environment.json").read_text())["imported"]
    path = folder / "own_methods.py"
    assert [(file["path"], file["sha256"]) for file in noted] == [
        (str(path), hashlib.sha256(path.read_bytes()).hexdigest())
    ]
    assert "masking fading" in noted[0]["registers"] and "methods own-recipe" in noted[0]["registers"]


def test_a_run_is_resumed_with_the_file_it_was_started_with(folder, tmp_path, command):
    edited = own_file(tmp_path, OWN.read_text() + "\n# edited\n", "own_methods.py")
    resume = ["run", folder / "serial" / "scenario.toml", "--out", folder / "serial", "--resume", "--engine", "serial"]
    status, _, err = command(*resume, "--import", edited)
    assert status == 2 and err == (
        f"error: {folder / 'serial'} was started with another own_methods.py; resume with that one or choose another "
        "folder.\n"
    )


def test_a_renamed_file_is_the_same_file(folder, tmp_path, command):
    renamed = own_file(tmp_path, OWN.read_text(), "renamed.py")
    resume = ["run", folder / "serial" / "scenario.toml", "--out", folder / "serial", "--resume", "--engine", "serial"]
    assert command(*resume, "--json", "--import", renamed)[0] == 0


def test_an_edited_file_makes_a_finished_run_of_it_unfinished_and_leaves_others_alone(folder, tmp_path):
    edited = own_file(tmp_path, OWN.read_text() + "\n# edited\n", "own_methods.py")
    import_file(edited)
    assert not RunFolder(folder / "serial").has_finished(RunFolder(folder / "serial").scenario())
    plain = ap.Scenario.load(folder / "tiny.toml").with_values({"engine.name": "serial", "rounds.global_rounds": 1})
    for _ in ap.run(plain, out=tmp_path / "plain"):
        pass
    assert RunFolder(tmp_path / "plain").final_provenance().imports == ""


# Where the component is not registered


def test_a_report_says_how_to_read_a_run_of_unknown_components(folder, tmp_path, command):
    status, _, err = command("report", folder / "serial", "--out", tmp_path / "page.html")
    assert status == 0 and "Traceback" not in err
    assert err.startswith("note: Scenario.method must be one of those known here") and "--import FILE" in err
    page = (tmp_path / "page.html").read_text()
    assert "--import FILE" in page and f"--import {folder / 'own_methods.py'}" in page


def test_resuming_a_run_of_unknown_components_says_how(folder, command):
    status, out, err = command("run", folder / "serial" / "scenario.toml", "--out", folder / "serial", "--resume")
    assert (status, out) == (2, "") and err.count("\n") == 1 and "and what --import FILE registers." in err


def test_the_page_lists_other_runs_beside_one_of_unknown_components(serve, folder, tmp_path):
    shutil.copytree(folder / "serial", tmp_path / "unknown")
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / "scenario.toml").write_text(TINY_TOML)
    server = serve(runs_dir=tmp_path)
    rows = {row["name"]: row for row in server.client.get("/api/runs").json()["runs"]}
    assert rows["known"]["scheme"] == "optimal" and rows["known"]["trouble"] == ""
    assert rows["unknown"]["scheme"] is None and "--import FILE" in rows["unknown"]["trouble"]
    assert rows["unknown"]["rounds_done"] == 2
    assert server.client.get("/runs?run=unknown").status_code == 200
    differences = server.client.get("/api/runs/differences?run=unknown&run=known").json()
    assert differences["unreadable"] == ["unknown"]


# The page


def test_the_form_offers_own_components_and_their_options(folder):
    before = {field["key"] for section in form()["sections"] for field in section["fields"]}
    import_file(folder / "own_methods.py")
    fields = {field["key"]: field for section in form()["sections"] for field in section["fields"]}
    shrunk = {"compression.shrunk.factor", "backhaul.shrunk.factor"}
    assert set(fields) - before == {"masking.fading.decay", "masking.fading.label", *shrunk}
    assert fields["masking.fading.decay"]["about"] == "of the remembered scores, per round"
    for key, name in (
        ("method", "own-recipe"),
        ("masking.name", "fading"),
        ("selection.name", "even"),
        ("masking.probe.importance", "saliency"),
    ):
        assert name in fields[key]["names"]


@pytest.mark.slow
def test_the_page_starts_reads_and_resumes_runs_of_a_file(serve, folder, tmp_path):
    import_file(folder / "own_methods.py")
    server = serve(runs_dir=tmp_path, allow_run=True)
    toml = (folder / "serial" / "scenario.toml").read_text()
    checked = server.client.post("/api/scenario/check", json={"toml": toml}, headers=server.with_token).json()
    assert checked["command"].endswith(f"--import {folder / 'own_methods.py'}")
    body = {"toml": toml, "name": "mine"}
    assert server.client.post("/api/work/start", json=body, headers=server.with_token).status_code == 200
    wait_for(lambda: server.client.get("/api/work").json()["state"] == "ended", "the run should end")
    assert server.client.get("/api/work").json()["exit_status"] == 0, server.client.get("/api/work").json()["said"]
    assert final_bytes(tmp_path / "mine") == final_bytes(folder / "serial")
    (row,) = server.client.get("/api/runs").json()["runs"]
    assert row["scheme"] == "optimal" and row["trouble"] == ""

    records = ap.run(RunFolder(folder / "serial").scenario(), out=tmp_path / "stopped")
    next(records)
    records.close()
    assert server.client.post("/api/work/resume", json={"run": "stopped"}, headers=server.with_token).is_success
    wait_for(lambda: server.client.get("/api/work").json()["state"] == "ended", "the run should end")
    assert final_bytes(tmp_path / "stopped") == final_bytes(folder / "serial")


# Packages


PACKAGE = """\
from airprune.methods.masking.probe import Probe

class Packed(Probe):
    name = "packed"
    summary = "of a package"
"""
ENTRY_POINTS = """\
[airprune.masking]
packed = small_package:Packed
broken = small_package.nowhere:Packed
[airprune.selection]
misnamed = small_package:Packed
"""


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A package as an installer leaves it."""
    site = tmp_path / "site"
    (site / "small_package-1.0.dist-info").mkdir(parents=True)
    (site / "small_package.py").write_text(PACKAGE)
    (site / "small_package-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: small-package\n")
    (site / "small_package-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(site)
    for registry in (MASKINGS, SELECTIONS):
        registry.__dict__.pop("_entry_points", None)
    yield site
    monkeypatch.undo()
    for registry in (MASKINGS, SELECTIONS):
        registry.__dict__.pop("_entry_points", None)
        registry._loaded.pop("packed", None)
    sys.modules.pop("small_package", None)


def test_an_installed_package_offers_components(package, command):
    assert MASKINGS["packed"].summary == "of a package" and issubclass(MASKINGS["packed"], Masking)
    status, out, _ = command("methods", "packed", "--json")
    assert status == 0 and json.loads(out)["registered_by"] == "small-package"
    with pytest.raises(InvalidValue, match="must not be taken, got 'packed'"):
        register(named("packed"))
    assert ap.Scenario().with_("masking.name", "packed").masking.name == "packed"


def test_a_component_of_a_package_is_known_to_worker_processes(package, tmp_path):
    code = (
        "import sys, airprune as ap\n"
        "changes = {'masking.name': 'packed', 'engine.name': 'processes', 'engine.workers': 1}\n"
        "scenario = ap.Scenario.load(sys.argv[1]).with_values(changes)\n"
        "print(next(ap.run(scenario))['kind'])\n"
    )
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    done = run_script("-c", code, tiny_file(tmp_path, global_rounds=1), PYTHONPATH=path)
    assert done.stdout == "edge\n"


def test_a_broken_package_is_named_and_harms_only_who_asks_for_it(package, command):
    assert ap.Scenario().with_("masking.name", "frozen").masking.name == "frozen"
    with pytest.raises(UsageError, match=r"^small-package offers masking 'broken' as small_package.nowhere:Packed, "):
        ap.Scenario().with_("masking.name", "broken")
    with pytest.raises(UsageError, match="that is no component of this name; repair or uninstall it"):
        ap.Scenario().with_("selection.name", "misnamed")


# airprune methods, ap.METHODS


def test_methods_are_listed_with_those_of_the_user_last(folder, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    status, out, _ = command("methods", "--import", folder / "own_methods.py")
    assert status == 0
    own = out.partition("Registered by you\n")[2].split("\n\n")[0]
    listed = [line.split()[0] for line in out.splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(ap.METHODS) and own.split()[0] == listed[-1] == list(ap.METHODS)[-1]
    assert max(map(len, out.splitlines())) <= 100


def test_methods_name_tells_an_own_component_in_full(folder, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    path = folder / "own_methods.py"
    status, out, _ = command("methods", "fading", "--import", path)
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    assert status == 0 and lines == [
        ["kind", "masking"],
        ["name", "fading"],
        ["summary", "each device ranks by the gradients it remembers"],
        ["registered by", str(path)],
        ["options", "decay = 0.5", "of the remembered scores, per round"],
        ['label = "x"'],
        ["state", "fading.scores: 100,672 bytes per device, for the paper's CNN"],
    ]


def test_methods_name_tells_a_method_and_its_namesake(command):
    status, out, _ = command("methods", "sign", "--json")
    assert status == 0 and [entry["kind"] for entry in json.loads(out)] == ["method", "compression"]
    status, out, _ = command("methods", "topk")
    told = [" ".join(line.split()) for line in out.splitlines()]
    assert status == 0 and "compression.top-k.memory = false" in told
    assert told[-2:] == ["state none", "extra cost bits per weight as the deadline allows"]
    assert "None" not in out


def test_methods_lists_components_of_every_kind(folder, command):
    status, out, _ = command("methods", "--components", "--json", "--import", folder / "own_methods.py")
    found = {(entry["kind"], entry["name"]) for entry in json.loads(out)}
    assert status == 0 and {("masking", "fading"), ("importance", "saliency"), ("selection", "even")} <= found
    assert {kind for kind, _ in found} == {r.kind for r in registries().values()} - {"methods", "kernels"}


def test_an_unknown_method_or_component_names_the_nearest(command):
    status, out, err = command("methods", "top-kk")
    assert (status, out) == (2, "") and "did you mean 'top-k'?" in err and err.count("\n") == 1


def test_a_check_of_a_component_that_raises_says_where(tmp_path, command):
    text = NAMESAKE.format(name="mine").replace("}", ', "choose": lambda self, view: 1 / 0}')
    status, out, err = command("methods", "--check", "mine", "--import", own_file(tmp_path, text), "--json")
    (finding,) = json.loads(out)
    assert status == 1 and not finding["kept"] and "ZeroDivisionError" in finding["seen"]
    assert "mine breaks 1 of 1 rules." in err


def test_a_recipe_of_unknown_components_says_which_method_is_wrong():
    recipe = register(Recipe(name="hollow", summary="", settings={"masking.name": "nosuch"}))
    with pytest.raises(UsageError, match=r"^Method 'hollow' cannot be used: Scenario.masking.name 'nosuch' is unknown"):
        recipe.slots(paper_shape())


def test_methods_is_a_mapping_of_names_to_recipes():
    assert isinstance(ap.METHODS, Mapping) and isinstance(ap.METHODS, Registry)
    for name, recipe in ap.METHODS.items():
        assert recipe.name == name and recipe.summary and recipe.label
        assert recipe.components["masking.name"] in MASKINGS
    assert ap.METHODS["mem-sgd"].source
    (slot,) = ap.METHODS["mem-sgd"].slots(paper_shape())
    assert slot.owner == "device" and slot.num_bytes(paper_shape()) == 4 * paper_shape().num_weights
    assert ap.METHODS["hierfavg"].slots(paper_shape()) == ()
    with pytest.raises(UnknownName, match="did you mean 'fedprox'"):
        ap.METHODS["fedprx"]


def test_a_name_that_misleads_is_refused_with_the_one_that_is_meant_also_in_a_run_folder(tmp_path, command):
    sentence = "Scenario.method 'adaptive' is not the name of a method; write adaptive-bits or adaptive-work."
    with pytest.raises(UnknownName) as refused:
        ap.Scenario.preset("smoke").with_("method", "adaptive")
    assert str(refused.value) == sentence
    folder = tmp_path / "run"
    changes = ["method=adaptive-bits", "rounds.global_rounds=1", "engine.name=serial", "data.test_samples=50"]
    assert command("run", "smoke", *changes, "--out", folder)[0] == 0
    kept = folder / "scenario.toml"
    kept.write_text(kept.read_text().replace('"adaptive-bits"', '"adaptive"'))
    before = kept.read_bytes()
    status, out, err = command("run", "smoke", *changes, "--out", folder, "--resume")
    assert (status, out) == (2, "") and sentence in err and kept.read_bytes() == before
