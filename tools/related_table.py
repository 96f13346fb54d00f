"""The tables of docs/related.md, made from the recipes.

.venv/bin/python tools/related_table.py     brings the page up to date
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from airprune.components.component import paper_shape
from airprune.methods import METHODS
from airprune.methods.recipe import Recipe, family

PAGE = Path(__file__).parents[1] / "docs/related.md"
MARKED = re.compile(r"(<!-- methods -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)
HEAD = "| method | what it is | keeps, pays extra | claims |\n|---|---|---|---|"


def tables() -> str:
    """Returns one table for each family of recipes, under its title."""
    found = files("airprune.methods.recipes").iterdir()
    names = sorted(file.name.removesuffix(".toml") for file in found if file.name.endswith(".toml"))
    parts = []
    for one in map(family, names):
        rows = [_row(recipe) for recipe in METHODS.values() if recipe.name in one.recipes]
        listed = [recipe for recipe in METHODS.values() if recipe.name in one.recipes and recipe.departures]
        parts.append("\n".join([f"### {one.title}", "", HEAD, *rows, "", *_departures(listed)]))
    return "\n".join(parts)


def _row(recipe: Recipe) -> str:
    shape = paper_shape()
    memory = [f"`{slot.name}` per {slot.owner.value}" for slot in recipe.slots(shape)]
    source = f" {recipe.source}." if recipe.source else ""
    other = f" Other work: {recipe.other_work}." if recipe.other_work else ""
    about = f"*{recipe.label}*: {recipe.summary}.{source}{other}"
    cells = (f"`{recipe.name}`", about, "; ".join([*memory, *recipe.extra_cost(shape)]) or "–", recipe.claim or "–")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _departures(recipes: list[Recipe]) -> list[str]:
    if not recipes:
        return []
    return [
        "Departures from the sources:",
        "",
        *(f"- `{one.name}`: {'; '.join(one.departures)}." for one in recipes),
        "",
    ]


def up_to_date(page: str) -> str:
    """The page with its tables made again."""
    return MARKED.sub(lambda match: f"{match[1]}{tables()}\n{match[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(up_to_date(PAGE.read_text()))
