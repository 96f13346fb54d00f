"""Every registered component and method keeps the rules, by the same program that checks a user's own."""

from __future__ import annotations

import numpy as np
import pytest

from airprune.components.component import Owner, Slot, all_weights
from airprune.deployment.run_definition import catalogue_shape
from airprune.methods import METHODS
from airprune.methods.masking.base import Masking, SubModel
from airprune.methods.registration import register, registries
from airprune.rounds.method import Method
from airprune.scenario import Scenario
from airprune.studies.conformance import KEYS, RUNS, check

pytestmark = pytest.mark.usefixtures("warm_workers")

COMPONENTS = [
    (registry.kind, name)
    for registry in registries().values()
    if registry.kind in set(KEYS) - {"methods"}
    for name in registry
]
# Slow, or not what its name promises: the printed Theorem 3 leaves its box in our networks and says so.
LEFT_OUT = {("importance", "exact"), ("schemes", "closed-form")}
CHECKED_KEYS = {key for keys in KEYS.values() for key in keys}
PLAIN = [Method.of(Scenario().with_("method", name)).components for name in ("adaptive-pruning", "hierfavg")]


def own_parts(name):
    """Returns the components, by scenario key, that a recipe has beside those of the paper and of HierFAVG.

    Schemes do not count: they are given rates and bounds, and know of no other part.
    """
    parts = Method.of(Scenario().with_("method", name)).components
    shared = {key: {plain[key] for plain in PLAIN} for key in parts}
    return {key: part for key, part in parts.items() if part not in shared[key] and key != "plan.scheme"}


def slots_of(values):
    scenario = Scenario().with_values({"model.name": "mlp", **values})
    shape = catalogue_shape(scenario, input_shape=(12,), num_classes=4)
    return {slot.name for slot in Method.of(scenario).slots(shape)}


def parts_interact(name):
    """Whether a recipe is more than one checked component: it has several of its own, or state that the one has not."""
    own = own_parts(name)
    return len(own) > 1 or not set(own) <= CHECKED_KEYS or slots_of({"method": name}) != slots_of(own)


# A recipe that is one component on the paper's or HierFAVG's tree is checked as that component, others as a whole.
RECIPES = [("methods", name) for name in METHODS if parts_interact(name)]


@pytest.mark.parametrize(("kind", "name"), sorted({*COMPONENTS, *RECIPES} - LEFT_OUT), ids=lambda value: value)
def test_every_member_keeps_every_rule_that_applies_to_it(kind, name):
    findings = check(name, kind=kind, processes=False)
    assert [finding for finding in findings if not finding.kept] == []
    rules = [finding.rule for finding in findings]
    assert rules[0] == RUNS and "stopped and resumed: same bytes" in rules


def test_recipes_are_checked_as_a_whole_where_parts_interact_and_otherwise_as_their_component():
    whole = {name for _, name in RECIPES}
    assert {"frozen-pruning", "sign-sgd", "japp", "topk"} <= whole  # two parts, three, personal layers, other slots
    kinds = {key: kind for kind, keys in KEYS.items() for key in keys}
    alone = {(kinds[key], part) for name in set(METHODS) - whole for key, part in own_parts(name).items()}
    assert alone and alone <= set(COMPONENTS) - LEFT_OUT


@pytest.mark.parametrize("name", ["mem-sgd", "shared-pruning", "mobility"])
def test_worker_processes_end_in_the_same_bytes(name):
    assert all(finding.kept for finding in check(name))


def broken(name, **methods):
    return type("Broken", (Masking,), {"name": name, "choose": lambda self, view: SubModel(), **methods})


@pytest.fixture
def registered():
    added = []

    def add(component):
        added.append(component)
        return register(component)

    yield add
    for component in added:
        registries()[Masking].remove(component.name)


def findings_of(component):
    return {finding.rule: finding for finding in check(component.name, processes=False)}


def test_a_component_that_remembers_in_its_process_is_found_out(registered):
    calls = []

    def choose(self, view):
        """Every other device of a process keeps the first weights, the others the last ones."""
        calls.append(1)
        mask = np.zeros(view.shape.prunable_weights, dtype=bool)
        place = slice(0, view.keep) if len(calls) % 2 else slice(mask.size - view.keep, None)
        mask[place] = True
        return SubModel(sent=mask, held=mask, moves=mask)

    registered(broken("forgetful", choose=choose))
    assert not findings_of(broken("forgetful"))["same bytes in any order, on any number of workers"].kept


def test_a_component_that_sends_more_than_it_says_is_found_out(registered):
    registered(broken("greedy"))  # keeps all weights whatever the budget
    finding = findings_of(broken("greedy"))[RUNS]
    assert not finding.kept and "was charged" in finding.seen


def test_a_component_whose_memory_moves_as_declared_is_accepted(registered):
    def choose(self, view):
        scores = np.abs(view.weights) + view.memory["steady.seen"][: view.shape.prunable_weights]
        mask = np.zeros(scores.size, dtype=bool)
        mask[np.argsort(-scores, kind="stable")[: view.keep]] = True
        return SubModel(sent=mask, held=mask, moves=mask)

    slot = Slot(name="steady.seen", owner=Owner.DEVICE, shape=all_weights)
    registered(broken("steady", choose=choose, slots=lambda self, shape: (slot,)))
    assert all(finding.kept for finding in findings_of(broken("steady")).values())
