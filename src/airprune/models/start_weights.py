"""Weights that a run starts from in place of sampled ones: those of a safetensors file or of a finished run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from airprune import files
from airprune.errors import InvalidValue
from airprune.models.layout import LocalModel
from airprune.text import shown

Array = np.ndarray
FIELD = "Scenario.model.start"
MAX_WEIGHTS_BYTES = 2**32


def weights_file(start: str) -> Path:
    """Returns the file: the trained model of a run folder, or the file itself."""
    path = Path(start)
    return path / "final.safetensors" if path.is_dir() else path


def load_start(model: LocalModel, start: str) -> None:
    """Loads the model's tensors from a file; refuses one that lacks a tensor or has another shape."""
    found = _read(start)
    state = model.state_array.copy()
    for part in model.parts:
        tensor = found.get(part.name)
        place = part.view(state)
        if tensor is None or tensor.shape != place.shape:
            got = "none" if tensor is None else f"shape {list(tensor.shape)}"
            rule = f"must have tensor {part.name} of shape {list(place.shape)}, as the run's model has"
            raise InvalidValue(FIELD, rule, f"{got} in {shown(start)}", "Give weights of the same architecture.")
        place[...] = tensor
    if not np.isfinite(state).all():
        raise InvalidValue(FIELD, "must have finite weights only", f"NaN or infinity in {shown(start)}")
    model.load(state)


def _read(start: str) -> dict[str, Array]:
    import safetensors.numpy

    try:
        content = files.read_bytes(weights_file(start), max_bytes=MAX_WEIGHTS_BYTES)
        found: dict[str, Array] = safetensors.numpy.load(content)
    except (OSError, ValueError, LookupError, safetensors.SafetensorError) as error:
        reason = getattr(error, "strerror", None) or "it is no such file"
        rule = "must be a safetensors file or the folder of a finished run"
        raise InvalidValue(FIELD, rule, f"{shown(start)} ({reason})") from None
    return found
