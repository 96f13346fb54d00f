"""A trace shows the round that really happened: the run is unchanged, and the arrays add up."""

import numpy as np
import pytest

import airprune as ap
from airprune.errors import InvalidValue, WorkFailed
from airprune.models.kernels import native
from airprune.rounds.experiment import Experiment
from airprune.rounds.training import worker
from airprune.runs.driver import records_of
from airprune.runs.trace import Observer
from support.tiny import blobs, tiny_file, tiny_scenario

HALF = {"plan__min_pruning_ratio": 0.5}


def traced(changes, global_round=1, edge_round=1):
    return ap.trace_round(tiny_scenario(**changes), global_round, edge_round, dataset=blobs())


def whole_run(scenario, dataset, observer):
    """(records, trained weights as bytes) of a run to its end with one round observed."""
    going, records = records_of(Experiment.of(scenario, dataset=dataset), None, observer, watch=observer.watch), []
    while True:
        try:
            records.append(next(going))
        except StopIteration as end:
            return records, {name: array.tobytes() for name, array in end.value.items()}


def untraced_run(scenario, dataset):
    done = ap.train(scenario, dataset=dataset)
    return list(done.records), {name: array.tobytes() for name, array in done.weights.items()}


@pytest.mark.parametrize(
    "changes",
    [
        HALF,
        HALF | {"train__momentum": 0.9},
        {"method": "sign"},
        {"method": "scaffold"},
        {"method": "feddst"},
        {"method": "japp"},
        {"topology__name": "flat"},
        {"topology__name": "tiers", "rounds__edge_rounds": 4},
        {"topology__name": "tree", "topology__tree__nodes": [1], "topology__tree__rounds": [2]},
        HALF | {"events__dropout_probability": 0.5, "rounds__evaluate_every": "edge"},
    ],
    ids=str,
)
def test_a_traced_run_ends_in_the_bytes_of_an_untraced_one(changes):
    scenario, observer = tiny_scenario(**changes), Observer(2, 1)
    assert whole_run(scenario, blobs(), observer) == untraced_run(scenario, blobs())
    assert (observer.trace.global_round, observer.trace.edge_round) == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("method", ap.METHODS)
def test_every_method_is_traced_without_a_difference(method, tmp_path):
    scenario, observer = tiny_scenario(method=method), Observer(2, 1)
    assert whole_run(scenario, blobs(), observer) == untraced_run(scenario, blobs())
    with np.load(observer.trace.save(tmp_path / "trace.npz"), allow_pickle=False) as file:
        assert np.array_equal(file["upload"], observer.trace.upload, equal_nan=True)


@pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}")
def test_a_chunk_that_is_trained_at_once_is_traced_device_by_device_with_the_same_bits(monkeypatch, one_thread):
    """The paper's own way to train, which shows no single device."""
    at_once, done = worker.train_at_once, []

    def watched(*arguments, **options):
        done.append(at_once(*arguments, **options) is not None)
        return at_once(*arguments, **options)

    monkeypatch.setattr(worker, "train_at_once", watched)
    small = {"data.train_samples": 60, "data.test_samples": 10, "train.momentum": 0.0, "rounds.global_rounds": 2}
    scenario = ap.Scenario.preset("smoke").with_values({**small, "train.kernel": "native", "engine.name": "serial"})
    expected = untraced_run(scenario, None)
    assert len(done) >= 8 and all(done)
    observer, chunks = Observer(1, 2), len(done)
    assert whole_run(scenario, None, observer) == expected
    assert len(done) == 2 * chunks - len(set(observer.trace.group.tolist()))
    assert np.isfinite(observer.trace.upload).all()


def test_the_numbers_of_a_trace_are_those_of_the_round_s_record():
    changes = HALF | {"events__dropout_probability": 0.4, "plan__deadline_s": 0.02}
    trace = traced(changes, 2, 1)
    records = ap.train(tiny_scenario(**changes), dataset=blobs()).records
    (record,) = (r for r in records if r["kind"] == "edge" and (r["global_round"], r["edge_round"]) == (2, 1))
    same = {
        "device": trace.device,
        "edge": trace.edge,
        "fate": trace.outcome,
        "bandwidth_share": trace.bandwidth_share,
        "pruning_ratio": trace.pruning_ratio,
        "kept_weights": trace.kept_weights,
        "compute_s": trace.compute_s,
        "uplink_s": trace.uplink_s,
        "loss": [None if np.isnan(loss) else loss for loss in trace.loss],
    }
    for name, values in same.items():
        assert list(record[name]) == list(values), name
    assert record["uploaded_bits"] == trace.upload_bits[trace.outcome == "ok"].sum()


def test_sums_and_edge_models_are_those_of_the_uploads():
    trace = traced(HALF | {"aggregation__edge": "data-weighted", "data__size_spread": 0.7}, 1, 2)
    assert len(set(trace.weight)) > 1
    for group, edge in enumerate(trace.group_edge):
        rows = np.flatnonzero(trace.group == group)
        m = np.ones((len(rows), trace.upload.shape[1]))
        m[:, slice(*trace.prunable)] = trace.sent[rows]
        total = np.einsum("n,nw->w", trace.weight[rows], trace.upload[rows].astype(np.float64) * m)
        weight = np.einsum("n,nw->w", trace.weight[rows], m)
        assert np.allclose(trace.group_sum[group], total, rtol=1e-12, atol=1e-12)  # float64 in another order
        assert np.allclose(trace.group_weight[group], weight, rtol=1e-12)
        mean = np.where(weight > 0, total / np.maximum(weight, 1e-9), trace.edge_before[edge])
        assert np.allclose(trace.edge_combined[edge], mean, rtol=1e-6, atol=1e-8)  # stored in float32
        assert np.array_equal(trace.edge_after[edge], trace.edge_combined[edge])
        assert np.array_equal(trace.edge_kept_by[edge], trace.sent[rows].sum(axis=0))
    assert np.array_equal(trace.group_received, trace.edge_before[trace.group_edge])
    assert np.allclose(trace.cloud_after, np.average(trace.edge_after, axis=0, weights=trace.edge_weight), rtol=1e-6)


def test_rounds_follow_each_other():
    first, second, third = traced(HALF, 1, 1), traced(HALF, 1, 2), traced(HALF, 2, 1)
    assert np.array_equal(first.edge_after, second.edge_before)
    assert first.cloud_after is None and np.array_equal(second.cloud_after, third.cloud_before)
    assert all(np.array_equal(second.cloud_after, model) for model in third.edge_before)


def test_masks_and_minibatches_are_those_of_the_devices():
    trace = traced(HALF)
    assert np.array_equal(trace.sent.sum(axis=1), trace.kept_weights)
    assert np.array_equal(trace.held, trace.sent) and np.array_equal(trace.moves, trace.sent)
    for row in range(len(trace.device)):
        samples, visited = trace.samples_of(row), np.concatenate(trace.minibatches_of(row))
        assert np.array_equal(np.sort(visited), np.sort(np.tile(samples, 2)))  # two epochs
        assert all(len(batch) <= 16 for batch in trace.minibatches_of(row))
        x, y = trace.samples(samples)
        (train_x, train_y), _ = blobs()
        assert np.array_equal(x, train_x[samples]) and np.array_equal(y, train_y[samples])
        assert not trace.upload[row, slice(*trace.prunable)][~trace.sent[row]].any()


def test_a_method_that_keeps_weights_without_training_them_has_two_masks():
    trace = traced({"method": "frozen-pruning"} | HALF)
    assert trace.held.all() and not trace.moves.all()


def test_tensors_of_a_vector_have_the_names_and_shapes_of_the_module():
    scenario = ap.Scenario.preset("smoke").with_values({"data.train_samples": 60, "rounds.global_rounds": 1})
    trace = ap.trace_round(scenario, 1, 2)
    trained = ap.train(scenario.with_("engine.name", "serial")).weights
    tensors = trace.named(trace.cloud_after)
    assert tensors.keys() == trained.keys()
    for name, array in tensors.items():
        assert array.shape == trained[name].shape and np.array_equal(array, trained[name]), name
    assert np.count_nonzero(trace.is_weight) == 43_888


def test_persistent_state_of_devices_is_shown_before_and_after():
    first, second = traced({"method": "sign"}), traced({"method": "sign"}, 1, 2)
    (name,) = first.memory_before
    assert not first.memory_before[name].any() and first.memory_after[name].any(axis=1).all()
    assert np.array_equal(first.memory_after[name], second.memory_before[name])
    assert "scaffold.common" in traced({"method": "scaffold"}, 2).broadcast


def test_a_flat_topology_has_one_edge_and_its_model_is_the_clouds():
    trace = traced(HALF | {"topology__name": "flat", "rounds__edge_rounds": 1})
    assert len(trace.edge_before) == 1 and set(trace.edge) == {0}
    assert np.array_equal(trace.edge_after[0], trace.cloud_after)


def test_devices_that_begin_earlier_start_from_an_earlier_model():
    changes = {"topology__name": "tiers", "rounds__edge_rounds": 6, "plan__deadline_s": 0.02}
    trace = next(t for n in range(2, 7) if (t := traced(changes, 1, n)).group_lag.any())
    group = int(np.argmax(trace.group_lag))
    began = traced(changes, 1, trace.edge_round - int(trace.group_lag[group]))
    assert np.array_equal(trace.group_received[group], began.edge_before[trace.group_edge[group]])


def test_a_dropped_device_has_samples_but_no_minibatches_and_no_upload():
    trace = traced(HALF | {"events__dropout_probability": 0.5})
    dropped = trace.outcome == "dropped"
    assert 0 < dropped.sum() < len(dropped)
    assert np.array_equal(trace.group < 0, dropped)
    for row in np.flatnonzero(dropped):
        assert len(trace.samples_of(row)) and trace.minibatches_of(row) == []
        assert np.isnan(trace.upload[row]).all() and not trace.sent[row].any() and np.isnan(trace.received(row)).all()
    visited = [batch for row in np.flatnonzero(~dropped) for batch in trace.minibatches_of(row)]
    assert np.array_equal(np.concatenate(visited), trace.visited)


def test_a_round_without_an_upload_leaves_every_edge_as_it_was(tmp_path):
    trace = traced({"events__dropout_probability": 1.0}, 1, 2)
    assert not len(trace.group_edge) and not len(trace.sample) and np.isnan(trace.edge_combined).all()
    assert np.array_equal(trace.edge_after, trace.edge_before)
    assert trace.minibatches_of(0) == [] and trace.save(tmp_path / "empty.npz").exists()


def test_a_device_that_fails_is_shown_as_failed(monkeypatch):
    usual = worker.device_round

    def fails(device, received, orders, **rest):
        if orders.device == 1:
            raise RuntimeError("no more power")
        return usual(device, received, orders, **rest)

    monkeypatch.setattr(worker, "device_round", fails)
    monkeypatch.setattr(worker, "together", lambda *_: None)
    changes = HALF | {"engine__on_device_failure": "drop-device", "train__momentum": 0.5}
    trace = traced(changes)
    assert trace.outcome.tolist() == ["ok", "failed", "ok", "ok", "ok", "ok"] and trace.group[1] == -1


def test_the_round_that_diverges_can_be_traced_and_a_later_one_cannot():
    changes = {"train__learning_rate": 1e30}
    trace = traced(changes)
    assert not np.isfinite(trace.edge_after).all() and trace.cloud_after is not None
    with pytest.raises(ap.Diverged, match="Training diverged in edge round 1"):
        traced(changes, 2, 1)


def test_a_saved_trace_is_read_without_pickle(tmp_path):
    trace = traced({"method": "sign"}, 1, 2)
    path = trace.save(tmp_path / "folder" / "trace.npz")
    with np.load(path, allow_pickle=False) as file:
        read = {name: file[name] for name in file}
    assert read.keys() == trace.arrays().keys()
    for name, array in trace.arrays().items():
        assert np.array_equal(read[name], array, equal_nan=array.dtype.kind == "f"), name
    assert ap.Scenario.from_text(str(read["scenario"])).hash == trace.scenario.hash
    assert read["memory_after/sign.error"].shape[0] == len(trace.device)
    with pytest.raises(WorkFailed, match="was not written"):
        trace.save(tmp_path)


def test_a_trace_is_one_line_when_shown():
    assert repr(traced(HALF)) == (
        "RoundTrace('custom', global round 1, edge round 1, 6 uploads of 6 devices, 2 edges, "
        "models of 1,092 entries in float32)"
    )


@pytest.mark.parametrize(
    ("rounds", "sentence"),
    [
        ((3, 1), "trace_round.global_round must be a whole number ≥ 1 and ≤ 2, got 3."),
        ((0, 1), "trace_round.global_round must be a whole number ≥ 1 and ≤ 2, got 0."),
        ((1, 3), "trace_round.edge_round must be a whole number ≥ 1 and ≤ 2, got 3."),
        ((1, -1), "trace_round.edge_round must be a whole number ≥ 1, got -1."),
        ((1, 1.5), "trace_round.edge_round must be a whole number ≥ 1, got 1.5."),
    ],
)
def test_a_round_beyond_the_schedule_is_refused_in_one_sentence(rounds, sentence):
    with pytest.raises(InvalidValue) as refused:
        traced({}, *rounds)
    assert str(refused.value) == sentence


def test_the_command_writes_the_same_trace(command, tmp_path):
    file, out = tiny_file(tmp_path), tmp_path / "trace.npz"
    status, printed, said = command("trace", file, "seed=3", "--global-round", 2, "--edge-round", 2, "--out", out)
    assert (status, printed) == (0, f"{out}\n") and "global round 2, edge round 2" in said
    expected = ap.trace_round(ap.Scenario.load(file).with_("seed", 3), 2, 2)
    with np.load(out) as read:
        assert np.array_equal(read["cloud_after"], expected.cloud_after)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.toml", "trace.npz"]


def test_the_command_refuses_a_round_beyond_the_schedule(command, tmp_path):
    status, printed, said = command("trace", tiny_file(tmp_path), "--edge-round", 9, "--out", tmp_path / "trace.npz")
    assert (status, printed) == (2, "") and not (tmp_path / "trace.npz").exists()
    assert said == "error: trace_round.edge_round must be a whole number ≥ 1 and ≤ 2, got 9.\n"
