"""One sentence for a wrong value: owner.field, rule, value got, way out.

The rule is read from the field's JSON schema, so that the message, the schema and the check agree.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticUndefined

from airprune.errors import AirpruneError, InvalidValue, UnknownName
from airprune.settings.toml_text import literal
from airprune.text import shown


def first_problem(model: type[BaseModel], owner: str, data: Mapping[str, Any], error: ValidationError) -> AirpruneError:
    """The first of pydantic's complaints about `data`, in this package's words."""
    first = error.errors(include_url=False, include_input=False)[0]
    if isinstance(cause := first.get("ctx", {}).get("error"), AirpruneError):
        return cause
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        return unknown_key(owner, name, model.model_fields)
    if first["type"] == "missing":
        return InvalidValue(f"{owner}.{name}", "must be given", "nothing")
    if name not in data:
        return InvalidValue(owner, "must be valid", first["msg"])
    value, field = data[name], f"{owner}.{name}"
    if first["type"] == "model_type":
        return InvalidValue(field, "must be a table of keys", shown(value))
    if first["type"] in ("value_error", "assertion_error"):  # from a validator that a user wrote
        return InvalidValue(field, "must be valid", f"{shown(value)}: {cause}")
    schema = model.model_json_schema()["properties"][name]
    if "enum" in schema and isinstance(value, str):
        return UnknownName(field, value[:60], schema["enum"])
    default = model.model_fields[name].get_default()
    example = "" if default is PydanticUndefined else f"Example: {name} = {literal(default)}"
    return InvalidValue(field, f"must be {_rule(schema, first['type'])}", shown(value), example)


def unknown_key(owner: str, key: str, known: Iterable[str], *, instead: str | None = None) -> UnknownName:
    """The error for an unknown key; `instead` is the key to suggest if none is near."""
    known = list(known)
    near = difflib.get_close_matches(key[:60], known, n=1) or ([instead] if instead else [])
    hint = f"did you mean {near[0]!r}? " if near else ""
    name = key if len(key) <= 60 and key.isprintable() and key else shown(key)
    error = UnknownName(owner, key[:60], known)
    error.message = f"{owner}.{name} is unknown; {hint}known: {', '.join(known)}."
    error.message_without_name = error.message  # the name of a field may be shown
    return error


def _rule(schema: Mapping[str, Any], broken: str) -> str:
    """Returns the rule of the schema; `broken` is pydantic's name for the error."""
    if "anyOf" in schema:
        return " or ".join(_rule(choice, broken) for choice in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    if "const" in schema:
        return literal(schema["const"])
    kind = schema.get("type")
    if kind == "null":
        return '"none"'
    if kind == "boolean":
        return "true or false"
    if kind == "string" and "maxLength" not in schema:
        return "text"
    if kind == "string":
        return f"text of 1 to {schema['maxLength']} characters, none of them control characters"
    if kind == "array":
        each = schema.get("items", {})
        if each.get("type") not in ("integer", "number"):
            return "a list of texts" if each.get("type") == "string" else "a list"
        return f"a list, each entry {_rule(each, broken)}"
    if kind not in ("integer", "number"):
        return "a table" if kind == "object" else "valid"
    bounds = _bounds(schema, with_maximum=kind == "number" or broken == "less_than_equal")
    if kind == "integer":
        return f"a whole number {bounds}".rstrip()
    if broken == "finite_number":
        return f"finite and {bounds}" if bounds else "finite"
    return f"a number {bounds}".rstrip() if broken == "float_type" or not bounds else bounds


def _bounds(schema: Mapping[str, Any], *, with_maximum: bool) -> str:
    """Returns the bounds; counts have a maximum only against slips, so it is shown only if it was exceeded."""
    if with_maximum and "minimum" in schema and "maximum" in schema:
        return f"in [{_number(schema['minimum'])}, {_number(schema['maximum'])}]"
    signs = [("exclusiveMinimum", ">"), ("minimum", "≥"), ("exclusiveMaximum", "<")]
    if with_maximum:
        signs.append(("maximum", "≤"))
    return " and ".join(f"{sign} {_number(schema[key])}" for key, sign in signs if key in schema)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
