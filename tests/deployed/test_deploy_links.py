"""Links of a deployment: the time model, pacing, the gateway's shaping; and all three on real shaped links."""

import json
import subprocess
import sys

import pytest

from airprune.deployment.pacing import (
    LARGEST_CHUNK_BYTES,
    LAST_CHUNK_BYTES,
    WIRE_OVERHEAD,
    Pacer,
    chunk_bytes,
    chunks,
    link_rate_bps,
    payload_rate_bps,
    received_bps,
    upload_s,
)
from airprune.deployment.shaping import htb_commands
from support.each import each
from support.link_uploads import uploading
from support.namespaces import Link, network


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_an_upload_takes_a_round_trip_and_its_frames():
    # 1448 payload bytes of TLS stream fill one frame of 1514 bytes: 1.5140 ms at 8 Mbit/s, and records add 22 / 16384.
    assert upload_s(1448, 8e6) == pytest.approx(1.514e-3 * (1 + 22 / 16384))
    assert upload_s(1448, 8e6, 0.02) == pytest.approx(0.02 + upload_s(1448, 8e6))
    assert pytest.approx(1.047, abs=5e-5) == WIRE_OVERHEAD


def test_the_rate_of_a_link_is_the_inverse_of_the_rate_of_its_payload():
    assert link_rate_bps(payload_rate_bps(4e7)) == pytest.approx(4e7)


def test_chunks_go_at_their_rate_whatever_the_sleeps_add():
    clock = Clock()
    pacer = Pacer(8e6, clock)  # 1 MB/s: a chunk of 4 kB every 4 ms
    sent_at_s = []
    for _ in range(1000):
        if wait_s := pacer.delay_s(4000):
            clock.sleep(wait_s + 0.0015)
        sent_at_s.append(clock() - 100.0)
    assert sent_at_s[0] == 0
    for number, at_s in enumerate(sent_at_s):
        assert -1e-9 <= at_s - 0.004 * number <= 0.0015 + 1e-9  # never early, and no sum of late sleeps


def test_a_sender_that_was_held_up_catches_up_by_50_ms_only():
    clock = Clock()
    pacer = Pacer(8e6, clock)
    clock.sleep(60.0)  # the schedule begins with the first chunk
    assert pacer.delay_s(4000) == 0 and pacer.delay_s(4000) == pytest.approx(0.004)
    clock.sleep(60.0)
    at_once = 0
    while pacer.delay_s(4000) == 0:
        at_once += 4000
    assert 50_000 <= at_once < 50_000 + 4000  # 50 ms at 1 MB/s, in whole chunks


@each("rate_bps", [None, 1e5, 10e6, 80e6, 10e9])
@each("size", [1, 1_448, 1_449, 200_000, 2_000_000])
def test_chunks_cover_the_payload_and_the_last_one_ends_it_in_time(size, rate_bps):
    parts = list(chunks(size, rate_bps))
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == size
    assert all(0 < part.stop - part.start <= LARGEST_CHUNK_BYTES for part in parts)
    if rate_bps:
        clock = Clock()
        pacer = Pacer(rate_bps, clock)
        for part in parts:
            clock.sleep(pacer.delay_s(part.stop - part.start))
            assert clock() - 100.0 == pytest.approx(8 * part.start / rate_bps)
        assert size - parts[-1].start <= LAST_CHUNK_BYTES


def test_chunks_are_smaller_where_the_rate_is():
    sizes = [chunk_bytes(rate) for rate in (1e5, 2e7, 4e7, 1e10)]
    assert sizes == [5792, 10_000, 20_000, 65_536]


PLAN = {
    "edges": [{"edge": "e0", "status": "ok"}, {"edge": "e1", "status": "ok"}],
    "devices": [
        {"device": "d0", "edge": "e0", "bandwidth_share": 0.6, "pruning_ratio": 0.3, "latency_ms": 30.0},
        {"device": "d1", "edge": "e0", "bandwidth_share": 0.4, "pruning_ratio": 0.5, "latency_ms": 30.0},
        {"device": "d2", "edge": "e1", "bandwidth_share": 1.0, "pruning_ratio": 0.0, "latency_ms": 20.0},
    ],
}


@pytest.fixture
def shape(command, tmp_path):
    """`deploy shape` of a plan: (exit status, lines, the error)."""

    def call(plan, *options):
        path = tmp_path / "plan.json"
        path.write_text(plan if isinstance(plan, str) else json.dumps(plan))
        status, out, err = command("deploy", "shape", path, "--interface", "eth0", *options)
        return status, out.splitlines(), err

    return call


def test_shares_of_a_plan_become_classes_of_a_gateway(shape):
    addresses = ("--address", "d0=192.168.1.20", "--address", "d1=fd00::21")
    status, lines, _ = shape(PLAN, "--edge", "e0", "--capacity-mbps", 50, *addresses)
    assert status == 0
    assert lines[1:] == [
        "tc qdisc add dev eth0 root handle 1: htb",
        "tc class add dev eth0 parent 1: classid 1:1 htb rate 30000000bit ceil 30000000bit burst 16384b cburst 16384b "
        "quantum 1514",
        "tc filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip src 192.168.1.20/32 flowid 1:1",
        "tc class add dev eth0 parent 1: classid 1:2 htb rate 20000000bit ceil 20000000bit burst 16384b cburst 16384b "
        "quantum 1514",
        "tc filter add dev eth0 parent 1: protocol ipv6 prio 2 u32 match ip6 src fd00::21/128 flowid 1:2",
    ]


def test_what_airprune_plan_prints_can_be_shaped(command, shape, tmp_path):
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("device,edge,snr_db\nd0,e0,20\nd1,e0,15\n")
    planned = json.loads(text := command("plan", fleet, "--json")[1])["devices"]
    _, lines, _ = shape(text, "--capacity-mbps", 100, "--address", "d0=10.0.0.1", "--address", "d1=10.0.0.2")
    assert [line.split("rate ")[1].split("bit")[0] for line in lines if " class " in line] == [
        str(round(1e8 * device["bandwidth_share"])) for device in planned
    ]


def test_a_run_is_shaped_by_its_last_round(command, tmp_path):
    rounds = [
        {"kind": "edge", "device": [0, 2], "edge": [0, 1], "bandwidth_share": share} for share in ([1, 1], [0.5, 1])
    ]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in rounds))
    options = ("--interface", "eth0", "--edge", "e0", "--capacity-mbps", 10, "--address", "d0=10.0.0.1")
    status, out, _ = command("deploy", "shape", tmp_path, *options)
    assert status == 0 and "rate 5000000bit" in out


BAD_SHAPES = {
    "has shares but no rates; --capacity-mbps": (PLAN, ["--address", "d0=10.0.0.1"]),
    "got none for d1": (PLAN, ["--capacity-mbps", 50, "--edge", "e0", "--address", "d0=10.0.0.1"]),
    "must be another for each device, got 10.0.0.1 for d0 and d1": (
        PLAN,
        ["--capacity-mbps", 50, "--edge", "e0", "--address", "d0=10.0.0.1", "--address", "d1=10.0.0.1"],
    ),
    "device 'd9' is unknown": (PLAN, ["--capacity-mbps", 50, "--address", "d9=10.0.0.1"]),
    "edge 'e7' is unknown": (PLAN, ["--capacity-mbps", 50, "--edge", "e7"]),
    "with an IP address, got d2=host; reboot": (
        PLAN,
        ["--capacity-mbps", 50, "--edge", "e1", "--address", "d2=host; reboot"],
    ),
    "must be DEVICE=ADDRESS, got 'd0'": (PLAN, ["--capacity-mbps", 50, "--address", "d0"]),
    "--capacity-mbps must be > 0": (PLAN, ["--capacity-mbps", 0]),
    "name of a network interface, got '$(reboot)'": (PLAN, ["--capacity-mbps", 50, "--interface", "$(reboot)"]),
    "device d0 has no bandwidth share": ([{"device": "d0", "bandwidth_share": None}], ["--capacity-mbps", 50]),
    "must have a column bandwidth_share or rate_bps": ([{"device": "d0"}], []),
    "plan.json": ("{", []),
}


@pytest.mark.parametrize("sentence", BAD_SHAPES)
def test_bad_input_is_one_sentence(shape, sentence):
    plan, options = BAD_SHAPES[sentence]
    status, lines, err = shape(plan, *options)
    assert (status, lines) == (2, [])
    assert err.count("\n") == 1 and sentence in err


def fastest(upload, *arguments):
    """The fastest of twelve: other load only adds time, and a bucket's burst of 16 kB takes at most 8 % off it."""
    return min((upload(*arguments) for _ in range(12)), key=lambda one: one.seconds)


@pytest.mark.netns
@pytest.mark.parametrize(("mbps", "num_bytes"), [(10, 200_000), (20, 400_000), (40, 600_000), (80, 1_000_000)])
def test_uploads_over_real_links_take_what_the_model_says(tmp_path, mbps, num_bytes):
    with network({"edge": Link(), "d0": Link(mbps=mbps)}) as net, uploading(net, "d0", "edge", tmp_path) as upload:
        timed = fastest(upload, num_bytes)
    assert 0.90 < timed.seconds / upload_s(num_bytes, mbps * 1e6, timed.rtt_s) < 1.15


@pytest.mark.netns
def test_a_paced_upload_over_a_faster_and_longer_link_takes_its_planned_time(tmp_path):
    links = {"edge": Link(), "d0": Link(mbps=80, delay_s=0.01)}
    with network(links) as net, uploading(net, "d0", "edge", tmp_path) as upload:
        timed = fastest(upload, 300_000, 16e6)
    assert 0.02 < timed.rtt_s < 0.05
    assert 0.90 < timed.seconds / upload_s(300_000, 16e6, timed.rtt_s) < 1.15
    assert received_bps(300_000, *timed.spans_s[0]) < 1.15 * payload_rate_bps(16e6)


@pytest.mark.netns
def test_the_gateway_holds_a_device_that_does_not_pace_to_its_share(tmp_path):
    with network({"edge": Link(), "d0": Link(mbps=80), "d1": Link(mbps=80)}) as net:
        shares = {"d0": 16e6, "d1": 32e6}
        script = "\n".join(htb_commands(net.port("edge"), shares, {name: net.address(name) for name in shares}))
        for _ in range(2):  # a second time replaces the first, and neither is warned of
            done = subprocess.run(net.on_bridge("sh", "-e", "-c", script), capture_output=True, text=True, timeout=20)
            assert (done.returncode, done.stderr) == (0, "")
        for name, rate_bps in shares.items():
            with uploading(net, name, "edge", tmp_path) as upload:
                timed = fastest(upload, 200_000)
            assert 0.90 < timed.seconds / upload_s(200_000, rate_bps, timed.rtt_s) < 1.15


@pytest.mark.netns
def test_a_link_can_be_slowed_cut_and_restored_while_it_is_used(tmp_path):
    dial = "import socket, sys; sys.exit(socket.socket().connect_ex((sys.argv[1], 9)) == errno.ECONNREFUSED)"
    dial = f"import errno, socket; socket.setdefaulttimeout(0.3); {dial}"

    def answers() -> bool:
        command = net.inside("d0", sys.executable, "-c", dial, net.address("edge"))
        return subprocess.run(command, timeout=20).returncode == 1

    with network({"edge": Link(), "d0": Link(mbps=40)}) as net:
        with uploading(net, "d0", "edge", tmp_path) as upload:
            net.set_rate("d0", 20)
            timed = fastest(upload, 200_000)
        assert 0.90 < timed.seconds / upload_s(200_000, 20e6, timed.rtt_s) < 1.15
        assert answers()
        net.cut("d0")
        assert not answers()
        net.restore("d0")
        assert answers()


@pytest.mark.netns
def test_nothing_is_left_of_a_network_even_after_a_failure():
    def here() -> list[str]:
        listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout.split("\n")
        return [name for name in listed if name.startswith(net._prefix)]

    with pytest.raises(ZeroDivisionError), network({"d0": Link(mbps=1), "d1": Link(delay_s=0.01)}) as net:
        sleeper = subprocess.Popen(net.inside("d0", "sleep", "60"))
        assert len(here()) == 3
        raise ZeroDivisionError
    assert here() == []
    assert sleeper.wait(timeout=5) < 0


def test_rate_of_what_came_after_the_first_chunk():
    assert received_bps(1_000_000, 2.0, 3.0) == 8e6
    assert received_bps(1, 2.0, 2.0) == float("inf")
