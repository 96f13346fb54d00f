"""Models that behave until a flag file says otherwise, and then only in worker processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from airprune.rounds.experiment import Experiment
from support.tiny import blobs, tiny_scenario


class Plain(nn.Module):
    """Two layers for the blobs, the same weights each time."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            self.hidden = nn.Linear(12, 16)
            self.out = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(F.relu(self.hidden(x)))


class Flagged(Plain):
    def __init__(self, flag: Path) -> None:
        super().__init__()
        self.flag, self.home = flag, os.getpid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if os.getpid() != self.home and self.flag.exists():
            self.misbehave()
        return super().forward(x)

    def misbehave(self) -> None:
        raise NotImplementedError


class DiesOnce(Flagged):
    """The first worker that sees the flag takes it away and dies."""

    def misbehave(self) -> None:
        self.flag.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class FreezesOnce(Flagged):
    """The first worker that sees the flag takes it away and stands still until SIGCONT."""

    def misbehave(self) -> None:
        self.flag.unlink()
        os.kill(os.getpid(), signal.SIGSTOP)


class AlwaysFreezes(Flagged):
    def misbehave(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)


class AlwaysDies(Flagged):
    def misbehave(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Raises(Flagged):
    def misbehave(self) -> None:
        raise ArithmeticError("the flag is up")


class PoisonForDeviceTwo(Plain):
    """Misbehaves on the samples of one device: the third of `tiny_scenario` on `blobs`."""

    def __init__(self) -> None:
        super().__init__()
        experiment = Experiment.of(tiny_scenario(), dataset=blobs())
        self.poison = torch.from_numpy(experiment.dataset.train_x[experiment.samples[2]])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x[:1] == self.poison).all(1).any():
            self.misbehave()
        return super().forward(x)


class RaisesForDeviceTwo(PoisonForDeviceTwo):
    def misbehave(self) -> None:
        raise ArithmeticError("bad sample")


class DiesOfDeviceTwo(PoisonForDeviceTwo):
    def misbehave(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class FailsForDevice(Plain):
    """Misbehaves on the samples of one device while the flag is up, in whatever process."""

    def __init__(self, flag: Path, samples: torch.Tensor) -> None:
        super().__init__()
        self.flag, self.poison = flag, samples

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.flag.exists() and (x[:1] == self.poison).all(1).any():
            self.misbehave()
        return super().forward(x)


class RaisesForDevice(FailsForDevice):
    def misbehave(self) -> None:
        raise ArithmeticError("bad sample")


class DiesOfDevice(FailsForDevice):
    def misbehave(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class CannotArrive(Flagged):
    """Fails while a worker unpickles it."""

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if os.getpid() != self.home:
            raise ArithmeticError("lost on the way")


class Moody(nn.Module):
    """Draws random numbers, and keeps floating and counting buffers."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            self.first = nn.Linear(12, 12)
            self.norm = nn.BatchNorm1d(12, momentum=None)  # averages by its count of batches
            self.drop = nn.Dropout(0.3)
            self.out = nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.drop(F.relu(self.norm(self.first(x)))))
