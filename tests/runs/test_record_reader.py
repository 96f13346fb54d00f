"""The one reader of records.jsonl: whole, in part, from its end, and as it grows."""

import tracemalloc

import pytest

from airprune.rounds.records import EdgeRecord, GlobalRecord
from airprune.runs.record_reader import RecordReader
from airprune.web.runs.following import RecordsFile
from support.web_runs import edge_line, global_line

NO_RECORDS = (b"", b"{", b"[]", b"17", b'{"kind":"edge"}', b'{"kind":"global","global_round":"one"}', b"\xff\xfe")


@pytest.fixture
def damaged(tmp_path):
    """Two rounds with lines between them that are no records, and a third that is just being written."""
    path = tmp_path / "records.jsonl"
    path.write_bytes(
        edge_line(1)
        + global_line(1)
        + b"\n".join(NO_RECORDS)
        + b"\n"
        + edge_line(2)
        + global_line(2)
        + edge_line(3)[:40]
    )
    return path


def test_damaged_lines_are_counted_and_left_out(damaged):
    records, num_damaged = RecordReader(damaged).read()
    assert [(type(record), record.global_round) for record in records] == [
        (EdgeRecord, 1), (GlobalRecord, 1), (EdgeRecord, 2), (GlobalRecord, 2),
    ]  # fmt: skip
    assert num_damaged == len(NO_RECORDS) - 1 + 1  # a blank line is nothing, the half line at the end is


def test_a_followed_file_has_the_same_rounds_and_damage_as_one_read_at_once(damaged):
    (records, num_damaged), followed = RecordReader(damaged).read(), RecordsFile(damaged)
    followed.refresh()
    assert [row[0] for row in followed.rounds.items()] == [r.global_round for r in records if r.kind == "global"]
    assert [entry[:2] for entry in followed.edges.items()] == [
        (record.global_round, record.edge_round) for record in records if isinstance(record, EdgeRecord)
    ]
    assert followed.num_damaged + followed.has_tail == num_damaged
    assert followed.edge_record(2, 1) == records[2]


@pytest.mark.parametrize("kind", ["edge", "global"])
@pytest.mark.parametrize("num_devices", [3, 20_000])  # within the first look at the end of the file, and beyond
def test_the_last_record_is_the_last_of_its_kind(tmp_path, kind, num_devices):
    path = tmp_path / "records.jsonl"
    path.write_bytes(
        global_line(1) + edge_line(1, num_devices=num_devices) + global_line(2) + edge_line(2, num_devices=num_devices)
    )
    reader = RecordReader(path)
    assert reader.last(kind) == [found for found in reader.objects() if found["kind"] == kind][-1]
    assert reader.last("node") is None


def test_of_long_records_only_the_fields_asked_for_are_kept(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"".join(edge_line(i, num_devices=5_000) for i in range(1, 41)))
    peaks = []
    for only in (None, frozenset({"edge_id"})):
        tracemalloc.start()
        records, _ = RecordReader(path).read(only=only)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(records) == 40 and bool(records[0].device) == (only is None)
    assert peaks[1] < peaks[0] / 4


def test_a_file_that_is_not_there_has_no_records(tmp_path):
    reader = RecordReader(tmp_path / "nowhere" / "records.jsonl")
    assert reader.read() == ([], 0) and list(reader.objects()) == []
