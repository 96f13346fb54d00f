"""`airprune web` as a process of its own, and clients that behave badly towards it."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from support.processes import PATIENCE_S, start_airprune


class WebProcess:
    """A running server; `said` is what it wrote to stderr, after its end."""

    def __init__(self, process: subprocess.Popen, address: str) -> None:
        self.process = process
        self.address = httpx.URL(address)
        self.port = self.address.port
        self.token = self.address.params["token"]
        self.url = f"http://127.0.0.1:{self.port}"
        self.said = ""

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=PATIENCE_S, **options)

    def half_sent(self, text: str, port: int | None = None) -> socket.socket:
        return half_sent(text, self.port if port is None else port)

    def memory_bytes(self) -> int:
        """Now resident."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def stop(self) -> str:
        """Ctrl-C, and what the server said in all."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        _, self.said = self.process.communicate(timeout=PATIENCE_S)
        return self.said


@contextlib.contextmanager
def web_process(runs_dir: Path, *arguments: object, **options: Any) -> Iterator[WebProcess]:
    process = start_airprune("web", runs_dir, "--port", 0, *arguments, **options)
    try:
        assert process.stdout is not None
        yield WebProcess(process, process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()


def half_sent(text: str, port: int) -> socket.socket:
    """A connection that has sent this much of a request, `{host}` filled in, and stays open."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    connection.sendall(text.replace("{host}", f"127.0.0.1:{port}").replace("\n", "\r\n").encode())
    return connection


def status_of(connection: socket.socket) -> int | None:
    """Of the answer that comes; None if the connection ends without one."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n" not in answer and (piece := connection.recv(65536)):
            answer += piece
    return int(answer.split()[1]) if answer else None


UPLOAD = "POST /api/fleet HTTP/1.1\nHost: {host}\nContent-Length: 1000000\n\ndevice,edge,snr_db\n"
EVENTS = "GET /api/runs/events HTTP/1.1\nHost: {host}\n\n"
