"""Bounds of what members may say: a value outside of them is refused before it is stored, whoever has said it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from airprune.models.losses import CROSS_ENTROPY
from airprune.scenario import Scenario
from airprune.scenario.sections import TrainSection

# Of training the whole model; devices that are faster say the least.
LEAST_SECONDS_PER_SAMPLE, MOST_SECONDS_PER_SAMPLE = 1e-6, 1e4
# Between a device's seconds per sample and the median of its class, either way; and its samples and the median of all,
# of which planners keep arrays as long as the local steps of the device with most of them.
MOST_TIMES_MEDIAN = 100.0
# Devices of a class, or of all, before there is a median to compare with.
_LEAST_IN_CLASS = 3
# Of any duration: ten days and more.
MOST_SECONDS = 1e6
# Of any link, and of a radio per Hz of its bandwidth: 1024-QAM in eight layers carries 80.
MOST_LINK_BPS, MOST_BPS_PER_HZ = 1e12, 100.0
# Of any other number that a device reports of its training: sums of them stay finite.
MOST_STATISTIC = 1e30
# Of a training loss: so many times that of a guess among all classes.
_MOST_TIMES_GUESS = 100.0


def most_loss(scenario: Scenario, num_classes: int) -> float:
    """Returns the largest training loss that counts, ± : 100 ln(classes) for cross-entropy."""
    if scenario.train.loss == CROSS_ENTROPY and num_classes > 1:
        return _MOST_TIMES_GUESS * math.log(num_classes)
    return MOST_STATISTIC


def most_samples(train: TrainSection, num_samples: int, local_steps: int | None) -> int:
    """Returns the samples that a device with so many can have trained on in a round, each once per epoch."""
    return max(num_samples * train.local_epochs, (local_steps or 0) * train.batch_size)


def believed_samples(num_samples: Mapping[int, int]) -> dict[int, int]:
    """Returns the number of samples that a run takes of the devices with over a hundred times the median."""
    if not num_samples:
        return {}
    median = sorted(num_samples.values())[(len(num_samples) - 1) // 2]
    most = int(MOST_TIMES_MEDIAN) * max(median, 1)
    return {device: most for device, count in num_samples.items() if count > most}


def most_rate_bps(bandwidth_hz: float) -> float:
    """Returns the highest rate that plans count on: the capacity of the bandwidth."""
    return MOST_BPS_PER_HZ * bandwidth_hz


def within_class(seconds: Mapping[int, float], classes: Mapping[int, str]) -> dict[int, float]:
    """Returns the seconds per sample that plans take of the devices that are far from the median of their class.

    That is the nearest value within a factor of 100. A device is compared with its class, or with all devices where its
    class has fewer than three: a device chooses its class itself. Where half of those compared are far from the median,
    there is no majority to believe. They are not refused: an honest device on a busy machine may say such a value.

    Args:
      seconds: per sample, as devices report them.
      classes: kernel and machine, likewise.
    """
    groups: dict[str, dict[int, float]] = {}
    for device, value in seconds.items():
        groups.setdefault(classes[device], {})[device] = value
    large = [group for group in groups.values() if len(group) >= _LEAST_IN_CLASS]
    small = {device for group in groups.values() if len(group) < _LEAST_IN_CLASS for device in group}
    found = {device: value for group in large for device, value in _near_median(group).items()}
    return found | {device: value for device, value in _near_median(seconds).items() if device in small}


def _near_median(seconds: Mapping[int, float]) -> dict[int, float]:
    if len(seconds) < _LEAST_IN_CLASS:
        return {}
    median = sorted(seconds.values())[(len(seconds) - 1) // 2]
    least, most = median / MOST_TIMES_MEDIAN, median * MOST_TIMES_MEDIAN
    found = {d: min(max(value, least), most) for d, value in seconds.items() if not least <= value <= most}
    return found if 2 * len(found) < len(seconds) else {}
