"""`@each("name", CASES)`: cheap cases within one test, which tries them all and names every one that fails."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def each(names: str | Sequence[str], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Takes the arguments of `pytest.mark.parametrize`, for cases of milliseconds, where a test each costs more.

    All cases share the fixtures of the one test. Not for tests that skip: the other cases would be skipped with them.
    """
    fields = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [tuple(case) if len(fields) > 1 else (case,) for case in cases]

    def folded(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def try_all(**fixtures: Any) -> None:
            assert rows, "there are no cases"
            failures: list[str] = []
            first: BaseException | None = None
            for place, row in enumerate(rows):
                try:
                    test(**fixtures, **dict(zip(fields, row, strict=True)))
                except (Exception, pytest.fail.Exception) as error:  # the latter is what pytest.raises raises
                    first = first or error
                    case, words = ", ".join(map(_shown, row)), textwrap.indent(str(error), "    ").lstrip()
                    failures.append(f"{place} [{case}] {type(error).__name__}: {words}")
            if failures:
                raise AssertionError("\n".join([f"{len(failures)} of {len(rows)} cases fail", *failures])) from first

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in fields]
        assert len(left) == len(signature.parameters) - len(fields), f"{test.__name__} does not take all of {fields}"
        try_all.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return try_all

    return folded


def _shown(value: Any) -> str:
    words = value if isinstance(value, str) else getattr(value, "__name__", None) or repr(value)
    return textwrap.shorten(words, 100, placeholder="…")
