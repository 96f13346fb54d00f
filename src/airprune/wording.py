"""Numbers and names as people read them, the same in tables, reports and pages."""

from __future__ import annotations

import math

MISSING = "–"


def number(value: float | None, form: str, unit: str = "", *, scale: float = 1.0) -> str:
    """A number with its unit; a dash if there is none. `.4g` means four digits, but never a power of ten for many."""
    if value is None or value != value:
        return MISSING
    scaled = value * scale
    if form.endswith("g") and math.isfinite(scaled) and abs(scaled) >= 10.0 ** int(form.strip(",.g") or 6):
        form = ",.0f"
    return format(scaled, form) + unit


def counted(count: int, what: str) -> str:
    """1 device, 2 devices, 1,000 devices."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def capitalised(text: str) -> str:
    """The first letter large, the others as they are."""
    return text[:1].upper() + text[1:]
