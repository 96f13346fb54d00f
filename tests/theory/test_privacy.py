"""Clipping, noise, their accountant, and averages that need a least number of devices."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import nn

import airprune as ap
from airprune.deployment.remote import CloudSettings
from airprune.deployment.replay import Replayed
from airprune.errors import InvalidValue, UsageError
from airprune.methods.aggregation import AGGREGATIONS, Aggregation
from airprune.methods.compression.base import Wire
from airprune.models.catalogue import MLP, FlatModel
from airprune.rounds.device import device_round
from airprune.rounds.experiment import Experiment
from airprune.rounds.local import Device, LocalSettings, Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.method import Method
from airprune.rounds.sending import clip, secret_normals
from airprune.rounds.sums import ChunkSum, DeviceStatistics, mean_of_parts
from airprune.rounds.training.chunks import EdgeGroup
from airprune.runs.layout import RunFolder
from airprune.scenario import Scenario
from airprune.theory.privacy import gaussian_delta, gaussian_epsilon, privacy_notes
from support.federation import Tasks
from support.tiny import blobs, final_bytes, last_state, tiny_scenario

PRIVATE = {"privacy.clip_norm": 0.5, "privacy.noise_multiplier": 0.1}
PRUNED = {"plan__min_pruning_ratio": 0.5, "plan__max_pruning_ratio": 0.6}


# The accountant


@pytest.mark.parametrize("mu", [0.1, 0.7, 2.0, 6.0, 14.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_epsilon_is_that_of_the_integrated_gaussian_trade_off(mu, delta):
    """δ(ε) = ∫ max(p − e^ε q, 0) with p = N(μ, 1) and q = N(0, 1): positive beyond x = ε/μ + μ/2."""
    epsilon = gaussian_epsilon(mu, delta)
    start = epsilon / mu + mu / 2

    def excess(x):
        return stats.norm.pdf(x, mu) - math.exp(epsilon + stats.norm.logpdf(x))

    found, _ = integrate.quad(excess, start, start + 15, epsabs=0, epsrel=1e-10, limit=200)
    found += 0.0 if epsilon else -delta  # a mechanism that is better than asked has ε = 0
    assert (found <= 0) if not epsilon else found == pytest.approx(delta, rel=1e-6)  # of a difference of two tails


def test_rounds_compose_as_the_sums_of_their_privacy_losses():
    """The loss of an upload is N(μ₁²/2, μ₁²); its density convolved with itself is that of two and of three."""
    z, rounds, delta, step = 3.0, 3, 1e-4, 1e-3
    mu = 2.0 / z
    grid = np.arange(-12.0, 12.0, step)
    one = stats.norm.pdf(grid, mu**2 / 2, mu) * step
    total, start = one, grid[0]
    for _ in range(rounds - 1):
        total, start = np.convolve(total, one), start + grid[0]
    loss = start + step * np.arange(len(total))
    epsilon = ap.privacy_epsilon(z, rounds, delta)
    found = np.sum(total * np.maximum(1.0 - np.exp(epsilon - loss), 0.0))
    assert found == pytest.approx(delta, rel=1e-3)  # of the grid


@pytest.mark.parametrize(("z", "rounds"), [(0.5, 1), (2.0, 50), (20.0, 1000)])
def test_epsilon_is_below_what_renyi_divergences_give_and_not_far(z, rounds):
    """ε ≤ α ρ + log(1/δ)/(α − 1), best α, with ρ = T μ₁²/2."""
    rho, delta = rounds * (2.0 / z) ** 2 / 2, 1e-5
    by_renyi = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    exact = ap.privacy_epsilon(z, rounds, delta)
    assert 0.75 * by_renyi < exact < by_renyi


def test_epsilon_stays_finite_and_grows_with_rounds_and_less_noise():
    assert ap.privacy_epsilon(0.0, 3) == math.inf
    assert ap.privacy_epsilon(1e9, 1) == ap.privacy_epsilon(1.0, 0) == 0.0
    few, many, loud = ap.privacy_epsilon(2.0, 10), ap.privacy_epsilon(2.0, 11), ap.privacy_epsilon(0.01, 100)
    assert 0 < few < many < loud < math.inf
    assert gaussian_delta(2000.0, loud) <= 1e-5


@pytest.mark.parametrize(
    "arguments", [(-1.0, 3), (1.0, -1), (1.0, 2.5), (math.nan, 3), (1.0, 3, 0.0), (1.0, 3, 1.0), ("x", 3)]
)
def test_the_accountant_refuses_what_makes_no_sense(arguments):
    with pytest.raises(InvalidValue, match=r"privacy_epsilon\."):
        ap.privacy_epsilon(*arguments)


# On the device


def test_a_short_update_is_the_same_array_and_a_long_one_has_the_norm():
    update = np.random.default_rng(0).normal(size=50)
    norm = float(np.linalg.norm(update))
    assert clip(update, norm * 1.001) is update
    short = clip(update, 0.3)
    assert np.linalg.norm(short) == pytest.approx(0.3, rel=1e-12)
    np.testing.assert_allclose(short / 0.3, update / norm, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_an_update_that_is_not_finite_counts_as_none(bad):
    assert not clip(np.array([1.0, bad]), 1.0).any()


def test_secret_noise_is_standard_normal_and_never_twice_the_same():
    drawn = secret_normals(100_001)
    assert drawn.shape == (100_001,) and stats.kstest(drawn, "norm").pvalue > 1e-6
    assert not np.isin(secret_normals(9), drawn).any()


def upload(keep=300, *, secret=False, number=3, choices=None, **settings):
    """(the model that a device received, its upload, the places that it sent)."""
    torch.manual_seed(0)
    (x, y), _ = blobs()
    model = FlatModel(MLP((12,), 4))
    start = model.state_array.copy()
    wire = Wire(value_bits=32.0, num_weights=model.shape.num_weights, num_tensors=2)
    method = Method.of(tiny_scenario(**(choices or {}))).local
    one = Device(model, x, y, LocalSettings(batch_size=16, local_epochs=2, **settings), method, wire)
    orders = Orders(device=number, keep=keep, learning_rate=0.05, round_index=0)
    streams = Streams(7, 1, 2, secret_noise=secret)
    made = device_round(one, Broadcast(model=start), orders, samples=np.arange(60), streams=streams)
    sent = np.ones(len(start), dtype=bool)
    if made.mask is not None:
        sent[model.prunable] = made.mask
    return start, made._replace(state=made.state.copy()), sent


def test_clipping_leaves_small_updates_to_the_bit_and_shortens_large_ones():
    start, plain, sent = upload()
    norm = float(np.linalg.norm((plain.state - start)[sent]))
    _, loose, _ = upload(clip_norm=1.01 * norm)
    assert loose.state.tobytes() == plain.state.tobytes()
    _, tight, _ = upload(clip_norm=0.1 * norm)
    np.testing.assert_array_equal(tight.mask, plain.mask)
    moved = (tight.state - start)[sent]
    assert np.linalg.norm(moved) == pytest.approx(0.1 * norm, rel=1e-5)  # rounded to float32
    np.testing.assert_allclose(moved, 0.1 * (plain.state - start)[sent], atol=1e-6)
    assert not tight.state[~sent].any()


def test_noise_has_the_asked_deviation_on_all_that_is_sent_and_on_nothing_else():
    _, plain, sent = upload(clip_norm=0.25)
    _, noisy, _ = upload(clip_norm=0.25, noise_multiplier=4.0)
    noise = (noisy.state - plain.state)[sent]
    assert stats.kstest(noise, "norm", args=(0.0, 1.0)).pvalue > 1e-3
    assert np.all(noise != 0.0) and not noisy.state[~sent].any()
    assert noisy.loss == plain.loss  # minibatches are the same


def test_seeded_noise_belongs_to_its_device_and_secret_noise_to_nobody():
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0}
    _, one, _ = upload(**settings)
    assert upload(**settings)[1].state.tobytes() == one.state.tobytes()
    seeded = [Streams(7, 1, 2).noise(device, 5) for device in (3, 4)]
    assert not np.isin(*seeded).any()
    hidden = [upload(secret=True, **settings)[1].state.tobytes() for _ in range(2)]
    assert len({one.state.tobytes(), *hidden}) == 3


def test_noise_comes_before_the_code():
    """What is sent is the code of the noisy update: one bit per weight of all of it."""
    choices = {"compression.name": "sign", "compression.sign.memory": False}
    start, made, _ = upload(5000, clip_norm=1.0, noise_multiplier=1.0, choices=choices)
    _, raw, _ = upload(5000, clip_norm=1.0, noise_multiplier=1.0)
    model = FlatModel(MLP((12,), 4))
    weights = model.shape.is_weight
    assert np.mean(np.sign(made.state - start)[weights] == np.sign(raw.state - start)[weights]) == 1.0


# In a run


def run_state(**changes):
    state, records, _ = last_state(tiny_scenario(**changes))
    return state.global_state.tobytes(), records


def test_settings_at_their_defaults_change_neither_bits_nor_hash():
    plain = tiny_scenario(**PRUNED)
    same = plain.with_values({"aggregation.min_contributors": 1, "privacy.noise_from": "device", "privacy.delta": 0.1})
    assert plain.hash == same.hash
    huge = {"privacy__clip_norm": 1e6}
    assert run_state(**PRUNED) == run_state(**PRUNED, aggregation__min_contributors=1)
    assert run_state(**PRUNED)[0] == run_state(**PRUNED, **huge)[0]
    assert plain.hash != plain.with_("privacy.clip_norm", 1e6).hash
    assert plain.hash != plain.with_("aggregation.min_contributors", 2).hash


def test_noise_is_the_same_for_any_number_of_workers(tmp_path: Path):
    scenario = tiny_scenario(**PRUNED).with_values(PRIVATE)
    ends = []
    for name, workers in (("serial", None), ("processes", 2)):
        folder = tmp_path / f"{name}-{workers}"
        changed = scenario.with_values({"engine.name": name, "engine.workers": workers})
        list(ap.run(changed, out=folder, dataset=blobs()))
        ends.append(final_bytes(folder))
    assert ends[0] == ends[1]


def test_a_deployed_device_adds_the_noise_of_its_simulation(tmp_path: Path):
    scenario = Scenario.preset("deployed").with_values(
        {
            **PRIVATE,
            "privacy.noise_from": "seed",
            "aggregation.min_contributors": 2,
            "data.train_samples": 120,
            "data.test_samples": 50,
            "plan.deadline_s": 0.5,
            "radio.bandwidth_hz": 2.0e7,
            "plan.framing": False,
            "engine.name": "serial",
        }
    )
    list(ap.run(scenario, out=tmp_path / "simulated"))
    network = scenario.build_network()
    per_edge = [int((network.edge == edge).sum()) for edge in range(network.num_edges)]
    settings = CloudSettings(measures=False, grace_s=60.0, wait_s=60.0)
    with Tasks(tmp_path / "federation", num_edges=network.num_edges, devices_per_edge=per_edge) as federation:
        federation.start_all()
        list(federation.run_cloud(scenario, tmp_path / "run", settings))
    assert final_bytes(tmp_path / "run") == final_bytes(tmp_path / "simulated")

    folder = RunFolder(tmp_path / "run")
    Replayed(folder)
    hidden = folder.scenario_file.read_text().replace('noise_from = "seed"', 'noise_from = "device"')
    folder.scenario_file.write_text(hidden)
    with pytest.raises(UsageError, match="only its devices knew"):
        Replayed(folder)


# A least number of devices


def edge_result(least: int, states, masks, previous, *, edge="masked-mean", served=None):
    """Three weights, of which the first two are prunable, and a bias-like last one."""
    aggregation = AGGREGATIONS[edge]().at_rate(0.5)
    total = AGGREGATIONS[edge].Sum.zeros(3, slice(0, 2))
    for state, mask in zip(states, masks, strict=True):
        state = aggregation.read(np.array(state), previous)
        total.add(state * np.append(mask, True), np.array(mask), 1.0)
    rows = [(number, 3, 0.0, 0.0, 1.0, 1, 0.0, 0.0, 0.0, 0.0) for number in range(len(states))]
    group = EdgeGroup(
        shared=Broadcast(model=previous),
        tasks=(),
        aggregation=aggregation,
        prunable=slice(0, 2),
        min_contributors=least,
        served_weight=served,
    )
    return group.finish(ChunkSum(total=total, statistics=DeviceStatistics.of(rows)))


STATES = [[1.0, 2.0, 3.0], [3.0, 0.0, 5.0], [5.0, 0.0, 7.0]]
MASKS = [[True, True], [True, False], [True, False]]
BEFORE = np.array([10.0, 20.0, 30.0])


def test_a_weight_that_fewer_than_two_kept_stays_and_is_uncovered():
    one, two = (edge_result(least, STATES, MASKS, BEFORE) for least in (1, 2))
    assert one.combined.tolist() == [3.0, 2.0, 5.0] and one.coverage.num_uncovered == 0
    assert two.combined.tolist() == [3.0, 20.0, 5.0] and two.coverage.num_uncovered == 1
    assert two.held.tolist() == [True, False, True] and two.kept_by.tolist() == [3, 0]
    assert two.coverage.min_count == 3


# Sums of devices that the edge cannot tell apart refuse masks that differ.
@pytest.mark.parametrize("edge", sorted(set(AGGREGATIONS) - {"group-vote", "secure-sum", "over-the-air"}))
def test_every_aggregation_that_counts_devices_keeps_what_too_few_sent(edge):
    served = 4.0 if AGGREGATIONS[edge]().overrides(Aggregation.absent) else None
    one, two = (edge_result(least, STATES, MASKS, BEFORE, edge=edge, served=served) for least in (1, 2))
    assert two.combined[1] == BEFORE[1] != one.combined[1]
    assert two.combined[[0, 2]].tolist() == one.combined[[0, 2]].tolist()


def test_fewer_devices_than_asked_for_move_nothing():
    result = edge_result(4, STATES, MASKS, BEFORE)
    assert result.combined.tolist() == BEFORE.tolist() and not result.held.any()
    now = np.array([1.0, 1.0, 1.0])
    assert mean_of_parts([(0, result), (1, result)], now).combined.tolist() == now.tolist()


def test_a_run_with_as_many_contributors_as_devices_moves_only_what_all_kept():
    _, records, experiment = last_state(tiny_scenario(**PRUNED, aggregation__min_contributors=3, seed=2))
    _, usual, _ = last_state(tiny_scenario(**PRUNED, seed=2))
    covered, before = (next(r for r in found if r["kind"] == "edge")["coverage"] for found in (records, usual))
    assert all(entry["min_count"] == 3 for entry in covered)
    assert all(more["num_uncovered"] > less["num_uncovered"] for more, less in zip(covered, before, strict=True))
    assert experiment.network.num_devices == 6


# What is refused, and what is said


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"privacy.clip_norm": 0.0}, r"Scenario\.privacy\.clip_norm"),
        ({"privacy.clip_norm": "much"}, r"Scenario\.privacy\.clip_norm"),
        ({"privacy.clip_norm": 1.0, "privacy.noise_multiplier": -1.0}, r"Scenario\.privacy\.noise_multiplier"),
        ({"privacy.noise_multiplier": 1.0}, r"noise_multiplier must be 0 without clip_norm"),
        ({"privacy.delta": 1.0}, r"Scenario\.privacy\.delta"),
        ({"aggregation.min_contributors": 0}, r"Scenario\.aggregation\.min_contributors"),
        ({"aggregation.min_contributors": 1.5}, r"Scenario\.aggregation\.min_contributors"),
    ],
)
def test_a_bad_value_is_a_sentence(changes, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        tiny_scenario().with_values(changes)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"aggregation.min_contributors": 7}, r"min_contributors must be at most 6, the number of devices, got 7"),
        (
            {"aggregation.min_contributors": 2, "aggregation.edge": "group-vote"},
            r"must be 1 with aggregation 'group-vote'",
        ),
        ({**PRIVATE, "objective.name": "scaffold"}, r"must be 0 with objective 'scaffold'"),
        ({**PRIVATE, "masking.name": "shared"}, r"must be 0 with masking 'shared'"),
        ({**PRIVATE, "masking.name": "feddst"}, r"must be 0 with masking 'feddst'"),
    ],
)
def test_what_cannot_honour_it_is_refused_before_the_run(changes, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        Experiment.of(tiny_scenario().with_values(changes), dataset=blobs())


def test_a_model_with_running_averages_is_refused():
    model = nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    scenario = tiny_scenario().with_values({**PRIVATE, "model.prunable": ["0"]})
    with pytest.raises(InvalidValue, match=r"clip_norm must be none for a model with buffers"):
        Experiment.of(scenario, dataset=blobs(), model=model)


def test_what_noise_is_worth_and_does_not_cover_is_said():
    quiet = tiny_scenario()
    assert privacy_notes(quiet) == []
    (only,) = privacy_notes(quiet.with_("privacy.clip_norm", 1.0))
    assert "nothing is guaranteed" in only
    noisy = quiet.with_values({"privacy.clip_norm": 1.0, "privacy.noise_multiplier": 8.0})
    worth, warning = privacy_notes(noisy)
    assert f"epsilon = {ap.privacy_epsilon(8.0, 4):.3g} at delta = 1e-05" in worth and "4 edge rounds" in worth
    assert "masking 'probe'" in warning and "not protected" in warning
    for blind in (
        {"masking.name": "fedpt"},
        {"masking.probe.importance": "magnitude"},
        {"plan.max_pruning_ratio": 0.0},
    ):
        assert len(privacy_notes(noisy.with_values(blind))) == 1
    assert privacy_notes(noisy, deployed=True) == [worth, warning]
    assert "hides nothing" in privacy_notes(noisy.with_("privacy.noise_from", "seed"), deployed=True)[-1]


def test_rounds_of_all_levels_of_a_tree_are_counted():
    tree = tiny_scenario(
        **{
            "network__num_edges": 4,
            "topology__name": "tree",
            "topology__tree__nodes": [2],
            "topology__tree__rounds": [3],
        }
    ).with_values(PRIVATE)
    rounds = Experiment.of(tree, dataset=blobs()).num_rounds
    assert rounds == 12 and f"up to {rounds} edge rounds" in privacy_notes(tree)[0]
