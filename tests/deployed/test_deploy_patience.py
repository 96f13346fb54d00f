"""What members cannot do by messages that break no rule: keep others waiting, fill logs, ask without end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airprune.deployment import strikes
from airprune.deployment.bounds import believed_samples
from airprune.deployment.checks import MAX_NAME, check_orders, trouble_in_held
from airprune.deployment.edge import Edge, EdgeSettings
from airprune.deployment.edge_devices import Child as Device
from airprune.deployment.edge_devices import Devices
from airprune.deployment.fleet.registry import Registry
from airprune.deployment.hub import Hub
from airprune.deployment.hub_edges import Child, Patience, Unreachable
from airprune.deployment.identity import load_members, load_node, make_federation
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import PROTOCOL, RunDefinition, check_versions
from airprune.deployment.strikes import MOST_REQUESTS, OncePerMinute
from airprune.deployment.transport import Limits, LinkLost, Packet
from airprune.errors import WorkFailed
from support.hostile import ESCAPES
from support.tiny import tiny_scenario


class FakeLink:
    """A link to a peer that sends some messages, and then nothing more.

    Attributes:
      is_deaf: whether the peer reads nothing.
    """

    def __init__(self, name: str, *messages: Any, is_deaf: bool = False) -> None:
        self.name, self.limits, self.is_deaf = name, Limits(), is_deaf
        self.sent: list[Any] = []
        self.refusals: list[str] = []
        self._messages = [Packet(message, b"", 0.0, 0.0) for message in messages]
        self.is_lost, self.broken_rule, self.rtt_s, self.coming = False, "", 0.01, None
        self.peer = SimpleNamespace(certificate_pem=b"")

    async def receive(self) -> Packet:
        if not self._messages:
            raise LinkLost("It has said all.")
        return self._messages.pop(0)

    async def send(self, message: Any, payload: Any = b"") -> None:
        if self.is_deaf:
            await asyncio.sleep(3_600.0)
        self.sent.append(message)

    async def refuse(self, reason: str, *, is_final: bool = False) -> None:
        self.refusals.append(reason)


@pytest.fixture
def kits(tmp_path: Path) -> Path:
    make_federation(tmp_path / "kits", num_edges=2, devices_per_edge=2)
    return tmp_path / "kits"


@pytest.fixture
def hub(kits: Path) -> Hub:
    """Of two edges with two devices each; none is online."""
    hub = Hub(load_node(kits / "cloud"), load_members(kits / "cloud"), Limits())
    asyncio.run(hub.begin(pb.Welcome(run="r", num_devices=4), hub.fleet))
    return hub


def come(hub: Hub, edge: str, *devices: int, link: Any = None) -> Child:
    """The edge is online with these devices."""
    child = Child(name=edge, link=link or FakeLink(edge), about=pb.Presence.Peer())
    child.devices = {device: pb.Presence.Device(device=device, num_samples=5) for device in devices}
    hub.edges[edge] = child
    hub._notify()
    return child


# Waits


def test_a_device_that_does_not_go_where_it_is_sent_is_waited_for_three_times_and_named(hub, caplog):
    """Else one device at a foreign edge would make every round of all as long as a handover may take."""

    async def rounds() -> list[float]:
        come(hub, "e0", 1)
        come(hub, "e1", 0, 2, 3)
        took_s = []
        for _ in range(5):
            start_s = time.monotonic()
            await hub.place({0: 0, 1: 0, 2: 1, 3: 1}, 0.5)
            took_s.append(time.monotonic() - start_s)
        return took_s

    took_s = asyncio.run(rounds())
    assert min(took_s[:3]) >= 0.45 and max(took_s[3:]) < 0.4, took_s
    assert "d0 is not waited for any longer: It was sent from e1 to e0, and stays." in caplog.text
    assert hub.trouble_of("d0") == "It was sent from e1 to e0, and stays."
    redials = [message for message in hub.edges["e1"].link.sent if isinstance(message, pb.Redial)]
    assert len(redials) == 5, "it is sent home all the same"


def test_a_device_that_comes_late_and_then_in_time_is_waited_for_again(hub):
    async def rounds() -> int:
        come(hub, "e0", 1)
        come(hub, "e1", 0, 2, 3)
        for _ in range(2):
            await hub.place({0: 0}, 0.05)
        asyncio.get_running_loop().call_later(0.05, come, hub, "e0", 0, 1)
        asyncio.get_running_loop().call_later(0.05, come, hub, "e1", 2, 3)
        await hub.place({0: 0}, 20.0)
        return hub._stayed[0]

    assert asyncio.run(rounds()) == 0


def test_an_edge_that_goes_in_every_round_costs_three_times_the_patience_in_all(hub):
    """It comes back just in time, so that it never counts as lost."""

    async def rounds() -> list[float]:
        took_s = []
        for _ in range(7):
            hub.edges.pop("e0", None)
            hub._unreachable["e0"] = Unreachable(time.monotonic(), frozenset())
            asyncio.get_running_loop().call_later(0.25, come, hub, "e0", 0, 1)
            start_s = time.monotonic()
            await hub.settle(0.3, 0.0)
            took_s.append(time.monotonic() - start_s)
            await asyncio.sleep(0.3)
        return took_s

    took_s = asyncio.run(rounds())
    assert took_s[0] >= 0.2 and max(took_s[-2:]) < 0.15, took_s


def test_patience_with_an_edge_is_spent_and_earned_back_by_reports():
    patience = Patience()
    assert patience.left_s("e0", 60.0) == 60.0
    patience.spend("e0", 150.0)
    assert patience.left_s("e0", 60.0) == 30.0 and patience.left_s("e1", 60.0) == 60.0
    patience.spend("e0", 500.0)
    assert patience.left_s("e0", 60.0) == 0.0
    for _ in range(200):
        patience.make_good("e0", 60.0)
    assert patience.left_s("e0", 60.0) == 60.0


def test_an_edge_that_reads_nothing_does_not_hold_up_what_the_cloud_says_to_others(hub, monkeypatch):
    monkeypatch.setattr("airprune.deployment.hub._SENT_WITHIN_S", 0.1)

    async def say() -> list[Any]:
        come(hub, "e0", link=FakeLink("e0", is_deaf=True))
        other = come(hub, "e1")
        await asyncio.wait_for(hub.say_goodbye("over"), 20.0)
        return other.link.sent

    assert [message.reason for message in asyncio.run(say())] == ["over"]


def test_a_device_that_reads_nothing_does_not_keep_its_edge_from_hearing_the_cloud(kits, tmp_path):
    """The edge passes a certificate on to the device, and then takes a round."""

    async def follow() -> list[Any]:
        edge = Edge(load_node(kits / "e0"), tmp_path, EdgeSettings())
        deaf = FakeLink("d0", is_deaf=True)
        edge.devices.connected["d0"] = child = Device(link=deaf, name="d0", about=pb.Presence.Peer(), home="e0")
        edge.devices.online[0] = child
        taken: list[Any] = []

        async def take(message: pb.EdgeRound, payload: bytes) -> None:
            taken.append(message)

        edge.rounds.take, edge.rounds.work = take, object()
        edge.devices.welcome = pb.Welcome(run="r")
        say = (pb.Certificate(name="d0"), pb.Redial(device=0, edge="e1"), pb.EdgeRound(run="r"), pb.Goodbye())
        await asyncio.wait_for(edge._listen(FakeLink("cloud", *say)), 20.0)
        for task in edge._tasks:
            task.cancel()
        return taken

    assert len(asyncio.run(follow())) == 1


# Requests


def devices_of(kits: Path, passed_on: list[Any]) -> Devices:
    async def pass_on(message: Any) -> None:
        passed_on.append(type(message)())
        passed_on[-1].CopyFrom(message)

    found = Devices(load_node(kits / "e0"), asyncio.ensure_future, pass_on, SimpleNamespace(find=lambda digest: 0))
    found.welcome = pb.Welcome(run="r", stays=True)
    return found


def listened(devices: Devices, *messages: Any) -> FakeLink:
    async def listen() -> FakeLink:
        link = FakeLink("d0", *messages)
        child = Device(link=link, name="d0", about=pb.Presence.Peer(), home="e0")
        with contextlib.suppress(LinkLost):
            await devices._listen(child, SimpleNamespace())
        return link

    return asyncio.run(listen())


def test_an_edge_passes_on_a_few_requests_of_a_device_a_minute(kits):
    passed_on: list[Any] = []
    requests = [pb.CertificateRequest(request=b"x"), pb.ModelHeld(version=3, name="d1")] * 200
    listened(devices := devices_of(kits, passed_on), *requests)
    assert len(passed_on) == MOST_REQUESTS
    assert {message.name for message in passed_on} == {"d0"}, "in its own name"
    assert devices.troubles["d0"].startswith("It may ask for models and certificates 30 times a minute")


def test_a_device_that_holds_an_impossible_model_is_refused_by_its_edge_and_ends_nothing_at_the_cloud(kits, hub):
    passed_on: list[Any] = []
    link = listened(devices_of(kits, passed_on), pb.ModelHeld(version=2**64 - 1))
    assert not passed_on and "ModelHeld.version must be at most" in link.refusals[0]
    assert trouble_in_held(pb.ModelHeld(version=7)) == ""

    async def hear(*messages: Any) -> FakeLink:
        child = come(hub, "e0", link=FakeLink("e0", *messages))
        with contextlib.suppress(LinkLost):
            await hub._listen(child)
        return child.link

    assert "ModelHeld.version" in asyncio.run(hear(pb.ModelHeld(version=2**63, name="d0"))).refusals[0]


def test_what_cannot_be_written_about_a_model_does_not_end_an_edges_link(hub, tmp_path):
    registry = Registry(tmp_path / "registry.sqlite")
    registry.note_held("d0", 2**31, "")
    hub.on_held = registry.note_held
    (tmp_path / "registry.sqlite").write_bytes(b"not a data base" * 1_000)

    async def hear() -> None:
        child = come(hub, "e0", link=FakeLink("e0", pb.ModelHeld(version=1), pb.ModelHeld(version=2)))
        with pytest.raises(LinkLost, match="It has said all"):
            await hub._listen(child)

    asyncio.run(hear())


def test_the_cloud_answers_a_few_requests_for_certificates_a_minute_and_logs_them_once(hub, caplog):
    caplog.set_level(logging.INFO, "airprune")
    asked = []

    def answer(request: Any, name: str, denied: Any) -> pb.Certificate:
        asked.append(name)
        return pb.Certificate(trouble="no")

    hub.signer = SimpleNamespace(answer=answer)

    async def hear() -> None:
        child = come(hub, "e0", link=FakeLink("e0", *[pb.CertificateRequest(name="d0")] * 500))
        with pytest.raises(LinkLost):
            await hub._listen(child)

    asyncio.run(hear())
    assert len(asked) == MOST_REQUESTS and caplog.text.count("The certificate of d0 was no") == 1


# Logs and words


def test_a_member_that_says_something_else_every_time_does_not_fill_a_log(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "airprune")
    now_s, said = [0.0], OncePerMinute()
    monkeypatch.setattr(strikes.time, "monotonic", lambda: now_s[0])
    for number in range(5_000):
        now_s[0] = number / 1_000
        said.info("%s cannot take part: %s", "d3", f"{ESCAPES}{number}" * 100, of="d3")
    said.info("Refused %s: %s", "d4", "It lies.", of="d4")
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 22 and lines[20] == "What else d3 causes to be logged is left out for a minute."
    assert lines[21] == "Refused d4: It lies.", "nobody else's are left out"
    assert max(map(len, lines)) <= 1_100 and all(line.isprintable() for line in lines)
    now_s[0] = 70.0
    said.info("%s cannot take part: %s", "d3", "again", of="d3")
    assert caplog.records[-1].getMessage() == "d3 cannot take part: again"


def test_an_edge_that_invents_members_does_not_fill_the_clouds_log(hub, caplog):
    caplog.set_level(logging.INFO, "airprune")
    child = come(hub, "e0")
    for number in range(200):
        troubles = {f"x{number}-{place}": ESCAPES for place in range(64)}
        assert hub._take_presence(child, pb.Presence(run="r", troubles=troubles)) == ""
    assert sum("e0 reports of" in record.getMessage() for record in caplog.records) == 20
    assert len(child.troubles) == 64


def test_an_edge_does_not_speak_for_a_device_that_is_at_its_own_edge(hub):
    come(hub, "e0", 0, 1)
    hub.known.clear()
    hub.troubles["d0"] = "It lies."
    stranger = come(hub, "e1", 2)
    peers = {name: pb.Presence.Peer(serial="bad", software="bad") for name in ("d0", "d3")}
    hub._take_presence(stranger, pb.Presence(run="r", peers=peers))
    assert hub.troubles["d0"] == "It lies." and set(hub.known) == {"d3"}


def test_a_version_of_any_length_makes_a_short_sentence():
    sentence = check_versions(PROTOCOL, ESCAPES * 50_000)
    assert len(sentence) < 300 and sentence.isprintable()


def test_names_of_kernels_and_machines_are_short(kits):
    """All that an edge says of its devices has to fit into a frame."""
    devices = devices_of(kits, [])
    devices.welcome.devices["d0"] = 0

    async def measure() -> pb.Presence.Device:
        link = FakeLink("d0")
        child = Device(link=link, name="d0", about=pb.Presence.Peer(), home="e0")
        devices._number(child)
        said = pb.Measured(run="r", num_samples=1, kernel="\U0010ffff" * 9_999, machine="x" * 9_999)
        devices._take_measured(child, said, Packet(said, b"x", 0.0, 1.0), SimpleNamespace(feed=lambda event: None))
        return child.measured

    measured = asyncio.run(measure())
    assert len(measured.machine) == MAX_NAME and len(measured.kernel) <= 10 * MAX_NAME


# Counts and orders


def test_a_number_of_samples_is_taken_up_to_a_hundred_times_the_median():
    """Planners keep arrays as long as the local steps of the device with most samples: 2^31 of them ended a run."""
    assert believed_samples({0: 30, 1: 2**31, 2: 40}) == {1: 4_000}
    assert believed_samples({0: 30, 1: 2**31}) == {1: 3_000}
    assert believed_samples({0: 30, 1: 3_000, 2: 30}) == {}
    assert believed_samples({0: 2**31}) == {} and believed_samples({}) == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"local_steps": 2**32 - 1}, "local_steps must be at most 8"),
        ({"learning_rate": float("nan")}, "learning_rate must be finite"),
        ({"learning_rate": -1.0}, "learning_rate must be finite and not negative"),
        ({"keep": 2**63}, "keep must be at most"),
    ],
)
def test_a_device_refuses_orders_that_cannot_be_of_its_run(changes, words):
    """Else an edge that lies could have it train for days, whoever serves it then."""
    scenario = tiny_scenario()  # two epochs, minibatches of 16
    work = RunDefinition(scenario=scenario, input_shape=(8,), num_classes=4, num_devices=6, num_edges=2)
    with pytest.raises(WorkFailed, match=words):
        check_orders(pb.Orders(**changes), work, 60)


@pytest.mark.parametrize("method", [None, "adaptive-work", "timelyfl", "cocofl"])
def test_a_device_takes_the_most_work_that_its_scheme_may_plan(method):
    scenario = tiny_scenario(**({} if method is None else {"method": method}))
    work = RunDefinition(scenario=scenario, input_shape=(8,), num_classes=4, num_devices=6, num_edges=2)
    epochs = max(getattr(work.method.scheme, "most_epochs", None) or 0, 2)
    check_orders(pb.Orders(learning_rate=0.1, keep=10, local_steps=4 * epochs), work, 60)
