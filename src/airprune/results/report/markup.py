"""Text as HTML. Every function escapes what it is given, unless that is `Markup` already."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airprune import files
from airprune.text import MISSING

MAX_ROWS = 200

_MAX_PNG_BYTES = 2**25
_PNG = b"\x89PNG\r\n\x1a\n"
# Not allowed in HTML, or able to turn the reading direction of what follows.
_UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(value: object) -> Markup:
    """Any value as HTML text."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup(MISSING)
    text = str(value).encode(errors="replace").decode()  # half a surrogate pair cannot be written
    return Markup(html.escape(_UNWANTED.sub("�", text)))


def join(parts: Iterable[object]) -> Markup:
    return Markup("\n".join(map(escaped, parts)))


def element(tag: str, *content: object, **attributes: str) -> Markup:
    """`element("p", text, class_="note")`; attributes drop a trailing underscore."""
    inside = "".join(f' {name.rstrip("_").replace("_", "-")}="{escaped(value)}"' for name, value in attributes.items())
    return Markup(f"<{tag}{inside}>{''.join(map(escaped, content))}</{tag}>")


def paragraph(*content: object) -> Markup:
    return element("p", *content)


def note(*content: object) -> Markup:
    return element("p", *content, class_="note")


def code_block(text: str) -> Markup:
    return element("pre", element("code", text), tabindex="0")


def badge(words: str, kind: str) -> Markup:
    """A coloured word; `kind` is good, fair, bad or open."""
    return element("span", words, class_=f"badge {kind}")


def details(summary: object, *content: object) -> Markup:
    return element("details", element("summary", summary), *content)


def link(text: str, target: str) -> Markup:
    """A link to a file, `target` being its path from the page."""
    return element("a", text, href=quote(target.encode(errors="surrogateescape")))


def tiles(facts: Mapping[str, object]) -> Markup:
    """A few numbers that matter, large."""
    entries = (element("div", element("dt", name), element("dd", value)) for name, value in facts.items())
    return element("dl", *entries, class_="tiles")


def table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, label: str, words: Sequence[str] = (), class_: str = ""
) -> Markup:
    """A table that scrolls in its own box. `words`: the columns that hold text, not numbers."""
    kinds = ["" if name in words else ' class="number"' for name in header]
    head = "".join(f'<th scope="col"{kind}>{escaped(name)}</th>' for name, kind in zip(header, kinds, strict=True))
    lines = [
        "<tr>" + "".join(f"<td{kind}>{escaped(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows[:MAX_ROWS]
    ]
    body = join(map(Markup, lines))
    text = Markup(f'<table class="{escaped(class_)}"><thead><tr>{head}</tr></thead><tbody>\n{body}\n')
    box = element(
        "div", text, Markup("</tbody></table>"), class_="scroll", role="region", aria_label=label, tabindex="0"
    )
    left = len(rows) - MAX_ROWS
    return join([box, note(f"{left:,} more rows are not shown.")]) if left > 0 else box


def facts_table(facts: Mapping[str, Any], *, label: str) -> Markup:
    """Names and values, one pair per line."""
    header = ("name", "value")
    return table(header, [(name, readable(value)) for name, value in facts.items()], label=label, words=header)


def readable(value: Any) -> object:
    """A value of a JSON file as a reader wants to see it."""
    if isinstance(value, Markup | str) or value is None:
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False, default=str)


def exact(value: Any) -> str:
    """A value of a scenario to the last digit, as a command line takes it."""
    if value is None or isinstance(value, str):
        return "none" if value is None else value
    return json.dumps(value, ensure_ascii=False)


def image(png: Path, *, alt: str, caption: object, class_: str = "") -> Markup:
    """A PNG file inside the page."""
    try:
        content = files.read_bytes(png, max_bytes=_MAX_PNG_BYTES)
    except OSError:
        content = b""
    if not content.startswith(_PNG):
        return note(f"{png.name} is not a readable PNG file.")
    width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
    source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    picture = Markup(f'<img src="{source}" alt="{escaped(alt)}" width="{width}" height="{height}">')
    box = element("div", picture, class_="picture")
    return element("figure", box, element("figcaption", caption), class_=class_)
