"""`airprune reproduce` as a user meets it."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from airprune.cli import main
from airprune.cli.reproduce import _claims_table
from airprune.studies.claims import Verdict

AIRPRUNE = str(Path(sys.executable).with_name("airprune"))


def test_planning_figures_need_no_training_and_leave_a_report(tmp_path, capsys):
    assert main(["reproduce", "fig6", "--out", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"fig6.csv", "fig6.png", "fig6.pdf", "claims.json", "report.html"} <= set(result["files"])
    assert {claim["claim"] for claim in result["claims"]} == {"more-band-prunes-less", "faster-cpu-gets-more"}
    assert result["profile"] == "default"


def test_table_1_is_shown_beside_the_presets(tmp_path, capsys):
    assert main(["reproduce", "table1", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "28 dBm" in shown and "train.learning_rate" in shown and "0.01" in shown


def test_table_2_can_be_kept_as_a_folder_too(tmp_path, capsys):
    assert main(["reproduce", "table2", "--out", str(tmp_path)]) == 0
    assert "749.6 ms" in capsys.readouterr().out
    assert (tmp_path / "table2.csv").exists()
    lines = (tmp_path / "table2.tex").read_text().splitlines()
    body = lines[lines.index(r"\midrule") + 1 : lines.index(r"\bottomrule")]
    assert len(body) == 6 and body[0].startswith("HFL & optimal & 30 & 0 & 30 & 0")
    assert "A round without hierarchy" in (tmp_path / "claims.tex").read_text()


@pytest.mark.parametrize(
    "arguments",
    [["fig9"], ["fig2", "--quick", "--full"], ["fig2", "--seeds", "x"], ["table2", "--placements", "0"]],
)
def test_wrong_usage_is_one_sentence_and_status_2(arguments, capsys, tmp_path):
    assert main(["reproduce", *arguments, "--out", str(tmp_path / "x")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_everything_quick_survives_a_kill_in_the_middle_and_continues(tmp_path):
    command = [AIRPRUNE, "reproduce", "all", "--quick", "--out", str(tmp_path), "--json"]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    while len(list(tmp_path.glob("runs/*/final.safetensors"))) < 3:
        time.sleep(0.5)
        assert first.poll() is None
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    finished = set(tmp_path.glob("runs/*/final.safetensors"))
    stamps = {path: path.stat().st_mtime_ns for path in finished}
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())  # not made again
    assert len(result["claims"]) >= 20
    assert {f"fig{n}.png" for n in (2, 3, 4, 5, 6)} <= set(result["files"])
    assert (tmp_path / "report.html").stat().st_size > 100_000


@pytest.mark.parametrize("verdict", list(Verdict), ids=lambda verdict: verdict.name)
def test_every_verdict_can_be_printed(verdict: Verdict) -> None:
    claim = {"where": "Theorem 1", "text": "A claim.", "verdict": verdict.value, "reason": "A reason."}
    console = Console(file=io.StringIO(), width=200)
    console.print(_claims_table([claim]))
    assert verdict.value in console.file.getvalue()
