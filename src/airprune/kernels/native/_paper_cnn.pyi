from numpy.typing import NDArray

Array = NDArray

def instruction_sets() -> list[str]: ...
def scratch_bytes(channels: int, height: int, width: int, hidden: int, classes: int) -> int: ...
def gradient(
    instruction_set: str,
    shape: tuple[int, ...],
    offsets: tuple[int, ...],
    state: Array,
    gradient: Array,
    x: Array,
    y: Array,
    batch: Array,
    scratch: Array,
) -> float: ...
def add_scaled(instruction_set: str, target: Array, values: Array, factor: float) -> None: ...
