"""`airprune deploy verify`: what edges made of their uploads, repeated from what they kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support.lab import federation
from support.web_runs import tiny


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A deployment that has ended, with all rounds kept; only to be read."""
    folder = tmp_path_factory.mktemp("verified")
    with federation(folder, first_port=9340, keep_uploads=True) as lab:
        lab.start(*lab.members.edges, *lab.devices)
        with lab.running(tiny(rounds__global_rounds=1, rounds__edge_rounds=2)):
            list(lab.records)
    return folder


@pytest.fixture
def run(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "lab")


def _round(run: Path, edge: str, place: str) -> Path:
    (folder,) = (run / "kits" / edge / "state").glob("uploads-*")
    return folder / place


def _verify(command, run: Path, **folders: Path):
    given = folders or {name: run / "kits" / name for name in ("e0", "e1")}
    words = [word for name, folder in given.items() for word in ("--edge", f"{name}={folder}")]
    return command("deploy", "verify", run / "run", *words)


def test_every_edge_round_is_repeated_to_the_bit(command, made):
    status, out, err = _verify(command, made)
    assert (status, out.count(": verified (2 uploads)")) == (0, 4), out
    assert "4 edge rounds: nothing differs." in err


def test_one_byte_of_one_upload_is_found_and_nothing_else_is_blamed(command, run):
    upload = _round(run, "e1", "0-1") / "3.upload"
    data = bytearray(upload.read_bytes())
    data[len(data) // 2] ^= 1
    upload.write_bytes(data)
    status, out, _ = _verify(command, run)
    assert status == 1
    assert out.count("verified") == 3
    assert (
        "e1, global round 1, edge round 2: differs (2 uploads)\n  The upload of d3 is not the one that counted." in out
    )


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda place: (place / "0.upload").unlink(), "The upload of d0 is missing."),
        (lambda place: shutil.copy(place / "0.upload", place / "3.upload"), "An upload of device 3 is there"),
        (lambda place: shutil.copy(place.with_name("0-1") / "orders.bin", place), "Its orders are not those"),
        (lambda place: shutil.copy(place.with_name("0-1") / "orders.safetensors", place), "The model that it began"),
        (lambda place: (place / "orders.bin").write_bytes(b"\xff"), "something else than a kept round"),
        (lambda place: shutil.rmtree(place), "is missing."),
    ],
)
def test_what_is_missing_exchanged_or_too_much_is_told(command, run, spoil, sentence):
    spoil(_round(run, "e0", "0-0"))
    status, out, _ = _verify(command, run)
    assert status == 1
    assert sentence in out
    assert out.count("verified") == 3


def test_a_model_that_the_uploads_do_not_make_is_found(command, run):
    measured = run / "run" / "measured.jsonl"
    rows = [json.loads(line) for line in measured.read_text().splitlines()]
    for row in rows:
        if (row["served_by"], row["edge_round"]) == ("e0", 2):
            row["model_digest"] = "0" * 32
    measured.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, out, _ = _verify(command, run)
    assert status == 1
    assert out.count("The uploads make another model") == 1


def test_another_edges_folder_is_not_taken_for_this_ones(command, made):
    status, out, err = _verify(command, made, e0=made / "kits" / "e1")
    assert status == 1
    assert out.count("Its orders are not those that the cloud sent to this edge.") == 2
    assert "Not verified, because no folder was given: e1." in err


def test_what_cannot_be_verified_at_all_is_a_wrong_request(command, made, tmp_path):
    for folders, sentence in [
        ({"e7": made / "kits" / "e0"}, "edge 'e7' is unknown"),
        ({"e0": tmp_path}, "was started with --keep-uploads"),
    ]:
        status, _, err = _verify(command, made, **folders)
        assert status == 2
        assert sentence in err
    assert command("deploy", "verify", tmp_path, "--edge", "e0=x")[0] == 2
    assert command("deploy", "verify", made / "run", "--edge", "e0")[0] == 2


def test_json_says_the_same(command, made):
    status, out, _ = command("deploy", "verify", made / "run", "--edge", f"e0={made / 'kits/e0/state'}", "--json")
    found = json.loads(out)
    assert (status, found["num_wrong"], found["not_verified"]) == (0, 0, ["e1"])
    assert [line["verdict"] for line in found["rounds"]] == ["verified", "verified"]
