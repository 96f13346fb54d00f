"""Hundreds of cases rely on `each`: it tries all, hides none that fails, and hands the fixtures on."""

import pytest

from support.each import each


@each("number", range(3))
@each(("left", "right"), [(1, 2), (3, 4)])
def count(number, left, right, seen):
    seen.append((number, left, right))


def test_every_case_is_tried_once_with_the_fixtures():
    seen = []
    count(seen=seen)
    assert seen == [(n, left, left + 1) for n in range(3) for left in (1, 3)]


def test_every_case_that_fails_is_named_and_the_others_are_not():
    @each("number", [1, 2, 3, 4])
    def odd(number):
        if number == 4:
            with pytest.raises(ValueError):
                pass
        assert number != 2, "two is even"

    with pytest.raises(AssertionError) as failure:
        odd()
    lines = str(failure.value).splitlines()
    assert lines[0] == "2 of 4 cases fail"
    assert [line.split("]")[0] for line in lines if "[" in line] == ["1 [2", "3 [4"]
    assert "two is even" in lines[1] and str(failure.value.__cause__).startswith("two is even")


def test_a_failure_within_a_grid_has_both_names():
    @each("letter", "ab")
    @each("number", [1, 2])
    def only_b2(letter, number):
        assert (letter, number) != ("b", 2)

    with pytest.raises(AssertionError, match=r"1 of 2 cases fail\n1 \[b\] .*1 of 2 cases fail\n +1 \[2\]"):
        only_b2()


def test_no_cases_or_a_wrong_name_are_errors():
    with pytest.raises(AssertionError, match="there are no cases"):
        each("number", [])(lambda number: None)()
    with pytest.raises(AssertionError, match="does not take all of"):
        each("number", [1])(lambda other: None)


@each("number", [1, 2])
def test_pytest_gives_the_fixtures_that_are_left(number, tmp_path):
    assert number in (1, 2) and tmp_path.is_dir()
