"""The native kernel built for 64-bit ARM and run under qemu-user, beside the kernel of this machine.

calls = Calls(monkeypatch)              # notes every call of the kernel, and what it returned
NativeGradient(model, x, y)(batch)
calls.check(program)                    # repeats them on ARM: the same bits, or an AssertionError
"""

from __future__ import annotations

import ast
import shutil
import struct
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airprune.models.kernels import native

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "src/airprune/models/kernels/native"
COMPILER = "aarch64-linux-gnu-gcc"
# The processor of the Raspberry Pi 3: plain ARMv8, with nothing that came later.
CPU = "cortex-a53"

FUNCTIONS = ("gradient", "scores", "train_chunk", "choose", "hold", "multiply", "add_scaled", "add_state", "add_counts")


def emulator() -> list[str]:
    """Returns the command that runs a program for ARM; empty if there is none."""
    found = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    return [found, "-cpu", CPU] if found else []


def missing() -> str:
    """Returns what is not installed; empty if everything is."""
    if not shutil.which(COMPILER):
        return f"no {COMPILER} (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"
    return "" if emulator() else "no qemu-aarch64 (Debian: qemu-user)"


def compiler_arguments() -> list[str]:
    """Returns the arguments that setup.py builds the kernel with, and Python's own."""
    for statement in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "ARGUMENTS":
            return ["-DNDEBUG", "-fwrapv", *ast.literal_eval(statement.value), f"-I{sysconfig.get_path('include')}"]
    raise LookupError("setup.py has no ARGUMENTS")


def _configuration(folder: Path) -> list[str]:
    """Returns where Debian's Python finds its configuration for ARM: this machine's, which has the same types."""
    include = Path(sysconfig.get_path("include"))
    mine = include.parent / str(sysconfig.get_config_var("MULTIARCH")) / include.name
    if not mine.is_dir():
        return []
    beside = folder / "include" / "aarch64-linux-gnu"
    beside.mkdir(parents=True)
    (beside / include.name).symlink_to(mine)
    return [f"-I{beside.parent}"]


def build_calls(folder: Path) -> Path:
    """Builds `native_calls.c`, with the kernel in it, for ARM; linked statically, so that qemu needs no library."""
    program = folder / "native_calls"
    unused = ["-static", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
    source = Path(__file__).with_name("native_calls.c")
    options = [*compiler_arguments(), *_configuration(folder), "-Wall", "-Werror", *unused, f"-I{KERNEL}"]
    command = [COMPILER, *options, "-o", program, source, "-lm"]
    subprocess.run(command, check=True, timeout=120)
    return program


@dataclass(frozen=True)
class Call:
    """A call of the kernel, its arrays as they were, and what this machine made of it."""

    function: str
    arguments: tuple[Any, ...]
    returned: float
    arrays: list[np.ndarray]

    def encoded(self) -> bytes:
        integers = [int(value) for value in self.arguments if isinstance(value, int)]
        doubles = [value for value in self.arguments if isinstance(value, float)]
        arrays = [value.tobytes() for value in self.arguments if isinstance(value, np.ndarray)]
        numbers = struct.pack(f"<16sq{len(integers)}q", self.function.encode(), len(integers), *integers)
        numbers += struct.pack(f"<q{len(doubles)}dq", len(doubles), *doubles, len(arrays))
        return numbers + b"".join(struct.pack("<q", len(values)) + values for values in arrays)


class Calls:
    """Every call of the kernel from now on, by `native._paper_cnn` or by `call`."""

    def __init__(self, monkeypatch: Any, instruction_set: str | None = None) -> None:
        self._kernel, self._set = native._paper_cnn, instruction_set or native.instruction_sets[0]
        self.noted: list[Call] = []
        monkeypatch.setattr(native, "_paper_cnn", self)

    def __getattr__(self, function: str) -> Any:
        if function not in FUNCTIONS:
            return getattr(self._kernel, function)
        return lambda _, *arguments: self.call(function, *arguments)

    def call(self, function: str, *arguments: Any) -> Any:
        """Calls this machine's kernel and notes it. Arrays are changed in place."""
        flat: list[Any] = []
        for value in arguments:
            flat += list(value) if isinstance(value, tuple) else [] if value is None else [value]
        before = tuple(value.copy() if isinstance(value, np.ndarray) else value for value in flat)
        returned = getattr(self._kernel, function)(self._set, *arguments)
        arrays = [value.copy() for value in flat if isinstance(value, np.ndarray)]
        self.noted.append(Call(function, before, float(returned or 0.0), arrays))
        return returned

    def check(self, program: Path) -> None:
        """Repeats all calls on ARM and compares what they return and leave in their arrays, bit by bit.

        Arrays of bytes are working memory, whose layout depends on the width of a vector: they are not compared. A
        NaN may have other bits: processors differ in the sign of the one that they make.
        """
        sent = b"".join(call.encoded() for call in self.noted)
        done = subprocess.run([*emulator(), program], input=sent, capture_output=True, timeout=600)
        assert done.returncode == 0, done.stderr.decode()
        at = 0
        for number, call in enumerate(self.noted):
            (returned,) = struct.unpack_from("<d", done.stdout, at)
            at += 8
            where = f"call {number} of {len(self.noted)}, {call.function}"
            np.testing.assert_equal(returned, call.returned, err_msg=f"{where}, returned")
            for place, expected in enumerate(call.arrays):
                found = np.frombuffer(done.stdout, expected.dtype, expected.size, at)
                at += expected.nbytes
                if expected.dtype != np.uint8:
                    assert same_bits(found, expected.reshape(-1)), f"{where}, array {place}"
        assert at == len(done.stdout)
        assert self.noted, "nothing was called"


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have the same bits wherever one of them has a number."""
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    bits = f"u{one.dtype.itemsize}"
    return bool(np.all((one.view(bits) == other.view(bits)) | (np.isnan(one) & np.isnan(other))))
