"""Convolutions that crash torch with channels last are kept out of it; a crash is not called too little memory."""

import os
import signal
import subprocess
import sys

import pytest
import torch
from torch import nn

from airprune.engines.base import Died
from airprune.models.catalogue import FlatModel
from airprune.models.kernels.image_layout import may_crash

SCRIPT = """
import numpy as np, torch, airprune as ap
from torch import nn

class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.short = nn.Conv2d(inputs, outputs, 3, 2, 1), nn.Conv2d(inputs, outputs, 1, 2)

    def forward(self, x):
        return torch.relu(self.conv(x) + self.short(x))

model = nn.Sequential(Block(3, 8), Block(8, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))
images = np.random.default_rng(0).normal(size=(600, 3, 16, 16))
scenario = ap.Scenario.preset("smoke").with_values({"engine.name": "serial"})
list(ap.run(scenario, model=model, dataset=(images, np.arange(600) % 3)))
"""


def test_a_residual_network_with_a_narrow_shortcut_trains():
    """With AVX2 torch corrupts the heap at once; wider vectors need larger images."""
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.Conv2d(3, 8, 1, stride=2), True),
        (nn.Conv2d(15, 8, 1, stride=(1, 2)), True),
        (nn.Conv2d(1, 8, 1, stride=3), True),
        (nn.ConvTranspose2d(32, 3, 1, stride=2), True),
        (nn.Conv2d(16, 32, 1, stride=2), False),
        (nn.Conv2d(3, 8, 1), False),
        (nn.Conv2d(3, 8, 3, stride=2), False),
        (nn.Conv2d(8, 8, 1, stride=2, groups=2), False),
        (nn.Linear(3, 8), False),
    ],
)
def test_narrow_strided_1x1_convolutions_alone_may_crash(layer, expected):
    assert may_crash(layer) is expected


def test_only_a_convolution_that_may_crash_computes_channel_by_channel():
    model = FlatModel(nn.Sequential(nn.Conv2d(3, 8, 1, stride=2), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(288, 2)))
    narrow, other = model.module[0], model.module[1]
    images = torch.randn(4, 3, 16, 16).contiguous(memory_format=torch.channels_last)
    assert narrow(images).is_contiguous()
    assert other(narrow(images)).is_contiguous(memory_format=torch.channels_last)
    model.state.fill_(0.5)
    assert (narrow.weight == 0.5).all()
    narrow(images).sum().backward()
    assert model.gradient.count_nonzero() == narrow.weight.numel() + narrow.bias.numel()


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGKILL", "SIGTERM"])
def test_only_sigkill_is_said_to_be_too_little_memory(name):
    sentence = Died(f"signal {signal.Signals[name].name}").on("the same devices")
    assert f"last by signal {name};" in sentence
    assert ("too little memory" in sentence) == (name == "SIGKILL")
    assert ("crash of native code" in sentence) == (name not in ("SIGKILL", "SIGTERM"))
