"""Lists of named components that users can extend: by a file of this package, a script, or an installed package.

REGISTRY = Registry("masking", {"probe": "airprune.methods.masking.probe:Probe"})
REGISTRY["probe"]              imported on first use
REGISTRY.add(component)        from a script, or from a file given with --import
entry points                   group "airprune.masking", name = component's name, value = "module:ATTRIBUTE"
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airprune.errors import InvalidValue, UnknownName, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

C = TypeVar("C")

# A key of a TOML file and a part of a folder's name.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_OWN = "and what --import FILE registers"


def imported(name: str, address: str) -> Any:
    """Returns what "module:ATTRIBUTE" names."""
    module, _, attribute = address.partition(":")
    return getattr(importlib.import_module(module), attribute)


class Registry(Mapping[str, C], Generic[C]):
    """Names and what they stand for, in the order of the list, then of what was added.

    Attributes:
      reserved: names that no component may have, since they mean something else where components are chosen.
    """

    def __init__(
        self,
        kind: str,
        members: Mapping[str, str],
        load: Callable[[str, str], C] = imported,
        *,
        called: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Lists members by name and address; `load` makes a member of both at its first use.

        Args:
          called: names that are refused because they mislead, with the members that are meant.
        """
        self.kind = kind
        self._addresses = dict(members)
        self._load_member = load
        self._called = called
        self.reserved: set[str] = set()
        self._loaded: dict[str, C] = {}
        self._added: list[str] = []

    def __getitem__(self, name: str) -> C:
        if not isinstance(name, str):
            raise self.unknown(name)
        if name not in self._loaded:
            if name not in self._addresses and name not in self._entry_points:
                raise self.unknown(name)
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._addresses, *self._entry_points, *self._added)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._addresses or name in self._added or name in self._entry_points)

    @property
    def added(self) -> tuple[C, ...]:
        """Members that `add` added, which a worker elsewhere does not find by itself."""
        return tuple(self._loaded[name] for name in self._added)

    def add(self, component: C) -> C:
        """Lists a component under its own name; the same name again replaces an earlier addition, never a member."""
        name = getattr(component, "name", "")
        field = f"The name of a component of {self.kind}"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidValue(field, "must be letters, digits, - and _", repr(name)[:60], "Example: my-own")
        if name in self.reserved:
            raise InvalidValue(field, "must not be a key of the scenario's section", repr(name), "Example: my-own")
        if name in self._addresses or name in self._entry_points or name in self._called:
            raise InvalidValue(field, "must not be taken", repr(name), f"Taken: {', '.join(self)}.")
        self._loaded[name] = component
        if name not in self._added:
            self._added.append(name)
        return component

    def unknown(self, name: object, field: str = "") -> UnknownName:
        """The error for a name that is not listed; `field` is the key that holds it."""
        called = self._called.get(name, ()) if isinstance(name, str) else ()
        return UnknownName(field or self.kind, name, self, more=_OWN, called=called)

    def package_of(self, name: str) -> str:
        """The installed package that offers a name; nothing for members and additions."""
        if name in self._addresses or name not in self._entry_points:
            return ""
        point = self._entry_points[name]
        return point.dist.name if point.dist is not None else "an installed package"

    def module_of(self, name: str) -> str:
        """The top-level module of the installed package that offers a name; nothing for members and additions."""
        is_ours = name in self._addresses or name not in self._entry_points
        return "" if is_ours else self._entry_points[name].module.partition(".")[0]

    def remove(self, name: str) -> None:
        """Removes an addition; harmless if there is none."""
        if name in self._added:
            self._added.remove(name)
            del self._loaded[name]

    def _load(self, name: str) -> C:
        if name in self._addresses:
            return self._load_member(name, self._addresses[name])
        point = self._entry_points[name]
        about = f"{self.package_of(name)} offers {self.kind} {name!r} as {point.value}, but"
        way_out = "repair or uninstall it"
        try:
            component: Any = point.load()
        except Exception as error:
            words = " ".join(str(error).split())[:300]
            raise UsageError(f"{about} that cannot be loaded ({type(error).__name__}: {words}); {way_out}.") from error
        if getattr(component, "name", None) != name:
            raise UsageError(f"{about} that is no component of this name; {way_out}.")
        return component

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        from importlib.metadata import entry_points  # slow to import, and needed only for names that are not ours

        return {point.name: point for point in entry_points(group=f"airprune.{self.kind}")}
