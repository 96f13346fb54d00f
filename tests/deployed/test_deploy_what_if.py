"""`run --replay RUN --what-if`: a deployment's records under other settings."""

import dataclasses
import json

import pytest

import airprune as ap
from airprune.errors import UsageError
from airprune.runs.layout import RunFolder
from airprune.runs.measured import MeasuredLog, read_measured
from support.deployed import pretend
from support.tiny import final_bytes


@pytest.fixture(scope="module")
def yard(tmp_path_factory):
    """Arrivals are those of a device: compute, upload and 1 ms beside; the record of misses is what that gives."""
    path = pretend(tmp_path_factory.mktemp("runs") / "yard", rounds__edge_rounds=3)
    folder = RunFolder(path)
    rows = []
    for row in read_measured(folder):
        if row.fate in ("ok", "late"):
            slow = 1.6 if row.fate == "late" else 0.9
            times = {"compute_s": slow * row.planned_compute_s, "uplink_s": 0.9 * row.planned_uplink_s}
            row = dataclasses.replace(row, **times, arrived_s=sum(times.values()) + 1e-3)
        rows.append(row)
    inputs = folder.inputs_file.read_bytes()
    MeasuredLog(folder, next_round=0).measured(rows)
    folder.inputs_file.write_bytes(inputs)
    return path


def predicted(folder, **changes):
    rounds = []
    scenario = RunFolder(folder).scenario().with_values({key.replace("__", "."): v for key, v in changes.items()})
    records = list(ap.run(scenario, replay=folder, what_if=rounds.append))
    return records, rounds


def test_without_a_change_it_is_the_replay_bit_for_bit(yard, tmp_path, command):
    arguments = ("run", "--replay", str(yard), "--what-if", "--engine", "serial", "--out", str(tmp_path / "again"))
    status, out, err = command(*arguments, "--json")
    assert status == 0, err
    assert final_bytes(tmp_path / "again") == final_bytes(yard) and "Bit for bit" in err
    found = json.loads(out)["what_if"]
    for name in ("edge_rounds", "uploads", "in_time", "late"):
        assert found["recorded"][name] == found["what_if"][name]
    assert found["what_if"]["seconds"] == pytest.approx(found["recorded"]["seconds"], rel=1e-12)


def fates_of(records) -> list[dict[int, str]]:
    return [dict(zip(record["device"], record["fate"], strict=True)) for record in records if record["kind"] == "edge"]


def test_a_change_that_leaves_the_plans_as_they_were_predicts_the_recorded_outcomes(yard):
    records, rounds = predicted(yard, clock__idle_power_w=1.0)
    assert fates_of(records) == fates_of(RunFolder(yard).records())
    late = [row for row in read_measured(RunFolder(yard)) if row.fate == "late"]
    assert late and sum(round.fates.get("late", 0) for round in rounds) == len(late)


def test_a_longer_deadline_predicts_arrivals_by_measured_over_planned_times(yard):
    recorded = RunFolder(yard).scenario().plan.deadline_s
    records, rounds = predicted(yard, plan__deadline_s=2 * recorded, plan__max_pruning_ratio=0.5)
    rows = {(row.round, row.device): row for row in read_measured(RunFolder(yard))}
    edges = [record for record in records if record["kind"] == "edge"]
    for number, (edge, round) in enumerate(zip(edges, rounds, strict=True)):
        last_s = 0.0
        planned = zip(edge["device"], edge["fate"], edge["compute_s"], edge["uplink_s"], strict=True)
        for device, fate, compute_s, uplink_s in planned:
            row = rows[number, device]
            if row.fate in ("ok", "late"):  # the others are lost as they were
                slow = 1.6 if row.fate == "late" else 0.9
                arrival_s = slow * compute_s + 0.9 * uplink_s + 1e-3
                assert (fate == "late") == (arrival_s > 2 * recorded)
                last_s = max(last_s, min(arrival_s, 2 * recorded))
            else:
                assert fate == {"refused": "failed"}.get(row.fate, row.fate)
        assert round.took_s == pytest.approx(last_s, rel=1e-9)  # sums in another order


def test_a_day_longer_than_the_record_begins_again_with_its_first_round(yard):
    records, rounds = predicted(yard, rounds__global_rounds=4, clock__idle_power_w=1.0)
    assert len(rounds) == 12
    fates = fates_of(records)
    assert fates[6:] == fates[:6]


def test_another_method_is_predicted_from_the_same_record(yard, tmp_path, command):
    arguments = ("run", "--replay", str(yard), "--what-if", "method=fp32", "plan.deadline_s=1", "--engine", "serial")
    status, out, err = command(*arguments, "--out", str(tmp_path / "other"))
    assert status == 0, err
    assert "What if: method=fp32, plan.deadline_s=1." in err and "Assumed: Devices online" in err
    assert "missed the deadline" in out and "time per edge round" in out and "Bit for bit" not in err


def test_what_if_needs_a_deployment(tmp_path, command):
    status, _, err = command("run", "smoke", "--what-if", "--out", str(tmp_path / "x"))
    assert status == 2 and "--what-if needs --replay RUN" in err
    with pytest.raises(UsageError, match=r"run\.what_if needs the run folder of a deployment"):
        ap.run(ap.Scenario.preset("smoke"), what_if=print)
