"""Measures are told the same wherever they are told: one label, unit, scale and format each."""

import dataclasses
import math
import re
from pathlib import Path

import pytest

from airprune.results.measures import AXES, CURVE_COLUMNS, DEVICE_COLUMNS, DRAWN, MEASURES, SUMMARY, TO_TARGET
from airprune.results.statistics import Estimate, difference_text, estimate_text, paired_differences
from airprune.results.time_to_target import Evaluation
from airprune.rounds.records import EdgeRecord, GlobalRecord
from airprune.text import capitalised, counted, number, shown

SOURCE = Path(__file__).parents[2] / "src/airprune"
NAMES_AND_PLACES = {
    "diverged",
    "stopped",
    "edge_id",
    "edge_status",
    "coverage",
    "device",
    "edge",
    "fate",
    "aggregator",
    "extra",
    "attackers",
    "suspected",
    "rolled_back",
}


def test_every_number_of_a_record_has_a_measure():
    recorded = {field.name for cls in (EdgeRecord, GlobalRecord) for field in dataclasses.fields(cls)}
    assert recorded - NAMES_AND_PLACES <= set(MEASURES)
    assert set(MEASURES) - recorded == {"min_count", "num_uncovered", *TO_TARGET}  # parts of coverage; made by reading
    assert set(TO_TARGET.values()) <= {field.name for field in dataclasses.fields(Evaluation)}


def test_what_is_drawn_and_told_of_a_round_is_recorded_of_it():
    of_global_round = {field.name for field in dataclasses.fields(GlobalRecord)}
    assert {*CURVE_COLUMNS, *SUMMARY, *DRAWN, *AXES} <= of_global_round
    assert {*DRAWN, *AXES, *SUMMARY} <= set(CURVE_COLUMNS)  # or the page could not draw them
    assert set(DEVICE_COLUMNS) <= {field.name for field in dataclasses.fields(EdgeRecord)}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("test_accuracy", 0.98765, "98.77 %"),
        ("time_s", 0.0123456, "0.01235 s"),
        ("time_s", 123456.7, "123,457 s"),
        ("compute_s", 0.0021, "2.1 ms"),
        ("uploaded_bits", 2_500_000, "2.50 Mbit"),
        ("uploaded_weights", 43_888_000, "43.89 million"),
        ("pruning_ratio", 0.5, "0.5000"),
        ("test_loss", None, "–"),
        ("test_loss", math.nan, "–"),
    ],
)
def test_a_value_is_told_in_its_unit(name, value, text):
    assert MEASURES[name].with_unit(value) == text


def test_units_and_scales_agree():
    """A scale is what turns the recorded unit into the shown one: a slip by a thousand would show here."""
    scales = {("s", "ms"): 1e3, ("s", "s"): 1.0, ("bit", "Mbit"): 1e-6, ("J", "J"): 1.0, ("0 … 1", "%"): 100.0}
    for measure in MEASURES.values():
        known = scales.get((measure.recorded_unit, measure.unit), 1e-6 if measure.unit == "million" else 1.0)
        assert measure.scale == known, measure.name
        for suffix, unit in (("_s", "s"), ("_j", "J"), ("_bits", "bit")):
            if measure.name.endswith(suffix):
                assert measure.recorded_unit == unit, measure.name


def test_the_page_is_sent_what_it_needs_to_tell_a_value():
    accuracy = MEASURES["test_accuracy"].as_json()
    assert (accuracy["scale"], accuracy["decimals"], accuracy["unit"]) == (100.0, 2, "%")
    assert (accuracy["axis_label"], accuracy["axis_scale"]) == ("test accuracy", 1.0)  # drawn as a share
    assert MEASURES["time_s"].as_json()["digits"] == 4 and accuracy["better"] == "higher"


def test_no_label_is_written_twice():
    """Where a label of several words stands as a string of its own, the list of measures was not read."""
    labels = {text for m in MEASURES.values() for text in (m.label, m.heading, m.brief) if " " in text}
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name not in ("measures.py", "records.py"):
            written = set(re.findall(r'"([^"\n]+)"', path.read_text()))
            # One begins a line whose other half is the value, the others are columns of a page of the documentation.
            exempt = {"run.py": {"mean pruning"}, "recorded.py": {"accuracy %", "energy J"}}
            assert not (written & labels) - exempt.get(path.name, set()), path


def test_an_estimate_and_its_interval_end_with_the_second_digit_of_the_interval():
    assert estimate_text(Estimate(0.5, 0.0123), "test_accuracy") == "50.0 ± 1.2"
    assert estimate_text(Estimate(12.345, 0.0678), "time_s") == "12.345 ± 0.068"
    assert estimate_text(Estimate(0.6, 4.56), "time_s") == "0.6 ± 4.6"
    assert estimate_text(Estimate(12345.6, 123.4), "time_s") == "12,346 ± 123"
    assert estimate_text(Estimate(0.08399956, 4.3e-7), "time_s") == "0.084000 ± 4e-07"  # five digits are enough
    assert estimate_text(Estimate(12.0, 1e-12), "time_s") == "12 ± 0"  # only rounding
    assert estimate_text(Estimate(12.0, math.nan), "time_s") == "12"  # a single seed
    assert estimate_text(None, "time_s") == "–"


def test_differences_to_a_reference_are_paired_by_seed():
    """The variants differ by 0.1 on every seed, though the seeds differ by far more."""
    runs = {
        name: [[{"test_accuracy": level + gain}] for level in (0.2, 0.5, 0.8)] for name, gain in (("a", 0), ("b", 0.1))
    }
    found = paired_differences(runs, "a")
    assert list(found) == ["b"]
    assert found["b"]["test_accuracy"].mean == pytest.approx(0.1)
    assert found["b"]["test_accuracy"].half_width == pytest.approx(0.0, abs=1e-12)
    assert difference_text(Estimate(-0.02, 0.011), "test_accuracy") == "−2.0 ± 1.1"
    assert difference_text(Estimate(0.02, 0.011), "test_accuracy") == "+2.0 ± 1.1"
    runs["b"][1][-1]["diverged"] = True
    assert paired_differences(runs, "a") == {"b": {}}


def test_numbers_never_have_a_power_of_ten_for_being_many():
    assert (
        number(9999.4, ".4g") == "9999" and number(10_000, ".4g") == "10,000" and number(-12345.6, ".4g") == "-12,346"
    )
    assert number(0.00012345, ".4g") == "0.0001234" and number(math.inf, ".2f") == "–"


def test_words_for_counts_and_first_letters():
    assert [counted(n, "device") for n in (0, 1, 2, 1000)] == ["0 devices", "1 device", "2 devices", "1,000 devices"]
    assert capitalised("test loss") == "Test loss" and capitalised("") == ""
    assert shown("x" * 200) != "x" * 200 and len(shown("x" * 200)) <= 62 and shown({}) == "a table"
