"""Text as HTML: the pieces of a report, made by the macros of templates/parts.html.

They escape their arguments, except `Markup`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from airprune import files
from airprune.text import MISSING, readable

MAX_ROWS = 200

_MAX_PNG_BYTES = 2**25
_PNG = b"\x89PNG\r\n\x1a\n"
# Not allowed in HTML, or able to turn the reading direction of what follows.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _legible(value: object) -> str:
    """Returns any value as text that HTML can hold; Jinja escapes it then."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return MISSING
    text = str(value).encode(errors="replace").decode()  # half a surrogate pair cannot be written
    return _UNWANTED.sub("�", text)


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    finalize=_legible,
    undefined=StrictUndefined,
    trim_blocks=True,
)
_parts: Any = TEMPLATES.get_template("parts.html").module

element: Callable[..., Markup] = _parts.element
paragraph: Callable[..., Markup] = _parts.paragraph
note: Callable[..., Markup] = _parts.note
code_block: Callable[[str], Markup] = _parts.code_block
badge: Callable[[str, str], Markup] = _parts.badge
details: Callable[..., Markup] = _parts.details
tiles: Callable[[Mapping[str, object]], Markup] = _parts.tiles
captioned: Callable[[str, Sequence[Markup]], Markup] = _parts.captioned


def join(parts: Iterable[Markup]) -> Markup:
    return Markup("\n").join(parts)


def link(text: str, target: str) -> Markup:
    """Returns a link to a file, `target` being its path from the report."""
    return element("a", text, href=quote(target.encode(errors="surrogateescape")))


def table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, label: str, words: Sequence[str] = (), class_: str = ""
) -> Markup:
    """Returns a table that scrolls in its own box. `words`: the columns that hold text, not numbers."""
    return _parts.table(header, rows[:MAX_ROWS], label, words, class_, max(0, len(rows) - MAX_ROWS))


def facts_table(facts: Mapping[str, Any], *, label: str) -> Markup:
    """Returns a table of names and values, one pair per line."""
    header = ("name", "value")
    return table(header, [(name, readable(value)) for name, value in facts.items()], label=label, words=header)


def image(png: Path, *, alt: str, caption: object, class_: str = "") -> Markup:
    """Returns a PNG file as part of the report."""
    try:
        content = files.read_bytes(png, max_bytes=_MAX_PNG_BYTES)
    except OSError:
        content = b""
    if not content.startswith(_PNG):
        return note(f"{png.name} is not a readable PNG file.")
    width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return _parts.picture(source, alt, width, height, caption, class_)
