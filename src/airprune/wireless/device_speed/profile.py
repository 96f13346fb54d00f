"""Profiles written by `airprune profile`: training time of one model on one machine."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airprune import files
from airprune.errors import InvalidValue

VERSION = 1
OWNER = "Scenario.clock.profile"
_MAX_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Minibatches of one kernel on so many threads; times are per sample, forward and backward.

    Attributes:
      median_s, low_s, high_s: the middle, first and third quartile over minibatches.
      cpu_s: CPU seconds per sample, of all threads together.
    """

    kernel: str
    threads: int
    minibatches: int
    median_s: float
    low_s: float
    high_s: float
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One machine and one model.

    Attributes:
      seconds_per_sample: of the fastest timing.
      at_hz: CPU frequency that the machine reported meanwhile; None if it does not.
      flops_per_sample: counted, forward and backward.
    """

    model: str
    machine: str
    batch_size: int
    seconds_per_sample: float
    at_hz: float | None
    flops_per_sample: float
    timings: tuple[Timing, ...] = ()

    @property
    def flops_per_second(self) -> float:
        return self.flops_per_sample / self.seconds_per_sample

    @property
    def flops_per_cycle(self) -> float | None:
        return None if self.at_hz is None else self.flops_per_second / self.at_hz

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "airprune-profile", "version": VERSION, **asdict(self)}

    def write(self, path: Path) -> None:
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        try:
            with files.replacing(path) as file:
                file.write(text.encode())
        except OSError as error:
            raise InvalidValue("--out", "must be a file that can be written", f"{path}: {error.strerror}") from None


def clock_keys(path: str) -> dict[str, float | None]:
    """The keys of a clock section that a profile stands for."""
    try:
        values = json.loads(files.read_bytes(Path(path), max_bytes=_MAX_BYTES))
    except OSError as error:
        way_out = "Write one with `airprune profile --out profile.json`"
        raise InvalidValue(OWNER, "must be an existing file", f"{path}: {error.strerror}", way_out) from None
    except (ValueError, RecursionError):
        raise InvalidValue(OWNER, "must be JSON that `airprune profile` has written", path) from None
    if not isinstance(values, dict) or values.get("kind") != "airprune-profile":
        raise InvalidValue(OWNER, "must be JSON that `airprune profile` has written", path)
    if values.get("version") != VERSION:
        raise InvalidValue(OWNER, f"must be a profile of version {VERSION}", f"{path} of another", "Write it again")
    found = {key: values.get(key) for key in ("seconds_per_sample", "at_hz", "flops_per_sample")}
    for key, value in found.items():
        if not (value is None and key == "at_hz") and not _is_positive(value):
            raise InvalidValue(OWNER, f"must have a positive number as {key}", f"something else in {path}")
    return found


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
