"""Members that were revoked, and members that lie: they are refused with a sentence, and the run goes on."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from airprune.deployment import strikes
from airprune.deployment.device import Device
from airprune.deployment.edge import Edge
from airprune.deployment.edge_sums import OrderedRound
from airprune.deployment.identity import renew, revoke
from airprune.deployment.packing import ReportArrays
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import RoundKey
from airprune.deployment.run_definition import RunDefinition
from airprune.deployment.transport import Refused
from airprune.rounds.messages import Broadcast
from airprune.runs.layout import RunFolder
from airprune.runs.measured import read_measured
from support.hostile import resealed, with_last_value
from support.lab import PATIENT, lab_in
from support.processes import wait_for
from support.tiny import tiny_scenario


def test_a_revoked_device_is_cut_off_the_run_goes_on_and_a_renewed_kit_is_let_in(tmp_path, command):
    with lab_in(tmp_path, 9310, num_rounds=1_000) as lab:
        lab.play_as_simulated()
        assert command("deploy", "revoke", lab.kits, "d3")[0] == 0
        with pytest.raises(Refused, match="of d3 was revoked") as told:  # without a round: the connection is live
            lab.end_of("d3")
        assert told.value.is_final
        lab.play()
        assert lab.last_fates() == {"d0": "ok", "d1": "ok", "d2": "ok"}
        status, _, err = command("deploy", "device", lab.kits / "d3")
        assert status == 1
        assert "was revoked or renewed; use the newest kit" in err
        renew(lab.kits, "d3")
        lab.start("d3")

        def is_back() -> bool:
            lab.play()
            return lab.last_fates() == dict.fromkeys(lab.devices, "ok")

        wait_for(is_back, "d3 should take part again", 30)


def test_a_device_that_is_revoked_in_the_middle_of_a_round_is_out_of_it_at_once(tmp_path):
    ordered = threading.Event()

    class Endless(Device):
        async def _follow(self, link, packet):
            if packet.message.global_round == 0:
                return await super()._follow(link, packet)
            ordered.set()

    def revoke_when_ordered() -> None:
        if ordered.wait(60.0):
            revoke(lab.kits, "d3")

    with lab_in(tmp_path, 9340, num_rounds=2, liars={"d3": Endless}) as lab:
        lab.play()
        assert lab.last_fates()["d3"] == "ok"
        revoking = threading.Thread(target=revoke_when_ordered)
        revoking.start()
        start_s = time.monotonic()
        lab.play()
        took_s = time.monotonic() - start_s
        revoking.join()
        assert lab.last_fates() == {"d0": "ok", "d1": "ok", "d2": "ok", "d3": "dropped"}
        reason = next(row.reason for row in reversed(read_measured(RunFolder(lab.out))) if row.name == "d3")
        assert "was revoked" in str(reason)
        assert took_s < PATIENT.grace_s, "nobody waits for its deadline"


# Each lie changes an honest upload; resealed, it has the right digest.


LIES: dict[str, tuple[Callable[[pb.Upload, bytes], bytes | None], str]] = {
    "short": (lambda upload, data: resealed(data[:-4]), "Upload.length must be"),
    "long": (lambda upload, data: resealed(data + bytes(100_000)), "Upload.length must be between"),
    "noise": (lambda upload, data: b"x" * 100, "Upload.magic must be APUP"),
    "digest": (lambda upload, data: data[:-1] + bytes([data[-1] ^ 1]), "Upload.digest must be that of its bytes"),
    "header": (lambda upload, data: resealed(data[:8] + b"\xff\xff\xff\x7f" + data[12:]), "Upload.weights must be"),
    "nan": (lambda upload, data: with_last_value(data, math.nan), "Upload.values must be finite"),
    "infinite": (lambda upload, data: with_last_value(data, math.inf), "Upload.values must be finite"),
    "model": (lambda upload, data: setattr(upload, "model_digest", "0" * 5_000), "It starts from model '000"),
    "time": (lambda upload, data: setattr(upload, "compute_s", math.nan), "compute_s must be finite"),
}


@pytest.fixture
def many_strikes(monkeypatch):
    """Lets a member lie as often as it likes."""
    monkeypatch.setattr(strikes, "MOST_STRIKES", 1_000)


@pytest.mark.usefixtures("many_strikes")
def test_an_upload_that_lies_is_refused_with_a_receipt_and_counted_and_the_round_goes_on(tmp_path, caplog):
    caplog.set_level(logging.INFO, "airprune")
    lies = iter(LIES.values())

    class Liar(Device):
        async def _follow(self, link, packet):
            orders = packet.message
            key = RoundKey(orders.run, orders.global_round, orders.edge_round)
            body = bytes(packet.payload)
            data = self._train(self.trainer, self.ledger, key, "", orders, body).upload
            upload = pb.Upload(
                run=orders.run,
                global_round=orders.global_round,
                edge_round=orders.edge_round,
                round_index=orders.round_index,
                model_digest=orders.model_digest,
            )
            if orders.global_round == 0:  # of another round and another run: refused, and the honest one still counts
                await link.send(pb.Upload(run=orders.run, global_round=7), data)
                await link.send(pb.Upload(run="x" * 200_000), data)
                await link.send(pb.Measured(run=orders.run, num_samples=30), b"again")
            else:
                lie, _ = next(lies)
                data = lie(upload, data) or data
            await link.send(upload, data)

    with lab_in(tmp_path, 9320, num_rounds=len(LIES) + 1, liars={"d3": Liar}) as lab:
        lab.play_as_simulated()
        assert "It is of edge round 0 of global round 7" in caplog.text
        assert "It is of run 'xxx" in caplog.text
        for _, sentence in LIES.values():
            lab.play()
            assert lab.last_fates() == {"d0": "ok", "d1": "ok", "d2": "ok", "d3": "refused"}
            reason = next(row.reason for row in reversed(read_measured(RunFolder(lab.out))) if row.name == "d3")
            assert sentence in str(reason)
            wait_for(lambda said=sentence: f"Upload refused: {said}" in caplog.text, "d3 should be told", 30)
        wait_for(lambda: lab.nodes["d3"].refused == len(LIES), "they should be counted", 30)
        assert lab.nodes["e1"].refused >= len(LIES)
    assert "Traceback" not in caplog.text


def changed(payload: bytes, edge: Edge, **changes: Any) -> bytes:
    assert edge.rounds.work is not None
    return replace(ReportArrays.from_bytes(payload, edge.rounds.work.shape), **changes).to_bytes()


def model_of(edge: Edge) -> np.ndarray:
    assert edge.rounds.state.station is not None
    return edge.rounds.state.station.model


def lying_station(payload: bytes, edge: Edge, **changes: Any) -> bytes:
    assert edge.rounds.state.station is not None
    return changed(payload, edge, station=replace(edge.rounds.state.station, **changes))


EDGE_LIES: list[tuple[Callable[[pb.EdgeReport, bytes, Edge], bytes | None], str]] = [
    (lambda report, payload, edge: b"nonsense", "A message of 8 bytes cannot be read"),
    (
        lambda report, payload, edge: changed(payload, edge, kept_by=np.zeros(3, np.int64)),
        "An edge's report has arrays of",
    ),
    (lambda report, payload, edge: changed(payload, edge, station=None), "Report.payload must be with the model"),
    (
        lambda report, payload, edge: lying_station(payload, edge, model=model_of(edge) * 2),
        "Report.model_digest",
    ),
    (
        lambda report, payload, edge: lying_station(
            payload, edge, model=edge.rounds.state.station.model * np.float32(np.nan)
        ),
        "Report.model must be finite",
    ),
    (lambda report, payload, edge: setattr(report.outcomes[0], "device", 0), "Report.outcomes must be of devices"),
    (lambda report, payload, edge: setattr(report.outcomes[0], "fate", "late"), "Report.statistics must be of"),
    (lambda report, payload, edge: setattr(report.outcomes[0], "fate", "splendid"), "Report.fate must be one of"),
    (lambda report, payload, edge: setattr(report, "model_digest", "zz"), "Report.model_digest must be 32 hex"),
    (lambda report, payload, edge: setattr(report, "took_s", math.nan), "Report.took_s must be finite"),
]


@pytest.mark.slow
@pytest.mark.usefixtures("many_strikes")
def test_an_edge_whose_report_lies_is_out_of_its_round_is_told_why_and_may_come_back(tmp_path, caplog):
    caplog.set_level(logging.INFO, "airprune")
    lies = iter(EDGE_LIES)

    class LyingEdge(Edge):
        async def _send(self, report, payload):
            said = pb.EdgeReport()
            said.CopyFrom(report)
            lie = next(lies, None)
            return await super()._send(said, payload if lie is None else lie[0](said, payload, self) or payload)

    with lab_in(tmp_path, 9330, num_rounds=len(EDGE_LIES) + 1, liars={"e1": LyingEdge}) as lab:
        for said, sentence in [
            (pb.Presence.Device(device=4), "Presence.devices must be different ones below 4"),
            (pb.Presence.Device(seconds_per_sample=math.nan), "Device 0: seconds_per_sample must be between"),
        ]:
            wait_for(lambda: lab.edges["e1"].cloud is not None, "e1 should be there", 30)
            lab.call(lab.edges["e1"].cloud.send(pb.Presence(run=lab.edges["e1"].devices.run, devices=[said])))
            wait_for(lambda said=sentence: f"Refused by cloud: {said}" in caplog.text, "e1 should be told", 30)
        for number, (_, sentence) in enumerate(EDGE_LIES, start=1):
            lab.wait_online("e1", *lab.devices)
            lab.play()
            assert lab.last_fates() == {"d0": "ok", "d1": "ok", "d2": "dropped", "d3": "dropped"}, sentence
            assert f"Refused e1: {sentence}" in caplog.text
            wait_for(lambda said=sentence: f"Refused by cloud: {said}" in caplog.text, "e1 should be told", 30)
            wait_for(lambda n=number: lab.nodes["e1"].refused >= n, "it should be counted", 30)
        lab.wait_online("e1", *lab.devices)
        lab.play()
        assert lab.last_fates() == dict.fromkeys(lab.devices, "ok")
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(("objective", "names"), [("plain", []), ("scaffold", ["scaffold.moved"])])
def test_an_edge_expects_the_reports_that_the_method_declares_and_no_others(objective, names):
    scenario = tiny_scenario(**{"objective.name": objective})
    work = RunDefinition(scenario=scenario, input_shape=(8,), num_classes=4, num_devices=6, num_edges=2)
    round_ = pb.EdgeRound(orders=[pb.DeviceOrders(device=0)])
    ordered = OrderedRound(work=work, round=round_, broadcast=Broadcast(model=np.zeros(1)), model_digest="00" * 16)
    # A report that the method has no use for would make the edge's own report one that the cloud refuses.
    assert sorted(ordered.expected(0).reports) == names
