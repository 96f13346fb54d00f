"""Converts frozen dataclasses to and from JSON. A value of another type is unreadable: nothing is converted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError, create_model
from pydantic.types import GetPydanticSchema
from pydantic_core import core_schema

R = TypeVar("R", bound="JsonRecord")
T = TypeVar("T")

_Int64 = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
# Pydantic's strict float would take an integer, and make a float of it.
_FINITE = [core_schema.is_instance_schema(float), core_schema.float_schema(allow_inf_nan=False)]
_Finite = Annotated[float, GetPydanticSchema(lambda *_: core_schema.chain_schema(_FINITE))]
# A number stays as it is written, 1 or 1.0.
_EXACT: dict[Any, Any] = {int: _Int64, float: _Int64 | _Finite, bool: StrictBool, str: StrictStr}
# A null was measured and is not a number (NaN); an absent key was not measured.
_MEASURED = _Int64 | _Finite | Annotated[None, AfterValidator(lambda _: math.nan)]


class Unreadable(Exception):
    """A value is not of the type it should have; the reader of a file turns this into a sentence or a gap."""


class JsonRecord:
    """The base of dataclasses that stand for one JSON object.

    The order of the fields is that of the keys. A field without a default is always written, as null if it is None. One
    with a default is left out where it is None; a number that was measured but is none (NaN) is written as null. Keys
    without a field are kept in `extra` and written last. Where a file has records of several kinds, `kind` names them.
    """

    kind: ClassVar[str] = ""
    required: ClassVar[tuple[str, ...]] = ()
    extra: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        written: dict[str, Any] = {"kind": self.kind} if self.kind else {}
        for name, entry in _model_of(type(self)).model_fields.items():
            value = getattr(self, name)
            if value is not None or entry.is_required():
                written[name] = _json_value(value)
        return written | self.extra

    @classmethod
    def read(cls: type[R], found: Mapping[str, Any], *, only: frozenset[str] | None = None) -> R:
        """Reads a JSON object; an absent or unwanted key has no value, unless it is required."""
        known = _model_of(cls).model_fields
        extra = {key: value for key, value in found.items() if key not in known and key != "kind"}
        wanted = found if only is None else {key: found[key] for key in found if key in only or key in cls.required}
        return cls(**_checked(cls, {**_absent(cls), **wanted}), **{"extra": extra})


@dataclasses.dataclass(frozen=True, kw_only=True)
class EdgeCoverage:
    """The coverage of the prunable weights of one edge.

    Attributes:
      min_count: Γ*, the smallest number of devices that kept a weight, of weights kept at all.
      num_uncovered: weights that no device kept.
    """

    edge: int
    min_count: int
    num_uncovered: int


def read_dataclass(cls: type[T], found: Any) -> T:
    """Reads a JSON object, which must have every key whose field has no default."""
    return cls(**_checked(cls, found))


def _checked(cls: type, found: Any) -> dict[str, Any]:
    try:
        return vars(_model_of(cls).model_validate(found))
    except ValidationError:
        raise Unreadable from None


def _make_model(cls: Any) -> type[BaseModel]:
    """Returns a model that checks a dataclass: it takes lists for tuples and objects for dataclasses, nothing else."""
    types = get_type_hints(cls)
    checked: dict[str, Any] = {}
    for entry in dataclasses.fields(cls):
        if entry.default is dataclasses.MISSING:
            checked[entry.name] = (_exact(types[entry.name]), ...)
        else:
            is_measured = types[entry.name] == float | None and issubclass(cls, JsonRecord)
            checked[entry.name] = (_MEASURED if is_measured else _exact(types[entry.name]), entry.default)
    checked.pop("extra", None)
    return create_model(cls.__name__, __config__=ConfigDict(protected_namespaces=()), **checked)


_model_of: Callable[[type], type[BaseModel]] = cache(_make_model)


def _find_absent(cls: Any) -> dict[str, Any]:
    """Returns the values of keys that may be absent, but have no default."""
    names = [name for name, entry in _model_of(cls).model_fields.items() if entry.is_required()]
    empty: dict[Any, Any] = {tuple: (), dict: {}}
    return {name: empty.get(get_origin(get_type_hints(cls)[name])) for name in names if name not in cls.required}


_absent: Callable[[type], dict[str, Any]] = cache(_find_absent)


def _exact(kind: Any) -> Any:
    """Returns a type as pydantic checks it."""
    if kind in _EXACT:
        return _EXACT[kind]
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return Annotated[_model_of(kind), AfterValidator(lambda found: kind(**vars(found)))]
    inside = tuple(map(_exact, get_args(kind)))
    return (Union if isinstance(kind, UnionType) else get_origin(kind))[inside] if inside else kind


def _json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return [vars(entry) for entry in value] if value and isinstance(value[0], EdgeCoverage) else list(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
