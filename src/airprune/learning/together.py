"""Devices of a chunk trained in step: who needs a gradient waits until the others do, then all are computed at once.

Each device runs `round_in_steps` on its own row of a stack of models: masks, objectives, optimisers and codes are the
same code as for a device alone, and so are the bits. Only what computes the gradients differs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import groupby

import numpy as np

from airprune.engines.base import MAX_TRIES
from airprune.errors import AirpruneError
from airprune.federation.device import Device, Wanted
from airprune.federation.messages import Upload
from airprune.kernels import KERNELS
from airprune.kernels.base import Stacked
from airprune.learning.chunks import Failure

Array = np.ndarray
Steps = Generator[Wanted, float, Upload]


class Seat(Device):
    """A device on a row of a stack. What is not done together it does with the model of the device that it is like."""

    waits = True

    def __init__(self, like: Device, stack: Stacked, row: int) -> None:
        vars(self).update(vars(like))
        self.model, self.smaller = stack.rows[row], like.smaller  # type: ignore[method-assign]
        self.gradient = lambda batch: stack.alone(row, batch)
        self.loss = _Value(stack, row)  # type: ignore[assignment]


class _Value:
    """F of a row, for Eq. (1)."""

    def __init__(self, stack: Stacked, row: int) -> None:
        self._stack, self._row = stack, row

    def value(self, batch: Array) -> float:
        return self._stack.value(self._row, batch)


class Together:
    """Trains as many devices at once as its stack has rows."""

    def __init__(self, device: Device, stack: Stacked) -> None:
        self._stack = stack
        self._seats = [Seat(device, stack, row) for row in range(len(stack.rows))]

    @property
    def num_seats(self) -> int:
        return len(self._seats)

    def uploads(
        self, begin: Sequence[Callable[[Device], Steps]], failed: Callable[[int, Exception], Failure]
    ) -> list[Upload | Failure]:
        """Of each device; uploads are views that the next call overwrites.

        Args:
          begin: starts a device's round on a seat; again if it fails, up to `MAX_TRIES` times.
          failed: what stands for the device of this number then; may raise.
        """
        ended: dict[int, Upload | Failure] = {}
        tries = [0] * len(begin)
        waiting: dict[int, tuple[Steps, Array]] = {}

        def go_on(row: int, steps: Steps | None, answer: float | Exception | None) -> None:
            """To the next minibatch of the stack that this device needs, or to the end of its round."""
            seat = self._seats[row]
            while True:
                try:
                    if steps is None:
                        steps = begin[row](seat)
                        wanted = next(steps)
                    elif isinstance(answer, Exception):
                        wanted = steps.throw(answer)
                    else:
                        assert answer is not None
                        wanted = steps.send(answer)
                    while wanted.device is not seat:  # a smaller model, which devices share: it has to be done with
                        wanted = steps.send(wanted.device.gradient(wanted.batch))
                except StopIteration as end:
                    ended[row] = end.value
                except AirpruneError:
                    raise
                except Exception as error:
                    tries[row] += 1
                    steps = None
                    if tries[row] < MAX_TRIES:
                        continue
                    ended[row] = failed(row, error)
                else:
                    waiting[row] = steps, wanted.batch
                return

        for row in range(len(begin)):
            go_on(row, None, None)
        while waiting:
            now, waiting = sorted(waiting.items()), {}
            # Neighbours with minibatches of one size: their rows lie side by side.
            for _, stretch in groupby(enumerate(now), lambda at: (at[1][0] - at[0], len(at[1][1][1]))):
                members = [member for _, member in stretch]
                answers = self._answers(members[0][0], [batch for _, (_, batch) in members])
                for (row, (steps, _)), answer in zip(members, answers, strict=True):
                    go_on(row, steps, answer)
        return [ended[row] for row in range(len(begin))]

    def _answers(self, first: int, batches: Sequence[Array]) -> list[float | Exception]:
        """The loss of each, or what is wrong with it."""
        try:
            return [*self._stack.gradients(first, batches)]
        except Exception:  # somebody's samples: each alone tells whose
            return [self._alone(row, batch) for row, batch in enumerate(batches, first)]

    def _alone(self, row: int, batch: Array) -> float | Exception:
        try:
            return self._stack.alone(row, batch)
        except Exception as error:
            return error


def together(device: Device, num_devices: int) -> Together | None:
    """For at most so many devices like this one at once; None if they are to be trained one after the other."""
    settings = device.settings
    stack_of = KERNELS[settings.kernel].stack
    if stack_of is None or settings.device != "cpu" or settings.diagnostics or device.teaching is not None:
        return None
    stack = stack_of(device.model, device.x, device.y, loss=device.minimised, num_rows=num_devices)
    return None if stack is None else Together(device, stack)
