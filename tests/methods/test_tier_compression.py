"""Codes on the links above the edges: Hier-Local-QSGD and its generalisation to any depth."""

import numpy as np
import pytest
from safetensors.numpy import load_file

import airprune as ap
from airprune.methods.aggregation import AGGREGATIONS
from airprune.methods.compression import COMPRESSIONS
from airprune.methods.topology import Level, Tree
from airprune.planning.periods import best_edge_rounds, local_steps_at
from airprune.randomness import rng_for
from airprune.rounds.cloud import Backhaul, combine_level
from airprune.rounds.experiment import Experiment
from support.tiny import blobs, tiny_scenario

TREE = {"topology__name": "tree", "topology__tree__nodes": [2], "topology__tree__rounds": [2]}
FINE = {
    "compression__name": "quantised",
    "compression__quantised__levels": 2**40,
    "compression__quantised__memory": False,
    "backhaul__name": "quantised",
    "backhaul__quantised__levels": 2**40,
}


def final(folder, **changes):
    settings = {
        "method": "hierfavg",
        "model__float64": True,
        "rounds__global_rounds": 1,
        "train__local_steps": 1,
        **changes,
    }
    for _ in ap.run(tiny_scenario(**settings), out=folder, dataset=blobs()):
        pass
    return load_file(folder / "final.safetensors")


@pytest.mark.parametrize("tree", [{}, TREE], ids=["two levels", "three levels"])
def test_very_many_levels_at_every_tier_are_hierfavg(tree, tmp_path):
    plain, fine = final(tmp_path / "plain", **tree), final(tmp_path / "fine", **tree, **FINE)
    for name, expected in plain.items():
        np.testing.assert_allclose(fine[name], expected, atol=1e-9)
    assert any(np.any(fine[name] != expected) for name, expected in plain.items())


def test_a_parent_moves_by_the_mean_of_its_childrens_quantised_moves():
    """‖x‖ sign(x) (⌊s|x|/‖x‖⌋ + Bernoulli)/s of every child's move, written out once more; by data."""
    experiment = Experiment.of(tiny_scenario(), dataset=blobs())
    shape, levels = experiment.shape, 4
    backhaul = Backhaul(
        compression=COMPRESSIONS["quantised"](levels=levels, norm="l2"),
        wire=experiment.wire,
        shape=shape,
        seed=3,
    )
    rng = np.random.default_rng(0)
    models = rng.normal(size=(3, shape.num_state))
    tree = Tree((Level(name="edge", parent=np.zeros(2, int), rounds=np.ones(2, int), rate_bps=np.full(2, np.inf)),))
    average = AGGREGATIONS["data-weighted"]()
    combined = combine_level(average, tree, models, 0, np.array([1, 3]), backhaul, 7)[0]

    expected = models[0] + sum(share * moved for share, moved in zip((0.25, 0.75), models[1:] - models[0], strict=True))
    expected[shape.is_weight] = models[0][shape.is_weight]
    for node, share in ((0, 0.25), (1, 0.75)):
        uniforms = iter(rng_for(3, "backhaul", 7, 0, node).random(shape.num_weights))
        for tensor in (tensor for tensor in shape.tensors if tensor.counted):
            place = slice(tensor.start, tensor.stop)
            move = models[1 + node][place] - models[0][place]
            length = np.sqrt(np.sum(move**2))
            for entry, x in enumerate(move, start=tensor.start):
                level = levels * abs(x) / length
                level = np.floor(level) + (next(uniforms) < level - np.floor(level))
                expected[entry] += share * length * np.sign(x) * level / levels
    np.testing.assert_allclose(combined, expected, rtol=1e-9, atol=1e-12)


def test_links_are_charged_what_their_code_takes(tmp_path):
    links = {**TREE, "topology__tree__rate_bps": [1e6, 1e6], "rounds__global_rounds": 1, "train__local_steps": 1}
    coarse = {"backhaul__name": "quantised", "backhaul__quantised__levels": 16}
    experiments = [Experiment.of(tiny_scenario(**links, **more), dataset=blobs()) for more in ({}, coarse)]
    weights, tensors = experiments[0].shape.num_weights, experiments[0].wire.num_tensors
    bits = [experiment.backhaul.bits for experiment in experiments]
    assert bits == [64 * weights, 6 * weights + 64 * tensors]  # 1 + ⌈log2 17⌉
    latency = []
    for number, more in enumerate(({}, coarse)):
        records = list(ap.run(tiny_scenario(**links, **more), out=tmp_path / str(number), dataset=blobs()))
        latency.append(records[-1]["latency_s"])
    # Two rounds of the middle level and one of the cloud: three uploads one after the other.
    assert latency[0] - latency[1] == pytest.approx(3 * (bits[0] - bits[1]) / 1e6, rel=1e-9)


def test_links_need_no_memory_and_devices_keep_theirs():
    method = {"compression__name": "top-k", "backhaul__name": "top-k"}
    experiment = Experiment.of(tiny_scenario(**method), dataset=blobs())
    assert [slot.name for slot in experiment.slots] == ["top-k.error"]


def test_a_scenario_without_the_new_keys_has_the_hash_that_it_had():
    scenario = ap.Scenario()
    assert scenario.hash != scenario.with_("backhaul.name", "quantised").hash != scenario.hash
    assert scenario.hash != scenario.with_("train.local_steps", 1).hash
    assert scenario.with_("backhaul.name", "sign").with_("backhaul.name", "cast").hash == scenario.hash


def test_edge_rounds_and_local_steps_of_the_authors_rules():
    assert best_edge_rounds(delay_ratio=10, devices_per_edge=10, edge_share=0.5) == 7  # ⌈√40⌉
    assert best_edge_rounds(delay_ratio=10, devices_per_edge=1, edge_share=0.5) == 1
    assert local_steps_at(10, loss_ratio=0.5) == 8  # ⌈10 √½⌉
    assert local_steps_at(10, loss_ratio=0.5, rate_ratio=2.0) == 10
    assert local_steps_at(10, loss_ratio=0.0) == 1


def decaying(clock=None, **changes):
    """(records, experiment) of five rounds of six devices with 40 samples: two epochs of 16, 16 and 8."""
    values = {"method": "hier-qsgd-decay", "rounds__global_rounds": 5, "rounds__edge_rounds": 1, **(clock or {})}
    scenario = tiny_scenario(**{**values, **changes})
    return list(ap.run(scenario, dataset=blobs())), Experiment.of(scenario, dataset=blobs())


@pytest.mark.parametrize("clock", [{}, {"clock__compute": "flops", "clock__flops_per_cycle": 8.0}])
def test_local_steps_follow_the_loss_and_the_clock_follows_them(clock):
    records, _ = decaying(clock)
    edge = [record for record in records if record["kind"] == "edge"]
    losses = [record["train_loss"] for record in records if record["kind"] == "global"]
    steps = [6] + [min(6, local_steps_at(6, loss_ratio=loss / losses[0])) for loss in losses[:-1]]
    assert steps[-1] < 4
    seen = [sum([16, 16, 8, 16, 16, 8][:count]) for count in steps]
    assert [record["num_samples"] for record in edge] == [6 * count for count in seen]
    first = np.array(edge[0]["compute_s"])
    for record, count, passes in zip(edge, steps, seen, strict=True):
        share = passes / 80 if clock else count / 6
        np.testing.assert_allclose(record["compute_s"], share * first, rtol=1e-12)  # closed form


def test_a_lower_learning_rate_asks_for_more_steps_but_never_for_more_than_at_first():
    """η falls to a hundredth at once, so the rule asks for ten times as many steps as the loss alone."""
    records, _ = decaying(train__schedule="step", train__step_factor=0.01)
    assert {record["num_samples"] for record in records if record["kind"] == "edge"} == {6 * 80}


def test_steps_that_do_not_decay_have_the_hash_that_they_had_and_no_state():
    scenario = ap.Scenario()
    assert scenario.hash != scenario.with_("train.steps_decay", "loss").hash
    assert "steps/losses" not in Experiment.of(tiny_scenario(), dataset=blobs()).initial_state().values
