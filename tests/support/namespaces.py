"""Computers on shaped links, all of them on this machine: network namespaces on a bridge that has one of its own.

    with network({"edge": Link(), "d0": Link(mbps=10), "d1": Link(mbps=20, delay_s=0.01)}) as net:
        subprocess.run(net.inside("d0", sys.executable, "-m", …))

Addresses are 10.77.0.x and exist only in there; the machine's own network is not touched.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_SUBNET = "10.77.0"
_COMMAND_S = 20

# A bucket lets this much pass at once after a pause; with more, short uploads would be faster than the link.
_BURST_BYTES = 16_384
_QUEUE_S = 0.4


@dataclass(frozen=True, kw_only=True)
class Link:
    """A node's way to the bridge.

    Attributes:
      mbps: Mbit/s of its uplink, Ethernet headers included; None for as fast as it goes.
      delay_s: each way, by a process of our own (`support.delay`).
    """

    mbps: float | None = None
    delay_s: float = 0.0


class Network:
    """Nodes by name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._prefix = f"airprune-{os.getpid()}-{secrets.token_hex(2)}"
        self._number = {name: number for number, name in enumerate(names, start=1)}
        self._delays: list[subprocess.Popen[str]] = []

    def address(self, name: str) -> str:
        return f"{_SUBNET}.{self._number[name]}"

    def port(self, name: str) -> str:
        """The bridge's interface towards a node."""
        return f"port{self._number[name]}"

    def inside(self, name: str, *command: str) -> list[str]:
        """The command that runs another one on a node."""
        return ["ip", "netns", "exec", self._namespace(name), *command]

    def on_bridge(self, *command: str) -> list[str]:
        """The same where all links meet."""
        return ["ip", "netns", "exec", self._prefix, *command]

    def set_rate(self, name: str, mbps: float) -> None:
        """Shapes a node's uplink, also while it is in use."""
        limits = ["rate", f"{mbps}mbit", "burst", f"{_BURST_BYTES}b", "latency", f"{_QUEUE_S * 1000:g}ms"]
        _do(*self.inside(name, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *limits))

    def cut(self, name: str) -> None:
        """Pulls the cable; nobody is told."""
        _do(*self.on_bridge("ip", "link", "set", self.port(name), "nomaster"))

    def restore(self, name: str) -> None:
        _do(*self.on_bridge("ip", "link", "set", self.port(name), "master", "bridge"))

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{self._number[name]}"

    def _make(self, links: Mapping[str, Link]) -> None:
        _do("ip", "netns", "add", self._prefix)
        _do(*self.on_bridge("ip", "link", "add", "bridge", "type", "bridge"))
        _do(*self.on_bridge("ip", "link", "set", "bridge", "up"))
        for name, link in links.items():
            _do("ip", "netns", "add", self._namespace(name))
            (self._join if link.delay_s == 0 else self._join_slowly)(name, link.delay_s)
            _do(*self.on_bridge("ip", "link", "set", self.port(name), "master", "bridge", "up"))
            for setting in (
                ["address", "add", f"{self.address(name)}/24", "dev", "eth0"],
                ["link", "set", "eth0", "up"],
            ):
                _do(*self.inside(name, "ip", *setting))
            _do(*self.inside(name, "ip", "link", "set", "lo", "up"))
            if link.mbps is not None:
                self.set_rate(name, link.mbps)

    def _join(self, name: str, _: float) -> None:
        port = ["name", self.port(name), "netns", self._prefix]
        _do("ip", "link", "add", "eth0", "netns", self._namespace(name), "type", "veth", "peer", *port)
        # Frames as a cable has them: shapers would see 64 kB at once where the kernel leaves cutting to the interface.
        _do(*self.inside(name, "ip", "link", "set", "eth0", "gso_max_segs", "1"))
        _do(*self.on_bridge("ip", "link", "set", self.port(name), "gso_max_segs", "1"))

    def _join_slowly(self, name: str, delay_s: float) -> None:
        far = f"far{self._number[name]}"
        program = [sys.executable, "-m", "support.delay", self.port(name), far, str(delay_s)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen(self.on_bridge(*program), env=environment, text=True, **pipes)
        self._delays.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        _do(*self.on_bridge("ip", "link", "set", far, "netns", self._namespace(name), "name", "eth0"))

    def _remove(self) -> None:
        """All of it, whatever has been made, and whoever still runs in there."""
        for process in self._delays:
            with process:
                process.kill()
        for namespace in [*map(self._namespace, self._number), self._prefix]:
            found = subprocess.run(
                ["ip", "netns", "pids", namespace], capture_output=True, text=True, timeout=_COMMAND_S
            )
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, timeout=_COMMAND_S)


@contextlib.contextmanager
def network(links: Mapping[str, Link]) -> Iterator[Network]:
    made = Network(tuple(links))
    try:
        made._make(links)
        yield made
    finally:
        made._remove()


@functools.cache
def can_make_namespaces() -> bool:
    """Whether this machine and user can; tests that need them are skipped otherwise."""
    try:
        with network({"one": Link(mbps=1), "other": Link(delay_s=0.001)}):
            return True
    except (OSError, AssertionError, subprocess.SubprocessError):
        return False


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_COMMAND_S)
