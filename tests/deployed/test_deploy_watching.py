"""Watching a deployment: its files, its metrics, `deploy status`, `deploy calibrate` and `run --replay`."""

import dataclasses
import json
import re
import urllib.request

import numpy as np
import pytest

import airprune as ap
from airprune.deployment.calibration import Spread, fit_devices
from airprune.deployment.fleet.service import registry_of
from airprune.deployment.identity import make_federation, remove
from airprune.deployment.metrics import Metrics, serve_metrics
from airprune.deployment.status import read_status, write_status, write_status_file
from airprune.deployment.watch.view import Watched
from airprune.errors import UsageError, WorkFailed
from airprune.planning.fleet import read_network
from airprune.rounds.experiment import Experiment
from airprune.runs.layout import RunFolder
from airprune.runs.measured import (
    MeasuredLog,
    MeasuredRow,
    PlannedInputs,
    measured_s,
    read_inputs,
    read_measured,
    row_in,
)
from airprune.studies.write_report import write_report
from airprune.wireless.channel import full_band_rates
from support.deployed import ROW, pretend, pretended_records, status_of
from support.tiny import final_bytes
from support.web_runs import tiny

INPUTS = PlannedInputs(round=0, global_round=1, edge_round=1, device=(0,), edge=(0,), full_band_rate_bps=(1e7,))


def row(**changes) -> MeasuredRow:
    return dataclasses.replace(ROW, **changes)


def folder_with(path, rows, inputs=(INPUTS,)) -> RunFolder:
    path.mkdir(exist_ok=True)
    folder = RunFolder(path)
    log = MeasuredLog(folder, next_round=0)
    for planned in inputs:
        log.planned(planned)
    log.measured(rows)
    return folder


@pytest.fixture(scope="module")
def yard(tmp_path_factory):
    return pretend(tmp_path_factory.mktemp("runs") / "yard", rounds__edge_rounds=3)


def test_the_report_of_a_deployment_tells_planned_and_measured_times_and_none_simulated(yard, tmp_path):
    text = write_report(yard, tmp_path / "report.html").read_text()
    shown = " ".join(re.sub(r"<(style|script).*?</\1>|<[^>]+>", " ", text, flags=re.DOTALL).split())
    words = " ".join([shown.split("scenario.toml", 1)[0], *re.findall(r'alt="([^"]*)"', text)])
    assert "simulated" not in words and "All times are simulated" not in shown
    assert "Test accuracy against planned time" in words and "Planned compute, then uplink, of each device" in words
    measured = measured_s(read_measured(RunFolder(yard)))
    last = next(record for record in reversed(RunFolder(yard).records()) if record["kind"] == "global")
    for label, value in (("planned time", last["time_s"]), ("measured time", measured)):
        assert re.search(rf"{label} {value:.4g} s\b", shown), label


def test_measured_time_is_that_of_the_last_upload_of_each_round_and_of_the_deadline_that_one_missed():
    rows = [row(arrived_s=0.2), row(arrived_s=0.3), row(round=1, arrived_s=0.1)]
    rows += [row(round=1, fate="late", arrived_s=None), row(round=2, fate="dropped", arrived_s=None)]
    assert measured_s(rows) == pytest.approx(0.3 + 0.5, rel=1e-12)
    assert measured_s([row(fate="dropped", arrived_s=None)]) is None


# Files


def test_what_is_written_is_read_back_to_the_bit_and_a_torn_line_is_left_out(tmp_path):
    inputs = dataclasses.replace(INPUTS, full_band_rate_bps=(1e7 / 3,), seconds_per_sample=(1e-3 / 7,))
    folder = folder_with(tmp_path, [row(), row(device=1, fate="dropped", uplink_s=None)], [inputs])
    with folder.measured_file.open("ab") as file:
        file.write(b'{"round":1,"device":')
    assert read_measured(folder) == [row(), row(device=1, fate="dropped", uplink_s=None)]
    assert read_inputs(folder) == {0: inputs}


@pytest.mark.parametrize(
    "spoilt",
    [
        b"",
        b"[]",
        b'"x"',
        b"\xff",
        b"[" * 10**5,
        b'{"round":true}',
        b'{"round":1e400}',
        b'{"round":' + b"9" * 5000 + b"}",
    ],
)
def test_a_line_that_is_no_row_is_none(spoilt):
    assert row_in(spoilt) is None
    whole = json.loads(json.dumps(ROW.to_json()))
    assert row_in(json.dumps(whole).encode()) == ROW
    assert row_in(json.dumps(whole | {"device": "0"}).encode()) is None


def test_a_resumed_run_cuts_the_lines_of_its_rounds_and_whatever_is_torn(tmp_path):
    inputs = [dataclasses.replace(INPUTS, round=n) for n in range(3)]
    folder = folder_with(tmp_path, [row(round=n, device=d) for n in range(3) for d in (0, 1)], inputs)
    with folder.measured_file.open("ab") as file:
        file.write(b'{"rou')
    log = MeasuredLog(folder, next_round=2)
    log.planned(inputs[2])
    log.measured([row(round=2, fate="late")])
    assert [(r.round, r.fate) for r in read_measured(folder)] == [(0, "ok")] * 2 + [(1, "ok")] * 2 + [(2, "late")]
    assert sorted(read_inputs(folder)) == [0, 1, 2]


def test_inputs_of_a_round_that_is_planned_again_are_on_the_disk_all_the_time(tmp_path):
    """Edges may have begun the round with them: a cloud killed here must not plan it otherwise when it is back."""
    inputs = [dataclasses.replace(INPUTS, round=n) for n in range(3)]
    folder = folder_with(tmp_path, [row(round=0)], inputs)
    before = folder.inputs_file.read_bytes()
    log = MeasuredLog(folder, next_round=2)
    assert folder.inputs_file.read_bytes() == before
    log.planned(inputs[2])
    assert folder.inputs_file.read_bytes() == before
    log.planned(dataclasses.replace(INPUTS, round=3))
    other = dataclasses.replace(inputs[2], restarts=True)
    MeasuredLog(folder, next_round=2).planned(other)
    assert list(read_inputs(folder)) == [0, 1, 2] and read_inputs(folder)[2].restarts


def test_two_writers_of_one_folder_are_found(tmp_path):
    folder = folder_with(tmp_path, [row()])
    log = MeasuredLog(folder, next_round=1)
    MeasuredLog(folder, next_round=1).measured([row(round=1)])
    with pytest.raises(WorkFailed, match="another process writes it"):
        log.measured([row(round=1)])


def test_a_status_is_replaced_whole_and_nonsense_is_none(tmp_path):
    folder = RunFolder(tmp_path)
    assert read_status(folder) is None
    written = status_of(3)
    write_status(folder, status_of(1))
    write_status(folder, written)
    assert read_status(folder) == written
    assert (written.online("device"), written.count("device"), written.online("edge")) == (2, 3, 2)
    assert not written.is_stale(written.updated_s + 9) and written.is_stale(written.updated_s + 11)
    assert not dataclasses.replace(written, state="ended").is_stale(written.updated_s + 1e6)
    for text in ("{}", "[", '{"nodes": 3}', json.dumps({**dataclasses.asdict(written), "nodes": [{"name": 1}]})):
        folder.status_file.write_text(text)
        assert read_status(folder) is None


# Metrics


def test_metrics_count_uploads_by_fate_on_loopback_and_leave_no_port_open(tmp_path):
    rows = [row(), row(fate="late"), row(fate="late", bytes=None)]
    folder = folder_with(tmp_path, rows)
    write_status(folder, status_of(3))
    metrics = Metrics(lambda: Watched(tmp_path).look().counts)
    metrics.edge_round(took_s=0.2)
    metrics.accuracy(0.75)
    with serve_metrics(metrics, 0) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        with pytest.raises(WorkFailed, match=f"127.0.0.1:{port}"), serve_metrics(metrics, port):
            pass
    for wanted in (
        "airprune_rounds_total 1.0",
        'airprune_uploads_total{fate="late"} 2.0',
        'airprune_uploads_total{fate="refused"} 0.0',
        "airprune_upload_bytes_total 200000.0",
        'airprune_nodes_online{role="device"} 2.0',
        'airprune_nodes{role="device"} 3.0',
        'airprune_alerts{kind="missing"} 1.0',
        'airprune_round_seconds_bucket{le="0.3"} 1.0',
        "airprune_accuracy 0.75",
    ):
        assert wanted in lines
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")


# Calibration


def test_a_spread_is_median_and_tenth_and_ninetieth_percentile():
    assert Spread.of([None, *range(11)]) == Spread(median=5.0, low=1.0, high=9.0, count=11)
    assert Spread.of([None]) is None


def test_a_fit_tells_what_would_have_been_predicted_right():
    inputs = {0: dataclasses.replace(INPUTS, seconds_per_sample=(0.001,))}
    [fit] = fit_devices([row()], inputs, lambda samples: 2 * samples)
    assert fit.compute.median == pytest.approx(1.25) and fit.uplink.median == pytest.approx(1.25)
    assert fit.seconds_per_sample == pytest.approx(0.00125)  # 25 % slower than planned with
    assert fit.full_band_rate_bps == pytest.approx(8 * 100_000 / (0.5 * 0.2))
    [without] = fit_devices([row()], {}, lambda samples: 2 * samples)
    assert without.seconds_per_sample == pytest.approx(0.25 / 200)  # of two epochs
    [lost] = fit_devices([row(fate="dropped", compute_s=None, uplink_s=None, bytes=None, rtt_s=None)], inputs, None)
    assert (lost.compute, lost.uplink, lost.rtt_s) == (None, None, None)
    assert (lost.full_band_rate_bps, lost.seconds_per_sample) == (1e7, 0.001)  # as planned


def test_the_calibrated_table_predicts_what_was_measured(yard, tmp_path, command):
    table = tmp_path / "network.csv"
    status, out, _ = command("deploy", "calibrate", str(yard), "--out", str(table), "--json")
    assert status == 0
    told = json.loads(out)
    network = read_network(table)
    assert network.device_names == tuple(f"device-{n}" for n in range(4))
    scenario = tiny(network__table=str(table))
    rates = full_band_rates(network, scenario.build_radio(), seed=0)
    wanted = [device["full_band_rate_bps"] for device in told["devices"]]
    np.testing.assert_allclose(rates, wanted, rtol=1e-12)  # there and back through the SNR
    experiment = Experiment.of(scenario)
    whole = np.full(4, float(experiment.shape.num_weights))
    seconds = experiment.compute.training_s(whole, np.arange(4), network.cpu_hz)
    per_sample = [device["seconds_per_sample"] for device in told["devices"]]
    np.testing.assert_allclose(seconds, per_sample * experiment.data_sizes, rtol=1e-12)  # one epoch
    assert next(iter(ap.run(scenario)))["kind"] == "edge"


def test_calibrate_prints_the_command_and_widens_a_band_that_rates_would_not_fit_into(tmp_path, command):
    pretend(tmp_path / "fast")
    folder = RunFolder(tmp_path / "fast")
    folder.measured_file.write_bytes(b"")
    MeasuredLog(folder, next_round=0).measured([row(uplink_s=1e-6, bytes=10**6)])  # loopback
    status, out, err = command("deploy", "calibrate", str(folder.path), "--out", str(tmp_path / "n.csv"))
    assert status == 0 and "1.25 ×" in out
    wanted = f"airprune run {folder.scenario_file} network.table={tmp_path / 'n.csv'} radio.bandwidth_hz=1.6e+12"
    assert wanted in err
    assert next(
        iter(ap.run(tiny(network__table=str(tmp_path / "n.csv"), radio__bandwidth_hz=1.6e12, plan__deadline_s=1.0)))
    )


def test_a_rate_that_no_band_carries_is_refused(tmp_path):
    (tmp_path / "n.csv").write_text("device,edge,full_band_rate_bps\na,0,1e12\n")
    with pytest.raises(UsageError, match=r"must be ≤ 100, got 50000 .*Set radio\.bandwidth_hz"):
        next(iter(ap.run(tiny(network__table=str(tmp_path / "n.csv")))))


# Status


def test_status_tells_who_is_online_and_how_predictions_fare(yard, command):
    status, out, _ = command("deploy", "status", str(yard))
    assert status == 0 and "does not answer" not in out
    assert "yard, yard-seed0: ended, global round 2 of 2" in out and "3 of 4 devices, 2 of 2 edges" in out
    line = next(line for line in out.splitlines() if line.startswith("device-0"))
    assert "edge-0" in line and "yes" in line and "1.0" in line
    status, out, _ = command("deploy", "status", str(yard), "--json")
    told = json.loads(out)
    assert told["is_stale"] is False and len(told["nodes"]) == 6
    assert 0.9 < told["measured_over_predicted"]["device-0"]["uplink"]["median"] < 1.15


def test_status_says_that_the_cloud_does_not_answer_and_escapes_names(tmp_path, command):
    pretend(tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    found = status_of(2, age_s=33)
    hostile = dataclasses.replace(found.nodes[2], name="[red]x[/red]\x1b[2J")
    write_status(folder, dataclasses.replace(found, nodes=(hostile,)))
    status, out, _ = command("deploy", "status", str(folder.path))
    assert status == 0 and "The cloud does not answer: its last status is 33" in out
    assert "[red]x[/red]" in out and "\x1b" not in out
    folder.status_file.unlink()
    status, _, err = command("deploy", "status", str(folder.path))
    assert status == 2 and "has no status.json" in err
    status, _, err = command("deploy", "status", str(tmp_path / "nowhere"))
    assert status == 2 and "give the cloud's run folder or kit" in err


def test_status_works_before_the_first_round_and_says_why_a_node_is_missing(tmp_path, command):
    found = status_of(2, state="waiting")
    missing = dataclasses.replace(found.nodes[2], online=False, trouble="Its certificate was revoked.")
    write_status(RunFolder(tmp_path), dataclasses.replace(found, global_round=None, nodes=(missing,)))
    status, out, _ = command("deploy", "status", str(tmp_path))
    assert status == 0 and "waiting for nodes" in out and "device-0: Its certificate was revoked." in out


def test_a_node_that_was_removed_holds_no_model(tmp_path, command):
    cloud = make_federation(tmp_path / "lab", num_edges=1, devices_per_edge=2)[0]
    registry = registry_of(cloud / "state")
    registry.deliver(registry.submit(name="x", scenario="", settings={}).number, "final")
    for name in ("e0", "d0", "d1"):
        registry.note_held(name, 1, "")
    remove(tmp_path / "lab", "d1")
    left = tuple(dataclasses.replace(status_of(2).nodes[0], name=name) for name in ("e0", "d0"))
    write_status_file(cloud / "state/status.json", dataclasses.replace(status_of(2), nodes=left))
    view = Watched(cloud / "state").look()
    assert [one.name for one in view.held] == ["d0", "e0"] and view.counts.holders == 2
    status, out, _ = command("deploy", "models", str(cloud), "--json")
    assert status == 0 and [one["name"] for one in json.loads(out)["held"]] == ["d0", "e0"]


# Replay


@pytest.mark.usefixtures("blank_pictures")
def test_a_replay_ends_in_the_deployments_records_and_model_to_the_bit(yard, tmp_path, command):
    fates = [fate for record in RunFolder(yard).records() for fate in record.get("fate", [])]
    assert len(set(fates)) >= 3 and "ok" in fates  # there was something to repeat
    status, _, err = command("run", "--replay", str(yard), "--engine", "serial", "--out", str(tmp_path / "again"))
    assert status == 0, err
    assert final_bytes(tmp_path / "again") == final_bytes(yard)
    assert f"Bit for bit: records and final model are those of {yard}." in err
    simulated = list(ap.run(RunFolder(yard).scenario()))
    assert simulated != RunFolder(yard).records()  # which the scenario alone would not give


def test_a_replay_of_methods_with_memory_and_codes_is_bitwise_too(tmp_path):
    changes = {"compression__name": "top-k", "aggregation__cloud_step": "momentum", "rounds__edge_rounds": 2}
    folder = pretend(tmp_path / "run", **changes)
    for _ in ap.run(RunFolder(folder).scenario(), out=tmp_path / "again", replay=folder):
        pass
    assert final_bytes(tmp_path / "again") == final_bytes(folder)


def test_a_replay_repeats_predicted_downlinks_of_the_devices_that_were_there(tmp_path):
    folder = pretend(tmp_path / "run", radio__downlink="broadcast", clock__idle_power_w=1.0)
    assert RunFolder(folder).records()[-1]["downlink_bits"] > 0.0
    for _ in ap.run(RunFolder(folder).scenario(), out=tmp_path / "again", replay=folder):
        pass
    assert final_bytes(tmp_path / "again") == final_bytes(folder)


def test_a_replay_of_a_run_that_goes_on_stops_where_it_does_and_says_so(tmp_path):
    records = pretended_records(tmp_path / "run", tiny(rounds__global_rounds=3))
    for _ in range(4):
        next(records)
    records.close()
    replay = ap.run(RunFolder(tmp_path / "run").scenario(), replay=tmp_path / "run")
    with pytest.raises(WorkFailed, match=r"let the deployment go on, or replay with rounds\.global_rounds=1"):
        list(replay)
    whole = list(ap.run(tiny(rounds__global_rounds=1), replay=tmp_path / "run"))
    assert whole == RunFolder(tmp_path / "run").records()[:3]


def test_what_cannot_be_replayed_is_refused_in_a_sentence(yard, tmp_path, command):
    status, _, err = command("run", "--replay", str(tmp_path / "nowhere"))
    assert (status, err) == (
        2,
        f"error: {tmp_path}/nowhere holds no run; give the run folder of `airprune deploy cloud`.\n",
    )
    for _ in ap.run(tiny(), out=tmp_path / "plain"):
        pass
    with pytest.raises(UsageError, match=r"no inputs\.jsonl"):
        ap.run(tiny(), replay=tmp_path / "plain")
    with pytest.raises(WorkFailed, match="does not fit the scenario"):
        list(ap.run(tiny(network__devices_per_edge=1), replay=yard))


def test_an_edge_that_went_away_is_out_of_its_global_round_in_the_replay_too(tmp_path):
    deployed = list(pretended_records(tmp_path / "run", tiny(), gone={1: 1}))
    replayed = list(ap.run(tiny(), replay=tmp_path / "run"))
    assert replayed == deployed
    assert replayed != list(pretended_records(tmp_path / "other", tiny()))
