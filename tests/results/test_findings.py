"""Three sentences about a comparison, from hand-made ends of runs."""

import airprune as ap
from airprune.results.findings import Arm, findings

BASE = ap.Scenario.preset("smoke")


def arm(name: str, accuracy: list[float], time_s: float, **changes: object) -> Arm:
    made = Arm.of(
        name,
        BASE.with_values({key.replace("__", "."): value for key, value in changes.items()}),
        {seed: {"test_accuracy": value, "time_s": time_s} for seed, value in enumerate(accuracy)},
    )
    assert made is not None
    return made


def none(accuracy=(0.80,), time_s=0.6) -> Arm:
    return arm("no-pruning", list(accuracy), time_s, plan__scheme="no-pruning")


def test_each_arm_is_compared_with_no_pruning_wherever_that_stands():
    seen, _, _ = findings([arm("paper", [0.75], 0.3), none()])
    assert seen == "Seen: no-pruning ends at 80.0 % after 0.6 s; paper at 75.0 % (−5.0 points) after 0.3 s."


def test_differences_are_paired_by_seed_with_an_interval():
    # Differences −1 and −3 points: mean −2, half-width 12.706 · √2/√2 = 12.7 (Student's t with one degree of freedom).
    seen, _, _ = findings([none([0.80, 0.60]), arm("paper", [0.79, 0.57], 0.3)])
    assert "(−2.0 ± 12.7 points)" in seen


def test_the_fastest_arm_that_keeps_the_accuracy_is_named_with_its_share_of_the_time():
    arms = [none(), arm("bits", [0.795], 0.03), arm("fp32", [0.80], 0.3), arm("slow", [0.9], 0.7)]
    assert findings(arms)[1] == "Meaning: bits keeps the accuracy of no-pruning within a point in 5 % of its time."


def test_a_loss_that_only_the_allocation_can_explain_is_put_down_to_it():
    arms = [none(), arm("sum", [0.75], 0.3, plan__scheme="optimal"), arm("fair", [0.80], 0.3, plan__scheme="min-max")]
    meaning = findings(arms)[1]
    assert "fair keeps the accuracy" in meaning and "what sum loses, −5.0 points, comes from how it shares" in meaning
    other = arm("fair", [0.80], 0.3, plan__scheme="min-max", masking__name="frozen")
    assert "comes from" not in findings([*arms[:2], other])[1], "another masking may be the reason"


def test_where_no_arm_helps_the_meaning_says_so_and_names_the_largest_loss():
    meaning = findings([none(), arm("a", [0.70], 0.3), arm("b", [0.60], 0.2), arm("late", [0.81], 0.9)])[1]
    assert meaning == (
        "Meaning: no variant is both sooner done than no-pruning and within a point of its accuracy; "
        "b loses most, −20.0 points."
    )


def test_few_seeds_are_said_to_decide_little():
    assert "1 seed decides little" in findings([none(), arm("a", [0.8], 0.3)])[2]
    five = [0.8] * 5
    assert "decide" not in findings([none(five), arm("a", five, 0.3)])[2]


def test_without_accuracy_a_clock_or_a_second_arm_there_is_nothing_to_say():
    assert findings([]) == findings([none()]) == findings([none(time_s=0.0), arm("a", [0.8], 0.3)]) == []
    assert Arm.of("regression", BASE, {0: {"test_accuracy": None, "time_s": 1.0}}) is None
    assert Arm.of("unfinished", BASE, {}) is None
