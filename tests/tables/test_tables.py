"""Tables: what is read, where a fault is said to be, and how little a hostile source may cost."""

from __future__ import annotations

import io
import json
import math
import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airprune.errors import BadTable, InvalidValue, UsageError, WorkFailed
from airprune.tables import Column, Table, read_table, source, write_csv_atomic, write_text_atomic

FLEET = (
    Column(name="device", kind="label", required=True),
    Column(name="edge", kind="label", required=True),
    Column(name="snr_db", required=True, explanation="SNR over the full band, dB"),
    Column(name="cpu_hz", default=3e9, above=0),
    Column(name="local_iterations", default=5, minimum=1, whole=True),
    Column(name="x_m"),
)
HEADER = "device,edge,snr_db\n"


def read(text: str | bytes, **options: object) -> Table:
    data = text.encode() if isinstance(text, str) else text
    return read_table(io.BytesIO(data), FLEET, **options)  # type: ignore[arg-type]


def fault(text: str | bytes, **options: object) -> BadTable:
    with pytest.raises(BadTable) as caught:
        read(text, **options)
    message = str(caught.value)
    assert "\n" not in message and message.isprintable() and len(message) < 700
    return caught.value


class Endless(io.RawIOBase):
    """Repeats `pattern` for ever, in short reads, and counts what was taken."""

    def __init__(self, pattern: bytes, start: bytes = b"") -> None:
        self.taken = 0
        self._start = start
        self._pattern = pattern * (4096 // len(pattern) + 1)

    def read(self, size: int = -1) -> bytes:
        assert size > 0, "an endless stream must not be read whole"
        data = self._start or self._pattern
        self._start = b""
        self.taken += len(data)
        return data[:size]


# What is read


def test_columns_come_as_arrays_with_defaults_filled_in():
    table = read("device,edge,snr_db,cpu_hz\n0,0,12.5,2e9\n1,0,-3,\n")
    assert table.num_rows == 2
    assert table["device"].dtype == np.int64 and table["device"].tolist() == [0, 1]
    assert table["snr_db"].dtype == np.float64 and table["snr_db"].tolist() == [12.5, -3.0]
    assert table["cpu_hz"].tolist() == [2e9, 3e9]
    assert table["local_iterations"].tolist() == [5.0, 5.0]
    assert table.line.tolist() == [2, 3]


def test_an_optional_column_without_default_stays_absent_and_its_empty_cells_are_nan():
    assert "x_m" not in read(HEADER + "0,0,1\n")
    table = read("device,edge,snr_db,x_m\n0,0,1,\n1,0,1,7\n")
    assert math.isnan(table["x_m"][0]) and table["x_m"][1] == 7


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_separators_and_line_ends_make_no_difference(delimiter, end):
    rows = [["Device ", " EDGE", "snr_dB"], ["a", "x", " 1.5 "], ["b", "x", "2"]]
    text = end.join(delimiter.join(row) for row in rows)
    for data in (text, text + end, "\ufeff" + text):
        table = read(data)
        assert table["device"].tolist() == ["a", "b"]
        assert table["snr_db"].tolist() == [1.5, 2.0]
        assert table.line.tolist() == [2, 3]


@pytest.mark.parametrize("odd", ["007", "+7", "7.0", "-0", "1_0", "٣", "99999999999999999999", "a"])
def test_one_label_that_is_no_canonical_integer_keeps_all_labels_text(odd):
    table = read(HEADER + f"0,0,1\n{odd},0,1\n-3,0,1\n")
    assert table["device"].tolist() == ["0", odd, "-3"]
    assert table["edge"].tolist() == [0, 0, 0]


def test_labels_are_text_even_if_the_odd_one_comes_many_blocks_later():
    rows = [f"{i},0,1\n" for i in range(60_000)]
    table = read(HEADER + "".join(rows) + "last,0,1\n")
    assert table["device"][0] == "0" and type(table["device"][59_999]) is str
    assert table["device"][60_000] == "last"


def test_quoted_cells_may_hold_separators_and_quotes():
    table = read(HEADER + '"a,b",0,1\n"say ""hi""",0,2\n')
    assert table["device"].tolist() == ["a,b", 'say "hi"']


def test_unknown_columns_are_ignored_but_listed_with_the_nearest_name():
    table = read("device,edge,snr_db,cpu_ghz,remark\n0,0,1,3,hello\n")
    assert table.ignored == ("cpu_ghz (did you mean cpu_hz?)", "remark")
    assert read('[{"device": 0, "edge": 0, "snr_db": 1, "remark": 2}]').ignored == ("remark",)


def test_unnamed_columns_of_spreadsheets_do_no_harm():
    assert read("device,edge,snr_db,,\n0,0,1,,\n").num_rows == 1


def test_json_and_csv_of_one_fleet_read_alike():
    devices = [{"device": i, "edge": i % 3, "snr_db": i / 7} for i in range(1000)]
    text = HEADER + "".join(f"{d['device']},{d['edge']},{d['snr_db']!r}\n" for d in devices)
    csv_table = read(text)
    for document in (devices, {"unit": {"snr": ["dB"]}, "devices": devices, "edges": []}):
        table = read(json.dumps(document))
        for name, values in csv_table.columns.items():
            np.testing.assert_array_equal(table[name], values)


def test_json_labels_keep_their_types():
    table = read('[{"device": 1, "edge": "1", "snr_db": 0}, {"device": "a", "edge": "1", "snr_db": 2}]')
    assert table["device"].tolist() == [1, "a"] and table["edge"].tolist() == ["1", "1"]


def test_json_objects_may_differ_in_order_and_leave_out_what_is_optional():
    table = read('[{"snr_db": 1, "edge": 0, "device": 0}, {"device": 1, "Edge": 0, "snr_db": 2, "cpu_hz": 1e9}]')
    assert table["cpu_hz"].tolist() == [3e9, 1e9] and table["snr_db"].tolist() == [1, 2]


def test_json_knows_the_line_of_each_device_across_blocks():
    objects = ",\n".join(json.dumps({"device": i, "edge": 0, "snr_db": i / 3}) for i in range(20_000))
    table = read("\n[" + objects + "\n]\n")
    assert table.line.tolist() == list(range(2, 20_002))
    np.testing.assert_array_equal(table["snr_db"], np.arange(20_000) / 3)


def test_standard_input_is_a_dash_and_stays_open(monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO((HEADER + "0,0,1\n").encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    table = read_table("-", FLEET)
    assert table.num_rows == 1 and table.source == "standard input" and not stdin.closed


def test_a_closed_standard_input_is_said_to_be_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(BadTable, match="closed"):
        read_table("-", FLEET)


# Where a fault is said to be


@pytest.mark.parametrize(
    ("rows", "line", "words"),
    [
        ("0,0,abc\n", 2, "snr_db (SNR over the full band, dB) must be a finite number, got 'abc'"),
        ("0,0,nan\n", 2, "finite number, got 'nan'"),
        ("0,0,-inf\n", 2, "finite number, got '-inf'"),
        ("0,0,1e999\n", 2, "finite number, got 1e999"),
        ("0,0,1_000\n", 2, "got '1_000'"),
        ("0,0,١\n", 2, "finite number"),
        ("0,0,0x10\n", 2, "got '0x10'"),
        ("0,0,1\n1,0, \n", 3, "snr_db is empty"),
        ("0,0,1\n,0,1\n", 3, "device is empty"),
        ("0,0,1\n1,0\n", 3, "2 cells where the header has 3"),
        ("0,0,1\n1,0,1,1\n", 3, "4 cells where the header has 3"),
        ("0,0,1\n1\n", 3, "1 cell where the header has 3"),
        ("7,0,1\n8,0,1\n7,1,1\n", 4, "device 7 is already on line 2"),
        ('0,0,1\n"a\nb",0,1\n', 3, "control characters, got 'a\\nb'"),
        ("0,0,1\na\x07,0,1\n", 3, "control characters, got 'a\\x07'"),
        ("x" * 257 + ",0,1\n", 2, "at most 256 characters"),
        ('"a,0,1\n1,0,1\n', 2, "broken CSV"),
        ('"a"b,0,1\n', 2, "broken CSV"),
    ],
)
def test_a_bad_row_is_named_by_line_and_reason(rows, line, words):
    error = fault(HEADER + rows)
    assert error.line == line and words in str(error)


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("cpu_hz", "-3e9", "cpu_hz must be > 0, got -3e9."),
        ("cpu_hz", "0", "cpu_hz must be > 0, got 0."),
        ("local_iterations", "0", "local_iterations must be >= 1, got 0."),
        ("local_iterations", "2.5", "local_iterations must be a whole number, got 2.5."),
    ],
)
def test_a_broken_rule_is_quoted(column, cell, words):
    assert words in str(fault(f"device,edge,snr_db,{column}\n0,0,1,{cell}\n"))
    document = f'[{{"device": 0, "edge": 0, "snr_db": 1, "{column}": {cell}}}]'
    assert "(device 1 of the list)" in str(fault(document))


def test_every_bound_of_a_column_is_kept():
    share = Column(name="share", minimum=0, below=1)
    for cell, fine in [("0", True), ("0.99", True), ("1", False), ("-1e-9", False)]:
        stream = io.BytesIO(f"share,n\n{cell},1\n".encode())
        if fine:
            assert read_table(stream, [share]).num_rows == 1
        else:
            with pytest.raises(BadTable, match="share must be >= 0 and < 1"):
                read_table(stream, [share])


def test_a_decimal_comma_gets_a_hint():
    assert "decimals after a point" in str(fault("device;edge;snr_db\n0;0;12,5\n"))


def test_blank_lines_and_quoted_newlines_do_not_shift_the_line():
    text = '\n\ndevice,edge,snr_db,remark\n\n0,0,1,"two\nlines"\n  \n1,0,1,x\n\n2,0,bad,x\n'
    error = fault(text)
    assert error.line == 10
    assert read(text.replace("bad", "3")).line.tolist() == [5, 8, 10]


def test_a_quoted_newline_may_straddle_blocks():
    filler = "".join(f"{i},0,1,\n" for i in range(30_000))
    remark = '"' + "\n" * 60_000 + '"'
    table = read("device,edge,snr_db,remark\n" + filler + f"30000,0,1,{remark}\n30001,0,1,\n")
    assert table.line[-2:].tolist() == [30_002, 90_003]


@pytest.mark.parametrize("quoted", [False, True])
def test_a_fault_deep_in_a_long_table_is_found_on_its_line(quoted):
    rows = [f'"{i}",0,1\n' if quoted else f"{i},0,1\n" for i in range(130_000)]
    rows[123_456] = "123456,0,oops\n"
    error = fault(HEADER + "".join(rows))
    assert error.line == 123_458 and "'oops'" in str(error)


def test_a_duplicate_blocks_apart_names_both_lines():
    rows = [f"{i},0,1\n" for i in range(100_000)]
    error = fault(HEADER + "".join(rows) + "17,0,1\n")
    assert error.line == 100_002 and "device 17 is already on line 19" in str(error)


def test_a_fault_further_up_is_reported_first():
    assert fault(HEADER + "0,0,bad\n1,0\n").line == 2


def test_a_missing_column_is_named_with_what_was_found_and_the_nearest():
    message = str(fault("device,edge,snr\n0,0,1\n"))
    assert "missing snr_db" in message and "found device, edge, snr" in message and "rename 'snr'" in message
    assert "missing edge, snr_db" in str(fault('[{"device": 0}]'))


def test_a_column_may_not_occur_twice():
    assert "'edge' occurs twice" in str(fault("device,edge,Edge,snr_db\n"))
    assert "'edge' occurs twice" in str(fault('[{"device": 0, "edge": 0, "edge": 1, "snr_db": 1}]'))


@pytest.mark.parametrize("text", ["", "\n \n", HEADER, "[]", '{"devices": []}', "\ufeff"])
def test_a_table_without_rows_is_refused(text):
    assert fault(text).line == 0


def test_more_rows_than_allowed_are_refused_on_the_first_too_many():
    text = HEADER + "0,0,1\n1,0,1\n2,0,1\n"
    assert read(text, max_rows=3).num_rows == 3
    assert fault(text, max_rows=2).line == 4


def test_a_row_found_wrong_later_can_be_named():
    assert str(read(HEADER + "\n0,0,1\n").error(0, "no such edge")) == "the stream, line 3: no such edge."
    table = read('[{"device": 0, "edge": 0, "snr_db": 1}]')
    assert "device 1 of the list" in str(table.error(0, "no such edge"))


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ('"device": true', "integer or a string, got true"),
        ('"device": 1.0', "got 1.0"),
        ('"device": null', "device is empty"),
        ('"device": [1]', "got a list"),
        ('"device": {}', "got an object"),
        ('"device": ""', "device is empty"),
        ('"device": "\\ud800"', "control characters"),
        ('"device": 9223372036854775808', "64 bits"),
        ('"device": 0, "cpu_hz": "3e9"', "finite number, got '3e9'"),
        ('"device": 0, "cpu_hz": true', "finite number, got true"),
        ('"device": 0, "cpu_hz": NaN', "finite number"),
        ('"device": 0, "cpu_hz": 1' + "0" * 400, "finite number, got 1000"),
        ('"device": 0, "cpu_hz": 1' + "0" * 5000, "digits"),
        ('"device": 0, "cpu_hz": [[]]', "got a list"),
    ],
)
def test_a_bad_json_value_is_named_by_line_and_reason(cell, words):
    text = '[\n{"device": 5, "edge": 0, "snr_db": 1},\n{"edge": 0, "snr_db": 1, ' + cell + "}]"
    error = fault(text)
    assert error.line == 3 and words in str(error)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[\n{"device": 0,\n"edge" 0}]', 3),
        ("[\n1]", 2),
        ('[{"device": 0, "edge": 0, "snr_db": 1}\n', 2),
        ('[{"device": 0, "edge": 0, "snr_db": 1},\n]', 2),
        ('[{"device": 0, "edge": 0, "snr_db": 1}]\n\nx', 3),
        ('{"device": 0}', 1),
        ('{"devices": 3}', 1),
        ("[" * 100_000, 1),
        ("[" + '{"a":' * 100_000, 1),
    ],
)
def test_broken_json_is_refused_on_its_line(text, line):
    assert fault(text).line == line


def test_a_duplicate_in_json_names_both_devices():
    row = '{"device": "a", "edge": 0, "snr_db": 1}'
    assert "device 'a' is already on device 1" in str(fault(f"[{row}, {row}]"))


# Hostile sources


@pytest.mark.parametrize(
    ("pattern", "start"),
    [
        (b"\0", b""),
        (b"\xff\xfe", b""),
        (b"x", b""),
        (b"\n", b""),
        (b"\r\n", HEADER.encode()),
        (b" ", b"[\n"),
        (b"y\n", b""),
        (b"1,1,1\n", HEADER.encode()),
        (b"1,", HEADER.encode()),
        (b",\n", HEADER.encode()),
        (b'","\n', HEADER.encode()),
        (b'"\n",', HEADER.encode()),
        (b"a\n", HEADER.encode() + b'"'),
        (b"[", b""),
        (b"1,", b"["),
        (b"1,", b'[{"a": ['),
        (b"x", b'["'),
        (b"1", b'[{"a": '),
        (b'"a": 1,', b"{"),
        (b'{"device": 0, "edge": 0, "snr_db": 1},', b"["),
    ],
)
def test_an_endless_stream_is_refused_after_little_reading(pattern, start):
    stream = Endless(pattern, start)
    with pytest.raises(BadTable):
        read_table(stream, FLEET)  # type: ignore[arg-type]
    assert stream.taken < 2**21


def test_a_line_over_the_limit_is_refused_on_its_line():
    assert fault(HEADER + "0,0,1\n" + "1" * 70_000 + ",0,1\n").line == 3


def test_json_over_its_size_is_refused_while_reading():
    rows = (b'{"device": %d, "edge": 0, "snr_db": 1},' % i for i in range(10**9))
    stream = Endless(b" ", b"[" + b"".join(next(rows) for _ in range(20_000)))
    with pytest.raises(BadTable, match="longer than 100,000 bytes"):
        read_table(stream, FLEET, max_bytes=100_000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"device,edge,snr_db\n0,0,1\nM\xfcnchen,0,1\n", 3),
        (HEADER.encode("utf-16"), 1),
        (b"device,edge,snr_db\n0,\0,1\n", 2),
        (b"PK\x03\x04\x14\x00\x06\x00", 1),
        (b"device,edge,snr_db\n0,0,1\n\xc3", 3),
    ],
)
def test_what_is_not_utf8_text_is_refused_on_its_line(data, line):
    assert fault(data).line == line


def test_values_in_messages_are_short_and_harmless():
    message = str(fault(HEADER + "0,0,\x1b[31m" + "z" * 5000 + "\n"))
    assert "\\x1b" in message and len(message) < 200


def test_missing_files_folders_and_odd_names_are_usage_errors(tmp_path):
    for path, words in [
        (tmp_path / "none.csv", "no such file"),
        (tmp_path, "folder"),
        ("a\0b", "opened"),
        (tmp_path / ("x" * 5000), "opened"),
    ]:
        with pytest.raises(BadTable, match=words) as caught:
            read_table(path, FLEET)
        assert caught.value.exit_status == 2


def test_a_file_without_permission_is_a_usage_error(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # chmod does not stop root
    with pytest.raises(BadTable, match="permission denied"):
        read_table(tmp_path / "fleet.csv", FLEET)


def test_a_stream_that_breaks_is_a_usage_error():
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(BadTable, match="Input/output error"):
        read_table(Broken(), FLEET)  # type: ignore[arg-type]


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: (HEADER + text).encode("utf-8", "ignore")))
def test_any_bytes_are_read_or_refused_in_one_sentence(data):
    try:
        assert read(data).num_rows > 0
    except BadTable as error:
        assert "\n" not in str(error)


csv_pieces = st.sampled_from(
    ["0,0,1", "1,0,2.5", "a,b,3", '"4",0,4', '"a,b", c,5', ",", '"', "\n", "\r", "\r\n", " ", "é"]
)


@given(st.lists(csv_pieces, max_size=12).map("".join), st.integers(min_value=1, max_value=30))
def test_any_csv_is_read_alike_whatever_the_blocks(text, block_bytes):
    def outcome() -> object:
        try:
            table = read(HEADER + text, unique=None)
            return [table[name].tolist() for name in ("device", "edge", "snr_db")], table.line.tolist()
        except BadTable:
            return "refused"

    whole = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "BLOCK_BYTES", block_bytes)
        assert outcome() == whole


json_keys = st.sampled_from(["device", "edge", "snr_db", "devices", "x"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_keys, inner, max_size=4),
    max_leaves=12,
)
json_devices = st.fixed_dictionaries(
    {"device": st.integers(), "edge": st.text(max_size=3), "snr_db": st.floats(-1e9, 1e9)}
)
json_tables = (
    st.lists(json_values)
    | st.lists(json_devices)
    | st.fixed_dictionaries({"x": json_values, "devices": st.lists(json_devices), "z": json_values})
)


@given(json_tables.map(json.dumps), st.integers(min_value=1, max_value=50))
def test_any_json_is_read_or_refused_whatever_the_blocks(text, block_bytes):
    def outcome() -> object:
        try:
            return read(text).num_rows
        except BadTable as error:
            return str(error)

    whole = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "BLOCK_BYTES", block_bytes)
        assert outcome() == whole


# Writing


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


labels = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=12)
text_labels = labels.map(str.strip).filter(bool)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=150)
@given(
    st.lists(text_labels, min_size=1, max_size=30, unique=True)
    | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30, unique=True),
    st.data(),
    st.sampled_from([source.BLOCK_BYTES, 200, 17]),
)
def test_what_is_written_reads_back_bit_for_bit(tmp_path_factory, devices, data, block_bytes):
    snr_db = data.draw(st.lists(numbers, min_size=len(devices), max_size=len(devices)))
    edges = data.draw(st.lists(text_labels, min_size=len(devices), max_size=len(devices)))
    x_m = data.draw(st.lists(numbers | st.just(math.nan), min_size=len(devices), max_size=len(devices)))
    path = tmp_path_factory.mktemp("round") / "fleet.csv"
    write_csv_atomic(path, ["device", "edge", "snr_db", "x_m"], [devices, edges, np.array(snr_db), x_m])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "BLOCK_BYTES", block_bytes)
        table = read_table(path, FLEET)
    assert [str(label) for label in table["device"].tolist()] == [str(label) for label in devices]
    assert [str(label) for label in table["edge"].tolist()] == edges
    assert table["snr_db"].tobytes() == np.array(snr_db).tobytes()
    np.testing.assert_array_equal(table["x_m"], x_m)


def test_many_rows_are_written_in_order(tmp_path):
    path = tmp_path / "fleet.csv"
    device = np.arange(120_001)
    write_csv_atomic(path, ["device", "edge", "snr_db"], [device, device % 7, device / 3])
    table = read_table(path, FLEET)
    np.testing.assert_array_equal(table["device"], device)
    np.testing.assert_array_equal(table["snr_db"], device / 3)


def test_nan_and_none_are_written_as_empty_cells(tmp_path):
    path = tmp_path / "plan.csv"
    write_csv_atomic(path, ["a", "b", "c"], [np.array([1.5, math.nan]), [None, math.nan], ["x", "y,z"]])
    assert path.read_text() == 'a,b,c\n1.5,,x\n,,"y,z"\n'


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "plan.csv"
    write_text_atomic(path, "old")

    class Bad:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_csv_atomic(path, ["a"], [[1, 2, Bad()]])
    with pytest.raises(UnicodeEncodeError):
        write_text_atomic(path, "new \ud800")
    assert path.read_text() == "old" and names_in(tmp_path) == ["plan.csv"]


def test_a_full_disk_is_a_failed_work_not_a_wrong_request(tmp_path, monkeypatch):
    path = tmp_path / "plan.csv"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkFailed, match="No space left"):
        write_text_atomic(path, "new")
    assert path.read_text() == "old" and names_in(tmp_path) == ["plan.csv"]


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    for path, words in [
        (tmp_path / "none" / "plan.csv", "folder does not exist"),
        (tmp_path, "got a folder"),
        (tmp_path / "file" / "plan.csv", "cannot be written"),
        ("a\0b", "cannot be written"),
        (Path(os.devnull), "folder or a device"),
    ]:
        with pytest.raises(UsageError, match=words):
            write_text_atomic(path, "x")
    assert names_in(tmp_path) == ["file"]
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_writing_keeps_links_and_modes(tmp_path):
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    write_text_atomic(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_columns_of_unequal_length_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InvalidValue):
        write_csv_atomic(tmp_path / "x.csv", ["a", "b"], [[1], [1, 2]])
    assert names_in(tmp_path) == []


def test_an_optional_label_needs_a_default():
    with pytest.raises(InvalidValue):
        Column(name="edge", kind="label")
    edge = Column(name="edge", kind="label", default=0)
    for text in (b"n,edge\n1,\n2,0\n", b"n,m\n1,\n2,0\n", b'[{"n": 1}, {"n": 2, "edge": 0}]'):
        assert read_table(io.BytesIO(text), [Column(name="n"), edge])["edge"].tolist() == [0, 0]
