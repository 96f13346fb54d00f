"""The devices of one edge that make a secure sum in one round; in a simulation, with both ends of their exchange.

A simulation's keys are real, but follow from the seed of the run, so that every worker knows those of all devices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from airprune.errors import WorkFailed
from airprune.methods.aggregation.cohort import Cohort
from airprune.methods.secure.exchange import (
    Member,
    Sizes,
    all_keys,
    keys_in,
    masks_left,
    secrets_in,
    survivor_bits,
)
from airprune.methods.secure.fixed_point import FixedPoint
from airprune.methods.secure.keys import sign, signing_key

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class SecureCohort(Cohort):
    """The devices that agreed on masks; with fewer than t of them, the threshold, the sum cannot be opened.

    Attributes:
      secret: from which the simulated devices' randomness follows.
      is_masked: whether masks are computed; else the same sums are taken in the clear.
    """

    fixed: FixedPoint
    secret: bytes
    is_masked: bool = True

    def member(self, device: int) -> Member:
        """Returns one of its devices, before the exchange."""
        number = self.devices.index(device)
        return Member(number, self.threshold, _expander(self.secret, number))

    def masked(self, device: int, whole: Array) -> Array:
        """Returns the words that a device sends for whole numbers.  [n]"""
        words = self.fixed.words(whole)
        if not self.is_masked:
            return words
        return self.fixed.reduced(words + self.member(device).mask(_keys(self), self.fixed, len(words)))

    def opened(self, words: Array, survivors: Sequence[int]) -> Array:
        """Returns the sum of the survivors' whole numbers, given the sum of their words.  [n] int64"""
        if self.is_masked:
            words = words - self.exchange(survivors, len(words))[0]
        return self.fixed.signed(self.fixed.reduced(words))

    def exchange(self, survivors: Sequence[int], count: int) -> tuple[Array, dict[str, list[bytes]]]:
        """Plays all steps but the third between all devices and the edge.

        Returns:
          The masks that are left in the survivors' sum [count], and every message by the name of its size in `Sizes`.
        """
        members = [self.member(device) for device in self.devices]
        sent = [self._signed(member) for member in members]
        broadcast = all_keys(dict(enumerate(sent)))
        keys = keys_in(broadcast)
        shares = [member.share(keys) for member in members]
        arrived = [self.devices.index(device) for device in survivors]
        named = survivor_bits(arrived, len(members))
        answers = {}
        for number in arrived:
            member = members[number]
            member.receive(keys, {n: own[number] for n, own in enumerate(shares) if n != number})
            answers[number] = member.reveal(named, len(members))
        messages = {
            "keys": sent,
            "all_keys": [broadcast],
            "shares": [b"".join(own.values()) for own in shares],
            "survivors": [named],
            "revealed": list(answers.values()),
        }
        secrets = secrets_in(keys, self.threshold, answers, arrived)
        if secrets.lost:
            raise WorkFailed(f"Shares of a secure sum do not belong together: devices {secrets.lost} have other keys.")
        return masks_left(keys, secrets.found, arrived, self.fixed, count), messages

    def _signed(self, member: Member) -> bytes:
        """Returns a simulated device's keys with its signature."""
        key = signing_key(self.secret + member.number.to_bytes(4))
        return member.keys() + sign(key, member.keys())

    @property
    def sizes(self) -> Sizes:
        return Sizes(len(self.devices))


@lru_cache(maxsize=4)
def _keys(cohort: SecureCohort) -> dict[int, bytes]:
    """Returns the public keys of all devices by their numbers; made once for all of a chunk."""
    return {number: cohort.member(device).keys() for number, device in enumerate(cohort.devices)}


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenedCohort(SecureCohort):
    """Devices whose exchange was real, at their edge.

    Attributes:
      left: the masks that are left in the sum of the survivors' words; zero for entries that are not sent.  [num_state]
    """

    left: Array = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))

    def opened(self, words: Array, survivors: Sequence[int]) -> Array:
        return self.fixed.signed(self.fixed.reduced(words - self.left))


def _expander(secret: bytes, number: int) -> Callable[[int], bytes]:
    """Returns the randomness of one simulated device: SHAKE-256 of the secret, its number and how often it asked."""
    calls = 0

    def random(count: int) -> bytes:
        nonlocal calls
        calls += 1
        return hashlib.shake_256(secret + number.to_bytes(4) + calls.to_bytes(4)).digest(count)

    return random
