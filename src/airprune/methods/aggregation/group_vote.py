"""Majority votes in two steps: every group of devices votes, then the edge votes over the groups.

    v_g = sign(Σ over the group of sign(w_n − previous)),   next = previous + η sign(Σ_g |g| v_g)

The group's master sends its vote with one bit per weight, which has no zero: a tie inside a group goes to the master's
own sign. Groups count by the devices that voted in them. A device that uploads for itself is a group of one, so that
without groups this is `vote`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from pydantic import Field

from airprune.methods.aggregation.masked_sum import Array, MaskedSum
from airprune.methods.aggregation.vote import Vote


@dataclass(frozen=True, eq=False)
class Ballot:
    """The votes of one group.

    Attributes:
      votes: Σ of its devices' signs.  [num_state]
      master: the master's own signs; 0 as long as it has not voted.  [num_state]
    """

    votes: Array
    master: Array
    size: int

    def __add__(self, other: Ballot) -> Ballot:
        return Ballot(self.votes + other.votes, self.master + other.master, self.size + other.size)

    @property
    def result(self) -> Array:
        return np.where(self.votes == 0, self.master, np.sign(self.votes))


@dataclass(eq=False)
class GroupedVotes(MaskedSum):
    """The masked sum, and the votes of each group.

    Attributes:
      ballots: by the number of the group's master; below 0 for children that are in no group.
    """

    ballots: dict[int, Ballot] = field(default_factory=dict)

    def copy(self) -> GroupedVotes:
        copied = super().copy()
        assert isinstance(copied, GroupedVotes)
        return replace(copied, ballots=dict(self.ballots))

    def add(self, state: Array, mask: Array | None, weight: float = 1.0) -> None:
        """A child in no group."""
        self.add_member(state, mask, weight, is_master=True, master=self._unnamed())

    def add_member(
        self, state: Array, mask: Array | None, weight: float, *, is_master: bool, master: int, work: float = 1.0
    ) -> None:
        super().add(state, mask, weight)
        with np.errstate(invalid="ignore"):  # `finish` sees in the sum that a device has diverged
            signs = state.astype(np.int32)
        self._put(master, Ballot(signs, (signs if is_master else np.zeros_like(signs)).astype(np.int8), 1))

    def merge(self, other: MaskedSum) -> None:
        super().merge(other)
        assert isinstance(other, GroupedVotes)
        for master, ballot in other.ballots.items():
            self._put(master if master >= 0 else self._unnamed(), ballot)

    def _put(self, master: int, ballot: Ballot) -> None:
        self.ballots[master] = self.ballots[master] + ballot if master in self.ballots else ballot

    def _unnamed(self) -> int:
        return min(0, *self.ballots) - 1 if self.ballots else -1


class GroupVote(Vote):
    """A vote of groups of devices."""

    name = "group-vote"
    summary = "majority vote in every D2D group, then over the groups"
    source = "own: sign-SGD with majority vote (Bernstein et al. 2018) in device-to-device groups"
    Sum = GroupedVotes
    by_group = True

    masters: Literal["by-size", "alike"] = Field(
        default="by-size", description="weight of a group's vote: its number of devices, or 1"
    )

    def finish(self, total: MaskedSum, previous: Array) -> Array:
        assert isinstance(total, GroupedVotes)
        votes = np.zeros(len(previous), dtype=np.int64)
        for ballot in total.ballots.values():
            votes += (ballot.size if self.masters == "by-size" else 1) * ballot.result
        model = self.moved(previous, votes)
        model[~np.isfinite(total.total)] = np.nan
        return model
