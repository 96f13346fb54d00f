"""Mutants: every kind of change is made, each in one place, and the sample can be drawn again."""

import ast

import pytest
from tools.mutate import EQUIVALENT, NEAREST, ROOT, sampled

from support.mutants import mutants_of


def changes(source: str) -> set[str]:
    return {mutant.told() for mutant in mutants_of(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("y = a < b", {"a < b → a <= b", "a < b → a >= b"}),
        ("y = a == b", {"a == b → a != b"}),
        ("y = a - b", {"a - b → a + b"}),
        ("y = a * b", {"a * b → a / b"}),
        ("y = (a & ~b)", {"a & ~b → a | ~b", "~b → b"}),
        ("y = not a or b", {"not a or b → not a and b", "not a → a"}),
        ("y = np.minimum(a, b)", {"np.minimum(a, b) → a"}),
        ("y = np.clip(a, low, high)", {"np.clip(a, low, high) → a"}),
        ("n: int = 0", {"0 → 1"}),
        ("n = 0.25", {"0.25 → 0.5"}),
        ("strict = True", {"True → False"}),
        ("raise ValueError(1 + 2)", set()),
        ('s = f"{a + 1}"', set()),
        ("def f(a: list[1] = None) -> list[2]: pass", set()),
    ],
)
def test_each_kind_of_change_is_made_and_words_and_types_are_left_alone(source, expected):
    assert changes(source) == expected


def test_a_change_is_made_in_its_place_alone_also_behind_letters_of_several_bytes():
    source = "η = 1\ny = φ**2 * η + η * 3  # Γ\n"
    changed = {mutant.applied(source) for mutant in mutants_of(source)}
    assert "η = 1\ny = (φ ** 2 * η - η * 3)  # Γ\n" in changed
    assert "η = 1\ny = φ**2 * η + η * (6)  # Γ\n" in changed


def test_every_mutant_of_the_numeric_core_is_another_program_and_its_tests_exist():
    for module, tests in NEAREST.items():
        source = (ROOT / "src/airprune" / module).read_text()
        found = mutants_of(source)
        assert len(found) >= 10, module
        for mutant in found[::7]:
            assert ast.dump(ast.parse(mutant.applied(source))) != ast.dump(ast.parse(source)), mutant
        assert all((ROOT / "tests" / name).exists() for name in tests)


def test_a_sample_is_drawn_again_by_its_seed():
    assert sampled(20, 3) == sampled(20, 3) != sampled(20, 4)
    assert {module for module, _ in sampled(5, 0, "masked_sum")} == {"methods/aggregation/masked_sum.py"}


def test_mutants_that_may_survive_are_still_there():
    everything = {(module, " ".join(mutant.before.split()), mutant.after) for module, mutant in sampled(10**6, 0)}
    assert EQUIVALENT.keys() <= everything
