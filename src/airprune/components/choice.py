"""A section in which components are chosen by name, each with its options in a table of its own.

[masking]
name = "probe"                  # a member of a registry
[masking.probe]                 # its options; those of other members are refused
importance = "magnitude"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from weakref import WeakSet

from pydantic import ConfigDict, model_validator

from airprune.components.component import Component
from airprune.components.registry import Registry
from airprune.errors import InvalidValue
from airprune.settings.problems import unknown_key
from airprune.settings.section import Section
from airprune.text import shown

# Components whose class names no owner of their options.
_ADOPTED: WeakSet[type[Component]] = WeakSet()


class ChoiceSection(Section):
    """Fields of `choices` hold names of components; the tables of the chosen ones follow the fields.

    Every chosen component that has options is present as an attribute of its name, with defaults for what is not given.
    """

    model_config = ConfigDict(extra="allow")
    choices: ClassVar[Mapping[str, Registry[Any]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        for registry in cls.choices.values():
            registry.reserved |= set(cls.model_fields)

    @model_validator(mode="before")
    @classmethod
    def _tables(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        fields = {key: value for key, value in data.items() if key in cls.model_fields}
        given = {key: value for key, value in data.items() if key not in cls.model_fields}
        chosen = cls._chosen(fields)
        for key in given:
            cls._check_table(key, chosen)
        tables = {}
        for name, component in chosen.items():
            if component.model_fields:
                tables[name] = cls._options(name, component, given.get(name, {}))
            elif given.get(name):
                raise unknown_key(f"{cls.owner}.{name}", next(iter(given[name])), ())
        return fields | tables

    @classmethod
    def _chosen(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the components that the fields name."""
        chosen = {}
        for field, registry in cls.choices.items():
            name = fields.get(field, cls.model_fields[field].default)
            if not isinstance(name, str):
                example = f'Example: {field} = "{cls.model_fields[field].default}"'
                raise InvalidValue(f"{cls.owner}.{field}", "must be a name", shown(name), example)
            if name not in registry:
                raise registry.unknown(name, f"{cls.owner}.{field}")
            chosen[name] = registry[name]
        return chosen

    @classmethod
    def _check_table(cls, key: str, chosen: Mapping[str, Any]) -> None:
        if key in chosen:
            return
        for field, registry in cls.choices.items():
            if key in registry:
                rule = f'must not be given unless {field} = "{key}"'
                raise InvalidValue(f"{cls.owner}.{key}", rule, "a table")
        raise unknown_key(cls.owner, key, [*cls.model_fields, *chosen])

    @classmethod
    def _options(cls, name: str, kind: type[Component], table: Any) -> Component:
        owner = f"{cls.owner}.{name}"
        if isinstance(table, kind):
            return table
        if not isinstance(table, Mapping):
            raise InvalidValue(owner, "must be a table of keys", shown(table))
        declared = None if kind in _ADOPTED else vars(kind).get("owner")
        if declared is None:
            _ADOPTED.add(kind)
        kind.owner = owner
        try:
            return kind(**table)
        finally:
            if declared is not None:  # two sections may share a component
                kind.owner = declared

    def chosen(self, field: str) -> Any:
        """The component that `field` names, with its options."""
        name = getattr(self, field)
        extra = self.model_extra or {}
        return extra[name] if name in extra else self.choices[field][name]()

    @classmethod
    def options_kind(cls, name: str) -> type[Component] | None:
        """The component of a name, whose fields are its options; None if there is none."""
        return next((registry[name] for registry in cls.choices.values() if name in registry), None)

    @classmethod
    def tables_schema(cls) -> dict[str, Any]:
        """JSON schemas of the options of every known component, by name."""
        members = {name: registry[name] for registry in cls.choices.values() for name in registry}
        return {
            name: component.model_json_schema() | {"description": component.summary}
            for name, component in members.items()
            if component.model_fields
        }
