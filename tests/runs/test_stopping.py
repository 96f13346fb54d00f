"""Early stopping, extending a finished run, and starting from weights: by settings and by callbacks."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import airprune as ap
from airprune.errors import InvalidValue, UsageError
from airprune.methods.outcome import GlobalOutcome
from airprune.rounds.parts import BestMetric, why_stop
from airprune.scenario.sections import StopSection
from support.tiny import blobs, tiny_scenario

pytestmark = pytest.mark.usefixtures("one_thread")
DATA = blobs()


def run(out=None, callbacks=(), resume=False, extend=False, **changes):
    scenario = tiny_scenario(**changes)
    return ap.train(scenario, dataset=DATA, out=out, callbacks=callbacks, resume=resume, extend=extend)


def weights(folder, name="final"):
    return load_file(folder / f"{name}.safetensors")


def same(first, second):
    return first.keys() == second.keys() and all(np.array_equal(first[key], second[key]) for key in first)


def followed(values, **stop):
    """The reasons after each global round, given a metric's values."""
    section = StopSection(**stop)
    part = BestMetric(section.metric, section.direction, section.min_improvement)
    state, reasons = part.initial_values(), []
    for number, value in enumerate(values, start=1):
        record = {
            "global_round": number,
            "time_s": number,
            "uploaded_bits": 1.0,
            "energy_j": 1.0,
            section.metric: value,
        }
        state |= part.after_global_round(GlobalOutcome(num_devices=1, record=record), state)
        reasons.append(why_stop(section, record, state["stop/best"]))
    return [bool(reason) for reason in reasons]


def test_patience_counts_rounds_since_the_best_value():
    assert followed([0.5, 0.6, 0.6, 0.55, 0.7], patience=2) == [False, False, False, True, False]
    assert followed([0.5, 0.505, 0.509], patience=2, min_improvement=0.01) == [False, False, True]
    assert followed([0.5, float("nan"), None], patience=2) == [False, False, True]


def test_a_loss_counts_downwards_unless_the_setting_says_otherwise():
    assert followed([2.0, 1.0, 0.4], metric="test_loss", target=0.5) == [False, False, True]
    assert followed([2.0, 1.0, 0.4], metric="test_loss", target=1.5, smaller_is_better=False) == [True, False, False]
    assert followed([0.2, 0.8], target=0.8) == [False, True]


@pytest.mark.parametrize("key", ["time_s", "uploaded_bits", "energy_j"])
def test_a_budget_ends_the_run_with_the_round_that_uses_it_up(tmp_path, key):
    whole = run(rounds__global_rounds=4)
    spent = [record[key] for record in whole.global_records]
    found = run(tmp_path / "x", rounds__global_rounds=4, **{f"stop__{key}": (spent[0] + spent[1]) / 2})
    assert [record[key] for record in found.global_records] == spent[:2]
    assert found.last["stopped"].startswith(key) and (tmp_path / "x" / "final.safetensors").exists()
    shorter = run(tmp_path / "two", rounds__global_rounds=2)
    assert same(found.weights, shorter.weights)  # nothing depends on rounds that were never run


def test_resuming_a_run_that_was_stopped_runs_nothing(tmp_path):
    run(tmp_path, rounds__global_rounds=4, stop__time_s=1e-12)
    again = run(tmp_path, resume=True, rounds__global_rounds=4, stop__time_s=1e-12)
    assert again.records == ()


def test_a_callback_ends_a_run_with_its_model(tmp_path):
    def at_two(record):
        if record["kind"] == "global" and record["global_round"] == 2:
            raise ap.StopRun("enough")

    found = run(tmp_path / "stopped", callbacks=[at_two], rounds__global_rounds=5)
    assert len(found.global_records) == 2
    assert same(weights(tmp_path / "stopped"), run(tmp_path / "two", rounds__global_rounds=2).weights)
    assert run(tmp_path / "stopped", resume=True, rounds__global_rounds=5).records == ()


def test_the_best_model_is_kept_beside_the_last(tmp_path):
    found = run(tmp_path, rounds__global_rounds=5, stop__keep_best=True, train__learning_rate=0.5)
    accuracy = [record["test_accuracy"] for record in found.global_records]
    best = int(np.argmax(accuracy)) + 1
    shorter = run(rounds__global_rounds=best, train__learning_rate=0.5)
    assert same(weights(tmp_path, "best"), shorter.weights)


@pytest.mark.parametrize("method", ["adaptive-pruning", "scaffold", "sign"])
def test_a_run_that_was_extended_ends_in_the_bytes_of_the_long_one(tmp_path, method):
    run(tmp_path / "x", method=method, rounds__global_rounds=2)
    more = run(tmp_path / "x", extend=True, method=method, rounds__global_rounds=4)
    long = run(tmp_path / "long", method=method, rounds__global_rounds=4)
    assert len(more.global_records) == 2
    assert same(weights(tmp_path / "x"), weights(tmp_path / "long"))
    assert (tmp_path / "x" / "records.jsonl").read_bytes() == (tmp_path / "long" / "records.jsonl").read_bytes()
    assert same(weights(tmp_path / "x", "final-2"), run(method=method, rounds__global_rounds=2).weights)
    assert long.last["time_s"] == more.last["time_s"]


def test_a_stopped_run_can_be_trained_on(tmp_path):
    run(tmp_path / "x", rounds__global_rounds=4, stop__time_s=1e-12)
    run(tmp_path / "x", extend=True, rounds__global_rounds=4, stop__patience=9)
    assert same(weights(tmp_path / "x"), run(rounds__global_rounds=4).weights)


def test_an_extension_that_was_killed_on_the_way_is_finished_by_the_same_call(tmp_path, monkeypatch):
    from airprune.runs import extending

    run(tmp_path / "x", rounds__global_rounds=2)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(extending.files, "replacing", killed)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "x", extend=True, rounds__global_rounds=3)
    run(tmp_path / "x", extend=True, rounds__global_rounds=3)
    assert same(weights(tmp_path / "x"), run(rounds__global_rounds=3).weights)


def test_only_rounds_and_stopping_may_differ(tmp_path):
    run(tmp_path / "x", rounds__global_rounds=2)
    with pytest.raises(UsageError, match=r"train\.batch_size is 16 there, 8 here"):
        run(tmp_path / "x", extend=True, rounds__global_rounds=3, train__batch_size=8)
    with pytest.raises(UsageError, match=r"rounds\.global_rounds must be at least 2"):
        run(tmp_path / "x", extend=True, rounds__global_rounds=1)
    with pytest.raises(UsageError, match="holds no run"):
        run(tmp_path / "none", extend=True)
    assert (tmp_path / "x" / "final.safetensors").exists()


def test_a_run_starts_from_the_weights_of_another(tmp_path):
    first = run(tmp_path / "x", rounds__global_rounds=2)
    found = run(model__start=str(tmp_path / "x"), rounds__global_rounds=1, train__learning_rate=1e-30)
    for name, array in first.weights.items():
        np.testing.assert_allclose(found.weights[name], array, rtol=1e-6)  # averages of equal float32 numbers
    save_file({"fc1.weight": np.zeros((2, 2), dtype=np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(InvalidValue, match=r"must have tensor .* of shape"):
        run(model__start=str(tmp_path / "other.safetensors"))
    with pytest.raises(InvalidValue, match="must be a safetensors file or the folder of a finished run"):
        run(model__start=str(tmp_path / "none"))


def test_weights_count_in_the_hash_by_their_content(tmp_path):
    for number in range(2):
        save_file({"w": np.full(3, float(number), dtype=np.float32)}, tmp_path / f"{number}.safetensors")
    hashes = {tiny_scenario(model__start=str(tmp_path / f"{n}.safetensors")).hash for n in (0, 1)}
    assert len(hashes) == 2 and tiny_scenario().hash not in hashes


def test_early_stopping_needs_evaluated_rounds():
    with pytest.raises(InvalidValue, match=r"rounds\.evaluate_every"):
        run(stop__patience=2, rounds__evaluate_every="never")
