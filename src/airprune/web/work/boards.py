"""Kinds of devices on the work page: seconds of a sample of the paper's CNN, and the source of each number.

Layers and FLOPs are those of the paper's CNN, counted as in docs/clock.md, so that the page needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from airprune.wireless.device_speed.boards import BOARDS, EFFICIENCY
from airprune.wireless.device_speed.work import LayerWork, ModelWork

LAYER_NAMES = ("conv1", "conv2", "fc1", "fc2")
LAYER_WEIGHTS = (288, 18_432, 25_088, 80)
# Multiplications and additions of a forward pass of one sample; gradients of inputs and of weights take as many each.
_FORWARD = (451_584, 7_225_344, 50_176, 160)
CNN = ModelWork(
    layers=tuple(
        LayerWork(
            name=name,
            prunable=name.startswith("fc"),
            forward=float(flops),
            input_gradient=0.0 if number == 0 else float(flops),
            weight_gradient=float(flops),
            number=number,
            fed_by=number - 1,
        )
        for number, (name, flops) in enumerate(zip(LAYER_NAMES, _FORWARD, strict=True))
    )
)
# The paper's clock: cycles per weight and iteration, and its CPU frequency.
_PAPER_CYCLES, _PAPER_HZ = 20.0, 3e9
_CPU_FLOPS_PER_CYCLE = 8.0
_OFFERED = ("raspberry-pi-3b+", "raspberry-pi-4", "raspberry-pi-5", "phone-core", "x86-core")
_LABELS = {
    "raspberry-pi-3b+": "Raspberry Pi 3B+",
    "raspberry-pi-4": "Raspberry Pi 4",
    "raspberry-pi-5": "Raspberry Pi 5",
    "phone-core": "phone, one core",
    "x86-core": "PC, one core",
}
PAPER, CPU = "paper", "cpu"


@dataclass(frozen=True)
class Kind:
    """One kind of device.

    Attributes:
      flops: sustained FLOP/s; None for the paper's clock, which does not count them, and for a CPU by its frequency.
      source: where the numbers come from.
      is_assumed: whether one of them has no source.
    """

    name: str
    label: str
    flops: float | None
    source: str
    is_assumed: bool

    def sample_s(self, batch: int, cpu_ghz: float) -> float:
        """Returns the seconds of one sample in a local step of the whole model.

        Args:
          batch: samples of a step.
          cpu_ghz: frequency of the CPU by its frequency.
        """
        if self.name == PAPER:
            return _PAPER_CYCLES * sum(LAYER_WEIGHTS) / _PAPER_HZ / batch
        flops = self.flops if self.flops is not None else cpu_ghz * 1e9 * _CPU_FLOPS_PER_CYCLE
        return CNN.flops_per_sample / flops


def _board(name: str) -> Kind:
    board = BOARDS[name]
    speed = board.flops_per_cycle() * board.cpu_hz
    source = f"{speed / 1e9:.3g} GFLOP/s: {board.source}; an efficiency of {EFFICIENCY:g} is assumed"
    return Kind(name, _LABELS[name], speed, source, "assumed" in board.source)


def _accelerator(gflops: int) -> Kind:
    source = "sustained, as in preset accelerators; an assumption without a source"
    return Kind(f"accelerator-{gflops}", f"accelerator, {gflops} GFLOP/s", gflops * 1e9, source, True)


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            PAPER, "the paper's clock", None, "20 cycles per weight and iteration at 3 GHz, Eq. (9) and Table I", False
        ),
        *(_board(name) for name in _OFFERED),
        Kind(CPU, "CPU by its frequency", None, "8 FLOP per cycle, as in preset device-cpu; an assumption", True),
        *(_accelerator(gflops) for gflops in (70, 200, 500)),
    )
}
