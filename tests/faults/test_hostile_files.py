"""Folders and files of others: nothing in them is followed, waited for, read without bound or told in messages.

Whatever stands in a file's place, readers answer within seconds, by what they could read or by one of our errors, and
no word of a file that is not ours comes back.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

import airprune as ap
from airprune import files
from airprune.cli import main
from airprune.data import cifar10, mnist
from airprune.data.idx import BadFile
from airprune.errors import AirpruneError, UsageError
from airprune.results.report.markup import image
from airprune.results.report.reading import read_run, scenario_or_trouble, seed_runs, troubles, variant_order
from airprune.runs.layout import RunFolder
from airprune.runs.lines import lines_in
from airprune.scenario import Scenario
from airprune.studies.campaign.whole_run import WholeRun
from airprune.studies.comparison import Variant
from airprune.studies.league.ledger import read_ledger
from airprune.studies.paper.report import any_run, claims_in, rows_of
from airprune.web.results import league as league_views
from airprune.web.results import reproduction as reproduction_views
from airprune.web.runs import groups, reached, views
from airprune.web.runs.listing import Listing
from airprune.wireless.device_speed.profile import clock_keys
from support.web_runs import make_run, tiny

SECRET = "hunter2-4711"
PATIENCE_S = 20

# What is put in a file's place --------------------------------------------------------------------------------------


def link_to_secret(path: Path) -> None:
    path.symlink_to(path.parents[1] / "secret")


def link_to_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_in_a_circle(path: Path) -> None:
    path.symlink_to(path.name)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("a-pipe"))
    path.symlink_to("a-pipe")


def folder(path: Path) -> None:
    path.mkdir()


def listening_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def terabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


def text(path: Path) -> None:
    path.write_text(f"root:{SECRET}:0:0\n= {SECRET}\n")


def bytes_of_no_kind(path: Path) -> None:
    path.write_bytes(b"\xff\xfe" + SECRET.encode() + bytes(range(256)) * 4)


def deep_brackets(path: Path) -> None:
    path.write_text("[" * 50_000 + f'"{SECRET}"')


KINDS = (
    link_to_secret, link_to_endless, link_in_a_circle, pipe, link_to_pipe, folder, listening_socket, terabyte, text,
    bytes_of_no_kind, deep_brackets,
)  # fmt: skip

# Who reads it -------------------------------------------------------------------------------------------------------


def as_report(run: Path) -> object:
    found = read_run(run)
    return found.records, found.environment, found.trouble, troubles(run), seed_runs(run.parent)


def as_resume(run: Path) -> object:
    at = RunFolder(run)
    return at.records(), at.environment(), at.has_finished(tiny()), at.kernel, at.check_scenario(tiny())


def as_carried(run: Path) -> object:
    """Names alone: what lies in the folder itself goes with it."""
    return sorted(WholeRun(folder=run, toml=tiny().to_toml(), carries=True).loaded().files)


def as_web(run: Path) -> object:
    root = run.parent
    rows = Listing(root).latest()
    views.curve(root, run.name), views.differing(root, [run.name])
    return rows, groups.groups(root, [run.name], "each", 0.5), reached.reached(root, [run.name], 0.5)


def as_comparison(run: Path) -> object:
    return variant_order(run), seed_runs(run)


def as_reproduction(folder: Path) -> object:
    shown = [claims_in(folder), rows_of(folder / "table2.csv"), image(folder / "fig6.png", alt="", caption="")]
    (folder / "claims.json").exists() and shown.append(reproduction_views.view(folder.parent, folder.name))
    return shown, any_run(folder / "runs")


def as_league(folder: Path) -> object:
    return league_views.view(folder.parent, folder.name)


def as_ledger(folder: Path) -> object:
    return read_ledger(folder / "played.jsonl")


def as_table(folder: Path) -> object:
    scenario = tiny().with_("network.table", str(folder / "fleet.csv"))
    with pytest.raises(AirpruneError) as refused:
        scenario.build_network()
    assert SECRET not in str(refused.value)
    return scenario.hash


def as_profile(folder: Path) -> object:
    return clock_keys(str(folder / "profile.json"))


def as_mnist(folder: Path) -> object:
    return read_data(mnist.SOURCE, folder)


def as_cifar(folder: Path) -> object:
    return read_data(cifar10.SOURCE, folder)


def read_data(source, folder: Path) -> object:
    read = source.local(folder)
    return None if read is None else read()


def as_scenario(folder: Path) -> object:
    return Scenario.load(folder / "mine.toml")


MNIST = [file.name for file in mnist.SOURCE.files]
PICKLES = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]
READERS = [
    *((as_report, name) for name in ("scenario.toml", "records.jsonl", "environment.json", "final.safetensors")),
    (as_report, "checkpoint/state.safetensors"),
    *((as_resume, name) for name in ("scenario.toml", "records.jsonl", "environment.json", "final.safetensors")),
    (as_resume, "checkpoint/state.safetensors"),
    *((as_carried, name) for name in ("scenario.toml", "records.jsonl", "memory")),
    *((as_web, name) for name in ("scenario.toml", "records.jsonl", "environment.json", "final.safetensors", ".lock")),
    *((as_comparison, name) for name in ("comparison.json", "sweep.json")),
    *((as_reproduction, name) for name in ("claims.json", "table2.csv", "fig6.png", "runs")),
    (as_league, "league.json"),
    (as_ledger, "played.jsonl"),
    (as_table, "fleet.csv"),
    (as_profile, "profile.json"),
    (as_mnist, MNIST[0]),
    (as_cifar, PICKLES[0]),
]
NUM_CASES = len(READERS) * len(KINDS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("finished") / "optimal-seed0", rounds__global_rounds=1)


@pytest.fixture
def in_time():
    """Ends a test that waits."""

    def late(*_):
        raise AssertionError(f"no answer within {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def prepared(finished: Path, place: Path) -> Path:
    """A run folder with the files of every other kind of folder beside it."""
    folder = place / "run-seed0"
    shutil.copytree(finished, folder)
    (place / "secret").write_text(f'name = "{SECRET}"\n{SECRET},1\n')
    for name in (*MNIST, *PICKLES):
        (folder / name).touch()
    return folder


def told(read, folder: Path) -> str:
    """All that a reader lets out, as text."""
    from starlette.exceptions import HTTPException

    try:
        return repr(read(folder))
    except (AirpruneError, BadFile) as error:
        return str(error)
    except HTTPException as error:
        return str(error.detail)


@pytest.mark.parametrize(("read", "name"), READERS, ids=lambda part: getattr(part, "__name__", part))
def test_whatever_stands_in_a_files_place_is_answered_and_not_told(read, name, finished, tmp_path, in_time):
    for number, put in enumerate(KINDS):
        place = tmp_path / str(number)
        place.mkdir()
        path = prepared(finished, place) / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        put(path)
        said = told(read, place / "run-seed0")
        if (name, put) != ("table2.csv", text):  # which a report shows as the table that it is
            assert SECRET not in said, (put.__name__, said[:500])
        shutil.rmtree(place)


def test_there_are_as_many_cases_as_the_documentation_says():
    page = (Path(__file__).parents[2] / "docs" / "web.md").read_text()
    assert re.search(r"in place of (\d+) files", page)[1] == str(len(READERS))
    assert f"{NUM_CASES} cases" in page


# Values -------------------------------------------------------------------------------------------------------------

VALUES = [
    f'{key} = "{SECRET}"'
    for key in (
        "seed", "method", "plan.scheme", "plan.deadline_s", "radio.bandwidth_hz", "network.num_edges",
        "network.placement", "data.partition", "masking.name", "compression.name", "selection.name",
        "association.name", "topology.name", "aggregation.edge", "objective.name", "train.kernel", "engine.name",
        "rounds.global_rounds", "clock.profile", "base",
    )
]  # fmt: skip
WRONG_SCENARIOS = [*VALUES, f"plan = '{SECRET}'", f"x = '{SECRET}'", f"plan.x = '{SECRET}'", f"= {SECRET}", f"{SECRET}"]
WRONG_TABLES = [
    SECRET,
    f"{SECRET},device\n1,2\n",
    f"device,edge,snr_db\na,x,{SECRET}\n",
    f"device,edge,snr_db,cpu_hz\na,x,40,{SECRET}\n",
    f"device,edge,snr_db\n{SECRET},x,40\n{SECRET},x,40\n",
    f"device,device,{SECRET},{SECRET}\n",
    f"device,edge,snr_db\n{SECRET * 99},x,40\n",
    f"device,edge,snr_db\na{SECRET}\1,x,40\n",
    f'device,edge,snr_db\n"{SECRET}\n',
    f"device,edge,snr_dB_{SECRET}\na,x,1\n",
    f"device,edge,x_m,y_m,edge_x_m,edge_y_m\na,{SECRET},1,2,3,4\nb,{SECRET},1,2,5,6\n",
    f'["{SECRET}"]',
    f'[{{"device": "{SECRET}"}}]',
    f'[{{"device": 1, "edge": 0, "snr_db": "{SECRET}"}}]',
    f'{{"devices": "{SECRET}"}}',
    f'{{"{SECRET}": 1}}',
    f'[{{"device": 1}} {SECRET}',
]
WRONG_PROFILES = [
    {"kind": SECRET},
    {"kind": "airprune-profile", "version": SECRET},
    {"kind": "airprune-profile", "version": 1, "seconds_per_sample": SECRET},
]


@pytest.mark.parametrize("toml", WRONG_SCENARIOS)
def test_of_a_run_folders_scenario_only_the_field_is_told(toml, tmp_path):
    (tmp_path / "scenario.toml").write_text(toml)
    _, trouble = scenario_or_trouble(tmp_path)
    assert trouble and SECRET not in trouble.replace(f"scenario.{SECRET}", "")
    if " = " in toml and "." in toml.partition(" = ")[0]:
        assert toml.partition(" = ")[0].split(".")[-1] in trouble, "the field is told"


@pytest.mark.parametrize("content", WRONG_TABLES)
def test_of_a_scenarios_table_only_the_columns_are_told(content, tmp_path):
    (tmp_path / "fleet.csv").write_text(content)
    with pytest.raises(AirpruneError) as refused:
        tiny().with_("network.table", str(tmp_path / "fleet.csv")).build_network()
    assert SECRET not in str(refused.value) and "fleet.csv" in str(refused.value)


@pytest.mark.parametrize("profile", WRONG_PROFILES, ids=str)
def test_of_a_profile_only_the_field_is_told(profile, tmp_path):
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    with pytest.raises(AirpruneError) as refused:
        clock_keys(str(tmp_path / "profile.json"))
    assert SECRET not in str(refused.value)


def test_a_table_that_the_user_names_for_a_plan_is_quoted(tmp_path, capsys):
    (tmp_path / "fleet.csv").write_text(f"device,edge,snr_db\na,x,{SECRET}\n")
    assert main(["plan", str(tmp_path / "fleet.csv")]) == 2
    assert SECRET in capsys.readouterr().err


# Folders ------------------------------------------------------------------------------------------------------------


def test_runs_that_are_links_are_no_part_of_a_report_and_nothing_is_written_through_them(finished, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "optimal-seed0").symlink_to(finished)
    (tmp_path / "out" / "runs").symlink_to(finished.parent)
    assert seed_runs(tmp_path / "out") == {} and any_run(tmp_path / "out" / "runs") is None
    with pytest.raises(UsageError, match="optimal-seed0 is a link"):
        Variant(name="optimal", scenario=tiny()).folder(tmp_path / "out", 0)


@pytest.mark.parametrize("command", ["compare", "sweep"])
def test_a_comparison_and_a_sweep_refuse_a_run_that_is_a_link(command, finished, tmp_path, capsys):
    before = sorted(finished.rglob("*"))
    (tmp_path / "scenario.toml").write_text(tiny(rounds__global_rounds=1).to_toml())
    (tmp_path / "out").mkdir()
    names = {"compare": "optimal-seed0", "sweep": "custom-seed0"}
    (tmp_path / "out" / names[command]).symlink_to(finished)
    words = {"compare": ["--schemes", "optimal", "--seeds", "0"], "sweep": ["plan.deadline_s=0.03", "seed=0"]}
    arguments = [command, str(tmp_path / "scenario.toml"), *words[command], "--out", str(tmp_path / "out")]
    status = main(arguments)
    said = capsys.readouterr().err
    assert status == 2 and "is a link" in said, said
    assert sorted(finished.rglob("*")) == before


def test_a_scenario_that_the_user_names_may_be_a_link_but_no_pipe(tmp_path, in_time):
    (tmp_path / "own.toml").write_text("seed = 3\n")
    (tmp_path / "mine.toml").symlink_to("own.toml")
    assert as_scenario(tmp_path).seed == 3
    (tmp_path / "mine.toml").unlink()
    os.mkfifo(tmp_path / "mine.toml")
    with pytest.raises(UsageError, match=r"mine\.toml is not a regular file"):
        as_scenario(tmp_path)


def test_a_file_that_grows_while_it_is_read_is_still_bounded(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"x" * 100)
    assert files.read_bytes(tmp_path / "file", max_bytes=100) == b"x" * 100
    with pytest.raises(OSError, match="at most 99 bytes, got more"):
        files.read_bytes(tmp_path / "file", max_bytes=99)
    monkeypatch.setattr(files.os, "fstat", lambda _: os.stat_result((0o100644, *[0] * 9)))
    with pytest.raises(OSError, match="at most 99 bytes, got more"):
        files.read_bytes(tmp_path / "file", max_bytes=99)


def test_a_small_file_is_read_in_little_memory_however_large_it_may_be(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    tracemalloc.start()
    try:
        assert files.read_bytes(tmp_path / "file", max_bytes=2**33) == b"x" * 100_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_lines_are_whole_or_only_begun_never_without_bound(tmp_path):
    (tmp_path / "file").write_bytes(b"one\n" + b"x" * 1_000 + b"\n\nfour")
    with files.open_to_read(tmp_path / "file") as file:
        found = list(lines_in(file, max_bytes=300))
    assert [line.content for line in found] == [b"one", b"x" * 256, b"", b"four"]
    assert [line.place for line in found] == [0, 4, 1_005, 1_006]
    assert [line.is_long for line in found] == [False, True, False, False]
    assert [line.has_end for line in found] == [True, True, True, False]
    assert list(ap.run(tiny(rounds__global_rounds=1))), "a run still runs"


def test_unfinished_files_of_killed_processes_are_cleared_and_those_of_living_ones_are_not(tmp_path):
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from airprune import files\n"
        "with files.replacing(Path(sys.argv[1]) / 'page.html') as file:\n"
        "    file.write(b'half')\n"
        "    file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path], check=False, timeout=60)
    (orphan,) = tmp_path.iterdir()
    living = tmp_path / orphan.name.replace(orphan.name.split("-")[2], str(os.getppid()))
    elsewhere = tmp_path / orphan.name.replace(orphan.name.split("-")[1], "00000000")
    other = tmp_path / ".airprune-notes.tmp"
    for path in (living, elsewhere, other):
        path.write_bytes(b"half")
    with files.replacing(tmp_path / "page.html") as file:
        file.write(b"whole")
    assert set(tmp_path.iterdir()) == {tmp_path / "page.html", living, elsewhere, other}
