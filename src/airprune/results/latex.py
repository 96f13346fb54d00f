"""Tables of comparisons for papers: LaTeX with booktabs, the numbers of the tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from airprune.results.measures import MEASURES, SUMMARY, TO_TARGET
from airprune.results.statistics import Estimate, estimate_text
from airprune.results.time_to_target import ToTarget, target_text

_ESCAPED = {
    "\\": r"\textbackslash{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "÷": r"$\div$",
    "…": r"\dots{}",
    "–": "--",
    "−": "$-$",
}


def escaped(text: str) -> str:
    """Text as LaTeX shows it to the letter."""
    return "".join(_ESCAPED.get(letter, letter) for letter in text)


def latex_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, num_words: int = 1, about: str = "") -> str:
    """A `tabular` with booktabs' rules; the first `num_words` columns are words, the others numbers.

    `about` becomes a comment above it. A caption and a label are the paper's own.
    """
    columns = "l" * num_words + "r" * (len(headings) - num_words)
    comment = [f"% {line}" for line in about.splitlines()]
    body = [" & ".join(map(escaped, row)) + r" \\" for row in rows]
    head = " & ".join(map(escaped, headings)) + r" \\"
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join([*comment, *lines]) + "\n"


def summary_latex(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], Mapping[str, Estimate]]]) -> str:
    """The last global round of every variant: mean ± half-width of the 95 % interval."""
    cells = [[*names, *(estimate_text(found.get(name), name) for name in SUMMARY)] for names, found in rows]
    about = "Last global round: mean ± half-width of the 95 % interval over seeds. Needs \\usepackage{booktabs}."
    names = [*headings, *(MEASURES[name].brief for name in SUMMARY)]
    return latex_table(names, cells, num_words=len(headings), about=about)


def target_latex(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], ToTarget]], target: float) -> str:
    """Time, bits, joules and rounds of every variant to the target accuracy."""
    cells = [[*names, row.reached_text, *(row.costs[name].text(name) for name in TO_TARGET)] for names, row in rows]
    about = (
        f"To {target_text(target)} test accuracy: mean ± half-width of the 95 % interval; the median if a seed has not "
        "reached it. Needs \\usepackage{booktabs}."
    )
    names = [*headings, "reached", *(MEASURES[name].brief for name in TO_TARGET)]
    return latex_table(names, cells, num_words=len(headings), about=about)
