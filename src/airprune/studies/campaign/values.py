"""`key=a,b` and `seed=0-9` as lists of values; the scenario checks them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from airprune.errors import InvalidValue, UsageError
from airprune.scenario import Scenario
from airprune.text import shown

MAX_RUNS = 10_000

_RANGE = re.compile(r"(\d{1,19})-(\d{1,19})")
_CLOSING = {"[": "]", "{": "}"}


def values_by_key(words: Sequence[str], base: Scenario) -> dict[str, list[str]]:
    """Returns the values of every key, as text, in the order given, with ranges of whole numbers written out."""
    found: dict[str, list[str]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidValue(
                "A setting", "must be key=value or key=value,value", shown(word), "Example: plan.deadline_s=0.03,0.04"
            )
        if key in found:
            raise UsageError(f"{key} is given twice; put all its values in one list. Example: {key}=VALUE,VALUE")
        found[key] = list(_values(key, text, base))
    return found


def split(text: str) -> list[str]:
    """Returns the parts between commas, except commas in brackets and quotes: `[1,2],[3,4]` has two."""
    parts, start, waiting_for = [], 0, ""  # closing brackets and quotes, the innermost last
    for place, letter in enumerate(text):
        if waiting_for and letter == waiting_for[-1]:
            waiting_for = waiting_for[:-1]
        elif waiting_for[-1:] in ("'", '"'):
            continue
        elif letter in _CLOSING:
            waiting_for += _CLOSING[letter]
        elif letter in "'\"" and (waiting_for or not text[start:place].strip()):  # in the midst of a word: itself
            waiting_for += letter
        elif letter == "," and not waiting_for:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()]


def _values(key: str, text: str, base: Scenario) -> Iterator[str]:
    for part in split(text):
        if not part:
            raise InvalidValue(key, "must be a value, or values with commas between them", shown(text))
        span = _RANGE.fullmatch(part)
        if span is None or not _takes_whole_numbers(base, key):
            yield part
            continue
        first, last = map(int, span.groups())
        if last < first:
            raise InvalidValue(key, "must have ranges that go up", shown(part), f"Example: {key}=0-4")
        if last - first >= MAX_RUNS:
            raise UsageError(f"{key}={part} needs {last - first + 1:,} runs or more; at most {MAX_RUNS:,}.")
        yield from map(str, range(first, last + 1))


def _takes_whole_numbers(base: Scenario, key: str) -> bool:
    section, _, name = key.rpartition(".")
    owner = type(getattr(base, section) if section in type(base).model_fields else base)
    schema = owner.model_json_schema()["properties"].get(name, {}) if hasattr(owner, "model_json_schema") else {}
    return any(choice.get("type") == "integer" for choice in (schema, *schema.get("anyOf", ())))
