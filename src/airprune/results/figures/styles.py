"""Styles of schemes, the same in all figures. Needs no drawing library, so that the web page can use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """The looks of one scheme or variant in all figures."""

    colour: str
    marker: str
    line: str


# Okabe and Ito's palette, then Tol's, for all kinds of colour vision; markers and dashes differ in grey prints.
STYLES: dict[str, Style] = {
    "optimal": Style("#0072B2", "o", "-"),
    "equal-resolved": Style("#56B4E9", "v", "-."),
    "equal-reused": Style("#E69F00", "s", "--"),
    "no-pruning": Style("#000000", "D", ":"),
    "min-max": Style("#009E73", "^", "-"),
    "min-max-time": Style("#882255", "h", ":"),
    "variance": Style("#332288", "<", "--"),
    "energy": Style("#999933", ">", ":"),
    "hfel": Style("#117733", "p", "-."),
    "ren2021": Style("#CC6677", "d", "-"),
    "conflict-graph": Style("#44AA99", "X", "--"),
    "air-budget": Style("#AA4499", "*", "-"),
    "closed-form": Style("#CC79A7", "x", "--"),
    "flat": Style("#D55E00", "P", "-."),
}
_SPARE = (
    Style("#0072B2", "o", "-"),
    Style("#D55E00", "s", "--"),
    Style("#009E73", "^", "-."),
    Style("#CC79A7", "D", ":"),
    Style("#E69F00", "v", "-"),
    Style("#56B4E9", "P", "--"),
    Style("#000000", "x", "-."),
)


_MARKERS = ("o", "s", "^", "D", "v", "P", "x", "*", "<", ">", "h")
_LINES = ("-", "--", "-.", ":")


def styles_for(names: Sequence[str]) -> dict[str, Style]:
    """Returns a style per name: the scheme's own, or a spare one that no other name in the figure has.

    Where there are more names than spare colours, names of one colour differ in markers and dashes.
    """
    chosen = {name: STYLES[name] for name in names if name in STYLES}
    free = [style for style in _SPARE if style.colour not in {used.colour for used in chosen.values()}] or list(_SPARE)
    for i, name in enumerate(name for name in names if name not in chosen):
        lap, place = divmod(i, len(free))
        spare = free[place]
        chosen[name] = Style(spare.colour, _turned(_MARKERS, spare.marker, lap), _turned(_LINES, spare.line, lap))
    return chosen


def _turned(choices: tuple[str, ...], first: str, steps: int) -> str:
    return choices[(choices.index(first) + steps) % len(choices)]
