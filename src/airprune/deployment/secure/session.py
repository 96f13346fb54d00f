"""Runs the exchanges of an edge's secure sums with its devices, in a running event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from airprune.deployment.checks import MAX_WORDS
from airprune.deployment.digests import digest_of
from airprune.deployment.edge_devices import Child, Devices
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import Outcome, OutcomeKind, RoundKey
from airprune.deployment.secure.exchange import EdgeExchange, named
from airprune.deployment.secure.opening import Opening
from airprune.deployment.secure.signing import public_key_of
from airprune.deployment.transport import Packet
from airprune.errors import WorkFailed
from airprune.methods.secure.cohort import SecureCohort
from airprune.text import plain

Step = pb.SecureStep
# Patience with devices that have left, if no other is waited for: as of a round.
_REJOIN_S = 0.5
# In sentences of refusal.
_WHAT = "Keys and shares"
# In one message.
_CERTIFICATES_AT_ONCE = 256


class SecureSession:
    """The exchange of one round.

    Args:
      start: runs what may go on beside.
      within_s: how long each step may take.
    """

    def __init__(
        self,
        key: RoundKey,
        cohort: SecureCohort,
        devices: Devices,
        start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        within_s: float,
    ) -> None:
        self.exchange = EdgeExchange(key, cohort)
        self._devices, self._start, self._within_s = devices, start, within_s
        self._certificates: dict[int, bytes] = {}
        self._changed = asyncio.Event()

    @property
    def num_bytes(self) -> Mapping[int, int]:
        return self.exchange.num_bytes

    def take(self, device: int, message: pb.SecureStep, packet: Packet) -> None:
        """Takes a device's message; one that breaks a rule is a strike, and its device out of the round."""
        exchange, message.trouble = self.exchange, plain(message.trouble, MAX_WORDS)
        try:
            certificate = self._devices.online[device].link.peer.certificate_pem
            false = exchange.take(device, message, bytes(packet.payload), public_key_of(certificate))
            self._certificates.setdefault(device, certificate)  # by which its keys are signed
        except WorkFailed as error:
            false = device, str(error)
            exchange.troubles.setdefault(device, str(error))
        if false is not None:
            self._devices.strike(*false, _WHAT)
        self._changed.set()

    async def agree(self, selected: Sequence[int]) -> dict[int, Outcome]:
        """Has the selected devices exchange keys and shares; returns the outcomes of those that are out already.

        Those that have sent keys and no shares cost the others another exchange, in which they have no part.
        """
        exchange, left, outcomes = self.exchange, list(selected), dict[int, Outcome]()
        while len(left) >= exchange.cohort.threshold:
            exchange.begin()
            await self._ask(Step.KEYS, dict.fromkeys(left, b""))
            keys = exchange.said[Step.KEYS]
            if len(keys) >= exchange.cohort.threshold:
                await self._ask(Step.SHARES, dict.fromkeys(keys, exchange.all_keys()))
            outcomes |= {device: self._out(device) for device in left if device not in exchange.sharing}
            if len(exchange.sharing) == len(keys):
                break
            left = exchange.sharing  # who share must have the same list of keys, so that they begin again
        if len(exchange.sharing) < exchange.cohort.threshold:
            reason = self.too_few(len(exchange.sharing), "have sent keys and shares")
            missing = (device for device in selected if device not in outcomes)
            outcomes |= {device: Outcome(device=device, fate=OutcomeKind.DROPPED, reason=reason) for device in missing}
        return outcomes

    def too_few(self, count: int, what: str) -> str:
        """Returns why a sum is not opened."""
        planned, least = len(self.exchange.cohort.devices), self.exchange.cohort.threshold
        return f"{count} of {planned} devices {what}, and a secure sum needs {least}."

    def _out(self, device: int) -> Outcome:
        trouble = self.exchange.troubles.get(device)
        reason = trouble or f"It had sent no {'shares' if device in self.exchange.said[Step.KEYS] else 'keys'} in time."
        return Outcome(device=device, fate=OutcomeKind.DROPPED, reason=reason)

    async def send_shares(self, device: int) -> None:
        """Sends a device what the others have sealed for it, before its orders."""
        exchange = self.exchange
        await self._devices.send(device, exchange.request(Step.OPEN, device), exchange.shares_for(device))

    async def open(self, arrived: Sequence[int]) -> tuple[Opening | None, str]:
        """Returns what opens the sum of the devices that have arrived, or why it stays closed.

        Devices whose shares are false are refused by name.
        """
        exchange, least = self.exchange, self.exchange.cohort.threshold
        if len(arrived) < least:
            return None, self.too_few(len(arrived), "have sent an update")
        await self._ask(Step.REVEAL, dict.fromkeys(arrived, exchange.survivors(arrived)))
        num_answers = len(exchange.said[Step.REVEAL])
        if num_answers < least:
            return None, self.too_few(num_answers, "have sent the shares that open the sum")
        opening = exchange.opening(arrived)
        secrets = await asyncio.to_thread(lambda: opening.secrets)
        for device, reason in named(opening, exchange.cohort.devices).items():
            self._devices.strike(device, reason, _WHAT)
        if secrets.lost:
            lost = ", ".join(str(exchange.cohort.devices[number]) for number in secrets.lost)
            return None, f"The secure sum cannot be opened: the shares of device {lost} do not belong together."
        return opening, ""

    async def _ask(self, step: int, payloads: Mapping[int, bytes]) -> None:
        """Sends devices a step, those that come back again, and waits for answers, as long as any may come."""
        exchange, sent = self.exchange, dict[int, Child]()
        exchange.step = step  # type: ignore[assignment]
        ends_s, seen_s = time.monotonic() + self._within_s, time.monotonic()
        while waited := [device for device in payloads if not exchange.is_decided(device)]:
            now_s, ready = time.monotonic(), self._devices.ready
            present = [device for device in waited if device in ready]
            for device in present:
                child = self._devices.online[device]
                if sent.get(device) is not child:
                    sent[device] = child
                    self._start(self._send(child, step, device, payloads[device]))
            seen_s = now_s if present else seen_s
            if now_s > ends_s or now_s - seen_s > _REJOIN_S:
                return
            self._changed.clear()
            waits = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait([waits], timeout=0.05)
            waits.cancel()

    async def _send(self, child: Child, step: int, device: int, payload: bytes) -> None:
        message = self.exchange.request(step, device)
        if step == Step.SHARES:
            owners = {self.exchange.place(other): self._certificates[other] for other in self.exchange.said[Step.KEYS]}
            for number, pem in owners.items():
                message.certificates[number] = digest_of(pem)
            new = {number: pem for number, pem in owners.items() if digest_of(pem) not in child.vouched}
            for start in range(0, len(new), _CERTIFICATES_AT_ONCE):
                shown = self.exchange.request(Step.CERTIFICATES, device)
                for number in sorted(new)[start : start + _CERTIFICATES_AT_ONCE]:
                    shown.certificates[number] = new[number]
                    child.vouched.add(digest_of(new[number]))
                await self._devices.send(device, shown)
        await self._devices.send(device, message, payload)
