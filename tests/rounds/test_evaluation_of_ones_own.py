"""Evaluation beyond one number: further metrics, vectors per class, devices' own test samples, callbacks, targets."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn

import airprune as ap
from airprune.data import as_dataset
from airprune.errors import InvalidValue, UnknownName
from airprune.models.losses.per_class import class_accuracy, class_f1, f1
from airprune.results.time_to_target import cost, evaluations_in
from airprune.rounds.experiment import Experiment
from airprune.rounds.fairness import fairness
from airprune.runs.layout import RunFolder

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 6)).astype(np.float32)
Y = X[:, :3].argmax(axis=1)
OWNER = np.arange(300) % 4
TEST = (X[200:], Y[200:])
OWNED = as_dataset(((X[:200], Y[:200]), TEST), owner=OWNER[:200], test_owner=OWNER[200:])


def scenario(**changes):
    values = {"engine.name": "serial", "rounds.global_rounds": 2, "model.name": "mlp", "train.learning_rate": 0.05}
    return ap.Scenario.preset("smoke").with_values({**values, **changes})


def predictions(weights, model):
    model.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
    with torch.no_grad():
        return model(torch.tensor(TEST[0])).argmax(1).numpy()


def module():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def test_scores_of_classes_have_their_hand_values():
    # predictions 0 0 1 1 3, labels 0 1 1 2 1
    outputs = torch.eye(4)[[0, 0, 1, 1, 3]]
    targets = torch.tensor([0, 1, 1, 2, 1])
    accuracy = class_accuracy(outputs, targets)
    assert accuracy[:3].tolist() == pytest.approx([1, 1 / 3, 0]) and torch.isnan(accuracy[3])
    # 2 · correct / (samples + predictions): 2/(1+2), 2/(3+2), 0/(1+0), 0/(0+1)
    assert class_f1(outputs, targets).tolist() == pytest.approx([2 / 3, 2 / 5, 0, 0])
    assert float(f1(outputs, targets)) == pytest.approx((2 / 3 + 2 / 5) / 4)


def test_further_metrics_are_recorded_beside_the_losss_own_and_match_the_trained_model():
    def wrong(outputs, targets):
        return (outputs.argmax(1) != targets).float().mean()

    def wrong_of_each(outputs, targets):
        return torch.stack([(outputs.argmax(1) != targets)[targets == c].float().mean() for c in range(3)])

    done = ap.train(scenario(), model=module(), dataset=((X[:200], Y[:200]), TEST), metric=[wrong, wrong_of_each, "f1"])
    guess = predictions(done.weights, module())
    assert done.last["test_accuracy"] == pytest.approx(np.mean(guess == TEST[1]))
    assert done.last["test_wrong"] == pytest.approx(np.mean(guess != TEST[1]))
    expected = [np.mean(guess[TEST[1] == c] != c) for c in range(3)]
    assert done.last["test_wrong_of_each"] == pytest.approx(expected)
    assert 0 < done.last["test_f1"] <= 1 and "test_wrong=" in repr(done)


def test_further_metrics_change_no_other_value():
    plain = ap.train(scenario(), dataset=OWNED).last
    more = ap.train(scenario(**{"evaluation.metrics": ["class-f1"], "evaluation.devices": True}), dataset=OWNED).last
    assert {key: more[key] for key in plain} == plain and set(more) > set(plain)


def test_accuracy_stays_beside_a_loss_of_ones_own():
    def smooth(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1)

    done = ap.train(scenario(), model=module(), dataset=((X[:200], Y[:200]), TEST), loss=smooth)
    assert done.last["test_accuracy"] == pytest.approx(np.mean(predictions(done.weights, module()) == TEST[1]))

    def margin(outputs, targets):
        return (outputs[:, 0] - targets).square().mean()

    no_scores = ap.train(scenario(), model=nn.Linear(6, 1), dataset=((X[:200], Y[:200]), TEST), loss=margin)
    assert "test_accuracy" not in no_scores.last and no_scores.last["test_loss"] > 0


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_devices_are_evaluated_on_their_owners_test_samples(engine):
    changes = {"data.partition": "natural", "evaluation.devices": True, "engine.name": engine, "engine.workers": 1}
    done = ap.train(scenario(**changes), model=module(), dataset=OWNED)
    right = predictions(done.weights, module()) == TEST[1]
    expected = [right[OWNER[200:] == n].mean() for n in range(4)]  # owner n is device n
    assert done.last["test_accuracy_by_device"] == pytest.approx(expected)
    assert done.last["test_accuracy_by_edge"] == pytest.approx(
        [right[OWNER[200:] < 2].mean(), right[OWNER[200:] > 1].mean()]
    )
    assert done.last["test_accuracy_mean"] == pytest.approx(np.mean(expected))
    assert done.last["test_accuracy_worst_tenth"] == pytest.approx(min(expected))


def test_devices_without_owners_are_evaluated_on_samples_like_their_own():
    one = scenario(**{"data.partition": "shards", "data.classes_per_device": 1, "evaluation.devices": True})
    data = as_dataset(((X[:200], Y[:200]), TEST))
    experiment = Experiment.of(one, dataset=data)
    for mine, tested in zip(experiment.samples, experiment.held_out, strict=True):
        assert set(data.test_y[tested]) == set(data.train_y[mine])


def test_own_layers_count_in_a_devices_value():
    changes = {
        "model.personal": ["last"],
        "method": "hierfavg",
        "evaluation.devices": True,
        "data.partition": "natural",
    }
    *_, last = ap.run(scenario(**changes), dataset=OWNED)
    assert len(last["test_accuracy_by_device"]) == 4


def test_a_device_without_test_samples_has_no_value_and_many_devices_have_no_list():
    data = as_dataset(((X[:200], Y[:200]), TEST), owner=OWNER[:200], test_owner=np.arange(100) % 3)
    changes = {"data.partition": "natural", "evaluation.devices": True}
    *_, last = ap.run(scenario(**changes), dataset=data)
    assert last["test_accuracy_by_device"][3] is None and None not in last["test_accuracy_by_device"][:3]
    *_, brief = ap.run(scenario(**changes, **{"records.devices": 2}), dataset=data)
    assert "test_accuracy_by_device" not in brief and brief["test_accuracy_jain"] == last["test_accuracy_jain"]


def test_fairness_has_its_hand_values():
    values = np.array([0.5, 1.0, np.nan, 0.0])
    found = fairness(values)
    assert found == pytest.approx({"mean": 0.5, "std": math.sqrt(1 / 6), "worst_tenth": 0.0, "jain": 2.25 / (3 * 1.25)})
    assert fairness(values, smaller_is_better=True)["worst_tenth"] == 1.0
    assert fairness(np.arange(1.0, 21.0))["worst_tenth"] == 1.5  # the mean of the two worst of twenty
    assert fairness(np.full(5, 0.3))["jain"] == pytest.approx(1) and fairness(np.zeros(3))["jain"] == 1.0
    assert fairness(np.full(2, np.nan)) == {}


def test_callbacks_see_the_model_of_every_global_round():
    seen, events = [], []

    class Watcher(ap.Callback):
        def take(self, record):
            events.append(record["kind"])

        def see(self, record, model):
            events.append("model")
            seen.append((record["test_accuracy"], predictions(model, module())))

    def compare(record, model):
        assert all(not array.flags.writeable for array in model.values())
        events.append("function")

    done = ap.train(scenario(), model=module(), dataset=((X[:200], Y[:200]), TEST), callbacks=[Watcher(), compare])
    assert [accuracy for accuracy, _ in seen] == pytest.approx([np.mean(guess == TEST[1]) for _, guess in seen])
    assert len(seen) == 2 and events[-3:] == ["global", "model", "function"]
    assert not np.array_equal(seen[0][1], seen[1][1])  # a model of an earlier round stays as it was
    np.testing.assert_array_equal(seen[1][1], predictions(done.weights, module()))


def test_a_callback_that_sees_the_model_may_stop_the_run():
    def stop(record, model):
        raise ap.StopRun("enough")

    done = ap.train(scenario(), model=module(), dataset=((X[:200], Y[:200]), TEST), callbacks=[stop])
    assert len(done.global_records) == 1 and done.weights


def test_time_to_a_target_works_for_any_recorded_metric(tmp_path):
    changes = {"rounds.global_rounds": 4, "evaluation.metrics": ["f1"]}
    done = ap.train(scenario(**changes), dataset=OWNED, out=tmp_path / "run")
    times, values = done.curve("test_f1")
    assert done.time_to(values[2], "test_f1") == times[np.flatnonzero(values >= values[2])[0]]
    losses = done.curve("test_loss")[1]
    assert done.time_to(losses[1], "test_loss") == times[np.flatnonzero(losses <= losses[1])[0]]
    assert done.time_to(2.0, "test_f1") == math.inf
    tests = evaluations_in(RunFolder(tmp_path / "run"), "test_f1")
    assert cost(tests, values[2], "time_to_target_s") == done.time_to(values[2], "test_f1")
    losses_of = evaluations_in(RunFolder(tmp_path / "run"), "test_loss")
    assert cost(losses_of, losses[1], "time_to_target_s", smaller_is_better=True) == done.time_to(
        losses[1], "test_loss"
    )


def test_vectors_are_in_records_and_tables_and_end_a_run_by_a_metric(tmp_path):
    changes = {"evaluation.metrics": ["class-f1", "f1"], "evaluation.devices": True, "stop.metric": "test_f1"}
    done = ap.train(scenario(**changes, **{"stop.target": 0.01}), dataset=OWNED, out=tmp_path / "run")
    assert "test_f1" in done.last["stopped"]
    lines = [json.loads(line) for line in (tmp_path / "run/records.jsonl").read_text().splitlines()]
    assert len(lines[-1]["test_class_f1"]) == 3
    assert len(ap.load_runs(tmp_path / "run")) > 0


@pytest.mark.parametrize(
    ("options", "kind", "sentence"),
    [
        ({"metric": lambda outputs, targets: outputs.sum(0)}, InvalidValue, r"must give one number.*metric=\[…\]"),
        ({"metric": [lambda outputs, targets: "no"]}, InvalidValue, "run.metric must give numbers, got str"),
        ({"metric": [3]}, InvalidValue, "must be a function of"),
    ],
)
def test_metrics_that_give_no_numbers_are_refused_in_a_sentence(options, kind, sentence):
    with pytest.raises(kind, match=sentence):
        list(ap.run(scenario(), model=module(), dataset=OWNED, **options))


def test_unknown_metrics_are_refused_and_functions_must_be_given_again():
    with pytest.raises(UnknownName, match=r"evaluation.metrics.*did you mean 'f1'"):
        scenario(**{"evaluation.metrics": ["f11"]})
    with pytest.raises(InvalidValue, match="each metric once"):
        scenario(**{"evaluation.metrics": ["f1", "f1"]})
    with pytest.raises(InvalidValue, match=r"evaluation.metrics names a function.*metric=\[…\]"):
        list(ap.run(scenario(**{"evaluation.metrics": ["own:mine"]}), dataset=OWNED))


def test_a_vector_cannot_be_the_one_metric_of_a_scenario():
    with pytest.raises(InvalidValue, match=r"train.metric must be one number, got 'class-f1'.*evaluation.metrics"):
        scenario(**{"train.metric": "class-f1"})
