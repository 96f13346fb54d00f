"""Members of a federation with certificates of their own that lie, repeat themselves, are silent or flood their parent.

Each has one lie, chosen and varied by its seed. What they send is well-formed for the transport unless the lie is about
that: real TLS, real gRPC, messages of the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from airprune.deployment.device import Device
from airprune.deployment.digests import digest_of
from airprune.deployment.edge import Edge
from airprune.deployment.estimates import PROBES
from airprune.deployment.packing import ReportArrays
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import RoundKey
from airprune.deployment.secure.signing import signed_keys
from airprune.deployment.transport import Link, LinkLost
from airprune.rounds.wire import HEADER_BYTES

EXTREMES = (math.nan, math.inf, -math.inf, 1e308, -1e308, -1.0, 1e12)
SPEEDS = (*EXTREMES, 1e-300, 1e-7, 1e4 + 1)
COUNTS = (2**31 + 1, 2**40, 2**63, 2**64 - 1)
ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\n\u202eforged line\x9b31m"


def resealed(data: bytes) -> bytes:
    """A changed upload with the right digest."""
    return data[:32] + digest_of(data[:32], data[48:]) + data[48:]


def with_last_value(data: bytes, value: float) -> bytes:
    """An upload whose last weight is another, in as many bits as its header says."""
    size = data[5] // 8
    return resealed(data[:-size] + np.array(value, dtype=f"<f{size}").tobytes())


def with_statistic(data: bytes, place: int, form: str, value: float) -> bytes:
    """An upload with another of its statistics: 0 samples, 1 code error, 2 loss, …"""
    start = HEADER_BYTES + 8 * place
    return resealed(data[:start] + struct.pack(form, value) + data[start + 8 :])


@dataclass(frozen=True)
class Lie:
    """A way to be hostile.

    Attributes:
      measure: changes what the device measured.
      upload: changes message and payload of an upload; None: it is not sent.
      beside: what it sends beside its honest work.
      is_named: whether it breaks a rule, and so must be named.
    """

    measure: Callable[[Any, pb.Measured], None] | None = None
    upload: Callable[[Any, pb.Upload, bytes], bytes | None] | None = None
    beside: Callable[[HostileDevice, Link, pb.Upload, bytes], Awaitable[None]] | None = None
    is_named: bool = True


def _set(field: str, values: tuple[Any, ...]) -> Callable[..., None]:
    def change(rng: Any, message: Any, *_: Any) -> None:
        setattr(message, field, values[rng.integers(len(values))])

    return change


def _payload(change: Callable[[Any, bytes], bytes]) -> Callable[..., bytes]:
    return lambda rng, message, data: change(rng, data)


def _pick(rng: Any, values: tuple[Any, ...]) -> Any:
    return values[rng.integers(len(values))]


def _flipped(rng: Any, data: bytes) -> bytes:
    changed = bytearray(data)
    changed[rng.integers(len(changed))] ^= int(rng.integers(1, 256))
    return bytes(changed)


def _kept(field: str, values: tuple[Any, ...]) -> Callable[..., bytes]:
    def change(rng: Any, message: Any, data: bytes) -> bytes:
        setattr(message, field, _pick(rng, values))
        return data

    return change


async def _flood(device: HostileDevice, link: Link, upload: pb.Upload, data: bytes) -> None:
    for number in range(300):
        await link.send(pb.Measured(run=upload.run, num_samples=30, num_more=number % 2))


async def _flood_of_words(device: HostileDevice, link: Link, upload: pb.Upload, data: bytes) -> None:
    for number in range(100):
        await link.send(pb.Upload(run=f"{ESCAPES}{number}", failure=ESCAPES))


async def _replays(device: HostileDevice, link: Link, upload: pb.Upload, data: bytes) -> None:
    for _ in range(5):
        await link.send(upload, data)
    for number in (0, 1, 2**32 - 1):
        await link.send(pb.Upload(run=upload.run, global_round=number, edge_round=7, round_index=number), data)
    await link.send(pb.Upload(run="another"), data)


async def _other_names(device: HostileDevice, link: Link, upload: pb.Upload, data: bytes) -> None:
    await link.send(pb.ModelHeld(name="d0", version=2**63, trouble=ESCAPES))
    await link.send(pb.CertificateRequest(name="d0", request=b"x", certificate=b"y", proof=b"z"))
    await link.send(pb.ModelRequest(digest=ESCAPES))


async def _impossible_model(device: HostileDevice, link: Link, upload: pb.Upload, data: bytes) -> None:
    await link.send(pb.ModelHeld(version=_pick(device.rng, COUNTS)))


async def _other_words(device: HostileDevice, link: Link, upload: pb.Upload, data: bytes) -> None:
    for number in range(200):
        await link.send(pb.Measured(run=upload.run, trouble=f"{number} {ESCAPES}"))


async def _requests(device: HostileDevice, link: Link, upload: pb.Upload, data: bytes) -> None:
    for _ in range(200):
        await link.send(pb.CertificateRequest(request=os.urandom(9)))
        await link.send(pb.ModelRequest(digest="0" * 64))


async def _other_role(device: HostileDevice, link: Link, upload: pb.Upload, data: bytes) -> None:
    kinds = (pb.EdgeReport(run=upload.run), pb.Presence(run=upload.run), pb.Welcome(), pb.Goodbye(reason=ESCAPES))
    await link.send(_pick(device.rng, kinds))


async def _bad_frame(device: HostileDevice, link: Link, upload: pb.Upload, data: bytes) -> None:
    with contextlib.suppress(LinkLost):
        await link._post([os.urandom(50)])  # what no peer of this protocol sends


DEVICE_LIES: dict[str, Lie] = {
    "speed": Lie(measure=_set("seconds_per_sample", SPEEDS)),
    "slow": Lie(measure=_set("seconds_per_sample", (100.0, 9e3)), is_named=False),
    "samples": Lie(measure=_set("num_samples", (0, *COUNTS))),
    "parts": Lie(measure=lambda rng, said: said.parts.extend([pb.Part(seconds=_pick(rng, EXTREMES))] * 3)),
    "names": Lie(measure=_set("kernel", (ESCAPES,)), is_named=False),
    "compute": Lie(upload=_kept("compute_s", EXTREMES)),
    "short": Lie(upload=_payload(lambda rng, data: resealed(data[: -4 * int(rng.integers(1, 9))]))),
    "long": Lie(upload=_payload(lambda rng, data: resealed(data + bytes(int(rng.integers(1, 100_000)))))),
    "noise": Lie(upload=_payload(lambda rng, data: rng.bytes(int(rng.integers(1, 2_000))))),
    "flipped": Lie(upload=_payload(_flipped)),
    "header": Lie(upload=_payload(lambda rng, data: resealed(data[:8] + rng.bytes(3) + b"\x7f" + data[12:]))),
    "not finite": Lie(upload=_payload(lambda rng, data: with_last_value(data, _pick(rng, EXTREMES[:3])))),
    "huge": Lie(upload=_payload(lambda rng, data: with_last_value(data, _pick(rng, (1e20, 1e30, -3e38))))),
    "loss": Lie(upload=_payload(lambda rng, data: with_statistic(data, 2, "<d", _pick(rng, EXTREMES[:5])))),
    "trained on": Lie(upload=_payload(lambda rng, data: with_statistic(data, 0, "<Q", _pick(rng, COUNTS)))),
    "error": Lie(upload=_payload(lambda rng, data: with_statistic(data, 1, "<d", _pick(rng, EXTREMES[:5])))),
    "model": Lie(upload=_kept("model_digest", ("", "0" * 5_000, ESCAPES))),
    "failure": Lie(upload=lambda rng, message, data: setattr(message, "failure", ESCAPES * 50) or b""),
    "silent": Lie(upload=lambda rng, message, data: None),
    "flood": Lie(beside=_flood, is_named=False),
    "words": Lie(beside=_flood_of_words, is_named=False),
    "replays": Lie(beside=_replays, is_named=False),
    "other names": Lie(beside=_other_names, is_named=False),
    "other words": Lie(beside=_other_words),
    "requests": Lie(beside=_requests, is_named=False),
    "impossible model": Lie(beside=_impossible_model),
    "most samples": Lie(measure=_set("num_samples", (2**31, 10**6)), is_named=False),
    "other role": Lie(beside=_other_role),
    "bad frame": Lie(beside=_bad_frame),
}


class HostileDevice(Device):
    """A device with a lie."""

    def __init__(self, *arguments: Any, lie: str, seed: int) -> None:
        super().__init__(*arguments)
        self.lie, self.rng = DEVICE_LIES[lie], np.random.default_rng(seed)

    async def _measure(self, link: Link, trainer: Any, num_bytes: int = 20_000) -> None:
        seconds = await asyncio.to_thread(trainer.seconds_per_sample)
        assert self.ledger is not None
        said = pb.Measured(run=self.ledger.run, seconds_per_sample=seconds, num_samples=trainer.num_samples)
        if self.lie.measure is not None:
            self.lie.measure(self.rng, said)
        for said.num_more in reversed(range(PROBES)):
            await link.send(said, os.urandom(num_bytes))

    async def _follow(self, link: Link, packet: Any) -> None:
        orders = packet.message
        result = await asyncio.to_thread(self._result, RoundKey.of(orders), orders, bytes(packet.payload))
        upload, data = pb.Upload(model_digest=orders.model_digest, compute_s=result.compute_s), result.upload
        for field in ("run", "global_round", "edge_round", "round_index"):
            setattr(upload, field, getattr(orders, field))
        if self.lie.upload is not None:
            changed = self.lie.upload(self.rng, upload, data)
            if changed is None:
                return
            data = changed
        await link.send(upload, data)
        if self.lie.beside is not None:
            await self.lie.beside(self, link, upload, data)


class LyingSums(Device):
    """A device that lies about its keys and shares in secure sums."""

    def __init__(self, *arguments: Any, lie: str) -> None:
        super().__init__(*arguments)
        self.lie = lie

    async def _take_secure_step(self, link: Link, sums: Any, packet: Any) -> None:
        request, step = packet.message, pb.SecureStep
        answer = await asyncio.to_thread(sums.answer, request, bytes(packet.payload))
        if answer is None:
            return
        said, payload = answer
        name = {step.KEYS: "keys", step.SHARES: "shares", step.REVEAL: "reveal"}[request.step]
        if self.lie == f"no {name}":
            return
        match self.lie.rsplit(maxsplit=1):
            case ["short", part] if part == name:
                payload = payload[:-1]
            case ["unsigned", part] if part == name:
                payload = payload[:96] + bytes(64)
            case ["forced", part] if part == name:
                payload = self._signed(sums, bytes(32) + payload[32:96], 0)
            case ["misplaced", part] if part == name:
                payload = self._signed(sums, payload[:96], 1)
            case ["false", part] if part == name:
                payload = os.urandom(len(payload))
            case ["unknown", "step"] if name == "shares":
                said.step = 9
            case ["two", "answers"] if name == "reveal":
                await link.send(said, payload)
                payload = payload[:-1] + bytes([payload[-1] ^ 1])
            case ["flood"]:
                for number in range(300):
                    await link.send(step(session=os.urandom(16), step=number % 5), os.urandom(number + 1))
            case ["false", "trouble"] if name == "shares":
                said, payload = step(session=said.session, step=step.OPEN, trouble=ESCAPES * 50, accused=0), b""
        await link.send(said, payload)

    def _signed(self, sums: Any, keys: bytes, off: int) -> bytes:
        """Keys signed for a place that is so far off its own."""
        exchange = sums._exchange
        number = (exchange.member.number + off) % exchange.num_devices
        return signed_keys(self.node, exchange.key, exchange.session, number, exchange.num_devices, keys)


EdgeLie = Callable[["HostileEdge", pb.EdgeReport, bytes], "bytes | None"]


def _outcome(field: str, values: tuple[Any, ...]) -> EdgeLie:
    def change(edge: HostileEdge, report: pb.EdgeReport, payload: bytes) -> bytes:
        for outcome in report.outcomes:
            setattr(outcome, field, _pick(edge.rng, values))
        return payload

    return change


def _statistic(field: str, values: tuple[float, ...]) -> EdgeLie:
    def change(edge: HostileEdge, report: pb.EdgeReport, payload: bytes) -> bytes:
        arrays = edge.arrays_of(payload)
        column = np.full_like(getattr(arrays.statistics, field), _pick(edge.rng, values))
        return replace(arrays, statistics=replace(arrays.statistics, **{field: column})).to_bytes()

    return change


def _model(value: float) -> EdgeLie:
    def change(edge: HostileEdge, report: pb.EdgeReport, payload: bytes) -> bytes:
        arrays = edge.arrays_of(payload)
        station = replace(arrays.station, model=np.full_like(arrays.station.model, value))
        report.model_digest = station.digest
        return replace(arrays, station=station).to_bytes()

    return change


EDGE_LIES: dict[str, EdgeLie | None] = {
    "times": _outcome("compute_s", EXTREMES),
    "arrivals": _outcome("arrived_s", EXTREMES),
    "bytes": _outcome("bytes", COUNTS[1:]),
    "fate": _outcome("fate", ("", ESCAPES, "okay")),
    "device": _outcome("device", (0, 2**32 - 1)),
    "loss": _statistic("loss", EXTREMES[:5]),
    "bits": _statistic("sent_bits", (1e300, 1e12)),
    "weights": _statistic("uploaded_weights", (2**50,)),
    "samples": _statistic("num_samples", (2**50,)),
    "huge model": _model(1e30),
    "model that is not finite": _model(math.nan),
    "no arrays": lambda edge, report, payload: edge.rng.bytes(100),
    "took": lambda edge, report, payload: setattr(report, "took_s", _pick(edge.rng, EXTREMES)) or payload,
    "trouble": lambda edge, report, payload: setattr(report, "trouble", ESCAPES) or b"",
    "rate": lambda edge, report, payload: report.probed.add(device=0, uplink_bps=1e300) and payload,
    "presence": None,
    "another's device": None,
}


class HostileEdge(Edge):
    """An edge with a lie; its devices are honest."""

    def __init__(self, *arguments: Any, lie: str, seed: int) -> None:
        super().__init__(*arguments)
        self.lie, self.rng, self.change = lie, np.random.default_rng(seed), EDGE_LIES[lie]
        self.devices.presence = self._lying_presence(self.devices.presence)

    def arrays_of(self, payload: bytes) -> ReportArrays:
        assert self.rounds.work is not None
        return ReportArrays.from_bytes(payload, self.rounds.work.shape)

    def _lying_presence(self, honest: Callable[[], pb.Presence]) -> Callable[[], pb.Presence]:
        def presence() -> pb.Presence:
            said = honest()
            if self.lie == "presence" and said.devices:
                said.devices[0].seconds_per_sample = _pick(self.rng, EXTREMES)
                said.devices[0].uplink_bps = 1e300
            if self.lie == "another's device" and said.devices:
                said.devices.add(device=0, seconds_per_sample=1e-3, uplink_bps=1e9, num_samples=30)
            return said

        return presence

    async def _send(self, report: pb.EdgeReport, payload: bytes) -> bool:
        said = pb.EdgeReport()
        said.CopyFrom(report)
        if self.change is None:
            return await super()._send(said, payload)
        changed = self.change(self, said, payload)
        return True if changed is None else await super()._send(said, changed)


class SilentEdge(Edge):
    """Its heartbeats go on, and it never reports."""

    async def _send(self, report: pb.EdgeReport, payload: bytes) -> bool:
        return True
