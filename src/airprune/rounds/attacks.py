"""Attackers in a simulation: devices that train as ordered and send something else, at the same bits and times.

With Δ the honest update of an attacker, d its length (root mean square) and s = `attack.strength`, it sends

    sign-flip    −s Δ
    scaled       s Δ
    noise        s d N(0, 1) in every weight
    free-rider   0: the model as it received it
    colluding    μ − s σ: mean and standard deviation of each weight over the honest updates of the attackers, who know
                 each other's data; all send the same (a little is enough)
    label-flip   Δ as it is, of training on the classes C − 1 − y

Which devices attack depends on the seed alone: the same for every method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from airprune.data import Dataset, Holdings
from airprune.errors import InvalidValue
from airprune.randomness import rng_for

if TYPE_CHECKING:
    from airprune.rounds.messages import Upload
    from airprune.scenario.sections import AttackSection

Array = np.ndarray

# Colluders whose updates are simulated by each of them; more would only make the estimate better.
MOST_COLLUDERS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Attack:
    """The attack of a scenario.

    Attributes:
      strength: s.
      devices: the attackers, ascending.
    """

    kind: str
    strength: float
    devices: tuple[int, ...]
    seed: int

    @classmethod
    def of(cls, section: AttackSection, num_devices: int, seed: int) -> Attack | None:
        """Returns the attack of a scenario on a network of so many devices; None if there is none."""
        count = round(section.share * num_devices)
        if section.kind == "none" or not count:
            return None
        devices = rng_for(seed, "attackers").permutation(num_devices)[:count]
        return cls(
            kind=section.kind, strength=section.strength_used, devices=tuple(np.sort(devices).tolist()), seed=seed
        )

    @property
    def replaces(self) -> bool:
        """True if attackers send something else than they have trained."""
        return self.kind != "label-flip"

    @property
    def colluders(self) -> tuple[int, ...]:
        """Attackers that simulate each other in every round; none unless they collude."""
        return self.devices[:MOST_COLLUDERS] if self.kind == "colluding" else ()

    def among(self, devices: Sequence[int] | Array) -> list[int]:
        """Returns the attackers among some devices, ascending."""
        return np.intersect1d(devices, self.devices).tolist()

    def update_sent(self, honest: Array, device: int, place: Sequence[int]) -> Array:
        """Returns the update that an attacker sends in the place of its honest one; colluders send `collusion`.

        Args:
          honest: Δ, zero where nothing is sent.  [num_state]
          place: global round, edge round: the address of its noise.
        """
        if self.kind == "sign-flip":
            return -self.strength * honest
        if self.kind == "scaled":
            return self.strength * honest
        if self.kind == "noise":
            length = np.sqrt(np.square(honest).sum() / max(np.count_nonzero(honest), 1))
            return self.strength * length * rng_for(self.seed, "attack", *place, device).standard_normal(len(honest))
        return np.zeros(len(honest))


def collusion(honest: Sequence[Array], strength: float) -> Array:
    """Returns μ − s σ of each weight over the honest updates of colluders.  [num_state]"""
    updates = np.stack(honest)
    return updates.mean(axis=0) - strength * updates.std(axis=0)


def honest_update(upload: Upload, received: Array, prunable: slice) -> Array:
    """Returns Δ of an upload, zero where nothing is sent.  [num_state]"""
    update = upload.state.astype(np.float64) - received
    if upload.mask is not None:
        update[prunable] *= upload.mask
    return update


def with_update(upload: Upload, received: Array, update: Array, prunable: slice) -> Upload:
    """Returns the upload with another update, of the same weights."""
    with np.errstate(over="ignore"):  # beyond the range of float32 an attack is infinite
        state = (received + update).astype(upload.state.dtype)
    if upload.mask is not None:
        state[prunable] = np.where(upload.mask, state[prunable], 0.0)
    return upload._replace(state=state)


def flip_labels(attack: Attack, data: Dataset, samples: Holdings, *, is_shared: bool) -> Dataset:
    """Returns the data set with the classes of the attackers' samples turned round: y → C − 1 − y.

    Args:
      is_shared: whether several devices may hold one sample.
    """
    if not data.num_classes or is_shared:
        why = "devices share samples (data.samples_per_device)" if is_shared else "targets are not classes"
        raise InvalidValue("Scenario.attack.kind", f"must be another one where {why}", "'label-flip'")
    labels = data.train_y.copy()
    for device in attack.devices:
        own = samples[device]
        labels[own] = data.num_classes - 1 - labels[own]
    return replace(data, train_y=labels)
