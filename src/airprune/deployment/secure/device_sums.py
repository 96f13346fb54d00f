"""A device's side of secure sums: it checks the keys of others, masks an update once, and helps to open one sum.

Its secrets are in memory alone: a device that is killed takes them with it, and the others open the sum without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from airprune.deployment.digests import digest_of
from airprune.deployment.identity import Node
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import RoundKey
from airprune.deployment.run_definition import RunDefinition
from airprune.deployment.secure.opening import common_mask, sent_entries, terms_of
from airprune.deployment.secure.signing import SESSION_BYTES, Vouchers, check_signature, signed_keys
from airprune.errors import UsageError, WorkFailed
from airprune.methods.secure.cohort import SecureCohort
from airprune.methods.secure.exchange import SEALED_BYTES, Member, keys_in, survivors_in
from airprune.rounds.messages import Broadcast, Upload
from airprune.rounds.sums import as_read
from airprune.rounds.wire import broadcast_to_bytes

Array = np.ndarray
Step = pb.SecureStep


class FalseShare(WorkFailed):
    """Raised for a share that cannot be opened."""

    def __init__(self, sentence: str, sender: int) -> None:
        super().__init__(sentence)
        self.sender = sender


@dataclass(kw_only=True, eq=False)
class _Exchange:
    """One exchange.

    Attributes:
      cohort: the planned devices; their numbers in the network are the edge's affair.
      keys, names: of all devices, by place, as checked.
      is_open: whether all the others have sent shares that it could open.
      answers: what was answered to each step, by its request.
      masked: digest of the update that was masked; empty before.
    """

    key: RoundKey
    session: bytes
    cohort: SecureCohort
    member: Member
    own_keys: bytes
    keys: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    is_open: bool = False
    answers: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    masked: bytes = b""

    @property
    def num_devices(self) -> int:
        return len(self.cohort.devices)


def check_hides(work: RunDefinition) -> None:
    """Raises UsageError unless updates are hidden, and more than half of the devices must open their sum."""
    if not work.hides:
        raise UsageError(
            "This device takes part only where its updates are hidden (--only-hidden): aggregation.edge must be "
            f"secure-sum, got {work.method.edge.name!r}."
        )
    devices = range(work.num_devices)
    if 2 * (least := work.cohort(devices).threshold) <= len(devices):
        raise UsageError(
            "This device takes part only where its updates are hidden (--only-hidden): more than half of the devices "
            f"must open a sum, got {least} of {len(devices)}."
        )


class DeviceSums:
    """The secure sums of one device in one run.

    Args:
      node: returns the node as it was when it dialled its edge; its certificate may be renewed meanwhile.
      vouchers: certificates that it was shown, in this run and others.
    """

    def __init__(self, node: Callable[[], Node], work: RunDefinition, vouchers: Vouchers) -> None:
        self._node, self.work, self._vouchers = node, work, vouchers
        self._exchange: _Exchange | None = None
        self._opened: dict[RoundKey, bytes] = {}

    def answer(self, request: pb.SecureStep, payload: bytes) -> tuple[pb.SecureStep, bytes] | None:
        """Returns the answer to an edge's message, if it needs one; WorkFailed if it is not what this device does."""
        reply = Step(
            run=request.run,
            global_round=request.global_round,
            edge_round=request.edge_round,
            session=request.session,
            step=request.step,
        )
        if request.step == Step.CERTIFICATES:
            for certificate in request.certificates.values():
                self._vouchers.take(certificate)
            return None
        if request.step == Step.KEYS:
            return reply, self._begin(request)
        exchange = self._exchange
        if exchange is None or exchange.session != request.session:
            raise WorkFailed("The keys of this secure sum are gone, with the process or the exchange that made them.")
        asked = digest_of(payload)
        before = exchange.answers.get(request.step)
        if before is None:
            before = exchange.answers[request.step] = asked, self._step(exchange, request, payload)
        elif before[0] != asked:
            raise WorkFailed("The edge of a secure sum has sent something else in this step before.")
        return None if request.step == Step.OPEN else (reply, before[1])

    def _begin(self, request: pb.SecureStep) -> bytes:
        """Returns this device's keys for an exchange."""
        key, number, num_devices = RoundKey.of(request), request.number, request.num_devices
        if self._exchange is not None and self._exchange.session == request.session:
            return self._exchange.own_keys
        if not number < num_devices <= self.work.num_devices or len(request.session) != SESSION_BYTES:
            raise WorkFailed(f"A secure sum must be of at most {self.work.num_devices} devices, got {num_devices}.")
        cohort = self.work.cohort(range(num_devices))
        member = Member(number, cohort.threshold, os.urandom)
        keys = signed_keys(self._node(), key, request.session, number, num_devices, member.keys())
        self._exchange = _Exchange(key=key, session=request.session, cohort=cohort, member=member, own_keys=keys)
        return keys

    def _step(self, exchange: _Exchange, request: pb.SecureStep, payload: bytes) -> bytes:
        match request.step:
            case Step.SHARES:
                return self._share(exchange, request, payload)
            case Step.OPEN:
                self._receive(exchange, payload)
                return b""
            case Step.REVEAL:
                return self._reveal(exchange, payload)
        raise WorkFailed("The edge has sent a step of a secure sum that this version does not know.")

    def _share(self, exchange: _Exchange, request: pb.SecureStep, payload: bytes) -> bytes:
        keys, member = keys_in(payload), exchange.member
        if keys.get(member.number) != exchange.own_keys:
            raise WorkFailed("The keys of a secure sum must have those of this device, got others.")
        if not exchange.cohort.threshold <= len(keys) or max(keys) >= exchange.num_devices:
            least, most = exchange.cohort.threshold, exchange.num_devices
            raise WorkFailed(f"The keys of a secure sum must be of {least} to {most} devices, got {len(keys)}.")
        for number, key in keys.items():
            name, public = self._vouchers.take(request.certificates[number])
            check_signature(public, exchange.key, exchange.session, number, exchange.num_devices, key)
            exchange.names[number] = name
        if len({*exchange.names.values()}) < len(keys):
            raise WorkFailed("The keys of a secure sum must be of different devices, got one twice.")
        exchange.keys = keys
        return b"".join(member.share(keys).values())

    def _receive(self, exchange: _Exchange, payload: bytes) -> None:
        """Opens the shares of all others: only devices that were shown the same list of keys can have sealed them."""
        others = [number for number in sorted(exchange.keys) if number != exchange.member.number]
        size = SEALED_BYTES * len(others)
        if not others or len(payload) != size:
            raise WorkFailed(
                f"The shares of a secure sum must be of all devices with keys, {size:,} bytes, got others."
            )
        for place, number in enumerate(others):
            sealed = payload[place * SEALED_BYTES : (place + 1) * SEALED_BYTES]
            try:
                exchange.member.receive(exchange.keys, {number: sealed})
            except WorkFailed as error:
                raise FalseShare(str(error), number) from None
        exchange.is_open = True

    def _reveal(self, exchange: _Exchange, named: bytes) -> bytes:
        """Returns shares that open the sum of these devices; of one round it opens no other, nor with another update.

        Two sums that differ by one device would lay its update open, and two with other noise take some of it off.
        """
        if not exchange.masked:
            raise WorkFailed("A device helps to open a secure sum when it has sent its update, and it has not.")
        shares = exchange.member.reveal(named, exchange.num_devices)
        survivors = sorted(exchange.names[number] for number in survivors_in(named, exchange.num_devices))
        opened = digest_of("\n".join(survivors).encode(), exchange.masked)
        if self._opened.setdefault(exchange.key, opened) != opened:
            raise WorkFailed(f"Another sum of {exchange.key} was opened before; a device opens one.")
        return shares

    def threshold(self, session: bytes) -> int:
        """Returns with how many devices the sum can be opened."""
        return self._open(session).cohort.threshold

    def _open(self, session: bytes) -> _Exchange:
        exchange = self._exchange
        if exchange is None or exchange.session != session or not exchange.is_open:
            raise WorkFailed("The keys of this secure sum are gone, with the process or the exchange that made them.")
        return exchange

    def masked(self, upload: Upload, received: Broadcast, orders: pb.Orders) -> Upload:
        """Returns an upload of masked words in the place of a model."""
        exchange, work = self._open(orders.session), self.work
        if digest_of(broadcast_to_bytes(received)).hex() != orders.model_digest:
            raise WorkFailed("The model of the orders must be the one that came with them, got another.")
        mask = common_mask(received.mask, work.shape)
        if not _fits(upload.mask, mask):
            raise WorkFailed("Masks differ from device to device, so that no secure sum can be taken of them.")
        fixed = exchange.cohort.fixed
        update = as_read(work.method.edge, upload.state, mask, received.model, work.shape.prunable)
        sent = sent_entries(work.codec, mask)
        whole = fixed.whole(update)[sent]
        digest = digest_of(whole, orders.model_digest.encode())
        if exchange.masked not in (b"", digest):
            raise WorkFailed("Another update was hidden by the masks of this secure sum; they serve once.")
        exchange.masked = digest
        words = np.zeros(work.shape.num_state, dtype=fixed.dtype)
        terms = terms_of(work, orders.round_index, orders.learning_rate, orders.model_digest)
        masks = exchange.member.mask(exchange.keys, fixed, int(np.count_nonzero(sent)), terms)
        words[sent] = fixed.reduced(fixed.words(whole) + masks)
        return upload._replace(state=words, mask=mask)


def _fits(mask: Array | None, common: Array | None) -> bool:
    """True if a device sends the weights that all do."""
    wanted: Sequence[bool] | Array | None = common
    if mask is None:
        return wanted is None or bool(np.all(wanted))
    return bool(mask.all()) if wanted is None else np.array_equal(mask, wanted)
