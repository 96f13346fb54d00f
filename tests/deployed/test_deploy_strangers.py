"""Strangers at a running federation: each is refused with its own sentence, and nobody else is disturbed."""

from __future__ import annotations

import contextlib
import resource
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from airprune import __version__
from airprune.deployment import strikes
from airprune.deployment.identity import Node, Peer, Role, channel_credentials, load_node, make_federation
from airprune.deployment.identity.kits import certified, load_signer
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import PROTOCOL
from airprune.deployment.transport import Limits, LinkLost, Refused, Server, dial
from support.lab import Lab, lab_in
from support.processes import wait_for

HELLO = pb.Hello(protocol=PROTOCOL, version=__version__)


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """Whom strangers may try, one after the other."""
    with lab_in(tmp_path_factory.mktemp("strangers"), 9300, num_rounds=20) as made:
        made.play_as_simulated()
        yield made


def answer_to(lab: Lab, node: Node | None, place: str, hello: pb.Hello = HELLO, server_name: str = "") -> LinkLost:
    """Returns the answer of the node that listens there to a peer with this kit, or with none."""
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
    certified(load_signer(lab.kits / "authority"), peer, days).write(folder, "node")
    return replace(
        load_node(lab.kits / "d0"),
        peer=peer,
        certificate=(folder / "node.pem").read_bytes(),
        key=(folder / "node-key.pem").read_bytes(),
    )


def test_strangers_are_refused_each_with_its_own_sentence_and_nobody_is_disturbed(lab, tmp_path, monkeypatch):
    monkeypatch.setattr(strikes, "FORGET_S", 2.0)
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
    # What another process did in the name of d0 is reported, and not for ever.
    wait_for(lambda: lab.nodes["d0"].trouble is None, "d0 is well", 20)


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
                await link._post([frame.SerializeToString()])
            while True:
                await link.receive()
        finally:
            await link.close()

    with pytest.raises(Refused, match=sentence):
        lab.call(try_it())
    lab.play_as_simulated()
