"""Common boards: what their CPU can do per cycle, and where the numbers come from.

Peaks are of fused multiply-adds in float32, two FLOP each; no program reaches them. What training reaches of a peak is
`efficiency`, which the user can set (`clock.efficiency`).
"""

from __future__ import annotations

from dataclasses import dataclass

EFFICIENCY = 0.25
"""Sustained over peak in training, unless the user says otherwise.

An assumption, rounded from one measurement: torch on one thread of a 2.8 GHz Xeon trains the paper's CNN in minibatches
of 128 at 16.6 counted FLOP per cycle, of a peak of 64. Smaller layers, slow memory and throttling make it less.
"""


@dataclass(frozen=True)
class Board:
    """One kind of device.

    Attributes:
      cores: those that count; of big.LITTLE chips the big ones.
      cpu_hz: the clock it is sold with.
      peak: float32 FLOP per cycle and core, a peak.
      source: of cores, clock and peak; says what is an assumption.
    """

    name: str
    cpu: str
    cores: int
    cpu_hz: float
    peak: int
    source: str

    def flops_per_cycle(self, *, cores: int | None = None, efficiency: float = EFFICIENCY) -> float:
        """Sustained on so many of its cores."""
        return self.peak * (self.cores if cores is None else cores) * efficiency


_ONE_FMA = "one 128-bit fused multiply-add a cycle"
_TWO_FMA = "two 128-bit fused multiply-adds a cycle (WikiChip, FLOPS)"
_A53 = f"assumed {_ONE_FMA}: its two 64-bit pipes (ncnn developer guide, arm-a53-a55-dual-issue)"
_A57 = f"{_ONE_FMA} (WikiChip, FLOPS)"
_A72 = f"{_ONE_FMA} (OpenBLAS issue 4149: 3.2 of 4 FLOP a cycle measured in float64, twice that in float32)"
_AVX2 = "two 256-bit fused multiply-adds a cycle, Haswell, Zen 2 and later (WikiChip, FLOPS)"
_PI = "raspberrypi.com product page"

_ROWS = (  # name, CPU, cores, clock, peak, source
    Board("raspberry-pi-zero-2-w", "Cortex-A53", 4, 1.0e9, 8, f"{_PI}; {_A53}"),
    Board("raspberry-pi-3b+", "Cortex-A53", 4, 1.4e9, 8, f"{_PI}; {_A53}"),
    Board("raspberry-pi-4", "Cortex-A72", 4, 1.8e9, 8, f"raspberrypi.com specifications (early: 1.5 GHz); {_A72}"),
    Board("raspberry-pi-5", "Cortex-A76", 4, 2.4e9, 16, f"{_PI}; {_TWO_FMA}"),
    Board("jetson-nano-cpu", "Cortex-A57", 4, 1.43e9, 8, f"NVIDIA Jetson Nano data sheet, without its GPU; {_A57}"),
    Board("orange-pi-5", "Cortex-A76", 4, 2.4e9, 16, f"Rockchip RK3588S data sheet, without its four A55; {_TWO_FMA}"),
    Board("phone-core", "Cortex-A78", 1, 2.4e9, 16, f"assumed one big core at 2.4 GHz, as phones throttle; {_TWO_FMA}"),
    Board("x86-core", "x86-64 with AVX2", 1, 3.0e9, 32, f"assumed 3 GHz; {_AVX2}"),
)
BOARDS = {board.name: board for board in _ROWS}
