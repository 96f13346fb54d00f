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


@dataclass(frozen=True, kw_only=True)
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
_A72 = f"{_ONE_FMA} (OpenBLAS issue 4149: 3.2 of 4 FLOP a cycle measured in float64, twice that in float32)"

_ROWS = (
    Board(
        name="raspberry-pi-zero-2-w",
        cpu="Cortex-A53",
        cores=4,
        cpu_hz=1.0e9,
        peak=8,
        source=f"raspberrypi.com product page; {_A53}",
    ),
    Board(
        name="raspberry-pi-3b+",
        cpu="Cortex-A53",
        cores=4,
        cpu_hz=1.4e9,
        peak=8,
        source=f"raspberrypi.com product page; {_A53}",
    ),
    Board(
        name="raspberry-pi-4",
        cpu="Cortex-A72",
        cores=4,
        cpu_hz=1.8e9,
        peak=8,
        source=f"raspberrypi.com specifications (1.5 GHz in early ones); {_A72}",
    ),
    Board(
        name="raspberry-pi-5",
        cpu="Cortex-A76",
        cores=4,
        cpu_hz=2.4e9,
        peak=16,
        source=f"raspberrypi.com product page; {_TWO_FMA}",
    ),
    Board(
        name="jetson-nano-cpu",
        cpu="Cortex-A57",
        cores=4,
        cpu_hz=1.43e9,
        peak=8,
        source=f"NVIDIA Jetson Nano data sheet, its GPU left out; {_ONE_FMA} (WikiChip, FLOPS)",
    ),
    Board(
        name="orange-pi-5",
        cpu="Cortex-A76",
        cores=4,
        cpu_hz=2.4e9,
        peak=16,
        source=f"Rockchip RK3588S data sheet, its four A55 left out; {_TWO_FMA}",
    ),
    Board(
        name="phone-core",
        cpu="Cortex-A78",
        cores=1,
        cpu_hz=2.4e9,
        peak=16,
        source=f"assumed one big core at 2.4 GHz, as phones throttle; {_TWO_FMA}",
    ),
    Board(
        name="x86-core",
        cpu="x86-64 with AVX2",
        cores=1,
        cpu_hz=3.0e9,
        peak=32,
        source="assumed 3 GHz; two 256-bit fused multiply-adds a cycle, Haswell, Zen 2 and later (WikiChip, FLOPS)",
    ),
)
BOARDS = {board.name: board for board in _ROWS}
