"""Faults of a deployment: each costs what it may and nothing more; where nothing may be lost, the simulation's bits.

Whatever was lost is in the run folder, so that a replay ends in the very records and model.
"""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from functools import cache
from pathlib import Path

import pytest

import airprune as ap
from airprune.deployment import edge_state
from airprune.deployment.edge_state import EdgeDisk
from airprune.deployment.ledger import DeviceLedger
from airprune.deployment.remote import CloudSettings
from airprune.errors import WorkFailed
from airprune.runs import checkpoint
from airprune.runs.writer import RunWriter
from support.federation import Processes, Tasks, Written, rows_of
from support.tiny import final_bytes

CHANGES = (
    "model.name=mlp",
    "data.train_samples=240",
    "data.test_samples=40",
    "radio.bandwidth_hz=2e6",
    "rounds.global_rounds=2",
    "engine.name=serial",
)
PATIENT = ("--grace", "120", "--patience", "120")
SETTINGS = CloudSettings(measures=False, grace_s=60.0)


def scenario_of(*changes: str) -> ap.Scenario:
    return ap.Scenario.preset("deployed").with_overrides([*CHANGES, *changes])


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """(records and model) of an undisturbed simulation, made once."""

    @cache
    def bytes_of(*changes: str) -> tuple[bytes, bytes]:
        out = tmp_path_factory.mktemp("simulated") / "run"
        for _ in ap.run(scenario_of(*changes), out=out):
            pass
        return final_bytes(out)

    return bytes_of


def replayed(run: Path, *changes: str) -> tuple[bytes, bytes]:
    out = run.with_name("replayed")
    for _ in ap.run(scenario_of(*changes), out=out, replay=run):
        pass
    return final_bytes(out)


def lost_rows(run: Path) -> list[dict]:
    return [row for row in rows_of(run / "measured.jsonl") if row["fate"] != "ok"]


def num_planned(run: Path) -> int:
    return len(rows_of(run / "inputs.jsonl"))


def num_global(run: Path) -> int:
    return sum(row["kind"] == "global" for row in rows_of(run / "records.jsonl"))


# Real processes.


@pytest.mark.slow
def test_a_cloud_killed_at_five_places_loses_nothing(tmp_path, simulated):
    run = tmp_path / "run"
    with Processes(tmp_path / "federation") as federation:
        relay = federation.relay("e1")
        *first, last = (*federation.edges, *federation.devices)
        for name in first:
            federation.start(name)

        def start() -> None:
            federation.start_cloud(run, "deployed", *CHANGES, *PATIENT, "--resume")

        def kill_when(condition, what: str) -> None:
            federation.wait_for(condition, what)
            federation.kill("cloud")

        start()
        kill_when((run / "status.json").exists, "before the first orders: a device is still missing")
        assert not num_planned(run)
        federation.start(last)
        start()
        kill_when(lambda: num_planned(run) == 1, "while devices train")
        devices = [federation.state(name) for name in federation.devices]
        trained = Written(devices, "ledger-*")
        start()
        federation.wait_for(lambda: num_planned(run) == 2, "the second edge round")
        kill_when(trained, "while uploads arrive")
        start()
        kill_when(lambda: num_global(run) == 1, "between global rounds")
        reported = Written([federation.state("e0")], "edge-*")
        start()
        federation.wait_for(lambda: num_planned(run) == 3, "the third edge round")
        relay.cut()  # what e1 reports does not arrive
        kill_when(reported, "after an edge has averaged, and before the round is over")
        assert len(rows_of(run / "records.jsonl")) == 3
        relay.restore()
        start()
        federation.wait_for(lambda: num_planned(run) == 4, "the last edge round")
        federation.stop("cloud")
        time.sleep(4.0)  # longer than a heartbeat may be missing
        federation.go_on("cloud")
        assert federation.wait("cloud") == 0, federation.log("cloud")
    assert lost_rows(run) == []
    assert final_bytes(run) == simulated()


@pytest.mark.slow
def test_an_edge_that_is_killed_or_stopped_and_comes_back_costs_only_time(tmp_path, simulated):
    run = tmp_path / "run"
    with Processes(tmp_path / "federation") as federation:
        federation.start_all()
        federation.start_cloud(run, "deployed", *CHANGES, *PATIENT)
        federation.wait_for(lambda: num_planned(run) == 1, "devices train")
        federation.kill("e0")
        averaged = Written([federation.state("e1")], "edge-*")
        federation.start("e0")
        federation.wait_for(averaged, "an edge has averaged")
        federation.kill("e1")
        federation.start("e1")
        federation.wait_for(lambda: num_global(run) == 1, "between global rounds")
        federation.kill("e0")
        federation.start("e0")
        federation.wait_for(lambda: num_planned(run) == 4, "the last edge round")
        federation.stop("e1")
        time.sleep(4.0)
        federation.go_on("e1")
        assert federation.wait("cloud") == 0, federation.log("cloud")
    assert lost_rows(run) == []
    assert final_bytes(run) == simulated()


@pytest.mark.slow
@pytest.mark.parametrize("standby", [1, 0])
def test_an_edge_gone_for_good_costs_one_global_round(tmp_path, standby):
    run, changes = tmp_path / "run", ("rounds.global_rounds=3",)
    with Processes(tmp_path / "federation", standby_edges=standby) as federation:
        federation.start_all("--patience", "6")
        federation.start_cloud(run, "deployed", *CHANGES, *changes, "--grace", "120", "--patience", "8")
        federation.wait_for(lambda: num_planned(run) == 2, "the second edge round")
        federation.kill("e0")
        assert federation.wait("cloud") == 0, federation.log("cloud")
    assert {(row["global_round"], row["edge"]) for row in lost_rows(run)} <= {(1, 0)}
    served = {row["device"]: row["edge"] for row in rows_of(run / "measured.jsonl")}
    if standby:
        later = [row for row in rows_of(run / "measured.jsonl") if row["global_round"] > 1]
        assert len(later) == 4 * 6 and served == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}
        assert "e2 takes its place" in federation.log("cloud")
    else:
        assert set(served.values()) == {1}
    assert final_bytes(run) == replayed(run, *changes)


@pytest.mark.slow
def test_a_device_that_dies_or_hangs_costs_its_own_updates(tmp_path):
    run, changes = tmp_path / "run", ("rounds.global_rounds=3",)
    with Processes(tmp_path / "federation") as federation:
        federation.start_all()
        federation.start_cloud(run, "deployed", *CHANGES, *changes, *PATIENT)
        federation.wait_for(lambda: num_planned(run) == 1, "the first edge round")
        federation.kill("d0")
        federation.stop("d4")
        federation.wait_for(lambda: num_planned(run) == 2, "the second edge round")
        federation.start("d0")
        federation.go_on("d4")
        assert federation.wait("cloud") == 0, federation.log("cloud")
    rows = rows_of(run / "measured.jsonl")
    assert {row["device"] for row in lost_rows(run)} <= {0, 4}
    assert all({row["device"] for row in rows if row["round"] == number} >= {1, 2, 3, 5} for number in range(6))
    assert final_bytes(run) == replayed(run, *changes)


@pytest.mark.slow
def test_the_memory_of_a_device_survives_a_kill_between_upload_and_receipt(tmp_path, simulated):
    run, changes = tmp_path / "run", ("method=adaptive-bits",)
    with Processes(tmp_path / "federation") as federation:
        relay = federation.relay("d0")
        federation.start_all()
        federation.start_cloud(run, "deployed", *CHANGES, *changes, *PATIENT)
        federation.wait_for(lambda: rows_of(run / "measured.jsonl"), "the first edge round is over")
        (first,) = (row for row in rows_of(run / "measured.jsonl") if row["device"] == 0)
        relay.deafen_after(0.9 * first["bytes"])
        averaged = Written([federation.state("e0")], "edge-*")
        trained = Written([federation.state("d0")], "ledger-*")
        federation.wait_for(lambda: num_planned(run) == 2, "the second edge round")
        federation.wait_for(trained, "the device has trained in it")
        federation.kill("cloud")  # so that the third round waits for the device
        federation.wait_for(averaged, "the edge has averaged with an upload whose receipt was lost")
        federation.kill("d0")
        relay.restore()
        federation.start("d0")
        federation.start_cloud(run, "deployed", *CHANGES, *changes, *PATIENT, "--resume")
        assert federation.wait("cloud") == 0, federation.log("cloud")
        assert "counted" not in federation.log("d0") and "memory" not in federation.log("d0")
    assert lost_rows(run) == []
    assert final_bytes(run) == simulated(*changes)


# Edges and devices as tasks of one process.


def test_a_cut_link_costs_at_most_the_update_of_its_device(tmp_path):
    run = tmp_path / "run"
    with Tasks(tmp_path / "federation") as federation:
        relay = federation.relay("d0")
        federation.start_all()
        for number, _ in enumerate(federation.run_cloud(scenario_of(), run, SETTINGS)):
            if number == 0:
                relay.cut()
                threading.Timer(0.3, relay.restore).start()
    assert {row["device"] for row in lost_rows(run)} <= {0}
    assert final_bytes(run) == replayed(run)


@pytest.mark.slow
def test_another_run_on_the_same_nodes_is_the_simulations(tmp_path, simulated):
    with Tasks(tmp_path / "federation") as federation:
        federation.start_all()
        given_up = federation.run_cloud(scenario_of("seed=7"), tmp_path / "given-up", SETTINGS)
        next(given_up)
        given_up.close()
        for _ in federation.run_cloud(scenario_of(), tmp_path / "run", SETTINGS):
            pass
    assert final_bytes(tmp_path / "run") == simulated()


@pytest.mark.slow
def test_a_full_disk_is_told_in_one_sentence_and_waited_for(tmp_path, simulated, monkeypatch, caplog):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    times = iter(range(100))

    class Full:
        read = staticmethod(checkpoint.read)

        @staticmethod
        def write(*arguments):
            if next(times) < 3:
                raise full
            checkpoint.write(*arguments)

    monkeypatch.setattr(edge_state, "checkpoint", Full)
    caplog.set_level("INFO", "airprune")
    with Tasks(tmp_path / "federation") as federation:
        federation.start_all()
        for _ in federation.run_cloud(scenario_of(), tmp_path / "run", SETTINGS):
            pass
    told = [record for record in caplog.records if "No space left" in record.getMessage()]
    assert 1 <= len(told) <= 2 and not any(record.exc_info for record in told)  # there are two edges
    assert final_bytes(tmp_path / "run") == simulated()


@pytest.mark.slow
def test_a_round_is_repeated_if_cloud_and_edges_die_before_they_wrote_what_came_of_it(tmp_path, simulated, monkeypatch):
    """Reports that carry the model leave before the edge has written it."""
    run, changes = tmp_path / "run", ("method=adaptive-bits", "rounds.evaluate_every=edge")
    write, unwritten, deaths = RunWriter.save, [], []

    async def die_before_writing(disk, state, key, kept):
        unwritten.append((key.global_round, key.edge_round))

    def die_at_second_record(writer, state, record, **more):
        if record.get("edge_round") == 2 and not deaths:
            deaths.append(record)
            raise WorkFailed("killed")
        write(writer, state, record, **more)

    monkeypatch.setattr(EdgeDisk, "save_soon", die_before_writing)
    monkeypatch.setattr(RunWriter, "save", die_at_second_record)
    with Tasks(tmp_path / "federation") as federation:
        federation.start_all()
        with pytest.raises(WorkFailed, match="killed"):
            list(federation.run_cloud(scenario_of(*changes), run, SETTINGS))
        assert len(rows_of(run / "records.jsonl")) == 1 and len(unwritten) == 4  # two edges, two rounds
        for edge in federation.edges:
            federation.kill(edge)
            assert not list(federation.state(edge).glob("edge-*"))
            federation.start(edge)
        list(federation.run_cloud(scenario_of(*changes), run, SETTINGS, resume=True))
    assert unwritten.count(unwritten[-1]) == 2 and unwritten.count(unwritten[2]) == 4  # the second round twice
    assert lost_rows(run) == []
    assert final_bytes(run) == simulated(*changes)


@pytest.mark.slow
def test_a_device_with_a_full_disk_fails_in_one_sentence_and_recovers(tmp_path, monkeypatch, caplog):
    save, failing = DeviceLedger.save, threading.Event()
    failing.set()

    def save_unless_full(ledger, path):
        if failing.is_set() and "d2" in Path(path).parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        save(ledger, path)

    monkeypatch.setattr(DeviceLedger, "save", save_unless_full)
    run = tmp_path / "run"
    with Tasks(tmp_path / "federation") as federation:
        federation.start_all()
        for record in federation.run_cloud(scenario_of(), run, SETTINGS):
            if record["kind"] == "global":
                failing.clear()
    assert [(row["device"], row["fate"], row["global_round"]) for row in lost_rows(run)] == [(2, "failed", 1)] * 2
    told = [record for record in caplog.records if "No space left" in record.getMessage() and record.name == "airprune"]
    assert not any(record.exc_info for record in told)
    assert final_bytes(run) == replayed(run)


@pytest.mark.slow
def test_when_all_edges_have_been_away_the_run_goes_on_from_the_clouds_model(tmp_path):
    run, changes = tmp_path / "run", ("network.num_edges=1",)
    with Tasks(tmp_path / "federation", num_edges=1) as federation:
        federation.start_all()

        def trouble() -> None:
            while not num_planned(run):
                time.sleep(0.002)
            federation.kill("e0")
            while not lost_rows(run):
                time.sleep(0.01)
            federation.start("e0")

        threading.Thread(target=trouble, daemon=True).start()
        settings = CloudSettings(measures=False, grace_s=60.0, patience_s=0.5)
        records = list(federation.run_cloud(scenario_of(*changes), run, settings))
    assert sum(record["kind"] == "global" for record in records) == 2
    assert [row.get("restarts") for row in rows_of(run / "inputs.jsonl")] == [None, True, None, None]
    assert final_bytes(run) == replayed(run, *changes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_after_random_faults_a_replay_ends_in_the_same_bits(tmp_path, seed):
    run, changes, rng = tmp_path / "run", ("rounds.global_rounds=4",), random.Random(seed)
    with Tasks(tmp_path / "federation", gather_s=1.0) as federation:
        relays = [federation.relay(name) for name in (*federation.edges, *federation.devices)]
        federation.start_all()
        over = threading.Event()

        def trouble() -> None:
            while not over.wait(rng.uniform(0.2, 1.0)):
                if rng.random() < 0.2:
                    edge = rng.choice(federation.edges)
                    federation.kill(edge)
                    federation.start(edge)
                else:
                    relay = rng.choice(relays)
                    relay.cut()
                    over.wait(rng.uniform(0.0, 0.5))
                    relay.restore()

        troubling = threading.Thread(target=trouble)
        records = federation.run_cloud(scenario_of(*changes), run, CloudSettings(grace_s=2.0, patience_s=3.0))
        next(records)
        troubling.start()
        try:
            for _ in records:
                pass
        finally:
            over.set()
            troubling.join()
    assert final_bytes(run) == replayed(run, *changes)
