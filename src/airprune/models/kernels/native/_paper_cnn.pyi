from numpy.typing import NDArray

Array = NDArray

sources: str

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
    kept: Array = ...,
    is_probe: bool = False,
    trained: int = ...,
    features: Array = ...,
    places: Array = ...,
    images: int = 0,
) -> float: ...
def feature_bytes(shape: tuple[int, ...], trained: int, images: int) -> int: ...
def train_chunk(
    instruction_set: str,
    shape: tuple[int, ...],
    offsets: tuple[int, ...],
    state: Array,
    gradient: Array,
    x: Array,
    y: Array,
    samples: Array,
    scratch: Array,
    kept: Array,
    received: Array,
    ends: Array,
    last: Array,
    keep: Array,
    row_starts: Array,
    weights: Array,
    total: Array,
    counts: Array,
    losses: Array,
    lost: Array,
    trained: Array,
    features: Array,
    places: Array,
    images: int,
    first_prunable: int,
    learning_rate: float,
    classifier_alone: bool,
    spent_s: Array | None,
) -> bool: ...
def kept_bytes(shape: tuple[int, ...], images: int) -> int: ...
def add_scaled(instruction_set: str, target: Array, values: Array, factor: float, source: Array = ..., /) -> None: ...
def scores(
    instruction_set: str,
    shape: tuple[int, ...],
    offsets: tuple[int, ...],
    state: Array,
    x: Array,
    scores: Array,
    scratch: Array,
) -> None: ...
def choose(
    instruction_set: str, mask: Array, values: Array, ties: Array, row_starts: Array, keep: int, factor: float = 0.0
) -> bool: ...
def hold(instruction_set: str, weights: Array, mask: Array) -> float: ...
def multiply(instruction_set: str, values: Array, mask: Array) -> None: ...
def add_state(instruction_set: str, total: Array, state: Array, factor: float) -> None: ...
def add_counts(instruction_set: str, counts: Array, mask: Array) -> None: ...
