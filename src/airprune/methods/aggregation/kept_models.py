"""Keeps the models of a parent's children side by side, for aggregations that compare them with each other.

A weight is judged among the children that sent it. Lengths and distances are root mean squares over the weights that
count, so that they compare whatever the masks; S_n are the weights that child n sent, Δ_n = w_n − previous its update:

    ‖Δ_n‖² = mean over S_n of Δ_n²,   d(n, m)² = mean over S_n ∩ S_m of (Δ_n − Δ_m)²

Models are read in blocks of weights, so that beside them only some MB are needed, whatever their size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from airprune.methods.aggregation.masked_sum import Array, MaskedSum

# Entries of a block, over all children.
_BLOCK = 1 << 16


class Child(NamedTuple):
    """A child's model, zero where it sent nothing.

    Attributes:
      mask: over the prunable slice; None: all were sent.  [num_prunable]
      frozen: entries that it left as it received them and did not send; None if none.  [num_state] bool
    """

    model: Array
    mask: Array | None
    frozen: Array | None = None


@dataclass(eq=False)
class KeptModels(MaskedSum):
    """A masked sum that also keeps every model, in the order of the children."""

    children: list[Child] = field(default_factory=list)

    def copy(self) -> KeptModels:
        copied = super().copy()
        assert isinstance(copied, KeptModels)
        return replace(copied, children=list(self.children))

    def add(self, state: Array, mask: Array | None, weight: float = 1.0) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is excluded by `updates`
            super().add(state, mask, weight)
        self.children.append(Child(state.copy(), None if mask is None else np.array(mask, dtype=bool)))

    def leave_out(self, frozen: Array, weight: float) -> None:
        super().leave_out(frozen, weight)
        self.children[-1] = self.children[-1]._replace(frozen=frozen)

    def merge(self, other: MaskedSum) -> None:
        super().merge(other)
        assert isinstance(other, KeptModels)
        self.children += other.children

    def updates(self, previous: Array) -> Updates:
        """Returns the updates of the children, without those that are not finite."""
        found = Updates(self.children, previous.astype(np.float64), self.prunable)
        is_finite = np.isfinite(found.lengths)
        if is_finite.all():
            return found
        return Updates([self.children[n] for n in np.flatnonzero(is_finite)], found.previous, self.prunable)


class Updates:
    """The updates of some children, as blocks of weights.

    Attributes:
      lengths: ‖Δ_n‖ of each; 0 for one that sent nothing.  [num_children]
      num_sent: |S_n|.  [num_children]
    """

    def __init__(self, children: Sequence[Child], previous: Array, prunable: slice) -> None:
        self.children, self.previous, self.prunable = children, previous, prunable
        total, self.num_sent = np.zeros(len(children)), np.zeros(len(children), dtype=np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            for _, values, sent in self.blocks():
                total += np.square(values).sum(axis=1)
                self.num_sent += sent.sum(axis=1)
        self.lengths = np.sqrt(total / np.maximum(self.num_sent, 1))

    def __len__(self) -> int:
        return len(self.children)

    def blocks(self) -> Iterator[tuple[slice, Array, Array]]:
        """Yields (a slice of the weights, Δ of every child, zero where not sent, what each sent).  [num_children, …]"""
        if not self.children:
            return
        size = max(_BLOCK // len(self.children), 1)
        for start in range(0, len(self.previous), size):
            block = slice(start, min(start + size, len(self.previous)))
            sent = np.stack([self._sent(child, block) for child in self.children])
            values = np.stack([child.model[block] for child in self.children]) - self.previous[block]
            if not sent.all():
                values[~sent] = 0.0
            yield block, values, sent

    def _sent(self, child: Child, block: slice) -> Array:
        sent = np.ones(block.stop - block.start, dtype=bool)
        if child.mask is not None:
            first, last = max(block.start, self.prunable.start), min(block.stop, self.prunable.stop)
            if first < last:
                inside = child.mask[first - self.prunable.start : last - self.prunable.start]
                sent[first - block.start : last - block.start] = inside
        return sent if child.frozen is None else sent & ~child.frozen[block]

    def distances_sq(self) -> Array:
        """Returns d(n, m)²; two that share no weight are as far apart as the farthest pair.  [num_children] × 2"""
        squares, shared = np.zeros((len(self), len(self))), np.zeros((len(self), len(self)))
        for _, values, sent in self.blocks():
            # By einsum, not by BLAS, whose sums depend on its number of threads.
            there = sent.astype(np.float64)
            own = np.einsum("nj,mj->nm", np.square(values), there)
            squares += own + own.T - 2.0 * np.einsum("nj,mj->nm", values, values)
            shared += np.einsum("nj,mj->nm", there, there)
        mean = np.maximum(squares, 0.0) / np.maximum(shared, 1.0)
        return np.where(shared > 0.0, mean, mean.max(initial=0.0))


def typical_length(lengths: Array) -> float:
    """Returns the lower median: of two the smaller, so that one child alone cannot raise it; 0 of none."""
    return float(np.sort(lengths)[(len(lengths) - 1) // 2]) if len(lengths) else 0.0
