"""An edge's side of one exchange of a secure sum, without I/O: what devices have said, and what they are sent next."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from airprune.deployment.digests import digest_of
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.round_machine import RoundKey
from airprune.deployment.secure.opening import Opening
from airprune.deployment.secure.signing import SESSION_BYTES, check_signature
from airprune.errors import WorkFailed
from airprune.methods.secure.cohort import SecureCohort
from airprune.methods.secure.exchange import SEALED_BYTES, SIGNED_BYTES, Sizes, all_keys, survivor_bits
from airprune.methods.secure.keys import PUBLIC_BYTES, agree

Step = pb.SecureStep


class EdgeExchange:
    """One exchange at an edge. Devices are known by their numbers in the network.

    Attributes:
      step: that is waited for now.
      said: payloads by step and device.
      troubles: why devices are out.
      num_bytes: that each device has sent.
    """

    def __init__(self, key: RoundKey, cohort: SecureCohort) -> None:
        self.key, self.cohort = key, cohort
        self.troubles: dict[int, str] = {}
        self.num_bytes = dict.fromkeys(cohort.devices, 0)
        self._accusers: dict[int, set[int]] = {}
        self.begin()

    def begin(self) -> None:
        """Begins, or begins again: what was said before is of no use."""
        self.session = os.urandom(SESSION_BYTES)
        self.step = Step.KEYS
        self.said: dict[int, dict[int, bytes]] = {Step.KEYS: {}, Step.SHARES: {}, Step.REVEAL: {}}

    def place(self, device: int) -> int:
        """Returns the number by which the devices of this sum know each other."""
        return self.cohort.devices.index(device)

    @property
    def sharing(self) -> list[int]:
        """The devices that have sent keys and shares, ascending; in the end, all that have sent keys."""
        return [device for device in self.cohort.devices if device in self.said[Step.SHARES]]

    def is_decided(self, device: int) -> bool:
        """True if nothing more is to come of a device in this step."""
        return device in self.said[self.step] or device in self.troubles

    # What the edge sends

    def request(self, step: int, device: int) -> pb.SecureStep:
        """Returns the message that begins a step for a device."""
        message = Step(
            run=self.key.run,
            global_round=self.key.global_round,
            edge_round=self.key.edge_round,
            session=self.session,
            step=step,  # type: ignore[arg-type]
        )
        if step == Step.KEYS:
            message.number, message.num_devices = self.place(device), len(self.cohort.devices)
        return message

    def all_keys(self) -> bytes:
        """Returns the payload of step 1."""
        return all_keys(self._by_place(self.said[Step.KEYS]))

    def shares_for(self, device: int) -> bytes:
        """Returns the payload of step 2: what the others have sealed for a device."""
        parts = []
        for sender in self.sharing:
            if sender != device:
                receivers = [other for other in self.sharing if other != sender]
                start = SEALED_BYTES * receivers.index(device)
                parts.append(self.said[Step.SHARES][sender][start : start + SEALED_BYTES])
        return b"".join(parts)

    def survivors(self, arrived: Sequence[int]) -> bytes:
        """Returns the payload of step 4."""
        return survivor_bits([self.place(device) for device in arrived], len(self.cohort.devices))

    # What devices send

    def take(self, device: int, message: pb.SecureStep, payload: bytes, public: Any) -> tuple[int, str] | None:
        """Takes a device's answer; returns a device that is false by what others say of it, with a sentence.

        Answers of other exchanges or to steps that are over make no difference.

        Args:
          public: the key of the device's certificate.

        Raises WorkFailed if it cannot be an answer: its device breaks a rule.
        """
        if message.session != self.session or device not in self.num_bytes:
            return None
        if message.trouble:
            return self._take_trouble(device, message)
        if message.step not in self.said or message.step > self.step:
            raise WorkFailed(f"SecureStep.step must be at most {self.step}, as asked, got {message.step}.")
        said = self.said[message.step]
        if device in said:
            if digest_of(said[device]) != digest_of(payload):
                raise WorkFailed("SecureStep must be the same when it is sent again, got another.")
            return None
        if message.step != self.step or device in self.troubles:
            return None
        self._check(device, payload, public)
        said[device] = bytes(payload)
        self.num_bytes[device] += len(payload)
        return None

    def _check(self, device: int, payload: bytes, public: Any) -> None:
        """Raises WorkFailed unless a payload has the size of this step, and keys are signed ones."""
        sizes = {
            Step.KEYS: Sizes(1).keys,
            Step.SHARES: Sizes(len(self.said[Step.KEYS])).shares,
            Step.REVEAL: Sizes(len(self.sharing)).revealed,
        }
        if len(payload) != (size := sizes[self.step]):
            raise WorkFailed(f"SecureStep must have {size:,} bytes in step {self.step}, got {len(payload):,}.")
        if self.step == Step.KEYS:
            place, num_devices = self.place(device), len(self.cohort.devices)
            check_signature(public, self.key, self.session, place, num_devices, bytes(payload))
            for start in range(0, SIGNED_BYTES - PUBLIC_BYTES, PUBLIC_BYTES):
                agree(os.urandom(PUBLIC_BYTES), bytes(payload[start : start + PUBLIC_BYTES]), b"")

    def _take_trouble(self, device: int, message: pb.SecureStep) -> tuple[int, str] | None:
        """Notes why a device cannot go on; returns a device whose shares most of the others cannot open."""
        self.troubles.setdefault(device, message.trouble)
        places = range(len(self.cohort.devices))
        if not message.HasField("accused") or message.accused not in places:
            return None
        accused = self.cohort.devices[message.accused]
        accusers = self._accusers.setdefault(accused, set())
        if device == accused or device in accusers or accused not in self.said[Step.SHARES]:
            return None
        was_found = self._is_found(accusers)
        accusers.add(device)
        if was_found or not self._is_found(accusers):
            return None
        return accused, "Most of the other devices could not open the shares that it had sent them."

    def _is_found(self, accusers: set[int]) -> bool:
        """True if most of the others accuse a device, and not one alone."""
        return len(accusers) > 1 and 2 * len(accusers) > len(self.sharing) - 1

    def opening(self, arrived: Sequence[int]) -> Opening:
        """Returns what opens the sum of the devices that have arrived, given their answers."""
        keys = {device: self.said[Step.KEYS][device] for device in self.sharing}
        return Opening(
            threshold=self.cohort.threshold,
            keys=self._by_place(keys),
            survivors=[self.place(device) for device in arrived],
            answers=self._by_place(self.said[Step.REVEAL]),
        )

    def _by_place(self, said: Mapping[int, bytes]) -> dict[int, bytes]:
        return {self.place(device): said[device] for device in sorted(said)}


def named(opening: Opening, devices: Sequence[int]) -> dict[int, str]:
    """Returns the devices whose shares are false for certain, as long as few of those that answer lie together.

    A device whose shares of t others differ from what these have sent it lies: fewer than t do. One whose own secret no
    choice of t shares gives back lies, or more than s − t of the s devices that answered do; where all were needed,
    that could be one, and no device is named.
    """
    secrets, threshold = opening.secrets, opening.threshold
    reasons = {
        devices[number]: f"The shares that it revealed of {len(whose)} devices are not those that they had sent it."
        for number, whose in secrets.false.items()
        if sum(place != number for place in whose) >= threshold
    }
    if len(opening.answers) > threshold:
        words = "The shares that it has sent to others do not give back what it had committed itself to."
        reasons |= {devices[number]: words for number in secrets.lost}
    return reasons
