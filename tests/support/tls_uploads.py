"""Uploads over TLS from one process to another, timed by the one that sends.

    python -m support.tls_uploads receive ADDRESS CERTIFICATE
    python -m support.tls_uploads send ADDRESS CERTIFICATE [CONGESTION CONTROL]

The sender takes orders on standard input, one JSON line per upload: `bytes`, `pace_bps` (of the link; null: as fast as
it goes) and `chunk` (null: by the rate). It answers each with `seconds`, from the first byte to the receipt, the idle
connection's `rtt_s`, and the receiver's `first_s` and `last_s`. CERTIFICATE is a PEM file with the key.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from airprune.deployment.link_times import payload_rate_bps
from airprune.deployment.pacing import LARGEST_CHUNK_BYTES, Pacer, chunk_bytes
from support.namespaces import Network

PORT = 4433
_ANNOUNCED, _RECEIPT = struct.Struct("!QI"), struct.Struct("!dd")
_PINGS = 5
WARM_UP_BYTES = 100_000  # the handshake and the first windows


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One upload; what the fields are is told above."""

    seconds: float
    rtt_s: float
    first_s: float
    last_s: float


@contextlib.contextmanager
def uploading(
    net: Network, sender: str, receiver: str, folder: Path, *, control: str | None = None
) -> Iterator[Callable[..., Timed]]:
    """A warm connection between two nodes, as `upload(num_bytes, pace_bps=None, chunk=None)`.

    Args:
      control: the sender's congestion control; by default the machine's.
    """
    certificate = folder / "upload.pem"
    certificate.write_bytes(_self_signed())
    with contextlib.ExitStack() as stack:

        def started(node: str, role: str, *options: str) -> subprocess.Popen[str]:
            command = net.inside(node, sys.executable, "-m", "support.tls_uploads", role)
            command += [net.address(receiver), str(certificate), *options]
            paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            process = subprocess.Popen(command, env=environment, text=True, **pipes)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        assert started(receiver, "receive").stdout.readline() == "ready\n"
        client = started(sender, "send", *filter(None, [control]))

        def upload(num_bytes: int, pace_bps: float | None = None, chunk: int | None = None) -> Timed:
            client.stdin.write(json.dumps(dict(bytes=num_bytes, pace_bps=pace_bps, chunk=chunk)) + "\n")
            client.stdin.flush()
            return Timed(**json.loads(client.stdout.readline()))

        upload(WARM_UP_BYTES)
        yield upload


def _self_signed() -> bytes:
    """A certificate for a day and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "upload")])
    now = datetime.datetime.now(datetime.UTC)
    request = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    request = request.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    encoding, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
    return request.sign(key, hashes.SHA256()).public_bytes(encoding) + key.private_bytes(
        encoding, serialization.PrivateFormat.PKCS8, no_password
    )


def receive(address: str, certificate: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with socket.create_server((address, PORT)) as server:
        _say("ready")
        connection = context.wrap_socket(server.accept()[0], server_side=True)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while head := connection.recv(_ANNOUNCED.size):
                num_bytes, first_bytes = _ANNOUNCED.unpack(head)
                connection.sendall(_RECEIPT.pack(*_received(connection, num_bytes, first_bytes)))


def _received(connection: ssl.SSLSocket, num_bytes: int, first_bytes: int) -> tuple[float, float]:
    """When the first chunk and all of it had come."""
    buffer, got, first_s = memoryview(bytearray(LARGEST_CHUNK_BYTES)), 0, time.monotonic()
    while got < num_bytes:
        wanted = (first_bytes if got < first_bytes else num_bytes) - got
        got += connection.recv_into(buffer, min(wanted, len(buffer)))
        if got == first_bytes:
            first_s = time.monotonic()
    return first_s, time.monotonic()


def send(address: str, certificate: str, control: str | None = None) -> None:
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False  # the certificate itself is the authority
    connection = context.wrap_socket(socket.create_connection((address, PORT), timeout=30))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if control:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    payload = bytes(2**22)
    with connection:
        for line in sys.stdin:
            order = json.loads(line)
            rtt_s = min(_upload(connection, b"", None, 1)[0] for _ in range(_PINGS))
            rate_bps = order["pace_bps"] and payload_rate_bps(order["pace_bps"])
            chunk = order["chunk"] or (chunk_bytes(rate_bps) if rate_bps else LARGEST_CHUNK_BYTES)
            seconds, first_s, last_s = _upload(connection, payload[: order["bytes"]], rate_bps, chunk)
            _say(json.dumps(dict(seconds=seconds, rtt_s=rtt_s, first_s=first_s, last_s=last_s)))


def _upload(
    connection: ssl.SSLSocket, payload: bytes, rate_bps: float | None, chunk: int
) -> tuple[float, float, float]:
    started_s = time.monotonic()
    pacer = Pacer(rate_bps) if rate_bps else None
    connection.sendall(_ANNOUNCED.pack(len(payload), min(chunk, len(payload))))
    for start in range(0, len(payload), chunk):
        piece = payload[start : start + chunk]
        if pacer and (wait_s := pacer.delay_s(len(piece))):
            time.sleep(wait_s)
        connection.sendall(piece)
    first_s, last_s = _RECEIPT.unpack(connection.recv(_RECEIPT.size))
    return time.monotonic() - started_s, first_s, last_s


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    {"receive": receive, "send": send}[sys.argv[1]](*sys.argv[2:])
