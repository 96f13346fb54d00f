"""`airprune data` as a user meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from airprune.cli import main


@pytest.fixture
def airprune(capsys):
    """Runs `airprune data …` in this process: exit status, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        status = main(["data", *map(str, arguments)])
        return status, *capsys.readouterr()

    return call


def test_the_command_is_installed():
    command = [str(Path(sys.executable).with_name("airprune")), "data", "list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "60,000" in done.stdout and "generated when needed" in done.stdout


def test_list_names_every_dataset(airprune, monkeypatch, tmp_path):
    monkeypatch.setenv("AIRPRUNE_DATA", str(tmp_path))
    _, out, _ = airprune("list", "--json")
    assert [row["name"] for row in json.loads(out)] == ["mnist", "fashion-mnist", "cifar-10", "glyphs", "shakespeare"]


def test_fetch_of_a_drawn_dataset_says_that_there_is_nothing_to_fetch(airprune):
    status, out, said = airprune("fetch", "glyphs")
    assert (status, out) == (0, "")
    assert "has no files" in said


def test_show_draws_a_partition_and_prints_only_results(airprune, tmp_path):
    picture = tmp_path / "partition.png"
    options = ("--partition", "dirichlet", "--devices", 10, "--edges", 2, "--train-samples", 500)
    status, out, said = airprune("show", "glyphs", *options, "--out", picture)
    assert (status, out) == (0, "")
    assert picture.read_bytes().startswith(b"\x89PNG") and str(picture) in said
    rows = json.loads(airprune("show", "glyphs", *options, "--json")[1])["devices"]
    assert [sum(row["counts"]) for row in rows] == [50] * 10
    assert [row["edge"] for row in rows] == [0] * 5 + [1] * 5


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("fetch", "mnits"), 2, "did you mean 'mnist'"),
        (("show", "glyphs", "--partition", "shard"), 2, "did you mean 'shards'"),
        (("show", "glyphs", "--devices", 3, "--edges", 5), 2, "--edges must be"),
        (("show", "glyphs", "--train-samples", 10), 2, "a sample for each of 25 devices"),
        (("show", "glyphs", "--train-samples", 100, "--out", "/nonexistent/x.png"), 1, "was not written"),
    ],
)
def test_errors_are_one_sentence_and_a_status(airprune, arguments, status, sentence):
    got, out, said = airprune(*arguments)
    assert (got, out) == (status, "")
    assert sentence in said and said.count("\n") == 1


def test_a_wrong_file_in_the_data_folder_is_named(airprune, tmp_path):
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / f"{name}-ubyte").write_bytes(b"junk")
    status, _, said = airprune("fetch", "mnist", "--data-dir", tmp_path)
    assert status == 2
    assert f"{tmp_path}/train-images-idx3-ubyte must have 47,040,016 bytes" in said
