"""How much faster a device trains a narrower model of the paper's CNN than the whole one with zeros.

.venv/bin/python benchmarks/small_models.py
"""

from __future__ import annotations

import time

import numpy as np
import torch

from airprune.methods.compression.base import Wire
from airprune.methods.masking.widths import weights_at
from airprune.models.catalogue import FlatModel, PaperCNN
from airprune.models.kernels import kernel_for
from airprune.rounds.device import device_round
from airprune.rounds.local import Device, LocalSettings, Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.method import Method
from airprune.scenario import Scenario

SAMPLES, ROUNDS = 256, 7
WIDTHS = (0.125, 0.25, 0.5, 0.75)


def seconds(device: Device, received: np.ndarray, keep: int) -> float:
    """The quickest of some rounds on 256 samples."""
    orders = Orders(device=0, keep=keep, learning_rate=0.01, round_index=0)
    took = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        device_round(device, Broadcast(model=received), orders, samples=np.arange(SAMPLES), streams=Streams(0, 0, 0))
        took.append(time.perf_counter() - start)
    return min(took)


def main() -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SAMPLES, 1, 28, 28)).astype(np.float32)
    y = rng.integers(10, size=SAMPLES)
    for prunable in ((), ("*",)):
        for kernel in dict.fromkeys(("torch", kernel_for("auto", FlatModel(PaperCNN()), x, y))):
            model = FlatModel(PaperCNN(), prunable=prunable)
            widths = [*WIDTHS, 1.0]
            changes = {"masking.name": "heterofl", "masking.heterofl.widths": widths}
            method = Method.of(Scenario().with_values(changes)).local
            wire = Wire(value_bits=64.0, num_weights=model.shape.num_weights, num_tensors=4)
            settings = LocalSettings(batch_size=64, local_epochs=1, kernel=kernel)
            small = Device(model, x, y, settings, method, wire)
            zeros = Device(model, x, y, settings, method, wire)
            zeros.smaller = lambda kept: None  # type: ignore[method-assign]
            received = model.state_array.copy()
            for width in WIDTHS:
                keep = weights_at(model.shape.units, width)
                ratio = seconds(zeros, received, keep) / seconds(small, received, keep)
                layers = "all layers" if prunable else "linear layers"
                print(f"{layers:14} {kernel:7} width {width:5}: {ratio:5.2f} times as fast")


if __name__ == "__main__":
    main()
