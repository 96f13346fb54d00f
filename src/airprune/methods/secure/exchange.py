"""The messages of a secure sum, after Bonawitz et al. 2017.

    1. every device signs and sends two public keys and a commitment to the seed of its mask; the edge sends all to all
    2. every device splits its mask key and its seed into shares, one for each device, and sends them through the edge,
       sealed for their receivers
    3. every device sends x + PRG(b) + Σ_{m after it} PRG(s_nm) − Σ_{m before it} PRG(s_nm) modulo 2^k
    4. the edge names the devices whose update it has; each of these sends, for every device, one share: of b where the
       update is there, of the mask key where it is missing; t shares give either back

Devices are numbered from 0 in the order of the edge's list. One that is missing in a step takes no part in the next
ones: masks are of the devices that have sent shares. Which masks are left in the sum then follows from what was given
back. A device that is asked twice with different lists refuses: both shares of one device would lay its update open.

Shares are sealed under keys that follow from the whole list of step 1, too: devices that were shown different lists
cannot open each other's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from airprune.errors import WorkFailed
from airprune.methods.secure import shamir
from airprune.methods.secure.fixed_point import FixedPoint
from airprune.methods.secure.keys import (
    COMMITMENT_BYTES,
    PUBLIC_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    agree,
    commitment,
    mask,
    public_key,
    seal,
    unseal,
)
from airprune.methods.secure.shamir import SHARE_BYTES

Array = np.ndarray

# A device's number in the edge's list of keys.
NUMBER_BYTES = 4
SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
# What a device signs of its keys: two public keys and the commitment.
SIGNED_BYTES = 2 * PUBLIC_BYTES + COMMITMENT_BYTES
_MASK_KEY, _COMMITMENT = slice(PUBLIC_BYTES, 2 * PUBLIC_BYTES), slice(2 * PUBLIC_BYTES, SIGNED_BYTES)

# Of devices by their numbers: keys with their signatures.
Keys = Mapping[int, bytes]


@dataclass(frozen=True)
class Sizes:
    """Bytes of the messages beside the masked update: for clock, records, encoders and checks.

    Attributes:
      num_devices: n of the edge's list.
    """

    num_devices: int

    @property
    def keys(self) -> int:
        """Returns the size of a device's keys, step 1."""
        return SIGNED_BYTES + SIGNATURE_BYTES

    @property
    def all_keys(self) -> int:
        """Returns the size of what the edge broadcasts in step 1."""
        return self.num_devices * (NUMBER_BYTES + self.keys)

    @property
    def shares(self) -> int:
        """Returns the size of what a device sends in step 2, and of what it receives then."""
        return (self.num_devices - 1) * SEALED_BYTES

    @property
    def survivors(self) -> int:
        """Returns the size of the edge's list in step 4: a bit for each device."""
        return -(-self.num_devices // 8)

    @property
    def revealed(self) -> int:
        """Returns the size of a device's answer in step 4."""
        return self.num_devices * SHARE_BYTES


def all_keys(keys: Keys) -> bytes:
    """Returns the edge's broadcast of step 1."""
    return b"".join(number.to_bytes(NUMBER_BYTES) + keys[number] for number in sorted(keys))


def keys_in(broadcast: bytes) -> dict[int, bytes]:
    """Returns the devices' keys by their numbers; raises WorkFailed for another message."""
    row = NUMBER_BYTES + Sizes(1).keys
    starts = range(0, len(broadcast), row)
    numbers = [int.from_bytes(broadcast[start : start + NUMBER_BYTES]) for start in starts]
    if len(broadcast) % row or numbers != sorted({*numbers}):
        raise WorkFailed(f"The keys of a secure sum must be {row} bytes for each device, in order, got others.")
    return {
        number: broadcast[start + NUMBER_BYTES : start + row] for number, start in zip(numbers, starts, strict=True)
    }


def survivor_bits(survivors: Sequence[int], num_devices: int) -> bytes:
    """Returns the edge's list of step 4."""
    is_there = np.zeros(num_devices, dtype=bool)
    is_there[list(survivors)] = True
    return np.packbits(is_there).tobytes()


def survivors_in(bits: bytes, num_devices: int) -> list[int]:
    """Returns the numbers in a list of step 4; raises WorkFailed for another message."""
    if len(bits) != Sizes(num_devices).survivors:
        rule = f"must be a bit for each of {num_devices} devices"
        raise WorkFailed(f"The survivors of a secure sum {rule}, got {len(bits)} bytes.")
    return np.flatnonzero(np.unpackbits(np.frombuffer(bits, np.uint8), count=num_devices)).tolist()


class Member:
    """A device in one secure sum.

    Args:
      number: its place in the edge's list.
      random: returns so many random bytes; called three times, in a fixed order.
    """

    def __init__(self, number: int, threshold: int, random: Callable[[int], bytes]) -> None:
        self.number, self.threshold, self._random = number, threshold, random
        secrets = random(3 * shamir.SECRET_BYTES)
        self._seal_key, self._mask_key, self._own_seed = secrets[:32], secrets[32:64], secrets[64:]
        self._shares: dict[int, tuple[int, int]] = {}
        self._list = b""
        self._named: bytes | None = None

    def keys(self) -> bytes:
        """Returns its public keys, for sealing and for masks, and the commitment to its seed, all to be signed."""
        return public_key(self._seal_key) + public_key(self._mask_key) + commitment(self._own_seed)

    def share(self, keys: Keys) -> dict[int, bytes]:
        """Returns its sealed shares for the other devices, by their numbers; keeps its own."""
        count = max(keys) + 1
        self._list = hashlib.sha256(all_keys({number: key[:SIGNED_BYTES] for number, key in keys.items()})).digest()
        of_key = shamir.split(self._mask_key, self.threshold, count, self._random)
        of_seed = shamir.split(self._own_seed, self.threshold, count, self._random)
        self._shares = {self.number: (of_key[self.number], of_seed[self.number])}
        sealed = {}
        for other in sorted(keys):
            if other != self.number:
                plain = of_key[other].to_bytes(SHARE_BYTES) + of_seed[other].to_bytes(SHARE_BYTES)
                sealed[other] = seal(self._sealing(keys[other], self.number, other), plain)
        return sealed

    def receive(self, keys: Keys, sealed: Mapping[int, bytes]) -> None:
        """Opens the shares of other devices, by their numbers."""
        for other, message in sealed.items():
            plain = unseal(self._sealing(keys[other], other, self.number), message)
            self._shares[other] = int.from_bytes(plain[:SHARE_BYTES]), int.from_bytes(plain[SHARE_BYTES:])

    def mask(self, keys: Keys, fixed: FixedPoint, count: int, terms: bytes = b"") -> Array:
        """Returns what it adds to its words.  [count]

        Args:
          keys: of the devices that have sent shares.
          terms: what the update was ordered with; masks of devices with other terms do not cancel.
        """
        total = mask(self._own_seed, count, fixed.dtype)
        for other in sorted(keys):
            if other != self.number:
                total = _with_pair(total, self._mask_key, self.number, other, keys[other], terms)
        return fixed.reduced(total)

    def reveal(self, named: bytes, num_devices: int) -> bytes:
        """Returns one share of every device that has sent some: of its seed if the edge names it, else of its key."""
        survivors = set(survivors_in(named, num_devices))
        if len(survivors) < self.threshold or self.number not in survivors:
            raise WorkFailed(f"A secure sum needs {self.threshold} devices, and the edge has named {len(survivors)}.")
        if not survivors <= self._shares.keys():
            raise WorkFailed("The edge of a secure sum has named a device that has sent no shares.")
        if self._named not in (None, named):
            raise WorkFailed("The edge of a secure sum has named other devices before; a device answers once.")
        self._named = named
        shares = [self._shares[other][other in survivors] for other in sorted(self._shares)]
        return b"".join(share.to_bytes(SHARE_BYTES) for share in shares)

    def _sealing(self, key: bytes, sender: int, receiver: int) -> bytes:
        numbers = sender.to_bytes(NUMBER_BYTES) + receiver.to_bytes(NUMBER_BYTES)
        return agree(self._seal_key, key[:PUBLIC_BYTES], b"airprune share" + numbers + self._list)


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """Holds what the answers of step 4 give back.

    Attributes:
      found: of each device whose shares give it: its seed if its update is there, else its mask key.
      lost: devices of whom no choice of shares gives it.
      false: for each device with false shares in its answer, whose they were.
    """

    found: Mapping[int, bytes]
    lost: tuple[int, ...] = ()
    false: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def secrets_in(keys: Keys, threshold: int, answers: Mapping[int, bytes], survivors: Sequence[int]) -> Secrets:
    """Returns what t true shares of each device give back; at the edge, step 4.

    Args:
      keys: of the devices that have sent shares.
      answers: of survivors, by their numbers; at least as many as the threshold says.
    """
    found, lost, false = dict[int, bytes](), list[int](), dict[int, list[int]]()
    for place, device in enumerate(sorted(keys)):
        at = slice(place * SHARE_BYTES, (place + 1) * SHARE_BYTES)
        trusted = sorted(answers, key=lambda number: (len(false.get(number, ())), number))
        shares = {number + 1: int.from_bytes(answers[number][at]) for number in trusted}
        is_right = _test_of(keys[device], is_there=device in survivors)
        known = shamir.recovered(shares, threshold, is_right)
        if known is None:
            lost.append(device)
            continue
        found[device] = known[0]
        for x in known[1]:
            false.setdefault(x - 1, []).append(device)
    return Secrets(found=found, lost=tuple(lost), false={number: tuple(whose) for number, whose in false.items()})


def _test_of(key: bytes, *, is_there: bool) -> Callable[[bytes], bool]:
    """Returns what knows a device's secret again: its seed by the commitment, its mask key by the public one."""
    if is_there:
        return lambda secret: commitment(secret) == key[_COMMITMENT]
    return lambda secret: public_key(secret) == key[_MASK_KEY]


def masks_left(
    keys: Keys,
    secrets: Mapping[int, bytes],
    survivors: Sequence[int],
    fixed: FixedPoint,
    count: int,
    terms: bytes = b"",
) -> Array:
    """Returns the masks that the sum of the survivors' words still has; at the edge, step 4.  [count]"""
    total = np.zeros(count, dtype=fixed.dtype)
    for device in sorted(keys):
        if device in survivors:
            total += mask(secrets[device], count, fixed.dtype)
            continue
        for survivor in survivors:  # what the missing device would have cancelled has the other sign
            total = -_with_pair(-total, secrets[device], device, survivor, keys[survivor], terms)
    return fixed.reduced(total)


def _with_pair(total: Array, mask_key: bytes, number: int, other: int, key: bytes, terms: bytes) -> Array:
    """Returns words with the mask of a pair, as `number` adds it: plus where it comes first, else minus.  [count]"""
    low, high = sorted((number, other))
    purpose = b"airprune mask" + low.to_bytes(NUMBER_BYTES) + high.to_bytes(NUMBER_BYTES) + terms
    pair = mask(agree(mask_key, key[_MASK_KEY], purpose), len(total), total.dtype)
    return total + pair if number < other else total - pair
