"""Reads pickled numpy arrays without running anything that a pickle names."""

from __future__ import annotations

import io
import pickle
from typing import Any


class _ArraysOnly(pickle.Unpickler):
    """Reads dicts, lists, text and numpy arrays; a pickle that names anything else is refused, never run."""

    _ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy.core.multiarray", "scalar"),
            ("numpy._core.multiarray", "scalar"),
            ("numpy.core.numeric", "_frombuffer"),
            ("numpy._core.numeric", "_frombuffer"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),  # how later Pythons write bytes for earlier ones
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError("it names what is no part of an array")
        return super().find_class(module.replace("numpy.core.", "numpy._core."), name)


def unpickled(content: bytes, *, encoding: str = "ASCII") -> Any:
    """Returns the dicts, lists, text and arrays of a pickle; raises whatever a damaged one makes the reader raise."""
    return _ArraysOnly(io.BytesIO(content), encoding=encoding).load()
