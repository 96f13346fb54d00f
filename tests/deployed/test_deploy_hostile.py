"""No member ends a deployment: what it says is bounded, what it does costs its own work, and it is named."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import airprune as ap
from airprune.deployment.hub import Hub
from airprune.deployment.hub_edges import Child
from airprune.deployment.identity import load_members, load_node, make_federation
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.remote import CloudSettings
from airprune.deployment.transport import Limits
from airprune.runs.layout import RunFolder
from airprune.runs.measured import read_inputs, read_measured
from support.hostile import DEVICE_LIES, EDGE_LIES, HostileDevice, HostileEdge, Lie, SilentEdge, resealed
from support.lab import Lab
from support.web_runs import tiny

# Far more than a round takes on a busy machine; only a round with a silent member lasts as long.
DEADLINE_S = 20.0
MEASURED = CloudSettings(measures=True, measures_uplink=False, grace_s=20.0, patience_s=3.0, wait_s=300.0)


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch):
    """All nodes share one event loop: that it stands still for some seconds is no member's fault."""
    for name in ("dead_after_s", "hello_within_s"):
        monkeypatch.setitem(Limits.__init__.__kwdefaults__, name, 30.0)


def scenario_for(lab: Lab, **changes: Any) -> ap.Scenario:
    homes = [devices for devices in lab.members.devices.values() if devices]
    values = {
        "network__num_edges": len(homes),
        "network__devices_per_edge": len(homes[0]),
        "data__train_samples": 30 * len(lab.devices),
        "plan__deadline_s": DEADLINE_S,
        "rounds__edge_rounds": 1,
        "rounds__global_rounds": 2,
    }
    return tiny(**{**values, **changes})


@contextlib.contextmanager
def lab_with(folder: Path, liars: dict[str, Any], **options: Any) -> Iterator[Lab]:
    lab = Lab(folder, first_port=9_400, **options)
    try:
        for name in (*lab.members.edges, *lab.devices):
            lab.start(name, kind=liars.get(name))
        yield lab
    finally:
        lab.close()


class Custom(HostileDevice):
    """With a lie of its own."""

    def __init__(self, *arguments: Any, made: Lie) -> None:
        super().__init__(*arguments, lie="silent", seed=0)
        self.lie = made


def device(lie: str, seed: int = 0) -> Any:
    return partial(HostileDevice, lie=lie, seed=seed)


def edge(lie: str, seed: int = 0) -> Any:
    return partial(HostileEdge, lie=lie, seed=seed)


def play(lab: Lab, settings: CloudSettings = MEASURED, **changes: Any) -> list[dict[str, Any]]:
    with lab.running(scenario_for(lab, **changes), settings):
        return list(lab.records)


def fates(lab: Lab) -> dict[str, list[str]]:
    """Outcomes by device, in all rounds."""
    found: dict[str, list[str]] = {}
    for row in read_measured(RunFolder(lab.out)):
        found.setdefault(str(row.name), []).append(row.fate)
    return found


def is_named(name: str, lab: Lab, log: str) -> bool:
    sentences = (f"Refused {name}:", f"of {name} refused", f"reports of {name}:", f"{name} is ", f"\n{name}: ")
    return any(sentence in log for sentence in sentences) or any(fate != "ok" for fate in fates(lab).get(name, []))


def assert_replays(lab: Lab, folder: Path) -> None:
    """The same records and model, to the bit."""
    for _ in ap.run(RunFolder(lab.out).scenario(), out=folder, replay=lab.out):
        pass
    for name in ("records.jsonl", "final.safetensors"):
        assert (folder / name).read_bytes() == (lab.out / name).read_bytes(), name


def test_one_message_does_not_end_a_deployment_whose_resumption_skips_inputs_without_a_plan(tmp_path, caplog):
    caplog.set_level(logging.INFO, "airprune")

    class Endless(HostileDevice):
        """Says that a sample takes it 1e308 s."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, lie="speed", seed=0)
            self.lie = type(self.lie)(measure=lambda rng, said: setattr(said, "seconds_per_sample", 1e308))

    with lab_with(tmp_path, {"d3": Endless}) as lab:
        with lab.running(scenario_for(lab), MEASURED):
            assert next(lab.records)["fate"] == ["ok", "ok", "ok"]
            next(lab.records)
        assert "Refused d3: seconds_per_sample must be between 1e-06 and 10000, got 1e+308." in caplog.text
        assert "d3 is set aside for this run" in caplog.text
        # As such inputs were recorded where they were believed.
        inputs = read_inputs(RunFolder(lab.out))[0].to_json()
        bad = {**inputs, "round": 1, "global_round": 2, "seconds_per_sample": [1e308] * len(inputs["device"])}
        with RunFolder(lab.out).inputs_file.open("a") as file:
            file.write(json.dumps(bad) + "\n")
        with lab.running(scenario_for(lab), MEASURED, resume=True):
            assert [record["kind"] for record in lab.records] == ["edge", "global"]
        assert "The recorded inputs of round 1 have no plan, and are made anew" in caplog.text
        assert max(read_inputs(RunFolder(lab.out))[1].seconds_per_sample) < 1e4
        assert_replays(lab, tmp_path / "again")


def test_an_upload_with_1e30_costs_only_itself_and_a_replay_has_the_deployments_bits(tmp_path, caplog):
    caplog.set_level(logging.INFO, "airprune")
    liars = {"d1": device("huge"), "d4": device("loss")}
    with lab_with(tmp_path, liars, devices_per_edge=3) as lab:
        records = play(lab, rounds__global_rounds=4)
        found = fates(lab)
        assert [found[name] for name in ("d0", "d2", "d3", "d5")] == [["ok"] * 4] * 4, "honest work counts"
        assert found["d1"] == found["d4"] == ["refused"] * 3
        assert "Upload of d1 refused: Its update must be at most as long as the model" in caplog.text
        for name in liars:
            assert f"{name} is set aside for this run" in caplog.text
        assert all(np.isfinite(record["test_loss"]) for record in records if record["kind"] == "global")
        assert records[-1]["test_loss"] < records[1]["test_loss"], "it learns"
        assert_replays(lab, tmp_path / "again")


def test_reports_that_all_devices_would_follow_cost_only_their_own_devices(tmp_path, caplog):
    """Of SCAFFOLD, after the update: overflowing in their sum, or finite and far too long."""
    caplog.set_level(logging.INFO, "airprune")

    def ending_in(value: float) -> Lie:
        return Lie(upload=lambda rng, message, data: resealed(data[:-4_000] + np.full(500, value).tobytes()))

    def kind(value: float) -> Any:
        return partial(Custom, made=ending_in(value))

    liars = {"d1": kind(1.7e308), "d4": kind(1e5)}
    with lab_with(tmp_path, liars, devices_per_edge=3) as lab:
        records = play(lab, rounds__global_rounds=4, plan__deadline_s=6.0, objective__name="scaffold")
        found = fates(lab)
        assert [found[name] for name in ("d0", "d2", "d3", "d5")] == [["ok"] * 4] * 4, "honest work counts"
        assert found["d1"] == found["d4"] == ["refused"] * 3
        assert "Upload.report must be finite and at most 1e+30" in caplog.text
        assert "What it reports beside its update, followed for a round, must be at most as long as" in caplog.text
        assert records[-1]["test_loss"] < records[1]["test_loss"], "it learns"
        assert_replays(lab, tmp_path / "again")


def test_an_edge_whose_report_all_devices_would_follow_is_refused(tmp_path, caplog):
    caplog.set_level(logging.INFO, "airprune")

    class Following(HostileEdge):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, lie="took", seed=0)
            self.change = lambda edge, report, payload: edge.longer(payload)

        def longer(self, payload: bytes) -> bytes:
            arrays = self.arrays_of(payload)
            return replace(arrays, reports={name: 1e29 + array for name, array in arrays.reports.items()}).to_bytes()

    with lab_with(tmp_path, {"e1": Following}) as lab:
        records = play(lab, rounds__global_rounds=2, plan__deadline_s=6.0, objective__name="scaffold")
        assert "Refused e1: What it reports beside its update" in caplog.text
        assert records[-1]["test_loss"] < records[1]["test_loss"], "it learns"
        assert fates(lab)["d0"] == ["ok"] * 2


@pytest.mark.parametrize("infeasible", ["drop", pytest.param("fail", marks=pytest.mark.slow)])
def test_an_edge_cannot_claim_anothers_device_and_one_without_a_feasible_device_sits_out(tmp_path, caplog, infeasible):
    """That a member is too slow ends no run, whatever the scenario says of plans."""
    caplog.set_level(logging.INFO, "airprune")
    slow = {f"d{n}": device("slow", n) for n in (4, 5, 6, 7)}  # half of all: no majority says that they are not
    with lab_with(tmp_path, {"e1": edge("another's device"), **slow}, num_edges=4) as lab:
        play(lab, plan__infeasible=infeasible)
        found = fates(lab)
        assert found == dict.fromkeys(("d0", "d1", "d2", "d3"), ["ok"] * 2)
        assert all(row.served_by == "e0" for row in read_measured(RunFolder(lab.out)) if row.name == "d0")
        assert_replays(lab, tmp_path / "again")


def test_one_device_that_says_it_is_slow_is_planned_as_the_slowest_of_its_class_may_be(tmp_path, caplog):
    caplog.set_level(logging.INFO, "airprune")
    with lab_with(tmp_path, {"d3": device("slow")}) as lab:
        play(lab, rounds__global_rounds=1)
        assert fates(lab) == {name: ["ok"] for name in lab.devices}
        assert "more than 100 times off the median of its class; plans take" in caplog.text


@pytest.mark.slow
def test_an_edge_that_beats_and_never_reports_is_out_of_its_rounds_and_set_aside_after_three(tmp_path, caplog):
    caplog.set_level(logging.INFO, "airprune")
    with lab_with(tmp_path, {"e1": SilentEdge}) as lab:
        play(lab, replace(MEASURED, grace_s=5.0), rounds__global_rounds=4, plan__deadline_s=6.0)
        found = fates(lab)
        assert found["d0"] == found["d1"] == ["ok"] * 4
        assert found["d2"] == found["d3"] == ["dropped"] * 3, "of the edge that does not report"
        assert caplog.text.count("e1: It must report within ") == 3
        assert "e1 is set aside for this run" in caplog.text
        assert_replays(lab, tmp_path / "again")


class DeafLink:
    """A link to an edge that takes orders and never answers."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.refusal = ""

    name, coming = "e0", None

    async def send(self, message: Any, payload: Any = b"") -> None:
        self.sent.append(message)

    async def refuse(self, reason: str, *, is_final: bool = False) -> None:
        self.refusal = reason


def test_the_cloud_waits_for_a_report_no_longer_than_deadline_and_patience_and_three_times(tmp_path):
    make_federation(tmp_path / "kits", num_edges=1, devices_per_edge=1, first_port=9_490)

    async def give_up() -> None:
        members = load_members(tmp_path / "kits/cloud")
        hub = Hub(load_node(tmp_path / "kits/cloud"), members, Limits())
        await hub.begin(pb.Welcome(run="r", num_devices=1), members)
        hub.edges["e0"] = Child(name="e0", link=DeafLink(), about=pb.Presence.Peer(serial="1"))
        order = pb.EdgeRound(run="r", deadline_s=0.01)
        for number in range(3):
            assert "e0" not in hub.strikes.aside
            assert await hub.run_round({0: (order, b"x")}, 0.05) == {0: None}
            assert len(hub.edges["e0"].link.sent) == number + 1
        assert hub.strikes.aside == {"e0": "It must report within 0.07 s of its orders, and has not."}
        assert hub.edges["e0"].link.refusal.startswith("e0 is set aside until the run has ended")
        assert await hub.wait_for({0}, 60.0), "its devices are not waited for"

    asyncio.run(asyncio.wait_for(give_up(), 60))


def test_members_with_short_lies_of_many_kinds_are_contained(tmp_path, caplog):
    caplog.set_level(logging.INFO, "airprune")
    assert_contained(tmp_path, caplog, seed=1, silent=False)


@pytest.mark.slow
def test_a_hundred_hostile_members_are_contained(tmp_path, caplog):
    caplog.set_level(logging.INFO, "airprune")
    num_hostile = 0
    for seed in range(100, 115):
        caplog.clear()
        num_hostile += assert_contained(tmp_path / str(seed), caplog, seed=seed, silent=seed % 5 == 0)
    assert num_hostile >= 100


@pytest.mark.slow
def test_members_that_flood_repeat_and_write_at_length_do_not_grow_their_parents_memory(tmp_path):
    liars = {"d0": device("flood"), "d1": device("replays"), "d3": device("words"), "d4": device("other names")}
    sizes = []
    with (
        lab_with(tmp_path, liars, devices_per_edge=3) as lab,
        lab.running(scenario_for(lab, rounds__global_rounds=12), MEASURED),
    ):
        for record in lab.records:
            if record["kind"] == "global":
                sizes.append(resident_mb())
    assert {*fates(lab)["d2"], *fates(lab)["d5"]} == {"ok"}
    assert max(sizes[8:]) < max(sizes[2:6]) + 15, sizes


def assert_contained(folder: Path, caplog: Any, *, seed: int, silent: bool) -> int:
    """A run with two hostile devices at each of three edges, and a fourth edge that is hostile; how many there were."""
    rng = np.random.default_rng(seed)
    kinds = [lie for lie in DEVICE_LIES if lie != "silent"]
    lies = dict(zip(("d0", "d1", "d5", "d6", "d10", "d11"), rng.choice(kinds, 6, replace=False).tolist(), strict=True))
    if silent:
        lies["d0"] = "silent"
    liars = {name: device(lie, seed) for name, lie in lies.items()}
    lies["e3"] = str(rng.choice(list(EDGE_LIES)))
    liars["e3"] = edge(lies["e3"], seed)
    with lab_with(folder, liars, num_edges=4, devices_per_edge=5) as lab:
        records = play(lab)
        assert [record["kind"] for record in records] == ["edge", "global"] * 2, lies
        found = fates(lab)
        at_honest_edges = [f"d{n}" for n in range(15) if f"d{n}" not in liars]
        assert {name: found[name] for name in at_honest_edges} == dict.fromkeys(at_honest_edges, ["ok"] * 2), lies
        assert np.isfinite(records[-1]["test_loss"]), lies
        for name, lie in lies.items():
            breaks_rule = lie not in ("another's device",) if name == "e3" else DEVICE_LIES[lie].is_named
            assert not breaks_rule or is_named(name, lab, caplog.text), (name, lie, caplog.text)
        for name in at_honest_edges:
            assert not is_named(name, lab, caplog.text), (name, lies)
    records = [record for record in caplog.records if record.name == "airprune"]
    assert all(record.getMessage().replace("\n", "").isprintable() for record in records), lies
    assert not [record for record in records if record.exc_info or "Traceback" in record.getMessage()], caplog.text
    return len(lies)


def resident_mb() -> float:
    """Memory of this process, cloud, edges and devices; without what the allocator keeps for later."""
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
