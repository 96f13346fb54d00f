"""Enrolment over HTTPS: devices that have a code and no certificate yet get one.

GET /authority      the authority's certificate, which a device compares with the fingerprint in its code
POST /enrol         {"secret": …, "request": a signing request in PEM} → `Enrolled`; 403 {"error": a sentence}

The server shows the cloud's certificate; devices show none. Nothing else is served, and nothing secret but the code
travels.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from airprune.deployment.identity import Node, Role, peer_of
from airprune.deployment.identity.enrolment import (
    Enrolled,
    enrol,
    fingerprint,
    key_in,
    signing_request,
    split_code,
    write_kit,
)
from airprune.deployment.identity.tables import checked_address
from airprune.errors import AirpruneError, UsageError, WorkFailed

_log = logging.getLogger("airprune")
_WITHIN_S = 15.0
_MOST_BYTES = 2**16
_MOST_AT_ONCE = 16


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "airprune", ""
    timeout = _WITHIN_S
    server: _Server

    def do_GET(self) -> None:
        if self.path != "/authority":
            return self.send_error(404)
        self._answer(200, self.server.present().authority, "application/x-pem-file")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != "/enrol" or not (length.isdecimal() and int(length) <= _MOST_BYTES):
            return self.send_error(404)
        try:
            asked = json.loads(self.rfile.read(int(length)))
            found = enrol(self.server.folder, str(asked["secret"]), str(asked["request"]).encode())
        except (ValueError, KeyError, TypeError):
            return self.send_error(400)
        except (AirpruneError, OSError) as error:
            _log.info("Refused %s: %s", self.client_address[0], error)
            return self._answer(403, json.dumps({"error": str(error)}).encode())
        _log.info("Enrolled %s for %s.", peer_of(found.certificate.encode()).name, self.client_address[0])
        return self._answer(200, json.dumps(asdict(found)).encode())

    def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], present: Callable[[], Node], folder: Path) -> None:
        self.present, self.folder = present, folder
        self._free = threading.BoundedSemaphore(_MOST_AT_ONCE)
        super().__init__(address, _Handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Speaks TLS in the thread of the connection, so that one that is slow makes no other wait."""
        if not self._free.acquire(blocking=False):
            return self.shutdown_request(request)
        try:
            request.settimeout(_WITHIN_S)
            context = _server_context(self.present())
            with contextlib.suppress(OSError, ValueError):
                super().process_request_thread(context.wrap_socket(request, server_side=True), client_address)
        finally:
            self._free.release()
            self.shutdown_request(request)


def _server_context(node: Node) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with tempfile.NamedTemporaryFile() as file:  # of mode 600; the standard library loads keys from files alone
        file.write(node.key + node.certificate)
        file.flush()
        context.load_cert_chain(file.name)
    return context


@contextlib.contextmanager
def enrolling(present: Callable[[], Node], folder: Path, port: int) -> Iterator[int]:
    """Enrols devices at this port of the cloud's host meanwhile; yields the port, which the system chooses for 0.

    Args:
      present: returns the cloud as it is now: its certificate may have been renewed.
      folder: of the federation, with its authority.
    """
    listen = present().listen
    assert listen is not None
    host = listen.rpartition(":")[0].strip("[]")
    try:
        server = _Server((host, port), present, folder)
    except OSError as error:
        raise WorkFailed(
            f"Devices cannot be enrolled at {host}:{port}: {error.strerror}; choose another port."
        ) from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def enrol_at(address: str, code: str, kit: Path) -> Node:
    """Makes a key in the kit, gets a certificate for it with a code, and writes the rest of the kit."""
    host, _, port = checked_address(address).rpartition(":")
    secret, mark = split_code(code)
    if (kit / "node.pem").exists():
        raise UsageError(f"{kit} holds a node already; choose another folder.")
    try:
        authority = _asked(host, int(port), ssl._create_unverified_context(), "GET", "/authority")
        if fingerprint(authority) != mark:
            raise WorkFailed(f"{address} is not the cloud that the code is for: its authority is another one.")
        context = ssl.create_default_context(cadata=authority.decode())
        context.check_hostname = False  # the address may be any; the role in the certificate is checked
        body = {"secret": secret, "request": signing_request(key_in(kit)).decode()}
        answer = json.loads(_asked(host, int(port), context, "POST", "/enrol", json.dumps(body)))
        return write_kit(kit, Enrolled(**{name: str(answer[name]) for name in ("certificate", "authority", "node")}))
    except AirpruneError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise WorkFailed(f"{address} cannot be asked for a certificate: {error}.") from None
    except (ValueError, KeyError, TypeError):
        raise WorkFailed(f"{address} gave an answer that is none of an enrolment.") from None


def _asked(host: str, port: int, context: ssl.SSLContext, method: str, path: str, body: str | None = None) -> bytes:
    connection = http.client.HTTPSConnection(host.strip("[]"), port, timeout=_WITHIN_S, context=context)
    try:
        connection.connect()
        if context.verify_mode is ssl.CERT_REQUIRED:
            shown = connection.sock.getpeercert(binary_form=True)
            assert shown is not None
            peer = peer_of(ssl.DER_cert_to_PEM_cert(shown).encode())
            if peer.role is not Role.CLOUD:
                raise WorkFailed(f"{host}:{port} is {peer.uri}, which is no cloud.")
        connection.request(method, path, body)
        answer = connection.getresponse()
        content = answer.read(_MOST_BYTES)
        if answer.status == 403:
            raise UsageError(str(json.loads(content)["error"]))
        if answer.status != 200:
            raise WorkFailed(f"{host}:{port} answered {answer.status} {answer.reason}.")
        return content
    finally:
        connection.close()
