"""Secure sums of real devices: the simulation's bits, bytes as charged, deaths between steps, lies contained."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune.cli import main
from airprune.deployment import edge_sums
from airprune.errors import UsageError
from airprune.methods.secure.exchange import Sizes
from airprune.methods.secure.fixed_point import FixedPoint
from support.federation import Processes, Relay, Tasks, Written, rows_of
from support.lab import Federation
from support.secure import CHANGES, SETTINGS, replayed, scenario_of
from support.tiny import final_bytes

PATIENT = ("--grace", "120", "--patience", "120")
NOISE = (
    "privacy.clip_norm=1",
    "privacy.noise_multiplier=0.5",
    "privacy.noise_of=sum",
    "privacy.noise_from=seed",
    "aggregation.secure-sum.limit=10",
)
# The same mask for all, chosen once.
SHARED = ("method=snip", "aggregation.edge=secure-sum", "plan.scheme=optimal", "plan.deadline_s=2")


def records_of(run: Path, kind: str) -> list[dict]:
    return [record for record in rows_of(run / "records.jsonl") if record.get("kind") == kind]


@pytest.mark.parametrize("changes", [(), NOISE, SHARED], ids=["plain", "noise of the sum", "a shared mask"])
def test_a_deployment_ends_in_the_simulations_bits_and_sends_the_bytes_that_are_charged(tmp_path, changes):
    scenario, run = scenario_of(*changes), tmp_path / "run"
    for _ in ap.run(scenario, out=tmp_path / "simulated"):
        pass
    with Tasks(tmp_path / "federation", num_edges=1, devices_per_edge=5) as federation:
        federation.start_all()
        for _ in federation.run_cloud(scenario, run, SETTINGS):
            pass
    assert final_bytes(run) == final_bytes(tmp_path / "simulated")
    rows, edges = rows_of(run / "measured.jsonl"), records_of(run, "edge")
    assert [row["fate"] for row in rows] == ["ok"] * 20 and len(edges) == 4
    sizes = Sizes(5)
    assert {row["exchange_bytes"] for row in rows} == {sizes.keys + sizes.shares + sizes.revealed}
    for number, edge in enumerate(edges):
        of_round = [row for row in rows if row["round"] == number]
        assert edge["exchange_bits"] == 8 * sum(row["exchange_bytes"] for row in of_round)
        assert edge["uploaded_bits"] == 8 * sum(row["exchange_bytes"] + row["bytes"] for row in of_round)


def test_an_edge_sees_words_that_look_uniform_and_no_update(tmp_path, monkeypatch):
    """χ² of the words' top byte, 255 degrees of freedom, beyond 1e-6; sums are decoded by the exchange alone."""
    seen: list[np.ndarray] = []
    closed_round = edge_sums.closed_round

    def watched(ordered, uploads, outcomes, station, opening=None):
        seen.extend(upload.state for upload in uploads.values())
        return closed_round(ordered, uploads, outcomes, station, opening)

    monkeypatch.setattr("airprune.deployment.edge_rounds.closed_round", watched)
    with Tasks(tmp_path / "federation", num_edges=1, devices_per_edge=5) as federation:
        federation.start_all()
        for _ in federation.run_cloud(scenario_of("rounds.global_rounds=1"), tmp_path / "run", SETTINGS):
            pass
    assert len(seen) == 10 and {words.dtype for words in seen} == {np.dtype("<u4")}
    for words in seen:
        counts = np.bincount(words >> 24, minlength=256)
        assert ((counts - words.size / 256) ** 2 / (words.size / 256)).sum() < 380
    step = FixedPoint(32, 5, 1.0).step
    plain = np.abs(seen[0].astype(np.int32) * step)  # as an update of a few local steps would be: far below the limit
    assert np.median(plain) > 1.0


def test_sums_are_repeated_from_what_an_edge_keeps(tmp_path, capsys):
    federation = Federation(tmp_path, first_port=9_430, num_edges=1, devices_per_edge=5, keep_uploads=True)
    try:
        federation.start("e0", *federation.devices)
        with federation.running(scenario_of("rounds.global_rounds=1"), SETTINGS):
            assert len(list(federation.records)) == 3
        kept = federation.kits / "e0"
        assert main(["deploy", "verify", str(federation.out), "--edge", f"e0={kept}", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)
        (opened, *_) = sorted(kept.glob("state/uploads-*/0-0/opening.safetensors"))
        data = bytearray(opened.read_bytes())
        data[-1] ^= 1  # of the last share of the last device
        opened.write_bytes(bytes(data))
        assert main(["deploy", "verify", str(federation.out), "--edge", f"e0={kept}"]) == 0, (
            "one false share of five is found"
        )
        data[-5 * 33 * 5 :] = bytes(5 * 33 * 5)
        opened.write_bytes(bytes(data))
        assert main(["deploy", "verify", str(federation.out), "--edge", f"e0={kept}"]) == 1
        assert "do not give back what opens the sum" in " ".join(capsys.readouterr().out.split())
    finally:
        federation.close()


def is_quiet(relay: Relay) -> bool:
    """True if no more than heartbeats have come through it for a second."""
    before = relay.num_up_bytes
    time.sleep(1.0)
    return relay.num_up_bytes - before < 2_000


@pytest.mark.slow
def test_devices_killed_between_steps_are_recovered_from_and_below_the_threshold_the_edge_keeps_its_model(tmp_path):
    """Uploads take seconds, and `d4` is slow, so that the round waits while others die.

    First one dies in the middle of its upload, so that the others reveal its mask key, and one after it, so that they
    reveal its seed: three of five are left, just enough. Then two of the three die in the middle of their uploads.
    """
    changes = ("rounds.global_rounds=2", "rounds.edge_rounds=1", "plan.deadline_s=30", "radio.bandwidth_hz=2e5")
    run = tmp_path / "run"
    with Processes(tmp_path / "federation", num_edges=1, devices_per_edge=5) as federation:
        relay = federation.relay("d1")
        federation.start("e0")
        for name in federation.devices:
            federation.start(name, *(("--slowdown", "3000") if name == "d4" else ()))
        federation.start_cloud(run, "deployed", *CHANGES, *changes, *PATIENT)
        federation.wait_for(lambda: federation.has_trained("d0"), "d0 has masked its update")
        federation.kill("d0")
        federation.wait_for(lambda: federation.has_trained("d1"), "d1 has masked its update")
        federation.wait_for(lambda: is_quiet(relay), "d1 has sent it")
        federation.kill("d1")
        trained = [Written([federation.state(name)], "ledger-*") for name in ("d2", "d3")]
        federation.wait_for(lambda: len(records_of(run, "edge")) == 1, "the first round is over")
        for name, has_trained in zip(("d2", "d3"), trained, strict=True):
            federation.wait_for(has_trained, f"{name} has masked its update")
            federation.kill(name)
        assert federation.wait("cloud") == 0, federation.log("cloud")
        log = federation.log("e0")
    rows, edges = rows_of(run / "measured.jsonl"), records_of(run, "edge")
    assert [row["fate"] for row in rows] == ["dropped", "ok", "ok", "ok", "ok", "dropped", "dropped", "ok"], rows
    assert [edge["coverage"][0]["num_uncovered"] > 0 for edge in edges] == [False, True]
    assert "the edge keeps its model" in log and "1 of 3 devices have sent an update, and a secure sum needs 2" in log
    assert final_bytes(run) == replayed(run, *changes)


@pytest.mark.slow
def test_a_killed_edge_costs_a_secure_sum_nothing_but_time(tmp_path):
    run = tmp_path / "run"
    for _ in ap.run(scenario_of(), out=tmp_path / "simulated"):
        pass
    with Processes(tmp_path / "federation", num_edges=1, devices_per_edge=5) as federation:
        federation.start_all()
        federation.start_cloud(run, "deployed", *CHANGES, *PATIENT)
        federation.wait_for(lambda: federation.has_trained("d3"), "a device has masked its update")
        federation.kill("e0")
        federation.start("e0")
        assert federation.wait("cloud") == 0, federation.log("cloud")
    assert final_bytes(run) == final_bytes(tmp_path / "simulated")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (("aggregation.secure-sum.masked=false",), "must be true in a deployment"),
        (("plan.framing=false", "plan.bits_per_weight=24"), "must be 32 with a deployment"),
    ],
)
def test_what_would_hide_nothing_is_refused_before_anything_starts(tmp_path, changes, sentence):
    with (
        Tasks(tmp_path / "federation", num_edges=1, devices_per_edge=5) as federation,
        pytest.raises(UsageError, match=sentence),
    ):
        list(federation.run_cloud(scenario_of(*changes), tmp_path / "run", SETTINGS))
