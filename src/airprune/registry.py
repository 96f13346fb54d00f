"""Lists of named components that anybody can extend: by a file of this package, a script, or an installed package.

REGISTRY = Registry("masking", {"probe": "airprune.masking.probe:MASKING"})
REGISTRY["probe"]              imported when first asked for
REGISTRY.add(component)        from a script, or from a file given with --import
entry points                   group "airprune.masking", name = component's name, value = "module:ATTRIBUTE"
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airprune.errors import InvalidValue, UnknownName

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

C = TypeVar("C")


class Registry(Mapping[str, C], Generic[C]):
    """Names and what they stand for, in the order of the list, then of what was added."""

    def __init__(self, kind: str, members: Mapping[str, str]) -> None:
        self.kind = kind
        self._addresses = dict(members)
        self._loaded: dict[str, C] = {}
        self._added: list[str] = []

    def __getitem__(self, name: str) -> C:
        if name not in self._loaded:
            if name not in self._addresses and name not in self._entry_points:
                raise UnknownName(self.kind, name[:60], self)
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._addresses, *self._entry_points, *self._added)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._addresses or name in self._added or name in self._entry_points

    @property
    def added(self) -> tuple[C, ...]:
        """What was added by `add`: what a worker elsewhere does not find by itself."""
        return tuple(self._loaded[name] for name in self._added)

    def add(self, component: C) -> C:
        """Lists a component under its own name; the same name again replaces an earlier addition, never a member."""
        name = getattr(component, "name", "")
        if not isinstance(name, str) or not name:
            raise InvalidValue(f"{self.kind} component", "must have a name", repr(name))
        if name in self._addresses or name in self._entry_points:
            raise InvalidValue(f"{self.kind} component", "must have a name of its own", repr(name))
        self._loaded[name] = component
        if name not in self._added:
            self._added.append(name)
        return component

    def remove(self, name: str) -> None:
        """Takes an addition away again; harmless if there is none."""
        if name in self._added:
            self._added.remove(name)
            del self._loaded[name]

    def _load(self, name: str) -> C:
        if name in self._addresses:
            module, _, attribute = self._addresses[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        component: Any = self._entry_points[name].load()
        return component

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points  # slow to import, and needed only for names that are not ours

        return {point.name: point for point in entry_points(group=f"airprune.{self.kind}")}
