"""Run folders: what they hold, how a stopped run goes on, and what they refuse."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import airprune as ap
from airprune.cli import main
from airprune.errors import UsageError, WorkFailed
from airprune.models.catalogue import build_model
from airprune.runs import checkpoint
from airprune.runs.layout import RunFolder
from airprune.runs.lock import locked
from airprune.studies.write_report import write_report
from support.processes import (
    PATIENCE_S,
    kill,
    start_airprune,
    this_process_workers,
    wait_for,
    wait_until_gone,
    workers_of,
)
from support.tiny import blobs, final_bytes, tiny_file, tiny_scenario
from support.trouble import Moody, Plain

pytestmark = pytest.mark.usefixtures("warm_workers")

SERIAL = {"engine.name": "serial"}
ONE_WORKER = {"engine.name": "processes", "engine.workers": 1}
TWO_WORKERS = {"engine.name": "processes", "engine.workers": 2}


def pruned_scenario(**changes) -> ap.Scenario:
    return tiny_scenario(
        **{"plan__deadline_s": 2e-4, "radio__fading": "rayleigh", "events__dropout_probability": 0.2, **changes}
    )


def advance(folder: Path, scenario: ap.Scenario, *, records: int, **own) -> int:
    """Takes so many records, then closes the run; how many there were."""
    own.setdefault("dataset", blobs())
    run = ap.run(scenario, out=folder, resume=True, **own)
    taken = [record for _, record in zip(range(records), run, strict=False)]
    run.close()
    return len(taken)


def finish(folder: Path, scenario: ap.Scenario, **own) -> tuple[bytes, bytes]:
    own.setdefault("dataset", blobs())
    list(ap.run(scenario, out=folder, resume=True, **own))
    return final_bytes(folder)


@pytest.fixture
def stopped(tmp_path):
    """A folder with the first two of six records, and its scenario."""
    scenario = pruned_scenario()
    assert advance(tmp_path / "run", scenario, records=2) == 2
    return RunFolder(tmp_path / "run"), scenario


# What a folder holds.


def test_a_run_folder_holds_what_is_documented(tmp_path):
    scenario = pruned_scenario()
    records = list(ap.run(scenario, out=tmp_path / "run", dataset=blobs()))
    shown = {path.name for path in (tmp_path / "run").iterdir() if not path.name.startswith(".")}
    assert shown == {"scenario.toml", "environment.json", "records.jsonl", "checkpoint", "final.safetensors"}
    folder = RunFolder(tmp_path / "run")
    assert folder.scenario() == scenario and folder.scenario().hash == scenario.hash
    assert folder.records() == records
    assert [json.loads(line) for line in folder.records_file.read_text().splitlines()] == records
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["airprune"] == ap.__version__
    assert environment["torch"] == torch.__version__ and environment["numpy"] == np.__version__
    assert environment["python"] and environment["cpu"] and environment["cores"] == os.cpu_count()


@pytest.mark.parametrize("model", [None, Moody], ids=["mlp", "with buffers"])
def test_the_final_model_loads_into_the_module_and_has_the_recorded_accuracy(tmp_path, model):
    data = blobs()
    own = None if model is None else model()
    records = list(ap.run(tiny_scenario(), out=tmp_path / "run", dataset=data, model=own))
    module = own or build_model("mlp", input_shape=(12,), num_classes=4, seed=99)
    module.load_state_dict(safetensors.torch.load_file(tmp_path / "run" / "final.safetensors"))
    x, y = torch.from_numpy(data[1][0]), torch.from_numpy(data[1][1])
    with torch.no_grad():
        correct = int((module.eval()(x).argmax(1) == y).sum())
    assert correct / len(y) == records[-1]["test_accuracy"]


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    records = ap.run(tiny_scenario().with_values(ONE_WORKER), dataset=blobs())
    next(records)
    records.close()
    assert list(tmp_path.iterdir()) == []


def test_a_diverged_run_ends_and_says_so_in_strict_json(tmp_path):
    scenario, records = tiny_scenario(train__learning_rate=1e30), []
    with pytest.raises(ap.AirpruneError, match="Training diverged in edge round 1 of global round 1"):
        records.extend(ap.run(scenario, out=tmp_path / "run", dataset=blobs()))
    folder = RunFolder(tmp_path / "run")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in folder.reader.lines()]
    assert [record["kind"] for record in lines] == ["edge", "global"]
    assert lines[-1]["test_loss"] is None and lines[-1]["train_loss"] is None
    assert folder.divergence == lines[-1]["diverged"] and not folder.is_finished


def test_records_are_on_disk_when_they_are_yielded(tmp_path):
    folder = RunFolder(tmp_path / "run")
    for count, record in enumerate(ap.run(tiny_scenario(), out=folder.path, dataset=blobs()), start=1):
        assert len(folder.records()) == count and folder.records()[-1] == record


# Going on where a run stopped.


@pytest.mark.parametrize("records", range(7))
def test_a_run_stopped_after_any_record_ends_in_the_same_bytes(tmp_path, records):
    scenario = pruned_scenario(rounds__edge_rounds=[1, 2])
    expected = finish(tmp_path / "undisturbed", scenario)
    assert len(expected[1].splitlines()) == 6
    assert advance(tmp_path / "stopped", scenario, records=records) == records
    assert finish(tmp_path / "stopped", scenario) == expected


@pytest.mark.parametrize(
    "engines",
    [[ONE_WORKER] * 3, [SERIAL, TWO_WORKERS, ONE_WORKER, SERIAL, SERIAL, ONE_WORKER]],
    ids=["processes", "engines and workers change"],
)
def test_a_run_stopped_after_every_record_ends_in_the_same_bytes(tmp_path, engines):
    scenario = pruned_scenario()
    expected = finish(tmp_path / "undisturbed", scenario)
    for engine in engines:
        assert advance(tmp_path / "stopped", scenario.with_values(engine), records=1) == 1
    assert finish(tmp_path / "stopped", scenario) == expected
    assert this_process_workers() == []


def test_a_finished_run_has_nothing_to_resume(tmp_path):
    scenario = pruned_scenario()
    expected = finish(tmp_path / "run", scenario)
    assert list(ap.run(scenario, out=tmp_path / "run", resume=True, dataset=blobs())) == []
    assert final_bytes(tmp_path / "run") == expected


def test_a_run_killed_before_its_final_model_still_writes_it(tmp_path):
    scenario = pruned_scenario()
    expected = finish(tmp_path / "run", scenario)
    (tmp_path / "run" / "final.safetensors").unlink()
    assert finish(tmp_path / "run", scenario) == expected


def test_records_beyond_the_checkpoint_are_cut_off(tmp_path, stopped):
    folder, scenario = stopped
    expected = finish(tmp_path / "undisturbed", scenario)
    with folder.records_file.open("ab") as file:  # a whole record, and one killed while it was written
        file.write(folder.records_file.read_bytes().splitlines()[-1] + b'\n{"kind":"glo')
    assert len(folder.records()) == 3
    assert finish(folder.path, scenario) == expected


def test_a_run_killed_before_its_first_checkpoint_starts_over(tmp_path, stopped):
    folder, scenario = stopped
    folder.checkpoint_file.unlink()
    first = folder.records_file.read_bytes().splitlines(keepends=True)[0]
    folder.records_file.write_bytes(first)
    assert finish(folder.path, scenario) == finish(tmp_path / "undisturbed", scenario)


def test_a_checkpoint_killed_while_it_was_written_does_no_harm(tmp_path, stopped):
    folder, scenario = stopped
    folder.checkpoint_file.with_suffix(".partial").write_bytes(b"half a check")
    assert finish(folder.path, scenario) == finish(tmp_path / "undisturbed", scenario)


@pytest.mark.parametrize("engine", [SERIAL, ONE_WORKER], ids=["serial", "processes"])
def test_what_a_killed_run_left_for_its_workers_is_cleared_away(stopped, engine):
    folder, scenario = stopped
    (folder.path / ".scratch").mkdir()
    (folder.path / ".scratch" / "train_x.npy").write_bytes(b"half an arr")
    finish(folder.path, scenario.with_values(engine))
    assert not (folder.path / ".scratch").exists()


def test_name_engine_and_place_of_data_may_change_between_stop_and_resume(tmp_path, stopped):
    folder, scenario = stopped
    other = scenario.with_values({"name": "another", "engine.workers": 7, "data.data_dir": str(tmp_path)})
    assert finish(folder.path, other) == finish(tmp_path / "undisturbed", scenario)


# Worker processes are the harder case; one process alone is tried with the slow tests.
BOTH_ENGINES = [
    pytest.param(["--engine", "serial"], id="serial", marks=pytest.mark.slow),
    pytest.param(["--workers", "1"], id="processes"),
]


def kill_at_random_moments(
    tmp_path: Path, engine: list[str], *, kills: int, seed: int, global_rounds: int = 60
) -> None:
    """kill -9 at random moments, resume, and so on; every run must end in the bytes of an undisturbed one.

    Moments: every third while the command starts, the others soon after it has written something.
    """
    rng = np.random.default_rng(seed)
    scenario = tiny_file(tmp_path, global_rounds=global_rounds)
    expected = undisturbed_bytes(tmp_path, scenario)
    num_runs, num_kills = 1, 0
    while num_kills < kills:
        folder = RunFolder(tmp_path / f"run{num_runs}")
        process = start_airprune("run", scenario, "--out", folder.path, "--resume", *engine)
        if num_kills % 3 == 1:
            time.sleep(rng.uniform(0, 3))
        else:
            wait_for_writing(process, folder)
            time.sleep(rng.uniform(0, 0.4))
        workers = workers_of(process.pid)
        kill(process)
        wait_until_gone(workers)
        num_kills += process.returncode == -signal.SIGKILL
        if folder.is_finished:
            assert final_bytes(folder.path) == expected
            num_runs += 1
    finish_by_hand(scenario, folder)
    assert final_bytes(folder.path) == expected


def finish_by_hand(scenario: Path, folder: RunFolder) -> None:
    """With the command to continue, in one process."""
    assert main(["run", str(scenario), "--out", str(folder.path), "--resume", "--engine", "serial"]) == 0


def wait_for_writing(process: subprocess.Popen, folder: RunFolder) -> None:
    """Until the command, just started, has touched the records, or has ended."""

    def written() -> int:
        return folder.records_file.stat().st_mtime_ns if folder.records_file.exists() else 0

    before = written()
    wait_for(lambda: process.poll() is not None or written() > before, "a record")


def undisturbed_bytes(tmp_path: Path, scenario: Path) -> tuple[bytes, bytes]:
    list(ap.run(ap.Scenario.load(scenario).with_values(SERIAL), out=tmp_path / "undisturbed"))
    return final_bytes(tmp_path / "undisturbed")


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("engine", BOTH_ENGINES)
def test_a_run_killed_at_any_moment_ends_in_the_same_bytes(tmp_path, engine):
    kill_at_random_moments(tmp_path, engine, kills=2, seed=1, global_rounds=25)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [["--engine", "serial"], ["--workers", "2"]], ids=["serial", "processes"])
def test_a_run_killed_at_ten_moments_ends_in_the_same_bytes(tmp_path, engine):
    kill_at_random_moments(tmp_path, engine, kills=10, seed=2)


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("engine", BOTH_ENGINES)
def test_ctrl_c_says_how_to_continue_and_loses_nothing(tmp_path, engine):
    scenario, folder = tiny_file(tmp_path, global_rounds=20), RunFolder(tmp_path / "run")
    process = start_airprune("run", scenario, "--out", folder.path, *engine)
    wait_for(lambda: len(folder.records()) > 2, "some records")
    workers = workers_of(process.pid)
    assert len(workers) == (1 if "--workers" in engine else 0)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert out == "" and "Traceback" not in err
    sentence = f"Stopped; {folder.path} keeps what is done. Continue with the same command and --resume."
    assert err.splitlines()[-1] == sentence and "topped" not in err.replace(sentence, "")
    wait_until_gone(workers)
    assert len(folder.records()) < 60 and not (folder.path / ".scratch").exists()
    finish_by_hand(scenario, folder)
    assert final_bytes(folder.path) == undisturbed_bytes(tmp_path, scenario)


SHORT_OF_MEMORY = """
import resource, sys
import torch, airprune.cli.run, airprune.runs, airprune.results.report  # then only the work is short of memory
from airprune.cli import main
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**30,) * 2)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.usefixtures("blank_pictures")
def test_resuming_takes_memory_for_the_checkpoint_there_is_not_for_the_largest_allowed(tmp_path):
    scenario, folder = tiny_file(tmp_path), tmp_path / "run"
    records = ap.run(ap.Scenario.load(scenario).with_values(SERIAL), out=folder)
    next(records)
    records.close()
    command = ["run", str(scenario), "--out", str(folder), "--resume", "--engine", "serial"]
    done = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert final_bytes(folder) == undisturbed_bytes(tmp_path, scenario)


# What a folder refuses.


def test_two_runs_never_write_the_same_folder(tmp_path):
    first = ap.run(tiny_scenario(), out=tmp_path / "run", dataset=blobs())
    next(first)
    with pytest.raises(UsageError, match="is being written by another run; wait for it or choose another"):
        next(ap.run(tiny_scenario(), out=tmp_path / "run", resume=True, dataset=blobs()))
    assert len([*first]) == 5


def test_a_folder_with_a_run_is_refused_unless_resumed(stopped):
    folder, scenario = stopped
    with pytest.raises(UsageError, match=r"already holds a run; resume it \(--resume, resume=True\)"):
        ap.run(scenario, out=folder.path, dataset=blobs())


def test_another_scenario_is_refused_by_the_key_that_differs(stopped):
    folder, scenario = stopped
    before = folder.records_file.read_bytes(), folder.checkpoint_file.read_bytes()
    other = scenario.with_values({"name": "another", "engine.workers": 2, "train.momentum": 0.5})
    with pytest.raises(UsageError, match=r"holds another scenario: train\.momentum is 0\.0 there, 0\.5 here"):
        finish(folder.path, other)
    assert (folder.records_file.read_bytes(), folder.checkpoint_file.read_bytes()) == before


@pytest.mark.parametrize("own", [{"dataset": blobs(seed=1)}, {"model": Plain()}], ids=["data", "model"])
def test_another_data_set_or_model_is_refused(stopped, own):
    folder, scenario = stopped
    with pytest.raises(UsageError, match="was started with another model or data set"):
        finish(folder.path, scenario, **own)


def test_a_network_table_may_move_but_not_change(tmp_path):
    table = tmp_path / "network.csv"
    table.write_text("device,edge,distance_m\n" + "".join(f"{n},{n % 2},{120 + n}\n" for n in range(6)))
    scenario = tiny_scenario(network__table=str(table))
    expected = finish(tmp_path / "undisturbed", scenario)
    advance(tmp_path / "run", scenario, records=2)
    moved = table.rename(tmp_path / "moved.csv")
    scenario = scenario.with_("network.table", str(moved))
    moved.write_text(moved.read_text().replace("125", "126"))
    with pytest.raises(UsageError, match="started with other contents of the network table"):
        finish(tmp_path / "run", scenario)
    moved.write_text(moved.read_text().replace("126", "125"))
    assert finish(tmp_path / "run", scenario) == expected


def test_a_run_whose_hash_was_made_by_another_rule_is_resumed(tmp_path, monkeypatch):
    scenario = tiny_scenario()
    expected = finish(tmp_path / "undisturbed", scenario)
    with monkeypatch.context() as before:
        before.setattr(ap.Scenario, "hash", "another rule's")
        advance(tmp_path / "run", scenario, records=2)
    assert finish(tmp_path / "run", scenario) == expected
    assert RunFolder(tmp_path / "run").has_finished(scenario)


@pytest.mark.parametrize("content", [b"", b"garbage", None], ids=["empty", "garbage", "cut short"])
def test_a_damaged_checkpoint_is_one_sentence(stopped, content):
    folder, scenario = stopped
    whole = folder.checkpoint_file.read_bytes()
    folder.checkpoint_file.write_bytes(whole[:-100] if content is None else content)
    with pytest.raises(WorkFailed, match=r"state\.safetensors cannot be read \(.*\); start over in another folder\."):
        finish(folder.path, scenario)


def test_a_lost_checkpoint_or_shortened_records_are_one_sentence(stopped):
    folder, scenario = stopped
    records = folder.records_file.read_bytes()
    folder.records_file.write_bytes(records[:-5])
    with pytest.raises(WorkFailed, match=rf"must have at least {len(records):,} bytes"):
        finish(folder.path, scenario)
    folder.records_file.unlink()
    with pytest.raises(WorkFailed, match="got 0; restore it"):
        finish(folder.path, scenario)
    folder.records_file.write_bytes(records)
    folder.checkpoint_file.unlink()
    with pytest.raises(WorkFailed, match="is gone; restore it or start over"):
        finish(folder.path, scenario)
    assert folder.records_file.read_bytes() == records


def test_remains_without_a_scenario_are_not_overwritten(stopped):
    folder, scenario = stopped
    folder.scenario_file.unlink()
    with pytest.raises(UsageError, match=r"has files of a run but no scenario\.toml"):
        finish(folder.path, scenario)
    assert len(folder.records()) == 2


def test_a_place_that_cannot_be_a_folder_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be used as a run folder: File exists"):
        next(ap.run(tiny_scenario(), out=tmp_path / "file", dataset=blobs()))


def test_a_full_disk_is_one_sentence_and_the_run_goes_on_when_there_is_room(tmp_path, monkeypatch):
    scenario = pruned_scenario()
    run = ap.run(scenario, out=tmp_path / "run", dataset=blobs())
    next(run)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("airprune.files.os.fsync", full)
        with pytest.raises(WorkFailed, match=r"was not written: No space left on device; make room .* then resume\."):
            next(run)
    assert finish(tmp_path / "run", scenario) == finish(tmp_path / "undisturbed", scenario)


def test_reading_records_passes_over_garbage(stopped):
    folder, _ = stopped
    whole = folder.records()
    lines = folder.records_file.read_bytes().splitlines()
    garbage = [b"\xff\xfe\x00", b"17", b"[]", b'{"other": 1}', b"[" * 100_000, b"", b'{"kind":"ed']
    folder.records_file.write_bytes(b"\n".join([lines[0], *garbage[:-1], lines[1], garbage[-1]]))
    assert folder.records() == whole
    assert RunFolder(folder.path / "nowhere").records() == []


def test_an_unknown_engine_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UsageError, match=r"Scenario\.engine\.name 'ray' is unknown"):
        ap.run(tiny_scenario(engine__name="ray"), out=tmp_path / "run", dataset=blobs())
    assert not (tmp_path / "run").exists()


# A run that gets no engine leaves nothing behind.


def refuse_to_start(self) -> None:
    raise WorkFailed("No engine today.")


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("there", [[], ["runs"], ["runs/run"], ["runs/run", "runs/run/notes.txt"]])
def test_a_run_without_an_engine_leaves_the_place_as_it_was(tmp_path, monkeypatch, there):
    for name in there:
        path = tmp_path / name
        path.write_text("mine") if path.suffix else path.mkdir(parents=True)
    before = contents(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("airprune.engines.processes.ProcessesEngine.start", refuse_to_start)
        with pytest.raises(WorkFailed, match="No engine today"):
            next(ap.run(tiny_scenario().with_values(ONE_WORKER), out=tmp_path / "runs/run", dataset=blobs()))
    assert contents(tmp_path) == before
    assert len([*ap.run(tiny_scenario(), out=tmp_path / "runs/run", dataset=blobs())]) == 6  # without resume


def test_a_resumed_run_without_an_engine_stays_as_it_was(stopped, monkeypatch):
    folder, scenario = stopped
    with folder.records_file.open("ab") as file:
        file.write(b'{"kind":"edge"}\n')  # killed before its checkpoint
    before = contents(folder.path)
    with monkeypatch.context() as patched:
        patched.setattr("airprune.engines.serial.SerialEngine.start", refuse_to_start)
        with pytest.raises(WorkFailed, match="No engine today"):
            finish(folder.path, scenario)
    assert contents(folder.path) == before
    assert finish(folder.path, scenario) == finish(folder.path.with_name("undisturbed"), scenario)


def test_a_folder_is_refused_before_an_engine_is_sought(stopped, monkeypatch):
    folder, scenario = stopped
    monkeypatch.setattr("airprune.engines.serial.SerialEngine.start", refuse_to_start)
    with pytest.raises(UsageError, match="holds another scenario"):
        finish(folder.path, scenario.with_("train.momentum", 0.5))
    with pytest.raises(UsageError, match="was started with another model or data set"):
        finish(folder.path, scenario, dataset=blobs(seed=1))


def test_a_lock_that_was_taken_away_while_one_waited_for_it_is_not_enough(tmp_path, monkeypatch):
    """Two runs would write one folder: each with a lock of its own, of which one lies nowhere."""
    folder, moments = RunFolder(tmp_path / "run"), []

    def taken_too_late(descriptor: int) -> bool:
        moments.append(descriptor)
        if len(moments) == 1:
            folder.lock_file.unlink()
            folder.path.rmdir()
        return True

    monkeypatch.setattr("airprune.runs.lock._taken", taken_too_late)
    with locked(folder.path):
        assert os.path.samestat(os.fstat(moments[-1]), folder.lock_file.stat())
    assert len(moments) == 2


def test_a_deleted_lock_cannot_give_two_writers(tmp_path):
    scenario = pruned_scenario()
    first = ap.run(scenario, out=tmp_path / "run", dataset=blobs())
    next(first)
    (tmp_path / "run" / ".lock").unlink()
    second = ap.run(scenario, out=tmp_path / "run", resume=True, dataset=blobs())
    next(second)
    with pytest.raises(WorkFailed, match=r"\.lock was removed or replaced, .*; this one stops, resume it when"):
        next(first)
    assert len([*second]) == 4
    assert final_bytes(tmp_path / "run") == finish(tmp_path / "undisturbed", scenario)


def test_what_somebody_else_appends_meanwhile_is_not_taken_for_ones_own(tmp_path):
    run = ap.run(pruned_scenario(), out=tmp_path / "run", dataset=blobs())
    next(run)
    with (tmp_path / "run" / "records.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(WorkFailed, match="another process writes it; resume the run when none does"):
        next(run)
    assert finish(tmp_path / "run", pruned_scenario()) == finish(tmp_path / "undisturbed", pruned_scenario())


# What is not what the run wrote.

DIGIT = b"0123456789"


def digit_changed(lines: list[bytes], other: list[bytes]) -> list[bytes]:
    place = lines[1].rindex(b"train_loss") + len('train_loss":0.')
    assert lines[1][place] in DIGIT
    return [lines[0], lines[1][:place] + bytes([lines[1][place] ^ 1]) + lines[1][place + 1 :], *lines[2:]]


EDITS = {
    "a digit changed": digit_changed,
    "a space added": lambda lines, _: [lines[0].replace(b",", b", ", 1), *lines[1:]],
    "line ends of another system": lambda lines, _: [line.replace(b"\n", b"\r\n") for line in lines],
    "two lines exchanged": lambda lines, _: [lines[1], lines[0], *lines[2:]],
    "the first line removed": lambda lines, _: lines[1:],
    "a line removed": lambda lines, _: [lines[0], *lines[2:]],
    "the last line removed": lambda lines, _: lines[:-1],
    "a line doubled": lambda lines, _: [lines[0], *lines],
    "a line of another run instead": lambda lines, other: [other[0], *lines[1:]],
    "a line of another run added": lambda lines, other: [lines[0], other[1], *lines[1:]],
    "another run's records": lambda _, other: other,
    "an empty line added": lambda lines, _: [lines[0], b"\n", *lines[1:]],
    "cut within a line": lambda lines, _: [*lines[:-1], lines[-1][:-9]],
    "the last line end removed": lambda lines, _: [*lines[:-1], lines[-1][:-1]],
    "emptied": lambda lines, _: [],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """One run that has ended, one that stopped after two records, and another seed's of each."""
    place = tmp_path_factory.mktemp("made")
    for name, changes in (("run", {}), ("other", {"seed": 6})):
        scenario = pruned_scenario(**changes)
        finish(place / f"{name}-ended", scenario)
        advance(place / f"{name}-stopped", scenario, records=2)
    return place


@pytest.fixture(params=["ended", "stopped"])
def spoilable(request, made, tmp_path) -> tuple[RunFolder, RunFolder]:
    """A copy of a run to be damaged, and another run in the same condition."""
    copy = shutil.copytree(made / f"run-{request.param}", tmp_path / "run")
    return RunFolder(Path(copy)), RunFolder(made / f"other-{request.param}")


@pytest.fixture
def ended(made, tmp_path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(made / "run-ended", tmp_path / "run")))


def assert_refused(folder: RunFolder, words: str) -> None:
    """By everybody who would take its results for the run's own, in one sentence, leaving it as it is."""
    before = contents(folder.path)
    for call in (lambda: finish(folder.path, pruned_scenario()), lambda: write_report(folder.path)):
        with pytest.raises((WorkFailed, UsageError), match=words) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert not folder.has_finished(pruned_scenario())
    assert contents(folder.path) == before


@pytest.mark.parametrize("edit", EDITS)
def test_edited_records_are_refused(spoilable, edit):
    folder, other = spoilable
    lines, others = (f.records_file.read_bytes().splitlines(keepends=True) for f in (folder, other))
    folder.records_file.write_bytes(b"".join(EDITS[edit](lines, others)))
    assert_refused(folder, r"records\.jsonl (is not what the run wrote: lines were|must have at least .* bytes)")


@pytest.mark.parametrize("bit", [3, 8_001, -5])
def test_a_flipped_bit_in_the_records_is_refused(spoilable, bit):
    folder, _ = spoilable
    flip(folder.records_file, bit)
    assert_refused(folder, r"records\.jsonl is not what the run wrote")


def test_lost_records_are_refused(spoilable):
    spoilable[0].records_file.unlink()
    assert_refused(spoilable[0], r"records\.jsonl must have at least .* bytes, .* got 0; restore it")


def test_lines_after_the_last_record_are_refused(ended):
    with ended.records_file.open("ab") as file:
        file.write(ended.records_file.read_bytes().splitlines(keepends=True)[-1])
    assert_refused(ended, r"records\.jsonl has lines after the run's last record")


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_no_bit_of_a_checkpoint_can_be_flipped_unnoticed(tmp_path, tally):
    """All of them: of the header, the padding, the facts, the checksum and the arrays."""
    path = tmp_path / "state.safetensors"
    arrays = {"w": np.array([1.5, -2.0], dtype="<f4"), "n": np.array(3), "none": np.zeros((0, 2))}
    facts = {"round": 7, "loss": None, "text": "Ångström", "nan": float("inf")}
    checkpoint.write(path, arrays, facts)
    found, told = checkpoint.read(path)
    assert told == facts and found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)
        assert found[name].shape == array.shape
    num_bits = 8 * path.stat().st_size
    assert num_bits > 2000
    for bit in range(num_bits):
        flip(path, bit)
        with pytest.raises(WorkFailed, match=r"cannot be read|has no checksums"):
            checkpoint.read(path)
        flip(path, bit)
    assert checkpoint.read(path)[1] == facts
    tally("bits flipped", num_bits)


def test_equal_states_are_equal_files(tmp_path):
    """Also in another process: nothing in them depends on an order that changes."""
    code = (
        "import sys, numpy as np; from pathlib import Path; from airprune.runs import checkpoint;"
        "checkpoint.write(Path(sys.argv[1]), {n: np.ones(3) for n in 'bca'}, {n: 1 for n in 'zyx'})"
    )
    for name in "12":
        subprocess.run([sys.executable, "-c", code, str(tmp_path / name)], check=True)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@pytest.mark.parametrize("bit", [-1, -4_001, 70, 8 * 700])
def test_a_flipped_bit_in_the_checkpoint_of_a_run_is_refused(stopped, bit):
    folder, scenario = stopped
    flip(folder.checkpoint_file, bit)
    with pytest.raises(WorkFailed, match=r"state\.safetensors cannot be read \(.*\); start over in another folder\."):
        finish(folder.path, scenario)


def wrong_final(trouble: str, folder: RunFolder, made: Path) -> None:
    if trouble == "empty":
        folder.final_file.write_bytes(b"")
    elif trouble == "cut short":
        folder.final_file.write_bytes(folder.final_file.read_bytes()[:-4])
    elif trouble == "a bit flipped":
        flip(folder.final_file, -77)
    elif trouble == "another run's":
        shutil.copy(made / "other-ended" / "final.safetensors", folder.final_file)
    elif trouble == "without a word of its origin":
        arrays, _ = checkpoint.read(folder.final_file)
        folder.final_file.write_bytes(safetensors.numpy.save(arrays))
    elif trouble == "a link":
        folder.final_file.rename(folder.path / "elsewhere")
        folder.final_file.symlink_to(folder.path / "elsewhere")


FINALS = ["empty", "cut short", "a bit flipped", "another run's", "without a word of its origin", "a link"]


@pytest.mark.parametrize("trouble", FINALS)
def test_a_wrong_final_model_never_counts_and_is_made_again_from_the_checkpoint(ended, made, trouble):
    expected = final_bytes(ended.path)
    wrong_final(trouble, ended, made)
    assert not ended.has_finished(pruned_scenario())
    with pytest.raises(
        WorkFailed, match=r"(final\.safetensors|records\.jsonl) (is not what the run wrote|must|has no checks)"
    ):
        write_report(ended.path)
    assert finish(ended.path, pruned_scenario()) == expected
    assert ended.has_finished(pruned_scenario()) and not ended.final_file.is_symlink()


def test_a_folder_in_the_place_of_the_final_model_is_named_and_once_it_is_deleted_resuming_writes_the_model(ended):
    expected = final_bytes(ended.path)
    ended.final_file.unlink()
    ended.final_file.mkdir()
    with pytest.raises(WorkFailed, match=r"final\.safetensors is not what the run wrote; delete it, then resume"):
        write_report(ended.path)
    with pytest.raises(WorkFailed) as refused:
        finish(ended.path, pruned_scenario())
    assert str(refused.value) == (
        f"{ended.final_file} is a folder, where the run writes a file; delete it, then resume."
    )
    ended.final_file.rmdir()
    assert finish(ended.path, pruned_scenario()) == expected


@pytest.mark.parametrize("name", ["environment.json", "environment.partial"])
def test_a_folder_in_the_place_of_any_other_file_that_a_run_writes_is_named(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(WorkFailed) as refused:
        next(ap.run(tiny_scenario(), out=tmp_path, dataset=blobs()))
    assert str(refused.value) == (
        f"{tmp_path / name} is a folder, where the run writes a file; delete it, then resume."
    )


@pytest.mark.parametrize("trouble", FINALS)
def test_a_wrong_final_model_without_a_whole_checkpoint_is_refused(ended, made, trouble):
    wrong_final(trouble, ended, made)
    ended.checkpoint_file.unlink()
    with pytest.raises(WorkFailed, match=r"state\.safetensors is gone; restore it or start over in another folder"):
        finish(ended.path, pruned_scenario())


def test_a_final_model_in_the_folder_of_a_run_that_has_not_ended_is_refused(stopped, made):
    folder, scenario = stopped
    shutil.copy(made / "run-ended" / "final.safetensors", folder.final_file)
    assert not folder.has_finished(scenario)
    with pytest.raises(WorkFailed, match=r"final\.safetensors is not of this run, which has not ended"):
        finish(folder.path, scenario)
    with pytest.raises(WorkFailed, match=r"records\.jsonl must have at least"):
        write_report(folder.path)


def test_another_runs_checkpoint_is_refused(stopped, made):
    folder, scenario = stopped
    shutil.copy(made / "other-stopped" / "checkpoint" / "state.safetensors", folder.checkpoint_file)
    with pytest.raises(UsageError, match="was started with another model or data set"):
        finish(folder.path, scenario)


def test_another_runs_scenario_is_refused(spoilable):
    folder, other = spoilable
    shutil.copy(other.scenario_file, folder.scenario_file)
    with pytest.raises(UsageError, match="holds another scenario: seed is 6 there, 5 here"):
        finish(folder.path, pruned_scenario())
    with pytest.raises(UsageError, match=r"started with another model|is not the scenario that was run"):
        finish(folder.path, pruned_scenario(seed=6))
    with pytest.raises(WorkFailed, match=r"scenario\.toml is not the scenario that was run"):
        write_report(folder.path)


def test_a_checkpoint_that_does_not_say_where_it_belongs_is_refused(stopped):
    folder, scenario = stopped
    arrays, facts = checkpoint.read(folder.checkpoint_file)
    for key in facts["run"]:
        without = {name: value for name, value in facts["run"].items() if name != key}
        checkpoint.write(folder.checkpoint_file, arrays, facts | {"run": without})
        with pytest.raises(WorkFailed, match="does not say which run it belongs to"):
            finish(folder.path, scenario)


def test_what_happens_when_a_device_fails_belongs_to_the_scenario(stopped):
    folder, scenario = stopped
    with pytest.raises(UsageError, match=r"engine\.on_device_failure is 'fail' there, 'drop-device' here"):
        finish(folder.path, scenario.with_("engine.on_device_failure", "drop-device"))


@pytest.mark.usefixtures("blank_pictures")
def test_a_folder_of_before_there_were_checksums_can_be_read_but_not_resumed(spoilable):
    """Its checkpoint and its final model as they were written then."""
    folder, scenario = spoilable[0], pruned_scenario()
    arrays, _ = checkpoint.read(folder.checkpoint_file)
    position = {"global_round": 1, "edge_round": 0, "records_bytes": 7, "scenario": scenario.hash, "kernel": "torch"}
    folder.checkpoint_file.write_bytes(safetensors.numpy.save(arrays, {"position": json.dumps(position)}))
    if folder.is_finished:
        arrays, _ = checkpoint.read(folder.final_file)
        folder.final_file.write_bytes(safetensors.numpy.save(arrays, {"scenario": scenario.hash}))
        assert folder.is_finished
    assert len(folder.records()) in (2, 6) and folder.scenario() == scenario and not folder.has_finished(scenario)
    assert write_report(folder.path).exists()
    with pytest.raises(WorkFailed, match="an earlier airprune wrote it: the run can be read but not resumed"):
        finish(folder.path, scenario)


# Links and pipes.


@pytest.fixture
def alarm():
    """A process that waits for a pipe is woken, and the test fails."""

    def wake(*_) -> None:
        raise TimeoutError("somebody waits for a pipe")

    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("kind", ["pipe", "link"])
@pytest.mark.parametrize("name", ["records.jsonl", "scenario.toml", ".lock"])
def test_pipes_and_links_are_neither_waited_for_nor_followed(stopped, tmp_path, name, kind):
    folder, scenario = stopped
    path, target = folder.path / name, tmp_path / "target"
    path.rename(target) if path.exists() else target.write_bytes(b"")
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(target)
    before = target.read_bytes()
    assert not folder.is_running
    what = "is a link" if kind == "link" else "is not a regular file"
    with pytest.raises((UsageError, WorkFailed), match=rf"{name} {what}"):
        finish(folder.path, scenario)
    if name == "records.jsonl":
        with pytest.raises((UsageError, WorkFailed), match=rf"{name} {what}"):
            write_report(folder.path)
    elif name == "scenario.toml":
        assert "cannot be read as a scenario" in write_report(folder.path).read_text()
    assert target.read_bytes() == before


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("kind", ["pipe", "link"])
@pytest.mark.parametrize("name", ["checkpoint/state.safetensors", "final.safetensors"])
def test_a_pipe_or_link_in_place_of_a_model_is_refused(stopped, tmp_path, name, kind):
    folder, scenario = stopped
    path = folder.path / name
    path.rename(tmp_path / "target") if path.exists() else None
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(tmp_path / "target")
    with pytest.raises(WorkFailed, match=r"safetensors (cannot be read|is not of this run)"):
        finish(folder.path, scenario)
    assert not folder.is_finished and folder.kernel in (None, "torch")


@pytest.mark.parametrize("name", ["checkpoint/state.partial", "final.partial", ".scratch"])
def test_links_in_the_way_are_replaced_and_not_written_through(tmp_path, stopped, name):
    folder, scenario = stopped
    target = tmp_path / "target"
    target.mkdir() if name == ".scratch" else target.write_bytes(b"mine")
    (folder.path / name).symlink_to(target)
    scenario = scenario.with_values(ONE_WORKER if name == ".scratch" else SERIAL)
    assert finish(folder.path, scenario) == finish(tmp_path / "undisturbed", scenario)
    assert list(target.iterdir()) == [] if name == ".scratch" else target.read_bytes() == b"mine"


def test_a_linked_folder_of_checkpoints_is_refused(stopped, tmp_path):
    folder, scenario = stopped
    (folder.path / "checkpoint").rename(tmp_path / "target")
    (folder.path / "checkpoint").symlink_to(tmp_path / "target")
    before = contents(tmp_path / "target")
    with pytest.raises(WorkFailed, match=r"cannot be read \(checkpoint is a link"):
        finish(folder.path, scenario)
    (tmp_path / "empty").mkdir()
    shutil.rmtree(tmp_path / "new", ignore_errors=True)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "checkpoint").symlink_to(tmp_path / "empty")
    with pytest.raises(WorkFailed, match="checkpoint is a link"):
        next(ap.run(scenario, out=tmp_path / "new", dataset=blobs()))
    assert contents(tmp_path / "target") == before and list((tmp_path / "empty").iterdir()) == []


def test_a_report_is_not_written_through_links(ended, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (ended.path / "report.html").symlink_to(mine)
    (ended.path / "figures").mkdir()
    for name in ("accuracy-rounds.png", "devices.csv"):
        (ended.path / "figures" / name).symlink_to(mine)
    page = write_report(ended.path)
    assert mine.read_text() == "mine" and not page.is_symlink()
    assert not any(path.is_symlink() for path in (ended.path / "figures").iterdir())
    shutil.rmtree(ended.path / "figures")
    (tmp_path / "pictures").mkdir()
    (ended.path / "figures").symlink_to(tmp_path / "pictures")
    with pytest.raises(WorkFailed, match="was not written: figures is a link"):
        write_report(ended.path)
    assert list((tmp_path / "pictures").iterdir()) == []


def test_a_run_folder_may_itself_be_reached_through_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "run").mkdir()
    (tmp_path / "latest").symlink_to(tmp_path / "disk" / "run")
    scenario = pruned_scenario()
    advance(tmp_path / "runs" / "run", scenario, records=2)
    assert finish(tmp_path / "latest", scenario) == finish(tmp_path / "undisturbed", scenario)


def test_reading_a_run_folder_does_not_load_torch(made):
    code = (
        "import sys; from pathlib import Path; from airprune.runs.layout import RunFolder;"
        "folder = RunFolder(Path(sys.argv[1])); folder.check();"
        "print(folder.scenario().hash, len(folder.records()), folder.is_finished, folder.is_running);"
        "assert folder.has_finished(folder.scenario()) and 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, str(made / "run-ended")], capture_output=True, text=True)
    assert done.stdout.split() == [pruned_scenario().hash, "6", "True", "False"], done.stderr
