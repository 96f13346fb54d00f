"""The cloud's hub: how long it waits for an edge that went, for its devices, and before a standby edge serves."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from airprune.deployment.hub import Hub
from airprune.deployment.hub_edges import Child, Unreachable
from airprune.deployment.identity import load_members, load_node, make_federation
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.transport import Limits


@pytest.fixture
def hub(tmp_path):
    """Of two edges with two devices each, and a standby edge; none is online."""
    kits = make_federation(tmp_path / "kits", num_edges=2, devices_per_edge=2, standby_edges=1)
    hub = Hub(load_node(kits[0]), load_members(kits[0]), Limits())
    asyncio.run(hub.begin(pb.Welcome(run="r", num_devices=4), hub.fleet))
    return hub


def come(hub: Hub, edge: str, *devices: int) -> None:
    """The edge is online with these devices."""
    known: Any = SimpleNamespace(limits=Limits())
    child = Child(name=edge, link=known, about=pb.Presence.Peer())
    child.devices = {device: pb.Presence.Device(device=device, num_samples=5) for device in devices}
    hub.edges[edge] = child
    hub._notify()


async def settled_s(hub: Hub, **waits_s: float) -> float:
    start_s = time.monotonic()
    await hub.settle(**waits_s)
    return time.monotonic() - start_s


def test_a_round_is_planned_when_the_devices_of_a_restarted_edge_are_back(hub):
    """Else the round goes on without devices that have done nothing wrong."""

    async def restart() -> float:
        hub._unreachable["e0"] = Unreachable(time.monotonic(), frozenset({0, 1}))
        asyncio.get_running_loop().call_later(0.1, come, hub, "e0", 0)
        asyncio.get_running_loop().call_later(0.4, come, hub, "e0", 0, 1)
        return await settled_s(hub, patience_s=20.0, gather_s=0.05)

    assert 0.35 < asyncio.run(restart()) < 15.0
    assert set(hub.present()) == {0, 1}


def test_an_edge_and_its_devices_are_not_waited_for_longer_than_patience(hub):
    async def go_away() -> float:
        hub._unreachable["e0"] = Unreachable(time.monotonic(), frozenset({0, 1}))
        come(hub, "e0", 0)  # device 1 is gone for good
        return await settled_s(hub, patience_s=0.3, gather_s=0.05)

    assert 0.25 < asyncio.run(go_away()) < 15.0
    assert asyncio.run(settled_s(hub, patience_s=20.0, gather_s=20.0)) < 1.0  # once is enough


def test_a_standby_edge_takes_the_place_of_one_that_is_unreachable_for_long(hub):
    come(hub, "e1")
    come(hub, "e2")
    assert asyncio.run(hub.take_standby(patience_s=60.0)) == []
    hub._unreachable["e0"] = Unreachable(time.monotonic() - 61.0, frozenset({0, 1}))
    assert asyncio.run(hub.take_standby(patience_s=60.0)) == [("e0", "e2")]
    assert hub.serving == ["e2", "e1"]
