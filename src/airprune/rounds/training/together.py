"""Devices of a chunk trained in step: who needs a gradient waits until the others do, then all are computed at once.

Each device runs `round_in_steps` on its own row of a stack of models: masks, objectives, optimisers and codes are the
same code as for a device alone, and so are the bits. Only what computes the gradients differs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from airprune.engines.base import MAX_TRIES
from airprune.errors import AirpruneError, NotFinite
from airprune.models.kernels import KERNELS
from airprune.models.kernels.base import Stacked, TrainedPart
from airprune.rounds.device import GradientRequest
from airprune.rounds.local import Device
from airprune.rounds.messages import Upload
from airprune.rounds.sums import Failure

Array = np.ndarray
Steps = Generator[GradientRequest, float, Upload]


class StackedDevice(Device):
    """A device on a row of a stack. What is not done together it does with the model of the device that it is like."""

    waits = True

    def __init__(self, like: Device, stack: Stacked, row: int) -> None:
        vars(self).update(vars(like))
        self.model, self.smaller = stack.rows[row], like.smaller  # type: ignore[method-assign]
        self.gradient = _RowGradient(stack, row)
        self.loss = _Value(stack, row)  # type: ignore[assignment]


class _RowGradient:
    """∇F of a row alone."""

    def __init__(self, stack: Stacked, row: int) -> None:
        self._stack, self._row = stack, row

    def __call__(self, batch: Array) -> float:
        return self._stack.alone(self._row, batch)

    def of_part(self, batch: Array, part: TrainedPart) -> float:
        return self._stack.alone(self._row, batch, part)

    def keep_features(self, part: TrainedPart, samples: Array, most_bytes: int) -> TrainedPart:
        return self._stack.keep_features(self._row, part, samples, most_bytes)


class _Value:
    """F of a row, for Eq. (1)."""

    def __init__(self, stack: Stacked, row: int) -> None:
        self._stack, self._row = stack, row

    def value(self, batch: Array) -> float:
        return self._stack.value(self._row, batch)


class _Waiting(NamedTuple):
    """A device that needs the gradient of its row on a minibatch."""

    row: int
    steps: Steps
    batch: Array
    part: TrainedPart | None

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for neighbours whose gradients can be computed together."""
        return len(self.batch), None if self.part is None else self.part.kind


class Together:
    """Trains as many devices at once as its stack has rows."""

    def __init__(self, device: Device, stack: Stacked) -> None:
        self.stack = stack
        self._seats = [StackedDevice(device, stack, row) for row in range(len(stack.rows))]

    @property
    def num_seats(self) -> int:
        return len(self._seats)

    def uploads(
        self,
        begin: Callable[[int, Device], Steps],
        num_samples: Sequence[int],
        failed: Callable[[int, Exception], Failure],
    ) -> Iterator[Upload | Failure]:
        """Yields the devices' uploads in order, each as soon as it can; a view that may soon be overwritten.

        Args:
          begin: starts the round of the device of this number on a seat; again if it fails, up to `MAX_TRIES` times.
          num_samples: of each device: those that have equally many sit side by side, having minibatches of one size.
          failed: what stands for the device of this number then; may raise.
        """
        number_of = sorted(range(len(num_samples)), key=lambda number: -num_samples[number])
        ended: dict[int, Upload | Failure] = {}
        tries = [0] * len(num_samples)
        waiting: list[_Waiting] = []
        next_one = 0

        def go_on(row: int, steps: Steps | None, answer: float | Exception | None) -> None:
            """To the next minibatch of the stack that this device needs, or to the end of its round."""
            seat, number = self._seats[row], number_of[row]
            while True:
                try:
                    if steps is None:
                        steps = begin(number, seat)
                        wanted = next(steps)
                    elif isinstance(answer, Exception):
                        wanted = steps.throw(answer)
                    else:
                        assert answer is not None
                        wanted = steps.send(answer)
                    while wanted.device is not seat:  # a smaller model, which devices share: it has to be done with
                        wanted = steps.send(wanted.answer())
                except StopIteration as end:
                    ended[number] = end.value
                except NotFinite as error:
                    ended[number] = failed(number, error)
                except AirpruneError:
                    raise
                except Exception as error:
                    tries[row] += 1
                    steps = None
                    if tries[row] < MAX_TRIES:
                        continue
                    ended[number] = failed(number, error)
                else:
                    waiting.append(_Waiting(row, steps, wanted.batch, wanted.part))
                return

        for row in range(len(num_samples)):
            go_on(row, None, None)
        while waiting:
            now, waiting = waiting, []
            # Neighbours with minibatches of one size and one trained part: their rows lie side by side.
            for _, stretch in groupby(enumerate(now), lambda at: (at[1].row - at[0], at[1].kind)):
                members = [member for _, member in stretch]
                losses = self._losses(members)
                for place, member in enumerate(members):
                    go_on(member.row, member.steps, self._alone(member) if losses is None else losses[place])
                    while next_one in ended:
                        yield ended.pop(next_one)
                        next_one += 1
        while next_one in ended:
            yield ended.pop(next_one)
            next_one += 1

    def _losses(self, members: Sequence[_Waiting]) -> list[float] | None:
        first, batches = members[0].row, [member.batch for member in members]
        parts = [member.part for member in members if member.part is not None]
        try:
            return self.stack.gradients(first, batches, parts or None)
        except Exception:  # bad samples of some device: training each alone shows whose
            return None

    def _alone(self, waiting: _Waiting) -> float | Exception:
        try:
            return self.stack.alone(waiting.row, waiting.batch, waiting.part)
        except Exception as error:
            return error


def together(device: Device, num_devices: int) -> Together | None:
    """Returns a trainer of at most so many such devices at once; None if they are trained one after the other."""
    settings = device.settings
    stack_of = KERNELS[settings.kernel].stack
    alone = settings.diagnostics or device.teaching is not None or settings.needs_module
    if stack_of is None or settings.device != "cpu" or alone:
        return None
    sizes = {"batch_size": settings.batch_size, "num_rows": num_devices}
    stack = stack_of(device.model, device.x, device.y, loss=device.minimised, **sizes)
    return None if stack is None else Together(device, stack)
