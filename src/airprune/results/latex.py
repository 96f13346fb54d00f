"""Tables for papers: LaTeX with booktabs, the numbers of the tables on the terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from airprune.results.measures import MEASURES, SUMMARY, TO_TARGET
from airprune.results.statistics import Estimate, difference_text, estimate_text
from airprune.results.time_to_target import ToTarget, target_text

_ESCAPED = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        **{mark: f"\\{mark}" for mark in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "÷": r"$\div$",
        "×": r"$\times$",
        "ρ": r"$\rho$",
        "Γ": r"$\Gamma$",
        "◇": r"$\diamond$",
        "†": r"$\dagger$",
        "…": r"\dots{}",
        "–": "--",
        "−": "$-$",
        "\u00a0": "~",
    }
)


def escaped(text: str) -> str:
    """Returns text as LaTeX shows it to the letter; a hyphen before a digit is a minus."""
    found = text.translate(_ESCAPED)
    return f"$-${found[1:]}" if found[:1] == "-" and found[1:2].isdigit() else found


def tabular(headings: Sequence[str], rows: Iterable[Sequence[str]], *, words: Collection[str]) -> list[str]:
    """Returns the lines of a `tabular` with booktabs' rules; the columns of `words` hold text, the others numbers."""
    kinds = "".join("l" if heading in words else "r" for heading in headings)
    return [
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        " & ".join(map(escaped, headings)) + r" \\",
        r"\midrule",
        *(" & ".join(map(escaped, row)) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def summary_latex(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], Mapping[str, Estimate]]]) -> str:
    """Returns the last global round of every variant: mean ± half-width of the 95 % interval."""
    cells = [[*names, *(estimate_text(found.get(name), name) for name in SUMMARY)] for names, found in rows]
    about = "Last global round: mean ± half-width of the 95 % interval over seeds. Needs \\usepackage{booktabs}."
    names = [*headings, *(MEASURES[name].brief for name in SUMMARY)]
    return "\n".join([f"% {about}", *tabular(names, cells, words=headings)]) + "\n"


def differences_latex(
    headings: Sequence[str], rows: Iterable[tuple[Sequence[str], Mapping[str, Estimate]]], reference: str
) -> str:
    """Returns every variant minus the reference, seed by seed: mean ± half-width of the 95 % interval."""
    cells = [[*names, *(difference_text(found.get(name), name) for name in SUMMARY)] for names, found in rows]
    about = (
        f"Last global round minus that of {reference}, paired by seed: mean ± half-width of the 95 % interval. "
        "Needs \\usepackage{booktabs}."
    )
    names = [*headings, *(MEASURES[name].brief for name in SUMMARY)]
    return "\n".join([f"% {about}", *tabular(names, cells, words=headings)]) + "\n"


def target_latex(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], ToTarget]], target: float) -> str:
    """Returns time, bits, joules and rounds of every variant to the target accuracy."""
    cells = [[*names, row.reached_text, *(row.costs[name].text(name) for name in TO_TARGET)] for names, row in rows]
    about = (
        f"To {target_text(target)} test accuracy: mean ± half-width of the 95 % interval; the median if a seed has not "
        "reached it. Needs \\usepackage{booktabs}."
    )
    names = [*headings, "reached", *(MEASURES[name].brief for name in TO_TARGET)]
    return "\n".join([f"% {about}", *tabular(names, cells, words=headings)]) + "\n"
