"""The tables of docs/related.md, made from the recipes.

.venv/bin/python tools/related_table.py     brings the page up to date
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

from airprune.components.component import paper_shape
from airprune.methods import METHODS, recipes
from airprune.methods.recipe import Recipe

PAGE = Path(__file__).parents[1] / "docs/related.md"
MARKED = re.compile(r"(<!-- methods -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)
HEAD = "| method | what it is | keeps, pays extra | claims |\n|---|---|---|---|"


def tables() -> str:
    """One table for each file of recipes, under its first line."""
    homes = [
        importlib.import_module(f"{recipes.__name__}.{found.name}") for found in pkgutil.iter_modules(recipes.__path__)
    ]
    parts = []
    for home in homes:
        rows = [_row(recipe) for recipe in METHODS.values() if recipe in vars(home).values()]
        if rows:
            title = (home.__doc__ or "").strip().splitlines()[0].rstrip(".")
            parts.append("\n".join([f"### {title}", "", HEAD, *rows, ""]))
    return "\n".join(parts)


def _row(recipe: Recipe) -> str:
    shape = paper_shape()
    memory = [f"`{slot.name}` per {slot.owner.value}" for slot in recipe.slots(shape)]
    source = f" {recipe.source}." if recipe.source else ""
    about = f"*{recipe.label}*: {recipe.summary}.{source}"
    cells = (f"`{recipe.name}`", about, "; ".join([*memory, *recipe.extra_cost(shape)]) or "–", recipe.claim or "–")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def up_to_date(page: str) -> str:
    """The page with its tables made again."""
    return MARKED.sub(lambda match: f"{match[1]}{tables()}\n{match[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(up_to_date(PAGE.read_text()))
