"""Full disks, used-up limits, Ctrl-C anywhere, files torn and edited: one sentence, nothing lost, nothing left behind.

Kills at every change of a file are in test_store.py and test_deploy_ledger.py, kills and Ctrl-C of real processes in
test_runs.py and test_stateful_runs.py, full disks and cut links of a deployment in test_deploy_faults.py.
"""

import gc
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune.errors import AirpruneError, UsageError, WorkFailed
from airprune.runs import checkpoint
from airprune.runs.layout import RunFolder
from airprune.runs.lock import is_locked
from airprune.studies.campaign import Sweep, SweepFolder
from airprune.studies.league.league_run import league_run
from airprune.studies.league.ledger import read_ledger, write_ledger
from support.faults import can_mount, edited, interrupted, limit_for, limited, places_in, small_disk, torn
from support.league import BASE, line_of, run_of
from support.processes import AIRPRUNE, PATIENCE_S, start_airprune, wait_for
from support.stateful import outcome, small_blocks, stateful_scenario
from support.stateful import run as stateful_run
from support.tiny import final_bytes, tiny_file

PAGE = 4096

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """A run with memory everywhere, to its end."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(folder)
    return folder


def finish(folder: Path) -> None:
    with small_blocks():
        for _ in stateful_run(folder, stateful_scenario(), resume=True):
            pass


def result(folder: Path) -> dict[str, bytes]:
    with small_blocks():
        return outcome(folder)


def copy_of(undisturbed: Path, folder: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(undisturbed, folder)))


def told(error: AirpruneError) -> str:
    """Returns the error that the user sees, which is one sentence."""
    assert "\n" not in str(error) and 10 < len(str(error)) < 600
    return str(error)


# Disks and limits.


@pytest.mark.skipif(not can_mount(), reason="needs to mount a tmpfs")
def test_a_disk_that_fills_up_at_any_page_is_one_sentence_and_the_run_goes_on_with_more_room(
    undisturbed, tmp_path, tally
):
    expected = result(undisturbed)
    faults, size, has_ended = 0, PAGE, False
    while not has_ended:
        with small_disk(tmp_path / f"disk-{size}", size) as disk:
            folder = disk.path / "run"
            try:
                finish(folder)
                has_ended = True
            except (WorkFailed, UsageError) as error:
                assert "No space left on device" in told(error) or "of free disk" in told(error)
                faults += 1
            assert not is_locked(folder)
            disk.resize(64 * 2**20)
            finish(folder)
            assert result(folder) == expected, size
        size += 2 * PAGE
    assert faults > 5
    tally("disks filled up", faults)


def test_files_that_may_not_grow_are_one_sentence_and_the_run_goes_on_when_they_may(undisturbed, tmp_path, tally):
    """Limits the size of files, where mounting is not permitted."""
    expected, faults = result(undisturbed), 0
    for number, size in enumerate((1, 700, 2_500, 5_000, 9_000, 13_000)):
        folder = tmp_path / str(number)
        with limited(resource.RLIMIT_FSIZE, size):
            with pytest.raises((WorkFailed, UsageError)) as caught:
                finish(folder)
            assert "File too large" in told(caught.value)
        faults += 1
        finish(folder)
        assert result(folder) == expected, size
    tally("files at their largest size", faults)


def test_any_number_of_descriptors_is_enough_or_one_sentence(undisturbed, tmp_path, tally):
    expected, faults = result(undisturbed), 0
    for spare in (0, 1, 2, 3, 4, 6, 9):
        folder = tmp_path / str(spare)
        try:
            with limited(resource.RLIMIT_NOFILE, limit_for(spare)):
                finish(folder)
        except (WorkFailed, UsageError) as error:
            assert "Too many open files" in told(error)
            faults += 1
        gc.collect()
        finish(folder)
        assert result(folder) == expected, spare
    assert faults > 2
    tally("times out of descriptors", faults)


SHORT_OF_MEMORY = """
import resource, sys
import airprune.cli.plan, airprune.tables.read, airprune.planning.schemes  # then only the work is short of memory
from airprune.cli import main
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + int(sys.argv[2]),) * 2)
sys.exit(main(["plan", sys.argv[1]]))
"""


@pytest.mark.parametrize("spare_bytes", [8 * 2**20])
def test_too_little_memory_is_one_sentence(tmp_path, spare_bytes, tally):
    table = tmp_path / "fleet.csv"
    table.write_text("device,edge,snr_db\n" + "".join(f"{n},{n // 50},60\n" for n in range(100_000)))
    command = [sys.executable, "-c", SHORT_OF_MEMORY, str(table), str(spare_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == (
        "error: There is not enough memory for this; use fewer devices or workers, or end other programs.\n"
    )
    tally("times out of memory")


# Ctrl-C and signals.


def test_ctrl_c_at_any_call_loses_nothing(undisturbed, tmp_path, tally):
    expected = result(undisturbed)
    with interrupted(-1) as calls:
        finish(tmp_path / "counted")
    num_calls = calls[0]
    assert num_calls > 5_000
    rng = np.random.default_rng(17)
    moments = np.concatenate([rng.integers(1, num_calls // 10, 4), rng.integers(1, num_calls, 8)])
    for number, moment in enumerate(moments.tolist()):
        folder = tmp_path / str(number)
        with interrupted(moment), pytest.raises(KeyboardInterrupt):
            finish(folder)
        gc.collect()  # a generator that was interrupted is closed when it goes
        assert not folder.exists() or not is_locked(folder)
        finish(folder)
        assert result(folder) == expected, moment
        assert not (folder / ".scratch").exists()
    tally("interrupts", len(moments))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGHUP])
def test_a_signal_at_random_moments_loses_nothing_and_leaves_nobody(tmp_path, how, tally):
    rng, scenario = np.random.default_rng(int(how)), tiny_file(tmp_path, global_rounds=25)
    for _ in ap.run(ap.Scenario.load(scenario).with_("engine.name", "serial"), out=tmp_path / "undisturbed"):
        pass
    folder, hits = RunFolder(tmp_path / "run"), 0
    for number in range(8):
        process = start_airprune("run", scenario, "--out", folder.path, "--resume", "--workers", 1)
        if number % 3:
            before = folder.records_file.stat().st_size if folder.records_file.exists() else 0
            wait_for(
                lambda start=process, size=before: (
                    start.poll() is not None
                    or (folder.records_file.exists() and folder.records_file.stat().st_size > size)
                ),
                "a record",
            )
        time.sleep(rng.uniform(0.0, 0.5 if number % 3 else 3.0))
        process.send_signal(how)
        _, errors = process.communicate(timeout=PATIENCE_S)
        hits += process.returncode != 0
        assert "Traceback" not in errors
        wait_for(lambda: not is_locked(folder.path), "the lock goes with the process", patience_s=30)
    done = subprocess.run(
        [AIRPRUNE, "run", scenario, "--out", folder.path, "--resume", "--engine", "serial"], capture_output=True
    )
    assert done.returncode == 0 and final_bytes(folder.path) == final_bytes(tmp_path / "undisturbed")
    tally("signals", hits)


# Files torn and edited: where lines and fields begin and end, and at every n-th byte; with the slow tests at every one.

EVERY = pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow, id="every byte"), 61])


def test_a_checkpoint_torn_at_any_byte_or_edited_at_any_place_is_refused(tmp_path, tally):
    path, count = tmp_path / "state.safetensors", 0
    checkpoint.write(path, {"w": np.arange(3.0)}, {"round": 7})
    content = path.read_bytes()
    for spoilt in (*torn(content), *edited(content)):
        path.write_bytes(spoilt)
        with pytest.raises(WorkFailed) as caught:
            checkpoint.read(path)
        told(caught.value)
        count += 1
    tally("files torn or edited", count)


@EVERY
def test_records_torn_anywhere_are_read_up_to_there_and_never_taken_for_whole(undisturbed, tmp_path, every, tally):
    folder = copy_of(undisturbed, tmp_path / "run")
    content, records, run = folder.records_file.read_bytes(), folder.records(), folder.final_provenance()
    sizes = places_in(content, every=every)
    for spoilt in torn(content, sizes):
        folder.records_file.write_bytes(spoilt)
        found, whole = folder.records(), spoilt.count(b"\n")
        assert found[:whole] == records[:whole] and len(found) <= whole + 1
        assert "records.jsonl must have at least" in folder.fault_in_records(run)
    tally("files torn or edited", len(sizes))


@EVERY
def test_records_edited_anywhere_are_refused(undisturbed, tmp_path, every, tally):
    folder, count = copy_of(undisturbed, tmp_path / "run"), 0
    content, run = folder.records_file.read_bytes(), folder.final_provenance()
    for spoilt in edited(content, places_in(content, every=every)):
        folder.records_file.write_bytes(spoilt)
        assert folder.fault_in_records(run)
        count += 1
    tally("files torn or edited", count)


def test_a_record_that_was_torn_while_it_was_written_is_written_again(undisturbed, tmp_path, tally):
    expected = result(undisturbed)
    with small_blocks():
        records = stateful_run(tmp_path / "stopped", stateful_scenario(), resume=True)
        for _ in range(9):
            next(records)
        records.close()
    stopped = RunFolder(tmp_path / "stopped")
    kept = len(stopped.records_file.read_bytes())
    line = (undisturbed / "records.jsonl").read_bytes()[kept:].splitlines(keepends=True)[0]
    sizes = [1, 2, len(line) // 2, len(line) - 2, len(line) - 1, len(line)]
    for size in sizes:
        folder = copy_of(stopped.path, tmp_path / f"torn-{size}")
        with folder.records_file.open("ab") as file:
            file.write(line[:size])
        finish(folder.path)
        assert result(folder.path) == expected, size
    tally("files torn or edited", len(sizes))


@EVERY
@pytest.mark.parametrize("name", ["scenario.toml", "environment.json"])
def test_settings_torn_or_edited_anywhere_are_read_or_refused_in_one_sentence(
    undisturbed, tmp_path, name, every, tally
):
    folder, scenario, count = copy_of(undisturbed, tmp_path / "run"), stateful_scenario(), 0
    path = folder.path / name
    content = path.read_bytes()
    places = range(0, len(content), every)
    for spoilt in (*torn(content, places), *edited(content, places)):
        path.write_bytes(spoilt)
        for read in (folder.scenario, folder.environment, folder.check, lambda: folder.has_finished(scenario)):
            try:
                read()
            except AirpruneError as error:
                told(error)
        count += 1
    tally("files torn or edited", count)


def as_text(ledger):
    """Compares lines as text: what was not measured is NaN, which equals nothing."""
    return {run: line.text() for run, line in ledger.items()}


@EVERY
def test_a_ledger_torn_or_edited_anywhere_gives_its_runs_or_is_refused_in_one_sentence(tmp_path, every, tally):
    path, count = tmp_path / "played.jsonl", 0
    write_ledger(path, [line_of(league_run("A fp32", BASE, seed), run_of(0.1 + 0.2, 1 / 3)) for seed in (0, 1)])
    content = path.read_bytes()
    whole, places = as_text(read_ledger(path)), places_in(content, every=every)
    for spoilt in (*torn(content, places), *edited(content, places)):
        path.write_bytes(spoilt)
        try:
            found = as_text(read_ledger(path))
        except UsageError as error:
            told(error)
        else:
            assert found.items() <= whole.items() or not content.startswith(spoilt)
        count += 1
    tally("files torn or edited", count)


@EVERY
def test_a_sweeps_note_torn_or_edited_anywhere_never_mixes_nor_stops_a_sweep(tmp_path, every, tally):
    folder = SweepFolder(Sweep.of(ap.Scenario.preset("smoke"), ["seed=0,1"]), tmp_path / "out")
    with folder.locked():
        pass
    path, count = tmp_path / "out" / "sweep.json", 0
    content = path.read_bytes()
    places = range(0, len(content), every)
    for spoilt in (*torn(content, places), *edited(content, places)):
        path.write_bytes(spoilt)
        try:
            with folder.locked():
                pass
        except UsageError as error:
            assert "holds a sweep of another scenario" in told(error)
        else:
            assert path.read_bytes() == content
        count += 1
    tally("files torn or edited", count)
