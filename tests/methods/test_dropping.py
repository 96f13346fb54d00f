"""Methods that leave out whole units: how many fit, which are chosen, what a step moves, what servers make of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from scipy import optimize, stats
from torch import nn
from torch.nn import functional as F

import airprune as ap
from airprune.components.units import foremost, leading
from airprune.errors import InvalidValue
from airprune.methods.aggregation.masked_sum import aggregate
from airprune.methods.compression.base import Wire
from airprune.methods.masking import MASKINGS
from airprune.methods.masking.afd import KEYS, LOSS, SCORES, learnt, sampled_keys
from airprune.methods.masking.feddrop import flipped
from airprune.methods.masking.fedrolex import window
from airprune.methods.masking.fjord import Fjord
from airprune.methods.masking.widths import weights_at, width_of
from airprune.models.catalogue import MLP, FlatModel, PaperCNN
from airprune.models.losses.classification import together
from airprune.planning import PlanProblem
from airprune.planning.schemes import plan
from airprune.rounds.device import device_round
from airprune.rounds.local import Device, LocalSettings, Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.method import Method
from support.tiny import blobs, timed_rounds, tiny_device, tiny_scenario

pytestmark = pytest.mark.usefixtures("one_thread")


def r3(prunable=()):
    """Three devices of one edge with 300, 240 and 200 Mbit/s: (shape, problem, what fits with equal shares)."""
    shape = FlatModel(PaperCNN(), prunable=prunable).shape
    problem = PlanProblem(
        full_band_rate_bps=np.array([300e6, 240e6, 200e6]),
        seconds_per_weight=40 / 3e9,
        conv_weights=shape.fixed_weights,
        fc_weights=shape.prunable_weights,
        deadline_s=0.030,
    )
    return shape, problem, plan(problem, "equal-resolved").kept_fc_weights


def bought(name, prunable=(), **options):
    shape, problem, budget = r3(prunable)
    return shape, problem, MASKINGS[name](**options).num_kept(budget, shape)


def test_feddrop_keeps_eight_five_and_three_units_in_time():
    shape, problem, keep = bought("feddrop")
    assert (keep // 3_146).tolist() == [8, 5, 3]
    weights = shape.fixed_weights + keep
    assert weights.tolist() == [43_888, 34_450, 28_158]
    latency_ms = 1e3 * weights * (problem.seconds_per_weight + 64 * 3 / problem.full_band_rate_bps)
    assert latency_ms == pytest.approx([28.673493, 28.019333, 27.407120], abs=5e-7)  # six printed digits
    assert bought("feddrop", subnets="uniform")[2].tolist() == [3 * 3_146] * 3


@pytest.mark.parametrize(
    ("name", "prunable", "expected"),
    [
        ("fjord", (), [1, 0.6, 0.2]),
        ("fjord", ("*",), [1, 0.8, 0.8]),
        ("heterofl", (), [1, 0.5, 0.25]),
        ("heterofl", ("*",), [1, 0.5, 0.5]),
        ("fedrolex", ("*",), [1, 0.5, 0.5]),
    ],
)
def test_the_widest_of_the_family_that_meets_the_deadline_is_taken(name, prunable, expected):
    shape, _, keep = bought(name, prunable)
    widths = MASKINGS[name]().widths
    assert [width_of(shape.units, k, widths) for k in keep.tolist()] == expected


def test_fedrolex_window_moves_on_by_one_unit_per_round_and_wraps():
    graph = FlatModel(MLP((4,), 3, 8), prunable=("*",)).shape.units  # one hidden layer of 8 units
    held = [np.flatnonzero(window(graph, 0.5, t)[0]).tolist() for t in (0, 1, 6)]
    assert held == [[0, 1, 2, 3], [1, 2, 3, 4], [0, 1, 6, 7]]
    union = np.any([window(graph, 0.125, t)[0] for t in range(8)], axis=0)
    assert union.all()  # the narrowest width has trained every unit after n rounds


def test_fjords_nested_mean_counts_data_of_those_who_hold_a_unit():
    values = np.array([[1, 2, 0, 0], [5, 0, 0, 0], [3, 4, 6, 0]])
    held = np.arange(4) < np.array([[2], [1], [3]])
    assert aggregate(values, held, np.array([0, 0, 0, 8.0]), weights=[1, 2, 1]).tolist() == [3.5, 3, 6, 8]


def test_coins_keep_each_unit_with_the_share_that_fits_and_never_none():
    graph = FlatModel(MLP((12,), 4, hidden=8)).shape.units
    rng = np.random.default_rng(0)
    kept = np.array([flipped(graph, 0.625, rng)[0] for _ in range(4_000)])
    assert kept.mean(axis=0) == pytest.approx(np.full(8, 0.625), abs=4 * np.sqrt(0.625 * 0.375 / 4_000))
    assert len(set(kept.sum(axis=1).tolist())) > 5  # not an exact number
    assert min(int(flipped(graph, 0.125, rng)[0].sum()) for _ in range(500)) == 1


def test_coins_of_the_server_are_those_of_the_devices_and_make_some_late():
    values = {"method": "feddrop-bernoulli", "plan.deadline_s": 3e-4, "radio.fading": "rayleigh"}
    rounds, experiment = timed_rounds(tiny_scenario(**values))  # a run checks that charged bits are sent bits
    assert not experiment.method.masking.adapts
    total_s = np.concatenate([timed.total_s for timed in rounds])
    assert np.any(total_s > 3e-4) and np.any(total_s < 3e-4)
    planned, streams = rounds[0].planned, Streams(experiment.scenario.seed, 0, 0)
    for n in np.flatnonzero(planned.in_plan):
        device = int(planned.device[n])
        units = flipped(experiment.shape.units, planned.mask[device], streams.masking[device])
        assert planned.keep[n] == 16 * units[0].sum()


def test_coins_for_everybody_at_once_are_refused():
    with pytest.raises(InvalidValue, match=r"masking.feddrop.draw must be exact with subnets = uniform, got bernoulli"):
        tiny_scenario(method="feddrop-uniform", masking__feddrop__draw="bernoulli")


def test_kept_units_count_for_the_dropped_ones_on_average():
    """h = (2, 4, 6), v = (1, −1, 2): two of three units give −3, 21 and 12, on average the whole output 10."""
    graph = FlatModel(nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 1))).shape.units
    scale = graph.leaving([3 / 2])
    outputs = []
    for gone in (2, 1, 0):
        mask = graph.mask([np.arange(3) != gone])
        read = (mask * scale)[3:] * [1, -1, 2]
        outputs.append(float(read @ [2, 4, 6]))
    assert outputs == [-3, 21, 12] and np.mean(outputs) == 10


def test_ordered_dropout_of_a_linear_net_ends_in_the_truncated_svd():
    """Every width of U V at the optimum of the mean loss over widths is the best matrix of its rank."""
    target = np.random.default_rng(0).normal(size=(6, 4))
    graph = FlatModel(nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 6, bias=False))).shape.units
    masks = [graph.mask(leading(graph, p)) for p in (0.25, 0.5, 0.75, 1.0)]
    first, second = graph.layers.layers

    def loss(weights):
        value, gradient = 0.0, np.zeros_like(weights)
        for mask in masks:
            v, u = first.matrix(weights * mask), second.matrix(weights * mask)
            error = u @ v - target
            value += 0.5 * np.square(error).sum()
            gradient += mask * np.concatenate([(u.T @ error).ravel(), (error @ v.T).ravel()])
        return value, gradient

    start = np.random.default_rng(1).normal(size=40)
    found = optimize.minimize(loss, start, jac=True, options={"maxiter": 5_000, "gtol": 1e-10}).x
    left, singular, right = np.linalg.svd(target)
    for rank, mask in enumerate(masks, start=1):
        best = left[:, :rank] * singular[:rank] @ right[:rank]
        assert second.matrix(found * mask) @ first.matrix(found * mask) == pytest.approx(best, abs=1e-3)


def drawn_units(name, width, rng, graph):
    return foremost(graph, width, rng.random(graph.num_units))[0] if name == "feddrop" else leading(graph, width)[0]


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(("name", "momentum"), [("feddrop", 0.5), ("heterofl", 0.5), ("fjord", 0.0)])
def test_a_device_trains_as_if_it_had_only_its_units(name, momentum, small, monkeypatch):
    """Against a loop over really narrow matrices with scaled activations; trained small, and with zeros."""
    if not small:
        monkeypatch.setattr(Device, "smaller", lambda self, kept: None)
    one = tiny_device(name, {} if name == "feddrop" else {"widths": [0.25, 0.5, 1.0]}, momentum=momentum)
    shape, start = one.shape, one.model.state_array.copy()
    graph, keep = shape.units, weights_at(shape.units, 0.5)
    orders = Orders(device=3, keep=keep, learning_rate=0.1, round_index=0)
    received = Broadcast(model=start, mask=np.array([1.0]) if name == "heterofl" else None)  # another has all units
    upload = device_round(one, received, orders, samples=np.arange(60), streams=Streams(0, 0, 0))

    streams = Streams(0, 0, 0)
    rng, draws = streams.batches[3], streams.masking[3]
    held = drawn_units(name, 0.5, draws, graph)
    assert held.sum() == 4
    whole = {part.name: torch.from_numpy(part.view(start).copy()) for part in one.model.parts}
    parameters = {
        "fc1.weight": whole["fc1.weight"][held],
        "fc1.bias": whole["fc1.bias"][held],
        "fc2.weight": whole["fc2.weight"][:, held],
        "fc2.bias": whole["fc2.bias"],
    }
    leaves = [tensor.clone().requires_grad_() for tensor in parameters.values()]
    speeds = [torch.zeros_like(leaf) for leaf in leaves]
    x, y = one.loss.x, one.loss.y
    for _ in range(2):
        order = rng.permutation(np.arange(60))
        for begin in range(0, 60, 16):
            batch = torch.from_numpy(order[begin : begin + 16])
            units = 4 if name != "fjord" else (2, 4)[int(draws.integers(2))]
            w1, b1, w2, b2 = leaves
            hidden = torch.relu(F.linear(x[batch], w1[:units], b1[:units])) * (1.0 if name == "fjord" else 2.0)
            loss = F.cross_entropy(F.linear(hidden, w2[:, :units], b2), y[batch])
            for leaf, speed, gradient in zip(leaves, speeds, torch.autograd.grad(loss, leaves), strict=True):
                speed.mul_(momentum).add_(gradient)
                leaf.data.sub_(speed, alpha=0.1)
    mask = graph.mask([held])
    assert np.array_equal(upload.mask, mask)
    trained = {part.name: part.view(upload.state) for part in one.model.parts}
    ours = trained["fc1.weight"][held], trained["fc1.bias"][held], trained["fc2.weight"][:, held], trained["fc2.bias"]
    for array, leaf in zip(ours, leaves, strict=True):
        assert array == pytest.approx(leaf.detach().numpy(), rel=1e-9, abs=1e-12)  # float64, two orders of summation


class Measured(nn.Module):
    """Says how long its flattened map is, so it cannot be made narrower."""

    def __init__(self):
        super().__init__()
        self.map, self.out = nn.Conv2d(1, 4, 3), nn.Linear(4 * 676, 3)

    def forward(self, x):
        return self.out(torch.relu(self.map(x)).reshape(-1, 4 * 676))


@pytest.mark.parametrize(
    ("build", "is_small"),
    [
        (PaperCNN, True),
        (Measured, False),
        (
            lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(2704, 3)),
            False,
        ),
    ],
)
def test_a_smaller_model_ends_where_the_whole_one_with_zeros_does(build, is_small, monkeypatch):
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    model = FlatModel(build(), prunable=("*",), float64=True)
    x, y = rng.normal(size=(24, 1, 28, 28)), rng.integers(3, size=24)
    method = Method.of(tiny_scenario(**{"masking.name": "feddrop"})).local
    wire = Wire(value_bits=64.0, num_weights=model.shape.num_weights, num_tensors=4)
    one = Device(model, x, y, LocalSettings(batch_size=8, local_epochs=1, momentum=0.5), method, wire)
    start, graph = model.state_array.copy(), model.shape.units
    assert (one.smaller(graph.kept(graph.mask(leading(graph, 0.5)))) is not None) == is_small
    orders = Orders(device=1, keep=weights_at(graph, 0.5), learning_rate=0.05, round_index=0)
    ends = []
    for smaller in (Device.smaller, lambda self, kept: None):
        monkeypatch.setattr(Device, "smaller", smaller)
        upload = device_round(one, Broadcast(model=start), orders, samples=np.arange(24), streams=Streams(0, 0, 0))
        ends.append((upload.state.copy(), upload.loss, upload.mask))
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-9, abs=1e-12)  # float64, another order of summation
    assert ends[0][1] == pytest.approx(ends[1][1], rel=1e-12) and np.array_equal(ends[0][2], ends[1][2])


def test_a_step_of_fjord_leaves_wider_units_where_they_were_whatever_the_momentum():
    one = tiny_device("fjord", {"widths": [0.25, 1.0]}, momentum=0.9, weight_decay=0.1)
    start = one.model.state_array.copy()
    seen = []

    class WideFirst(Fjord):
        """Wide in the first step only."""

        def choose(self, view):
            graph = view.shape.units
            masks = [graph.mask(leading(graph, width)) for width in (1.0, 0.25)]

            def forward(step, weights):
                seen.append(weights.copy())
                return masks[min(step, 1)]

            return replace(super().choose(view), forward=forward)

    one.method = replace(one.method, masking=WideFirst(widths=one.method.masking.widths))
    orders = Orders(device=0, keep=one.shape.prunable_weights, learning_rate=0.1, round_index=0)
    upload = device_round(one, Broadcast(model=start), orders, samples=np.arange(60), streams=Streams(0, 0, 0))
    wide = ~one.shape.units.mask(leading(one.shape.units, 0.25))
    assert not np.array_equal(seen[0][wide], seen[1][wide])
    assert np.array_equal(upload.state[one.model.prunable][wide], seen[1][wide])


def test_a_score_is_the_relative_fall_of_the_loss_and_a_rise_draws_anew():
    rng, kept = np.random.default_rng(0), np.array([True, False, True, False, True, False])
    state = {SCORES: np.zeros(6), KEYS: np.zeros(6), LOSS: np.zeros(1)}
    first = learnt(state, kept, 2.0, rng)
    assert not first[SCORES].any() and sorted(first[KEYS].tolist()) == list(range(6))
    second = learnt(first, kept, 1.5, rng)
    assert np.array_equal(second[SCORES], 0.25 * kept) and np.array_equal(second[KEYS], first[KEYS])
    third = learnt(second, kept, 1.6, rng)
    assert np.array_equal(third[SCORES], second[SCORES]) and not np.array_equal(third[KEYS], second[KEYS])
    assert set(np.argsort(-third[KEYS])[:3].tolist()) == {0, 2, 4}  # those with a score first
    assert third[LOSS][0] == 1.6


def test_units_without_scores_are_drawn_alike_and_scored_ones_in_proportion():
    rng = np.random.default_rng(0)
    count = sum(sampled_keys(np.zeros(8), rng) >= 5 for _ in range(10_000))
    assert stats.chisquare(count).pvalue > 0.01
    first = sum(sampled_keys(np.array([0.1, 0.3, 0.6, 0.0]), rng) == 3 for _ in range(2_000))
    assert first[3] == 0 and stats.chisquare(first[:3], 2_000 * np.array([0.1, 0.3, 0.6])).pvalue > 0.01


def test_who_cannot_carry_the_smallest_sub_model_is_left_out():
    changes = {"masking.name": "heterofl", "masking.heterofl.widths": [0.5, 1.0], "rounds.global_rounds": 1}
    scenario = tiny_scenario(**changes, **{"plan.scheme": "equal-resolved", "plan.deadline_s": 3.6e-4})
    record = next(iter(ap.run(scenario, dataset=blobs())))
    assert set(record["fate"]) == {"ok", "blocked"}
    assert set(record["kept_weights"]) == {0, 512}
    total_s = [a + b for a, b in zip(record["compute_s"], record["uplink_s"], strict=True) if a is not None]
    assert max(total_s) <= 3.6e-4 * (1 + 1e-9)


def test_the_small_model_is_hierfavg_of_a_really_smaller_model(tmp_path):
    """Trained, averaged and judged: the leading 32 of 64 hidden units, as a model of their own."""
    both = {"model.float64": True, "rounds.global_rounds": 2, "rounds.edge_rounds": 1}
    values = {**both, "method": "small-model", "masking.small-model.width": 0.5}
    large = MLP((12,), 4)
    small = MLP((12,), 4, hidden=32)
    with torch.no_grad():
        small.fc1.weight[:], small.fc1.bias[:] = large.fc1.weight[:32], large.fc1.bias[:32]
        small.fc2.weight[:], small.fc2.bias[:] = large.fc2.weight[:, :32], large.fc2.bias
    ends = []
    for name, module, changes in (("ours", large, values), ("theirs", small, {**both, "method": "hierfavg"})):
        records = list(ap.run(tiny_scenario(**changes), dataset=blobs(), model=module, out=tmp_path / name))
        ends.append((records[-1], load_file(tmp_path / name / "final.safetensors")))
    (ours, weights), (theirs, expected) = ends
    assert ours["test_accuracy"] == theirs["test_accuracy"]
    assert ours["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-9)  # float64, another order of summation
    assert ours["uploaded_weights"] == theirs["uploaded_weights"]
    assert weights["fc1.weight"][:32] == pytest.approx(expected["fc1.weight"], rel=1e-9, abs=1e-12)
    assert not weights["fc1.weight"][32:].any() and not weights["fc2.weight"][:, 32:].any()


def test_the_size_that_all_carry_in_the_first_round_stays_for_the_run():
    scenario = tiny_scenario(**{"method": "small-model", "radio.fading": "rayleigh", "plan.deadline_s": 4e-4})
    kept = [record["kept_weights"] for record in ap.run(scenario, dataset=blobs()) if "kept_weights" in record]
    sizes = {weights for record in kept for weights in record if weights}
    assert len(kept) == 4 and len(sizes) == 1 and 0 < sizes.pop() < 1_024


def test_a_model_without_visible_units_is_refused_in_one_sentence():
    scenario = tiny_scenario(**{"masking.name": "feddrop"})
    with pytest.raises(InvalidValue, match=r"masking.name can leave out units only where .* it has none\. Name layers"):
        next(iter(ap.run(scenario, dataset=blobs(), model=nn.Linear(12, 4))))


def test_members_of_an_ensemble_predict_the_mean_of_their_probabilities():
    probabilities = torch.tensor([[[0.6, 0.4]], [[0.2, 0.8]]], dtype=torch.float64)
    logits = probabilities.log() + torch.tensor([[[3.0]], [[-5.0]]])  # a constant of every member's own changes nothing
    assert together(logits).exp().numpy() == pytest.approx(np.array([[0.4, 0.6]]), rel=1e-12)


def test_an_ensemble_of_one_is_the_small_model_and_of_twins_is_one_of_them(tmp_path):
    values = {"masking.small-model.width": 0.5, "rounds.evaluate_every": "edge"}
    ends = {}
    for name, changes in (
        ("small-model", {}),
        ("one", {"method": "small-ensemble", "topology.ensemble.members": 1}),
        ("many", {"method": "small-ensemble"}),
    ):
        scenario = tiny_scenario(**{"method": "small-model", **changes, **values})
        records = list(ap.run(scenario, dataset=blobs(), out=tmp_path / name))
        accuracy = [(record["test_loss"], record["test_accuracy"]) for record in records if "test_loss" in record]
        ends[name] = accuracy, load_file(tmp_path / name / "final.safetensors"), records[-1]["uploaded_bits"]
    assert ends["one"][0] == ends["small-model"][0]
    assert all(np.array_equal(ends["one"][1][key], array) for key, array in ends["small-model"][1].items())
    many = ends["many"][1]
    assert sorted({key.split(".")[0] for key in many}) == ["0", "1"] and ends["many"][2] == ends["one"][2]
    assert not np.array_equal(many["0.fc1.weight"], many["1.fc1.weight"])  # nobody averaged them
    twins = together(torch.from_numpy(many["0.fc1.weight"]).expand(3, -1, -1))
    assert twins.softmax(-1).numpy() == pytest.approx(
        torch.from_numpy(many["0.fc1.weight"]).softmax(-1).numpy(), rel=1e-5
    )
