"""`airprune doctor` tells what works, what is merely missing and what is broken."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from airprune.cli import doctor as module
from airprune.cli import main
from airprune.data import DATASETS
from airprune.extras import install_command

AIRPRUNE = str(Path(sys.executable).with_name("airprune"))


def diagnosis(capsys) -> tuple[int, dict]:
    """Exit status, and the findings by check."""
    status = main(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] == (status == 0)
    return status, {finding["check"]: finding for finding in answer["checks"]}


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    folder = tmp_path / "cache" / "airprune"
    monkeypatch.setenv("AIRPRUNE_DATA", str(folder))
    return folder


def test_a_sound_installation_passes_within_five_cpu_seconds():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([AIRPRUNE, "doctor", "--json"], capture_output=True, text=True, timeout=120)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0 and done.stderr == ""
    findings = {finding["check"]: finding for finding in json.loads(done.stdout)["checks"]}
    assert {"python", "airprune", "numpy", "torch", "cores", "memory", "cache"} <= set(findings)
    assert {f"data {name}" for name in DATASETS} <= set(findings)
    assert findings["plan"]["health"] == findings["training"]["health"] == "ok"
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5


def test_the_table_says_what_to_do(capsys):
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert (
        "data mnist: With a network" in shown
        and "status ok" in shown
        and "airprune data fetch" in " ".join(shown.split())
    )


def test_nothing_is_downloaded_and_nothing_left_behind(monkeypatch, capsys, empty_cache):
    def refuse(*_, **__):
        raise AssertionError("doctor must not reach out")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("subprocess.Popen", refuse)
    status, _ = diagnosis(capsys)
    assert status == 0
    assert not empty_cache.exists() and not list(empty_cache.parent.parent.iterdir())


def test_missing_data_are_notes(monkeypatch, capsys, tmp_path, empty_cache):
    monkeypatch.setattr("airprune.data.published.SYSTEM_FOLDER", tmp_path)
    status, findings = diagnosis(capsys)
    assert status == 0
    assert findings["data mnist"]["health"] == "note"
    assert findings["data mnist"]["advice"].endswith("airprune data fetch mnist")
    assert findings["data glyphs"]["health"] == "ok"


def test_missing_extras_are_notes(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, findings = diagnosis(capsys)
    assert status == 0
    for extra in ("cluster", "deploy"):
        assert findings[f"extra {extra}"]["health"] == "note"
        assert findings[f"extra {extra}"]["advice"].endswith(install_command(extra))
    assert findings["pages"]["health"] == "note"


def test_an_extra_is_told_by_the_version_of_its_package(monkeypatch):
    monkeypatch.setitem(module.EXTRAS, "test", ("pytest", "numpy"))
    finding = module._extra("test")
    assert finding.health == "ok" and finding.found == f"pytest {pytest.__version__}"


def test_without_torch_planning_works_and_the_way_out_is_named():
    code = (
        "import sys; sys.modules['torch'] = None; from airprune.cli import main; sys.exit(main(['doctor', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    findings = {finding["check"]: finding for finding in json.loads(done.stdout)["checks"]}
    assert findings["torch"]["health"] == findings["training"]["health"] == "note"
    assert findings["plan"]["health"] == "ok"
    assert findings["torch"]["advice"].endswith(install_command("train"))


def test_a_cache_that_cannot_be_written_fails(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("AIRPRUNE_DATA", str(tmp_path / "file"))
    status, findings = diagnosis(capsys)
    assert status == 1
    assert findings["cache"]["health"] == "fail" and "AIRPRUNE_DATA" in findings["cache"]["advice"]


@pytest.mark.parametrize("check", ["plan", "run"])
def test_a_broken_self_check_fails_in_one_line(check, monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("first line\nthe reason")

    monkeypatch.setattr(f"airprune.{check}", broken, raising=False)
    status, findings = diagnosis(capsys)
    broken_one = findings[{"plan": "plan", "run": "training"}[check]]
    assert status == 1 and broken_one["health"] == "fail"
    assert broken_one["found"] == "RuntimeError: the reason"


@pytest.mark.parametrize(
    ("free_gb", "workers", "advice"),
    [(100.0, 4, ""), (1.4, 4, "Run with engine.workers=1."), (0.5, 1, "engine.name=serial")],
)
def test_memory_says_how_many_workers_fit(free_gb, workers, advice, monkeypatch):
    monkeypatch.setattr(module, "_available_bytes", lambda: free_gb * 1e9)
    monkeypatch.setattr(module, "_num_cores", lambda: workers)
    finding = module._memory()
    assert advice in finding.advice and (finding.health == "ok") == (advice == "")


@pytest.mark.parametrize(("quota", "health"), [("max 100000", "ok"), ("50000 100000", "note"), ("", "ok")])
def test_a_containers_quota_of_cores_is_noted(quota, health, monkeypatch):
    monkeypatch.setattr(module, "_cgroup", lambda _: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    finding = module._cores()
    assert finding.health == health
    assert finding.advice == ("Run with engine.workers=1." if health == "note" else "")


def test_a_missing_native_kernel_is_a_note_and_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr("airprune.models.kernels.native.trouble", "it was not built (no compiler)")
    status, findings = diagnosis(capsys)
    assert status == 0
    assert findings["kernel"]["health"] == "note" and "no compiler" in findings["kernel"]["found"]
    assert "C compiler" in findings["kernel"]["advice"]
