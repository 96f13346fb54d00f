"""The child's side of a link."""

from __future__ import annotations

import asyncio
import contextlib

import grpc

from airprune.deployment.transport.frames import Limits
from airprune.deployment.transport.links import STREAM_ERRORS, Link, LinkLost, Remote
from airprune.errors import InvalidValue

METHOD = "/airprune.v1.Airprune/Link"
_IDENTITY_ONLY = 1

# What gRPC says when a connection cannot be made, and what it means.
_MEANINGS = {
    "CERTIFICATE_VERIFY_FAILED": "{address} showed a certificate of another authority, an expired one, or no server's.",
    "Hostname Verification Check failed": "{address} is another node: its certificate is not for {name}.",
    "Connection refused": "No process listens at {address}.",
    "Failed to connect to remote host": "{address} cannot be reached.",
    "errors resolving": "{address} is not an address that this machine can find.",
    "last error: UNAVAILABLE": "{address} hung up at once; it may not accept this node's certificate.",
}


def options(limits: Limits) -> list[tuple[str, int | str]]:
    """Returns the options of gRPC that both sides use."""
    return [
        ("grpc.max_receive_message_length", limits.max_frame_bytes),
        ("grpc.max_send_message_length", limits.max_frame_bytes),
        # A few compressed bytes could become any number.
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
    ]


def check_is_private(address: str, credentials: object) -> None:
    """Refuses to do without credentials, except on loopback."""
    if credentials is None and address.rpartition(":")[0] != "127.0.0.1":
        raise InvalidValue(
            "credentials",
            "may be missing at 127.0.0.1 only",
            address,
            "Use the certificates of a credentials bundle (kit).",
        )


class _Dialled:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._call = channel.stream_stream(METHOD)()

    async def read(self) -> bytes | None:
        data = await self._call.read()
        return None if data is grpc.aio.EOF else data

    async def write(self, data: bytes) -> None:
        await self._call.write(data)

    async def finish(self) -> None:
        with contextlib.suppress(*STREAM_ERRORS):
            await self._call.done_writing()
            await self._call.code()

    def cut(self) -> None:
        self._call.cancel()

    async def release(self) -> None:
        await self._channel.close()


async def dial(
    address: str,
    *,
    credentials: grpc.ChannelCredentials | None,
    server_name: str = "",
    limits: Limits | None = None,
) -> Link:
    """Returns a link to `address` ("host:port") whose peer has answered a heartbeat within `limits.hello_within_s`.

    `server_name` is the name that must stand in the parent's certificate, if that is not the host's.
    Raises LinkLost: no process there, not the right certificate, or Refused at once.
    """
    limits = limits or Limits()
    check_is_private(address, credentials)
    # Connections are not shared, nor is the waiting of one that has failed.
    chosen = [*options(limits), ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
    if server_name:
        chosen.append(("grpc.ssl_target_name_override", server_name))
    if credentials is None:
        channel = grpc.aio.insecure_channel(address, chosen)
    else:
        channel = grpc.aio.secure_channel(address, credentials, chosen)
    link = Link(_Dialled(channel), Remote(address), limits, awaits_hello=False)
    try:
        async with asyncio.timeout(limits.hello_within_s):
            await link.wait_rtt()
    except TimeoutError:
        await link.close()
        raise LinkLost(f"{address} did not answer within {limits.hello_within_s:g} s.") from None
    except LinkLost as lost:
        await link.close()
        for words, meaning in _MEANINGS.items():
            if words in str(lost):
                raise LinkLost(meaning.format(address=address, name=server_name or address)) from None
        raise
    except asyncio.CancelledError:
        await link.close()
        raise
    return link
