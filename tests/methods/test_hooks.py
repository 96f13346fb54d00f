"""A hook is a method of a kind of component that members may override. Each has two users, or is a named exception."""

import re
from collections import Counter
from dataclasses import fields, is_dataclass
from pathlib import Path

from airprune.components.component import Component, LocalComponent
from airprune.methods.registration import registries
from airprune.rounds.parts import Part

# One user each, and why the hook is one all the same.
ONE_USER = {
    "Selection.after": "`ratio-cap` drops devices by their plan, which no other selection looks at",
    "Selection.barrier": "`slack` ends a round before its deadline",
    "Compression.ladder": "`ladder` is the set of levels from which a planner chooses bits",
    "Aggregation.absent": "`cached` counts devices that were not heard from",
    "Topology.deadlines": "`tiers` has a deadline for each tier",
}
NAMES = {"DatasetEntry": "data set"}  # of kinds in the guide, where it is not the class's
ROOT = Path(__file__).parents[2]
SHARED = {name for kind in (Component, LocalComponent) for name in vars(kind) if not name.startswith("_")}


def hooks_of(kind: type[Component]) -> set[str]:
    """Public methods of a kind, its own and those that all kinds share."""
    found = {
        name
        for base in kind.__mro__
        if issubclass(base, Component)
        for name, value in vars(base).items()
        if callable(value) and not name.startswith(("_", "model_")) and not isinstance(value, type)
    }
    return found - {"overrides"}


def users() -> dict[str, Counter[str]]:
    """By hook, the members whose class, or a class of theirs below the kind, overrides it; parts of the driver, too."""
    found: dict[str, Counter[str]] = {}
    for kind, registry in registries().items():
        if not (isinstance(kind, type) and issubclass(kind, Component)):
            continue
        for hook in hooks_of(kind):
            name = hook if hook in SHARED else f"{kind.__name__}.{hook}"
            for member in registry:
                homes = [base for base in registry[member].__mro__ if hook in vars(base)]
                if homes and homes[0] not in kind.__mro__:
                    found.setdefault(name, Counter())[member] += 1
    for part in Part.__subclasses__():
        for hook in ("after_edge_round", "after_global_round"):
            if hook in vars(part):
                found[hook][part.__name__] += 1
    return found


def test_every_hook_has_two_users_or_is_a_named_exception():
    lonely = {hook for hook, members in users().items() if len(members) == 1}
    assert lonely == set(ONE_USER)


def test_at_most_six_hooks_have_one_user():
    assert len(ONE_USER) <= 6


def guide() -> tuple[dict[str, list[str]], str]:
    """The rows of the guide's table of kinds by kind, as their cells, and what stands below the table."""
    after = (ROOT / "CONTRIBUTING.md").read_text().split("| kind | package |")[1]
    table, _, below = after.partition("\n\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {kind.split(" (")[0]: cells for names, *cells in rows for kind in names.split(", ")}, below


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", text))


def test_the_guide_names_the_hooks_of_every_kind_and_no_others():
    rows, below = guide()
    kinds = {
        NAMES.get(kind.__name__, kind.__name__.lower()): kind
        for kind in registries()
        if kind.__name__ not in ("Importance", "Recipe")
    }
    assert set(rows) == set(kinds)
    for name, kind in kinds.items():
        known = {field.name for field in fields(kind)} if is_dataclass(kind) else set(dir(kind))
        assert quoted(rows[name][1]) <= known, name
    overridden = set(users())
    missing = {
        hook
        for hook in overridden
        if hook.split(".")[-1] not in quoted(rows[hook.split(".")[0].lower()][1] if "." in hook else below)
    }
    assert not missing


def test_the_guide_names_packages_and_examples_that_are_there():
    for package, _, _, examples in guide()[0].values():
        folder = ROOT / "src/airprune" / package.strip("`")
        assert (folder / "base.py").is_file()
        assert all((folder / example).is_file() for example in re.findall(r"`(\S+\.py)`", examples))
