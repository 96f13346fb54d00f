"""A hook is a method of a kind of component that members may override. Each has two users, or is a named exception."""

from collections import Counter

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
    "Topology.due": "`tiers` lets devices begin at different times",
}
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
