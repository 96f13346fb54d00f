"""A chunk of devices that do only what the paper's do, in one call of the native library or on a stack of models.

Between two gradients, which fill the processor's caches, a device's round in Python costs several times what it costs
by itself. `device_round` says what is done; this does the same with the same functions in C, to the bit, for devices
without momentum, decay, diagnostics, memory, reports, codes, clipping, or rates of single steps. All others go the
usual way, and so does a chunk in which anything fails: there the device is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from airprune.data import Holdings
from airprune.methods.aggregation import Aggregation
from airprune.methods.aggregation.masked_sum import MaskedSum
from airprune.methods.masking.base import SubModel
from airprune.methods.masking.probe import Probe
from airprune.methods.masking.ranking import by_moves
from airprune.models.kernels.base import Stacked
from airprune.models.kernels.native import NativeGradient
from airprune.models.kernels.stacked_chunks import train_chunk
from airprune.rounds.local import Device, Streams, minibatches
from airprune.rounds.sums import ChunkSum, DeviceStatistics
from airprune.rounds.trained_part import trained_part
from airprune.rounds.training.chunks import TrainTask

Array = np.ndarray


def train_at_once(
    device: Device,
    received: Array,
    task: TrainTask,
    *,
    samples: Holdings,
    streams: Streams,
    stack: Stacked | None,
) -> ChunkSum | None:
    """The chunk's sum; None if its devices have to go the usual way.

    Args:
      received: the model that they start from.  [num_state]
      samples: of all devices of the network.
      stack: models like the device's, if these can be trained together.
    """
    train, shape = _trainer(device, task, stack), device.shape
    if train is None or not _only_trains(device) or not _treats_all_equally(task, device):
        return None
    steps = (None,) * len(task.devices) if task.local_steps is None else task.local_steps
    batches = [
        minibatches(device.settings, num_steps, samples.of(number), streams.batches.at(number))
        for number, num_steps in zip(task.devices, steps, strict=True)
    ]
    if not all(batches):
        return None
    total = MaskedSum.zeros(shape.num_state, shape.prunable)
    losses: list[float] = []
    lost: list[Array] = []
    for first_trained, members in _stretches(task):
        frozen = shape.frozen_below(first_trained) if first_trained else None
        before = None if frozen is None else total.total[frozen]
        try:
            trained = train(
                received,
                batches[members],
                keep=task.keep[members],
                weights=task.weights[members],
                learning_rate=task.learning_rate,
                total=total.total,
                counts=total.masked_count,
                **_part(device, first_trained, len(batches[members])),
            )
        except ValueError:  # bad samples of some device: training each alone shows whose
            return None
        if trained is None:
            return None
        losses += trained[0]
        lost.append(trained[1])
        for keep, weight in zip(task.keep[members], task.weights[members], strict=True):
            total.count(weight, is_dense=keep >= shape.prunable_weights)
            if frozen is not None:  # they do not count in the average of the layers below
                total.total[frozen] = before
                total.leave_out(frozen, weight)
    return ChunkSum(total=total, statistics=_statistics(device, task, batches, losses, np.concatenate(lost)))


def _stretches(task: TrainTask) -> Iterator[tuple[int, slice]]:
    """Yields the lowest trained layer of neighbours that have the same, and their places."""
    if task.first_trained is None:
        yield 0, slice(0, len(task.devices))
        return
    start = 0
    for first_trained, members in groupby(task.first_trained):
        stop = start + len(list(members))
        yield first_trained, slice(start, stop)
        start = stop


def _part(device: Device, first_trained: int, num_devices: int) -> dict[str, Any]:
    """Returns what a trainer must know of the part that devices train, if they do not train everything."""
    if not first_trained:
        return {}
    part = trained_part(device.model, SubModel(first_trained=first_trained))
    return {"parts": [part] * num_devices, "most_bytes": device.feature_bytes}


def _trainer(
    device: Device, task: TrainTask, stack: Stacked | None
) -> Callable[..., tuple[list[float], Array] | None] | None:
    if type(device.gradient) is NativeGradient:
        return device.gradient.train_chunk
    if stack is None or (task.first_trained is not None and any(task.first_trained)):
        return None  # on a stack, parts are trained in step
    return partial(train_chunk, stack)


def _only_trains(device: Device) -> bool:
    """True if a device's round is: the largest moves of a probe, plain SGD, and what it holds to the sum as it is."""
    settings, method = device.settings, device.method
    does_more = (
        device.adjusts
        or device.finishes
        or device.memory_slots
        or device.shape.num_personal
        or settings.momentum
        or settings.weight_decay
        or settings.diagnostics
        or settings.clip_norm is not None
        or settings.clips_gradients
        or settings.step_rates is not None
        or settings.needs_module
    )
    added_up = method.aggregation
    return (
        not does_more
        and settings.optimizer.name == "sgd"
        and isinstance(method.masking, Probe)
        and not method.masking.overrides(Probe.choose)
        and by_moves(method.masking)
        and method.compression.exact(device.wire)
        and added_up.Sum is MaskedSum
        and not added_up.overrides(Aggregation.read)
        and not added_up.by_group
    )


def _treats_all_equally(task: TrainTask, device: Device) -> bool:
    """True if nothing of the task is for one device alone but how much it keeps and whether it prunes."""
    does_more = task.code is not None or task.group is not None or task.last_trained is not None
    if does_more or task.memory or task.measured:
        return False
    pruned = [n for n, keep in enumerate(task.keep) if keep < device.shape.prunable_weights]
    if task.first_trained is not None and any(task.first_trained[n] for n in pruned):
        return False  # what it sends depends on its mask
    can_choose = all(task.keep[n] >= device.shape.layers.num_rows and task.weights[n] == 1.0 for n in pruned)
    return can_choose and bool(np.float32(task.learning_rate) > 0.0)


def _statistics(
    device: Device, task: TrainTask, batches: Sequence[Sequence[Array]], losses: Sequence[float], lost: Array
) -> DeviceStatistics:
    """Returns the devices' statistics as `device_round` counts them.

    Args:
      losses: of all minibatches.
      lost: ‖w − w ⊙ m‖² of every device.
    """
    shape, counts, means = device.shape, *_mean_losses(batches, losses)
    sent = [shape.fixed_weights + min(keep, shape.prunable_weights) for keep in task.keep]
    coded = sent
    if task.first_trained is not None:
        frozen = {n: np.count_nonzero(shape.is_weight & shape.frozen_below(n)) for n in set(task.first_trained)}
        coded = [number - int(frozen[n]) for number, n in zip(sent, task.first_trained, strict=True)]
    bits_of = {number: float(device.method.compression.message_bits(device.wire, number)) for number in set(coded)}
    unmeasured = np.full(len(sent), np.nan)
    return DeviceStatistics(
        device=np.array(task.devices, np.int64),
        uploaded_weights=np.array(coded, np.int64),
        sent_bits=np.array([bits_of[number] for number in coded]),
        code_error=np.zeros(len(sent)),
        loss=means,
        num_samples=counts,
        gradient_sq_max=unmeasured,
        gradient_noise_sq=unmeasured,
        smoothness=unmeasured,
        pruning_error_sq=lost,
    )


def _mean_losses(batches: Sequence[Sequence[Array]], losses: Sequence[float]) -> tuple[Array, Array]:
    """Returns each device's number of trained samples and mean loss over them, added minibatch by minibatch."""
    sizes = np.array([len(batch) for own in batches for batch in own])
    weighted, stops = losses * sizes, np.cumsum([len(own) for own in batches])
    if len(batches) == len(losses):  # one minibatch each
        return sizes, weighted / sizes
    parts = zip(np.split(sizes, stops[:-1]), np.split(weighted, stops[:-1]), strict=True)
    sums = [(int(own.sum()), sum(terms.tolist())) for own, terms in parts]
    counts = np.array([count for count, _ in sums], np.int64)
    return counts, np.array([total for _, total in sums]) / counts
