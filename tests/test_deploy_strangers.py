"""Strangers, and members that lie, at a running federation: refused with a sentence, and nobody else is disturbed."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import resource
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import airprune as ap
from airprune import __version__
from airprune.deployment.device import _Device
from airprune.deployment.edge import Edge
from airprune.deployment.groundwork import PROTOCOL
from airprune.deployment.identity import Node, Peer, Role, channel_credentials, load_node, make_federation, renew
from airprune.deployment.identity.kits import _certified, _signer
from airprune.deployment.measured import read_measured
from airprune.deployment.packing import ReportArrays
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import RoundKey
from airprune.deployment.status import NodeStatus, read_status
from airprune.deployment.transport import Limits, LinkLost, Refused, Server, dial
from airprune.deployment.uploads import digest_of
from airprune.runs.layout import RunFolder
from support.federation import Federation
from support.processes import wait_for
from support.web_runs import tiny

HELLO = pb.Hello(protocol=PROTOCOL, version=__version__)


class Lab(Federation):
    """A federation in the middle of a run, beside the same run in simulation."""

    simulated: Iterator[dict[str, Any]]

    def play(self) -> dict[str, Any]:
        """One more global round."""
        return next(record for record in self.records if record["kind"] == "global")

    def play_as_simulated(self) -> None:
        """One more global round, which is the simulation's to the last digit: so nobody was disturbed."""
        expected = next(record for record in self.simulated if record["kind"] == "global")
        assert json.dumps(self.play()) == json.dumps(expected)

    @property
    def nodes(self) -> dict[str, NodeStatus]:
        """As the cloud's status has them; nobody before it is written for the first time."""
        found = read_status(RunFolder(self.out))
        return {} if found is None else {node.name: node for node in found.nodes}

    def wait_online(self, *names: str) -> None:
        def are_there() -> bool:
            return {*names} <= {name for name, node in self.nodes.items() if node.online}

        wait_for(are_there, f"{names} should be online", 30)

    def last_fates(self) -> dict[str, str]:
        rows = read_measured(RunFolder(self.out))
        return {str(row.name): row.fate for row in rows if row.round == rows[-1].round}


@contextlib.contextmanager
def lab_in(folder: Path, port: int, *, num_rounds: int, liars: dict[str, Any] | None = None) -> Iterator[Lab]:
    scenario = tiny(rounds__global_rounds=num_rounds, rounds__edge_rounds=1)
    lab = Lab(folder, first_port=port)
    lab.simulated = ap.run(scenario)
    try:
        for name in (*lab.members.edges, *lab.devices):
            lab.start(name, kind=(liars or {}).get(name))
        with lab.running(scenario):
            yield lab
    finally:
        lab.close()


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """Whom strangers may try, one after the other."""
    with lab_in(tmp_path_factory.mktemp("strangers"), 9300, num_rounds=20) as made:
        made.play_as_simulated()
        yield made


def answer_to(lab: Lab, node: Node | None, place: str, hello: pb.Hello = HELLO, server_name: str = "") -> LinkLost:
    """What somebody with this kit, or none, is told by the node that listens there."""
    parent = load_node(lab.kits / place)
    credentials = grpc.ssl_channel_credentials(parent.authority) if node is None else channel_credentials(node)

    async def try_it() -> None:
        link = await dial(
            lab.address(place), credentials=credentials, server_name=server_name or parent.peer.server_name
        )
        try:
            await link.send(hello)
            while True:
                await link.receive()
        finally:
            await link.close()

    with pytest.raises(LinkLost) as lost:
        lab.call(try_it())
    return lost.value


def forged(lab: Lab, folder: Path, peer: Peer, *, days: int = 1) -> Node:
    """A kit like d0's, of the federation's own authority, with another identity."""
    shutil.copytree(lab.kits / "d0", folder)
    for name in ("node.pem", "node-key.pem"):
        (folder / name).unlink()
    _certified(_signer(lab.kits / "authority"), peer, days).write(folder, "node")
    return replace(
        load_node(lab.kits / "d0"),
        peer=peer,
        certificate=(folder / "node.pem").read_bytes(),
        key=(folder / "node-key.pem").read_bytes(),
    )


def test_strangers_are_refused_each_with_its_own_sentence_and_nobody_is_disturbed(lab, tmp_path):
    own = lab.members.federation
    make_federation(tmp_path / "twin", federation=own, num_edges=2, devices_per_edge=2)
    twin, d0, e1 = (load_node(place) for place in (tmp_path / "twin/d0", lab.kits / "d0", lab.kits / "e1"))
    unknown = forged(lab, tmp_path / "d9", Peer(own, Role.DEVICE, "d9"))
    other = forged(lab, tmp_path / "other", Peer("other", Role.DEVICE, "d0"))
    expired = forged(lab, tmp_path / "expired", Peer(own, Role.DEVICE, "d0"), days=0)
    newer, older = pb.Hello(protocol=PROTOCOL + 1, version=__version__), pb.Hello(protocol=PROTOCOL, version="0.0.1")
    for node, place, hello, sentence, is_final in [
        (twin, "e0", HELLO, "of another authority", None),
        (None, "e0", HELLO, "may not accept this node's certificate", None),
        (expired, "e0", HELLO, "may not accept this node's certificate", None),
        (d0, "cloud", HELLO, "has the role device; only the role edge joins here", True),
        (e1, "e0", HELLO, "has the role edge; only the role device joins here", True),
        (unknown, "e0", HELLO, "is not a member that joins here", True),
        (other, "e0", HELLO, f"is of another federation; this one is {own}", True),
        (d0, "e0", newer, f"It speaks protocol {PROTOCOL + 1} of airprune {__version__}; this is", True),
        (d0, "e0", older, f"of airprune 0.0.1; this is protocol {PROTOCOL} of airprune {__version__}", True),
        (e1, "cloud", older, "Install the same version on both", True),
        (d0, "e0", HELLO, "d0 is connected already; each identity has one connection", False),
        (e1, "cloud", HELLO, "e1 is connected already; each identity has one connection", False),
        (d0, "e0", pb.Goodbye(reason="?"), "The first message must be a hello, got Goodbye", False),
    ]:
        told = answer_to(lab, node, place, hello)
        assert sentence in str(told)
        assert getattr(told, "is_final", None) == is_final, told
    assert "is another node" in str(answer_to(lab, other, "e0", server_name="e0.other.airprune"))
    lab.play_as_simulated()
    wait_for(lambda: lab.nodes["e0"].refused >= 7, "they should be counted", 5)


def test_nobody_joins_a_device_that_plays_the_edge(lab):
    rogue, child = load_node(lab.kits / "d1"), load_node(lab.kits / "d0")
    credentials = grpc.ssl_server_credentials([(rogue.key, rogue.certificate)], rogue.authority, True)

    async def try_it() -> None:
        async def own(link) -> None:
            raise AssertionError("nobody should get so far")

        async with Server("127.0.0.1:0", credentials=credentials, on_link=own) as server:
            name = child.parents[0].server_name
            await dial(f"127.0.0.1:{server.port}", credentials=channel_credentials(child), server_name=name)

    with pytest.raises(LinkLost, match="or no server's"):
        lab.call(try_it())


def test_the_refused_nodes_user_reads_the_sentence_and_the_exit_status_says_whose_fault_it_is(lab, command, tmp_path):
    forged(lab, tmp_path / "old", Peer(lab.members.federation, Role.DEVICE, "d0"), days=0)
    status, _, err = command("deploy", "device", tmp_path / "old")
    assert status == 2
    assert "expired on" in err and "airprune deploy renew" in err
    forged(lab, tmp_path / "d9", Peer(lab.members.federation, Role.DEVICE, "d9"))
    text = (tmp_path / "d9/node.toml").read_text()
    (tmp_path / "d9/node.toml").write_text(text.replace('name = "d0"', 'name = "d9"'))
    status, _, err = command("deploy", "device", tmp_path / "d9")
    assert status == 1
    assert "is not a member that joins here" in err
    assert "Traceback" not in err


def test_floods_garbage_and_slow_starters_cost_little_and_disturb_nobody(lab):
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    host, port = lab.address("e0").split(":")
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection((host, int(port)), timeout=5)) for _ in range(150)]
        for number, one in enumerate(sockets):
            with contextlib.suppress(OSError):
                if number % 3 == 0:
                    one.sendall(b"GET / HTTP/1.1\r\n\r\n" * 5_000)
                elif number % 3 == 1:
                    one.sendall(b"\x16\x03\x01")  # the start of a handshake, and no more
        lab.play_as_simulated()
        lab.play_as_simulated()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 100_000


OVERSIZE = pb.Frame(upload=pb.Upload(), payload=pb.Payload(size=10**12, digest=bytes(16)))


@pytest.mark.parametrize(
    ("frames", "sentence"),
    [
        ([OVERSIZE], "upload may have no payload yet, got 1,000,000,000,000 bytes"),
        pytest.param([], f"no hello within {Limits().hello_within_s:g} s", marks=pytest.mark.slow),
    ],
)
def test_who_announces_too_much_or_says_nothing_is_told_and_disturbs_nobody(lab, frames, sentence):
    node = load_node(lab.kits / "d0")

    async def try_it() -> None:
        name = node.parents[0].server_name
        link = await dial(lab.address("e0"), credentials=channel_credentials(node), server_name=name)
        try:
            for frame in frames:
                await link._post(frame.SerializeToString())
            while True:
                await link.receive()
        finally:
            await link.close()

    with pytest.raises(Refused, match=sentence):
        lab.call(try_it())
    lab.play_as_simulated()


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


# Members that lie. Each lie changes an honest upload; resealed, it has the right digest.


def resealed(data: bytes) -> bytes:
    return data[:32] + digest_of(data[:32], data[48:]) + data[48:]


def with_last_value(data: bytes, value: float) -> bytes:
    return resealed(data[:-4] + np.float32(value).tobytes())


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


def test_an_upload_that_lies_is_refused_with_a_receipt_and_counted_and_the_round_goes_on(tmp_path, caplog):
    caplog.set_level(logging.INFO, "airprune")
    lies = iter(LIES.values())

    class Liar(_Device):
        async def _follow(self, link, orders, packet):
            key = RoundKey(orders.run, orders.global_round, orders.edge_round)
            body = bytes(packet.payload)
            data = self._train(key, "", orders, body).upload
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
                await link.send(pb.Measured(num_samples=30), b"again")
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
            wait_for(lambda said=sentence: f"Upload refused: {said}" in caplog.text, "d3 should be told", 5)
        wait_for(lambda: lab.nodes["d3"].refused == len(LIES), "they should be counted", 5)
        assert lab.nodes["e1"].refused >= len(LIES)
    assert "Traceback" not in caplog.text


def changed(payload: bytes, edge: Edge, **changes: Any) -> bytes:
    assert edge.work is not None
    return replace(ReportArrays.from_bytes(payload, edge.work.shape), **changes).to_bytes()


def lying_station(payload: bytes, edge: Edge, **changes: Any) -> bytes:
    assert edge.station is not None
    return changed(payload, edge, station=replace(edge.station, **changes))


EDGE_LIES: list[tuple[Callable[[pb.EdgeReport, bytes, Edge], bytes | None], str]] = [
    (lambda report, payload, edge: b"nonsense", "A message of 8 bytes cannot be read"),
    (
        lambda report, payload, edge: changed(payload, edge, kept_by=np.zeros(3, np.int64)),
        "An edge's report has arrays of",
    ),
    (lambda report, payload, edge: changed(payload, edge, station=None), "Report.payload must be with the model"),
    (lambda report, payload, edge: lying_station(payload, edge, model=edge.station.model * 2), "Report.model_digest"),
    (
        lambda report, payload, edge: lying_station(payload, edge, model=edge.station.model * np.float32(np.nan)),
        "Report.model must be finite",
    ),
    (lambda report, payload, edge: setattr(report.outcomes[0], "device", 0), "Report.outcomes must be of devices"),
    (lambda report, payload, edge: setattr(report.outcomes[0], "fate", "late"), "Report.statistics must be of"),
    (lambda report, payload, edge: setattr(report.outcomes[0], "fate", "splendid"), "Report.fate must be one of"),
    (lambda report, payload, edge: setattr(report, "model_digest", "zz"), "Report.model_digest must be 32 hex"),
    (lambda report, payload, edge: setattr(report, "took_s", math.nan), "Report.took_s must be finite"),
]


def test_an_edge_whose_report_lies_is_out_of_its_round_is_told_why_and_may_come_back(tmp_path, caplog):
    caplog.set_level(logging.INFO, "airprune")
    lies = iter(EDGE_LIES)

    class LyingEdge(Edge):
        async def _send(self, report, payload):
            said = pb.EdgeReport()
            said.CopyFrom(report)
            lie = next(lies, None)
            await super()._send(said, payload if lie is None else lie[0](said, payload, self) or payload)

    with lab_in(tmp_path, 9330, num_rounds=len(EDGE_LIES) + 1, liars={"e1": LyingEdge}) as lab:
        for said, sentence in [
            (pb.Presence.Device(device=4), "Presence.devices must be different ones below 4"),
            (pb.Presence.Device(seconds_per_sample=math.nan), "seconds_per_sample must be finite"),
        ]:
            wait_for(lambda: lab.edges["e1"].cloud is not None, "e1 should be there", 30)
            lab.call(lab.edges["e1"].cloud.send(pb.Presence(devices=[said])))
            wait_for(lambda said=sentence: f"Refused by cloud: {said}" in caplog.text, "e1 should be told", 10)
        for number, (_, sentence) in enumerate(EDGE_LIES, start=1):
            lab.wait_online("e1", *lab.devices)
            lab.play()
            assert lab.last_fates() == {"d0": "ok", "d1": "ok", "d2": "dropped", "d3": "dropped"}, sentence
            assert f"Refused e1: {sentence}" in caplog.text
            wait_for(lambda said=sentence: f"Refused by cloud: {said}" in caplog.text, "e1 should be told", 5)
            wait_for(lambda n=number: lab.nodes["e1"].refused >= n, "it should be counted", 5)
        lab.wait_online("e1", *lab.devices)
        lab.play()
        assert lab.last_fates() == dict.fromkeys(lab.devices, "ok")
    assert "Traceback" not in caplog.text
