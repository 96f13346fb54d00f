"""A chunk of devices that only choose, take steps of SGD and send what they hold, on the rows of a stack.

What `NativeGradient.train_chunk` does for the paper's CNN, for any model that can be stacked: gradients of all devices
at once, and between them a few calls of the native library per device in place of its round in Python.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from airprune.models.kernels import native
from airprune.models.kernels.base import Stacked

Array = np.ndarray


def train_chunk(
    stack: Stacked,
    received: Array,
    batches: Sequence[Sequence[Array]],
    *,
    keep: Sequence[int],
    weights: Sequence[float],
    learning_rate: float,
    total: Array,
    counts: Array,
) -> tuple[list[float], Array] | None:
    """Trains like `NativeGradient.train_chunk`, as many devices at once as there are rows.

    None also if their minibatches are not of the same sizes, or cannot be computed together.
    """
    sizes = [[len(batch) for batch in own] for own in batches]
    if native.trouble or received.dtype != np.float32 or any(own != sizes[0] for own in sizes):
        return None
    losses, lost = np.empty((len(batches), len(sizes[0]))), np.zeros(len(batches))
    for start in range(0, len(batches), len(stack.rows)):
        some = slice(start, start + len(stack.rows))
        group = _Group(stack, received, batches[some], keep[some], learning_rate)
        if not group.train(losses[some], lost[some]):
            return None
        for row, mask, weight in zip(group.rows, group.masks, weights[some], strict=True):
            native.add_state(total, stack.rows[row].state_array, weight)
            if mask is not None:
                native.add_counts(counts, mask)
    return losses.ravel().tolist(), lost


class _Group:
    """The training of as many devices as there are rows, or fewer.

    Who prunes sits behind all others, so that both kinds lie side by side.

    Attributes:
      rows: of each device.
      masks: of each device; None if it prunes nothing.
    """

    def __init__(
        self, stack: Stacked, received: Array, batches: Sequence[Sequence[Array]], keep: Sequence[int], rate: float
    ) -> None:
        self._stack, self._received, self._batches, self._keep, self._rate = stack, received, batches, keep, rate
        self._prunable, self._layers = stack.model.prunable, stack.model.layers
        whole = [device for device, number in enumerate(keep) if number >= stack.model.prunable_weights]
        self._seated = whole + sorted(set(range(len(keep))) - set(whole))
        self._num_whole = len(whole)
        self.rows = [0] * len(keep)
        for row, device in enumerate(self._seated):
            self.rows[device] = row
        self.masks: list[Array | None] = [None] * len(keep)

    def train(self, losses: Array, lost: Array) -> bool:
        """True if all has gone well; fills in losses [num_devices, num_steps] and ‖w − w ⊙ m‖² [num_devices]."""
        for row in self.rows:
            self._stack.rows[row].load(self._received)
        pruning = self._seated[self._num_whole :]
        for step in range(losses.shape[1]):
            if not self._computed(0, step, losses):
                return False
            if step or not pruning:
                self._descend(self._seated)
                continue
            # That was the probe of those who prune, at the model as received.
            self._descend(self._seated[: self._num_whole])
            for device in pruning:
                if not self._prune(device, lost):
                    return False
            if not self._computed(self._num_whole, step, losses):
                return False
            self._descend(pruning)
        return True

    def _computed(self, first: int, step: int, losses: Array) -> bool:
        """The gradients of the seats from `first`."""
        devices = self._seated[first:]
        try:
            found = self._stack.gradients(first, [self._batches[device][step] for device in devices])
        except Exception:  # bad samples of some device: training each alone shows whose
            return False
        if found is not None:
            losses[devices, step] = found
        return found is not None

    def _prune(self, device: int, lost: Array) -> bool:
        """Eq. (5) by the largest moves; False if these are not finite."""
        row, prunable = self._stack.rows[self.rows[device]], self._prunable
        slope, starts = row.gradient_array[prunable], self._layers.row_starts
        mask = native.largest_moves(self._received[prunable], slope, starts, self._keep[device], self._rate)
        if mask is None:
            return False
        self.masks[device] = mask
        lost[device] = native.hold(row.state_array[prunable], mask)
        return True

    def _descend(self, devices: Sequence[int]) -> None:
        for device in devices:
            row, mask = self.rows[device], self.masks[device]
            if mask is not None:
                native.multiply(self._stack.rows[row].gradient_array[self._prunable], mask)
            self._stack.descend(row, self._rate)
