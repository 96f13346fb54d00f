"""The parent's side of its children's links."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType

import grpc

from airprune.deployment.transport.client import METHOD, check_is_private, options
from airprune.deployment.transport.frames import Limits
from airprune.deployment.transport.links import FAREWELL_S, Link, LinkLost, Remote
from airprune.errors import WorkFailed

_log = logging.getLogger("airprune")


class _Served:
    """Ends when its handler returns, which waits for `over`."""

    def __init__(self, context: grpc.aio.ServicerContext) -> None:
        self._context = context
        self.over = asyncio.Event()

    async def read(self) -> bytes | None:
        data = await self._context.read()
        return None if data is grpc.aio.EOF else data

    async def write(self, data: bytes) -> None:
        await self._context.write(data)

    async def finish(self) -> None:
        self.over.set()

    def cut(self) -> None:
        self.over.set()

    async def release(self) -> None:
        pass


class Server:
    """Listens while it is entered; each child that dials gets a task of its own that runs `on_link`.

        async with Server("127.0.0.1:0", credentials=…, on_link=serve_device, limits=Limits()) as server:
            print(server.port)

    The link is closed when `on_link` returns. What it raises ends that link alone: a lost link silently, anything else
    is logged.
    """

    def __init__(
        self,
        listen: str,
        *,
        credentials: grpc.ServerCredentials | None,
        on_link: Callable[[Link], Awaitable[None]],
        limits: Limits | None = None,
    ) -> None:
        check_is_private(listen, credentials)
        self.port = 0
        self._listen = listen
        self._credentials = credentials
        self._on_link = on_link
        self._limits = limits or Limits()
        self._owners: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Server:
        within_ms = round(1000 * self._limits.hello_within_s)
        # Kept: a server without a reference stops silently.
        self._server = grpc.aio.server(
            options=[
                *options(self._limits),
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", 1),
                # Who connects and does not go on: before TLS, and before the stream.
                ("grpc.server_handshake_timeout_ms", within_ms),
                ("grpc.max_connection_idle_ms", within_ms),
            ]
        )
        handler = grpc.stream_stream_rpc_method_handler(self._handle)
        service, _, method = METHOD.removeprefix("/").partition("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        try:
            if self._credentials is None:
                self.port = self._server.add_insecure_port(self._listen)
            else:
                self.port = self._server.add_secure_port(self._listen, self._credentials)
        except RuntimeError:
            raise WorkFailed(
                f"Cannot listen at {self._listen}: another process does, or the host is not this machine's. "
                "Example: 0.0.0.0:0 for any free port."
            ) from None
        await self._server.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        owners = list(self._owners)
        for owner in owners:
            owner.cancel()
        try:
            await asyncio.gather(*owners, return_exceptions=True)
            await self._server.stop(FAREWELL_S)
        except asyncio.CancelledError:  # no time for farewells, but the port is to be free
            await self._server.stop(None)
            raise

    async def _handle(self, requests: object, context: grpc.aio.ServicerContext) -> None:
        """Lasts as long as the stream; gRPC cancels it when the peer is lost, which the owner learns from its link."""
        stream = _Served(context)
        certificate = context.auth_context().get("x509_pem_cert", [b""])[0]
        link = Link(stream, Remote(context.peer(), certificate), self._limits, awaits_hello=True)
        if len(self._owners) >= self._limits.max_links:
            return await link.refuse(f"there are {self._limits.max_links:,} links already; try again later.")
        owner = asyncio.create_task(self._own(link))
        self._owners.add(owner)
        owner.add_done_callback(self._owners.discard)
        try:
            await stream.over.wait()
        finally:
            link.lose("closed by the peer")

    async def _own(self, link: Link) -> None:
        try:
            await self._on_link(link)
        except Exception as error:
            if not (isinstance(error, LinkLost) and link.is_lost):
                _log.exception("The link to %s ended by an error", link.name)
                await link.refuse("an error at this side; see its log.")
        finally:
            await link.close()
