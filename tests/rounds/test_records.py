"""Records as typed values: written byte for byte as ever, read with tolerance for what is missing or new."""

import contextlib
import json
import math
import subprocess
import sys

import pytest

import airprune as ap
from airprune.errors import Diverged
from airprune.rounds.records import (
    RECORDS_VERSION,
    EdgeRecord,
    GlobalRecord,
    NodeRecord,
    record_from,
    record_in,
    records_version,
)
from support.each import each
from support.tiny import blobs, tiny_scenario


def lines_of(folder, **changes):
    with contextlib.suppress(Diverged):
        for _ in ap.run(tiny_scenario(**changes), out=folder, dataset=blobs()):
            pass
    return (folder / "records.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize(
    "changes",
    [
        {"diagnostics__gradients": True, "rounds__evaluate_every": "edge"},
        {"rounds__evaluate_every": "never", "events__dropout_probability": 0.9},
        {"train__learning_rate": 1e6},  # diverges: losses that are no numbers
    ],
)
def test_every_record_of_a_run_is_read_and_written_back_to_the_byte(tmp_path, changes):
    for line in lines_of(tmp_path, rounds__global_rounds=1, **changes):
        record = record_in(line)
        assert record is not None and record.extra == {}
        assert json.dumps(record.to_json(), separators=(",", ":")).encode() == line


def test_a_loss_that_is_no_number_is_told_from_one_that_was_not_measured():
    judged = record_from({"kind": "global", "global_round": 1, "test_loss": None})
    assert math.isnan(judged.test_loss) and judged.to_json()["test_loss"] is None
    unjudged = record_from({"kind": "global", "global_round": 1})
    assert unjudged.test_loss is None and "test_loss" not in unjudged.to_json()


def test_missing_keys_are_no_values_and_unknown_ones_are_kept():
    edge = record_from({"kind": "edge", "global_round": 2, "edge_round": 1, "colour": ["red"]})
    assert isinstance(edge, EdgeRecord) and edge.device == () and edge.train_loss is None and edge.left_out == {}
    assert edge.extra == {"colour": ["red"]} and edge.to_json()["colour"] == ["red"]


def test_optional_fields_are_written_only_if_given():
    record = record_from({"kind": "global", "global_round": 1, "downlink_bits": 8.0, "asked": 3})
    assert isinstance(record, GlobalRecord) and (record.downlink_bits, record.asked) == (8.0, 3)
    assert "gradient_sq" not in record.to_json() and record.to_json()["asked"] == 3


EDGE = {"kind": "edge", "global_round": 1, "edge_round": 1}
GLOBAL = {"kind": "global", "global_round": 1}


@each(
    "found",
    [
        None,
        [],
        7,
        {},
        {"kind": "planet", "global_round": 1},
        {"kind": ["edge"]},
        {"kind": "edge", "global_round": 1},  # which of its edge rounds?
        GLOBAL | {"global_round": 1.0},
        GLOBAL | {"global_round": True},
        GLOBAL | {"time_s": "late"},
        GLOBAL | {"time_s": math.inf},
        GLOBAL | {"test_accuracy": True},
        GLOBAL | {"uploaded_bits": 10**400},
        GLOBAL | {"uploaded_bits": 2**63},  # no float is made of it
        GLOBAL | {"left_out": {"late": 1}},
        EDGE | {"device": [0, 1.5]},
        EDGE | {"device": [2**63]},
        EDGE | {"device": "01"},
        EDGE | {"compute_s": [0.1, "x"]},
        EDGE | {"compute_s": [0.1, math.nan]},
        EDGE | {"compute_s": [10**400]},
        EDGE | {"fate": [None]},
        EDGE | {"left_out": {"late": "many"}},
        EDGE | {"coverage": [{"edge": 0}]},
        EDGE | {"coverage": [{"edge": 0, "min_count": None, "num_uncovered": 0}]},
    ],
)
def test_a_value_of_a_wrong_type_makes_a_record_unreadable(found):
    assert record_from(found) is None


def test_levels_between_edges_and_cloud_came_with_version_2():
    found = {"kind": "node", "global_round": 1, "level": 1, "node_round": 1, "node": [0, 1], "latency_s": [0.1, None]}
    node = record_from(found, version=2)
    assert isinstance(node, NodeRecord) and node.to_json() == found
    assert record_from(found, version=1) is None


def test_a_folder_without_a_version_has_the_first():
    assert records_version({}) == records_version({"records_version": "2"}) == 1
    assert records_version({"records_version": RECORDS_VERSION}) == 2


def test_damaged_lines_are_no_records():
    for line in (b"", b"{", b"\xff", b"[" * 100_000, b'{"kind":"global"}'):
        assert record_in(line) is None


@pytest.mark.parametrize(
    "module",
    [
        "rounds.records",
        "results.measures",
        "web.starting.form",
        "results.report.reading",
        "studies.write_report",
        "web.runs.views",
    ],
)
def test_reading_a_run_needs_no_torch(module):
    code = f"import sys, airprune.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
