"""Holds what opens a secure sum: it is kept with the uploads of its round, so that the sum can be repeated anywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from airprune.components.component import ModelShape
from airprune.deployment.digests import digest_of
from airprune.deployment.run_definition import RunDefinition
from airprune.methods.secure.cohort import OpenedCohort, SecureCohort
from airprune.methods.secure.exchange import Secrets, masks_left, secrets_in
from airprune.rounds.wire import Codec, packed, unpacked

Array = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Opening:
    """The keys and the answers of one exchange, by the devices' places.

    Attributes:
      keys: of the devices that have sent shares.
      survivors: whose updates are in the sum.
      answers: their shares of every device.
    """

    threshold: int
    keys: Mapping[int, bytes]
    survivors: Sequence[int]
    answers: Mapping[int, bytes]

    @cached_property
    def secrets(self) -> Secrets:
        return secrets_in(self.keys, self.threshold, self.answers, self.survivors)

    def cohort(self, planned: SecureCohort, codec: Codec, mask: Array | None, terms: bytes) -> OpenedCohort:
        """Returns the devices with the masks that are left in their sum, given what they were ordered."""
        sent = sent_entries(codec, mask)
        left = np.zeros(len(sent), dtype=planned.fixed.dtype)
        count = int(np.count_nonzero(sent))
        left[sent] = masks_left(self.keys, self.secrets.found, self.survivors, planned.fixed, count, terms)
        return OpenedCohort(
            devices=planned.devices, threshold=planned.threshold, fixed=planned.fixed, secret=b"", left=left
        )

    def to_bytes(self) -> bytes:
        arrays = {
            "keys": _table(self.keys),
            "answers": _table(self.answers),
            "survivors": np.array(self.survivors, dtype=np.int64),
        }
        about = {"threshold": self.threshold, "keys": sorted(self.keys), "answers": sorted(self.answers)}
        return packed(arrays, about)

    @classmethod
    def from_bytes(cls, data: bytes) -> Opening:
        arrays, about = unpacked(data)
        rows = {name: dict(zip(about[name], map(bytes, arrays[name]), strict=True)) for name in ("keys", "answers")}
        return cls(threshold=about["threshold"], survivors=arrays["survivors"].tolist(), **rows)


def _table(rows: Mapping[int, bytes]) -> Array:
    """Returns messages of one length, in the order of their numbers.  [num_devices, num_bytes]"""
    return np.array([np.frombuffer(rows[number], np.uint8) for number in sorted(rows)])


def terms_of(work: RunDefinition, round_index: int, learning_rate: float, model_digest: str) -> bytes:
    """Returns the digest of what all devices of a secure sum are ordered: with other terms, masks do not cancel.

    An edge that sends all but one device a model that gives no update, or a learning rate of 0, would read that one's.
    """
    settings = json.dumps(work.scenario.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
    return digest_of(f"{settings}\n{round_index}\n{learning_rate!r}\n{model_digest}".encode())


def common_mask(mask: Array | None, shape: ModelShape) -> Array | None:
    """Returns the mask that an edge has sent to all of its devices; None if they send all weights."""
    is_mask = mask is not None and mask.dtype == bool and mask.shape == (shape.prunable_weights,)
    return mask if is_mask else None


def sent_entries(codec: Codec, mask: Array | None) -> Array:
    """True for entries of the state that travel.  [num_state]"""
    sent = np.zeros(codec.shape.num_state, dtype=bool)
    sent[codec.rest_index] = True
    sent[codec.sent_index(mask)] = True
    return sent
