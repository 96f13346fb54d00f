"""The driver of many runs: each once, side by side or one by one, resumable, with the bytes of `airprune.run`."""

import contextlib
import dataclasses
import math
import os
import signal

import pytest

import airprune as ap
from airprune.cli.stopping import terminated_like_ctrl_c
from airprune.errors import WorkFailed
from airprune.runs.layout import RunFolder
from airprune.scenario.sections import EngineSection
from airprune.studies.advice.pilots import PilotReader
from airprune.studies.campaign import WITHIN, Campaign, CampaignRun, at_a_time
from support.processes import PATIENCE_S, start_airprune, wait_for
from support.tiny import final_bytes, tiny_file

ENGINES = {"one by one": None, "serial": EngineSection(name="serial"), "two workers": EngineSection(workers=2)}
pytestmark = pytest.mark.usefixtures("warm_workers")


@pytest.fixture
def runs(tmp_path) -> list[CampaignRun]:
    """Two seeds of one scenario."""
    scenario = ap.Scenario.load(tiny_file(tmp_path)).with_values(WITHIN)
    return [
        CampaignRun(label=f"tiny {seed}", scenario=scenario.with_("seed", seed), folder_name=f"run{seed}")
        for seed in (0, 1)
    ]


def without_a_plan(run: CampaignRun) -> CampaignRun:
    return dataclasses.replace(run, scenario=run.scenario.with_("plan.deadline_s", 1e-9), folder_name="failing")


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_what_is_finished_is_skipped_and_what_was_stopped_goes_on_to_the_same_bytes(engine, runs, tmp_path):
    for run in runs:
        list(ap.run(run.scenario, out=tmp_path / "alone" / run.folder_name))
    stopped = ap.run(runs[1].scenario, out=tmp_path / "out/run1")
    next(stopped)
    stopped.close()
    list(ap.run(runs[0].scenario, out=tmp_path / "out/run0"))
    campaign = Campaign(runs, tmp_path / "out", engine)
    assert campaign.missing() == [runs[1]]
    assert [(outcome.run, outcome.trouble) for outcome in campaign.outcomes(campaign.missing())] == [(runs[1], None)]
    assert campaign.missing() == [] and list(campaign.outcomes([])) == []
    for run in runs:
        assert final_bytes(tmp_path / "out" / run.folder_name) == final_bytes(tmp_path / "alone" / run.folder_name)


def test_a_run_that_fails_stops_no_other_side_by_side_and_is_raised_one_by_one(runs, tmp_path):
    mixed = [without_a_plan(runs[0]), runs[1]]
    for name in ("serial", "two workers"):
        outcomes = Campaign(mixed, tmp_path / name, ENGINES[name]).outcomes(mixed)
        troubles = {outcome.run.folder_name: outcome.trouble for outcome in outcomes}
        assert troubles["run1"] is None and "has no plan" in troubles["failing"]
    with pytest.raises(WorkFailed, match="has no plan"):
        list(Campaign(mixed, tmp_path / "here").outcomes(mixed))
    assert not (tmp_path / "here/run1").exists()


@pytest.mark.parametrize("engine", [ENGINES["serial"], ENGINES["two workers"]], ids=["serial", "two workers"])
def test_what_is_read_of_runs_comes_back_and_without_a_folder_nothing_is_left(engine, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    reader = PilotReader(rounds=2, ends=math.inf)
    tested = [run.scenario.with_("rounds.evaluate_every", "edge") for run in runs]
    read = [
        dataclasses.replace(run, scenario=scenario, read=reader) for run, scenario in zip(runs, tested, strict=True)
    ]
    found = {outcome.run: outcome.found.accuracy for outcome in Campaign(read, None, engine).outcomes(read)}
    for run in read:
        whole = [record["test_accuracy"] for record in ap.run(run.scenario) if record["kind"] == "edge"]
        assert found[run] == tuple(whole[:2]) and len(whole) == 4
    assert set(tmp_path.rglob("*")) == before


def test_a_comparison_takes_what_run_takes_and_nothing_of_its_driver(runs, tmp_path):
    told = []
    ap.compare(runs[0].scenario, schemes=["optimal"], out=tmp_path / "out", callbacks=[told.append])
    assert len(told) == len(RunFolder(tmp_path / "out/optimal-seed0").records()) == 6
    with pytest.raises(TypeError, match="engine"):
        ap.compare(runs[0].scenario, schemes=["optimal"], out=tmp_path / "other", engine="serial")


@pytest.mark.parametrize(
    ("settings", "at_once"),
    [(None, 1), ({"name": "serial", "workers": 4}, 1), ({"workers": 3}, 3), ({"workers": 9}, 5)],
)
def test_no_more_runs_go_on_at_a_time_than_there_are(settings, at_once):
    assert at_a_time(None if settings is None else EngineSection(**settings), 5) == at_once


def test_sigterm_stops_a_comparison_like_ctrl_c_with_what_is_done_kept(tmp_path):
    scenario = tiny_file(tmp_path, global_rounds=400)
    words = ("compare", scenario, "--schemes", "optimal", "--engine", "serial", "--out", tmp_path / "out")
    process = start_airprune(*words)
    folder = RunFolder(tmp_path / "out/optimal-seed0")
    wait_for(lambda: len(folder.records()) > 2, "some records")
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    assert err.splitlines()[-1] == (
        f"Stopped with 0 of 1 runs finished; {tmp_path / 'out'} keeps what is done. The same command continues."
    )
    assert not folder.is_running and len(folder.records()) > 2


def test_a_second_sigterm_does_not_interrupt_what_the_first_one_has_begun():
    """Within a league each stage is a campaign of its own, and the ledger is written after the last."""
    before = signal.getsignal(signal.SIGTERM)
    with contextlib.suppress(KeyboardInterrupt), terminated_like_ctrl_c():
        try:
            with terminated_like_ctrl_c():
                os.kill(os.getpid(), signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            written = True
    assert written and signal.getsignal(signal.SIGTERM) is before
