"""Local training as components: against plain torch on one device, and the same bytes wherever it runs."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import airprune as ap
from airprune.errors import AirpruneError, InvalidValue, UnknownName, UsageError
from airprune.methods.augmentations.images import Images
from airprune.methods.loops import Loop
from airprune.methods.loops.steps import Steps
from airprune.methods.optimisers import OPTIMISERS
from airprune.methods.optimisers.by_name import ByName
from airprune.methods.schedules import SCHEDULES
from airprune.methods.schedules.base import Progress
from airprune.models.catalogue import MLP
from airprune.models.losses import LOSSES, loss_named
from airprune.rounds.device import clip, device_round
from airprune.rounds.local import Streams, minibatches
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.rates import StepRates
from support.one_device import device
from support.tiny import blobs, final_bytes, tiny_scenario

SAMPLES, RATE = np.arange(60), 0.05
TIGHT = 0.0003  # prunes about half


def ours(one, keep=None, rate=RATE):
    """(received state, upload) of device 3 in the first round."""
    start = one.model.state.numpy().copy()
    keep = one.model.prunable_weights if keep is None else keep
    orders = Orders(device=3, keep=keep, learning_rate=rate, round_index=0)
    return start, device_round(one, Broadcast(model=start), orders, samples=SAMPLES, streams=Streams(0, 0, 0))


def plain_torch(one, start, optimizer, rates=None, after_backward=lambda model: None, after_step=lambda model: None):
    """The same round written down with torch alone; returns the state in the order of ours."""
    model = MLP((12,), 4)
    one.model.load(start)
    model.load_state_dict(one.model.module.state_dict())
    made = optimizer(model.parameters())
    (x, y), _ = blobs()
    batches = minibatches(one.settings, None, SAMPLES, Streams(0, 0, 0).batches[3])
    for number, batch in enumerate(batches):
        made.zero_grad()
        F.cross_entropy(model(torch.from_numpy(x[batch])), torch.from_numpy(y[batch])).backward()
        after_backward(model)
        for group in made.param_groups:
            group["lr"] = RATE if rates is None else rates[number]
        made.step()
        after_step(model)
    values = dict(model.named_parameters())
    return np.concatenate([values[part.name].detach().numpy().ravel() for part in one.model.parts])


def clipped_norm(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def clipped_value(model):
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.01)


CASES = {
    "adamw": (
        {"optimizer": OPTIMISERS["adamw"](), "weight_decay": 0.1},
        {"optimizer": lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=0.1)},
    ),
    "adamw with a warm-up of four local steps": (
        {
            "optimizer": OPTIMISERS["adamw"](),
            "step_rates": StepRates(schedule=SCHEDULES["warm-up"](length=4.0, start_ratio=0.2), num_rounds=None),
        },
        {
            "optimizer": lambda p: torch.optim.AdamW(p, lr=RATE, weight_decay=0.0),
            "rates": [0.01, 0.02, 0.03, 0.04, 0.05, 0.05, 0.05, 0.05],
        },
    ),
    "sgd with clipped norms, momentum and decay": (
        {"clip_gradient_norm": 0.5, "momentum": 0.9, "weight_decay": 0.1},
        {
            "optimizer": lambda p: torch.optim.SGD(p, lr=RATE, momentum=0.9, weight_decay=0.1),
            "after_backward": clipped_norm,
        },
    ),
    "sgd with clipped values": (
        {"clip_gradient_value": 0.01},
        {"optimizer": lambda p: torch.optim.SGD(p, lr=RATE), "after_backward": clipped_value},
    ),
    "an optimiser of torch by name": (
        {"optimizer": ByName(kind="NAdam", momentum_decay=0.01), "weight_decay": 0.1},
        {"optimizer": lambda p: torch.optim.NAdam(p, lr=RATE, weight_decay=0.1, momentum_decay=0.01)},
    ),
    "an optimiser that looks at whole tensors": (
        {"optimizer": ByName(kind="Adafactor")},
        {"optimizer": lambda p: torch.optim.Adafactor(p, lr=RATE, weight_decay=0.0)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_round_is_that_of_plain_torch(case):
    settings, reference = CASES[case]
    one = device(**settings)
    start, upload = ours(one)
    trained = upload.state.copy()
    expected = plain_torch(one, start, **reference)
    np.testing.assert_allclose(trained, expected, rtol=2e-5, atol=2e-6)  # float32, eight steps
    assert np.abs(expected - start).max() > 1e-3


def test_frozen_weights_stay_under_decoupled_decay_as_in_plain_torch_with_a_mask():
    one = device(choices={"masking__name": "frozen"}, optimizer=OPTIMISERS["adamw"](), weight_decay=0.5)
    start, upload = ours(one, keep=300)
    trained, kept = upload.state.copy(), upload.mask.copy()
    fixed = np.zeros(one.model.num_state, dtype=bool)
    fixed[one.model.prunable] = ~kept
    parts = {part.name: part for part in one.model.parts}

    def mask(model):
        for name, parameter in model.named_parameters():
            parameter.grad[parts[name].view(torch.from_numpy(fixed))] = 0.0

    def put_back(model):
        for name, parameter in model.named_parameters():
            still = parts[name].view(torch.from_numpy(fixed))
            parameter.data[still] = parts[name].view(torch.from_numpy(start))[still]

    def optimizer(p):
        return torch.optim.AdamW(p, lr=RATE, weight_decay=0.5)

    expected = plain_torch(one, start, optimizer, after_backward=mask, after_step=put_back)
    np.testing.assert_allclose(trained[~fixed], expected[~fixed], rtol=2e-5, atol=2e-6)  # float32
    assert np.all(trained[fixed] == 0.0)  # not sent


def test_the_default_loop_is_what_the_loop_steps_writes_down_in_torch():
    changes = {
        "train__clip_gradient_norm": 1.0,
        "train__momentum": 0.9,
        "train__weight_decay": 0.01,
        "train__schedule": "cosine",
        "train__schedule_unit": "step",
        "model__float64": True,
    }
    scenario = tiny_scenario(plan__deadline_s=TIGHT, **changes)
    ends = [ap.train(scenario, dataset=blobs(), **own).weights for own in ({}, {"train": Steps})]
    for name, weights in ends[0].items():
        np.testing.assert_allclose(weights, ends[1][name], rtol=1e-9, atol=1e-11)  # float64, 64 steps


def test_a_bound_on_gradients_that_none_reaches_changes_no_bit_of_the_native_kernel():
    scenario = ap.Scenario.preset("smoke").with_values(
        {"data.train_samples": 200, "data.test_samples": 50, "engine.name": "serial", "rounds.global_rounds": 1}
        | {"train.momentum": 0.0}
    )
    ends = [ap.train(scenario.with_("train.clip_gradient_norm", bound)).weights for bound in (None, 1e6)]
    assert all(np.array_equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_clipping_scales_to_the_norm_after_the_values():
    gradient = np.array([3.0, -4.0, 0.5])
    clip(gradient, norm=None, value=2.0)
    assert gradient.tolist() == [2.0, -2.0, 0.5]
    clip(gradient, norm=1.0, value=None)
    assert np.linalg.norm(gradient) == pytest.approx(1.0, rel=1e-6)  # torch's 1e-6 beside the norm
    clip(gradient, norm=2.0, value=2.0)
    assert np.linalg.norm(gradient) == pytest.approx(1.0, rel=1e-6)


# Schedules


def test_a_warm_up_rises_linearly_and_then_follows_the_other_schedule():
    warm_up = SCHEDULES["warm-up"](length=4.0, start_ratio=0.2, then="cosine")
    factors = [warm_up.factor(Progress(done=done, total=8)) for done in (0, 1, 2, 4, 6, 7)]
    expected = [0.2, 0.4, 0.6, 1.0, 0.5, (1 + math.cos(0.75 * math.pi)) / 2]
    assert factors == pytest.approx(expected, rel=1e-12)  # closed form


def test_schedules_follow_edge_rounds_and_local_steps_if_told_the_unit():
    by_edge = tiny_scenario(train__learning_rate=0.4, train__schedule="step", train__schedule_unit="edge")
    trained = [ap.trace_round(by_edge, 2, edge, dataset=blobs()).learning_rate for edge in (1, 2)]
    assert trained == pytest.approx([0.1, 0.05], rel=1e-12)  # the third and fourth of four edge rounds
    by_step = tiny_scenario(train__schedule="cosine", train__schedule_unit="step")
    rates = StepRates.of(by_step)
    assert rates.num_rounds == 4
    found = rates.of_steps(1.0, 1, 4)
    assert found == pytest.approx([0.5 * (1 + math.cos(math.pi * (1 + i / 4) / 4)) for i in range(4)], rel=1e-12)


def test_rates_within_a_round_are_refused_where_steps_are_counted_equally():
    for method in ("scaffold", "fednova"):
        scenario = tiny_scenario(method=method, train__schedule="cosine", train__schedule_unit="local-step")
        with pytest.raises(InvalidValue, match=r'schedule_unit must be "global" or "edge" with .* counts all steps'):
            ap.train(scenario, dataset=blobs())


# Augmentations and losses


def test_images_are_mirrored_shifted_and_blurred_by_the_stream_alone():
    x = torch.arange(2.0 * 1 * 4 * 5).reshape(2, 1, 4, 5) + 1
    flips = np.random.default_rng(7).random(2) < 0.5
    flipped = Images(flip=True).apply(x, np.random.default_rng(7))
    for sample, is_flipped in enumerate(flips):
        wanted = x[sample].flip(2) if is_flipped else x[sample]
        assert torch.equal(flipped[sample], wanted)
    down, right = 2 - np.random.default_rng(3).integers(0, 5, size=(2, 2))
    shifted = Images(shift=2, shift_fill=-1.0).apply(x, np.random.default_rng(3))
    for sample in range(2):
        for row in range(4):
            for column in range(5):
                r, c = row - down[sample], column - right[sample]
                inside = 0 <= r < 4 and 0 <= c < 5
                assert shifted[sample, 0, row, column] == (x[sample, 0, r, c] if inside else -1.0)
    noisy = [Images(noise=0.5).apply(torch.zeros(2000, 3), np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert torch.equal(noisy[0], noisy[1]) and not torch.equal(noisy[0], noisy[2])
    assert float(noisy[0].std()) == pytest.approx(0.5, rel=0.05)  # 6000 samples: 1 % by one deviation
    assert torch.equal(x, torch.arange(40.0).reshape(2, 1, 4, 5) + 1)


def test_flips_of_samples_that_are_no_images_are_refused_before_the_first_round():
    with pytest.raises(InvalidValue, match=r"train\.images\.flip must be off for samples that are not images"):
        ap.train(tiny_scenario(train__augmentation="images", train__images__flip=True), dataset=blobs())


def test_a_sum_of_losses_is_their_weighted_sum():
    outputs, targets = torch.tensor([[0.0], [3.0]]), torch.tensor([[1.0], [1.0]])
    mixed = loss_named("0.75 mse + 0.25 huber")
    assert float(mixed.mean(outputs, targets)) == pytest.approx(0.75 * 2.5 + 0.25 * (0.5 + 1.5) / 2)
    assert float(mixed.sum(outputs, targets)) == pytest.approx(2 * float(mixed.mean(outputs, targets)))
    assert loss_named("mse") is LOSSES["mse"] and mixed.metric == "mae"
    (x, _), (test_x, _) = blobs()
    scenario = tiny_scenario(train__loss="0.75 mse + 0.25 huber", train__learning_rate=0.01)
    model = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    last = ap.train(scenario, model=model, dataset=((x, x[:, :1]), (test_x, test_x[:, :1]))).last
    assert last["test_mae"] > 0.0
    with pytest.raises(UnknownName, match="'absent' is unknown"):
        tiny_scenario(train__loss="0.5 mse + 0.5 absent")
    with pytest.raises(InvalidValue, match="sum of different ones with weights > 0"):
        tiny_scenario(train__loss="0.5 mse + 0.5 mse")


# Training functions


def distil(model, batches, context):
    """Steps towards labels and the received model."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=context.learning_rate)
    teacher = context.received_model()
    noise = torch.randn(12, generator=context.generator()) + torch.from_numpy(context.rng.normal(size=12)).float()
    for x, y in batches:
        optimizer.zero_grad()
        outputs = model(x + 0.01 * noise)
        (context.loss(outputs, y) + F.mse_loss(outputs, teacher(x))).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@pytest.fixture(scope="module")
def in_one_go(tmp_path_factory) -> tuple[bytes, bytes]:
    folder = tmp_path_factory.mktemp("serial") / "run"
    list(ap.run(tiny_scenario(plan__deadline_s=TIGHT), out=folder, dataset=blobs(), train=distil))
    return final_bytes(folder)


@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_training_function_ends_in_the_same_bytes_on_any_number_of_workers(workers, in_one_go, tmp_path: Path):
    scenario = tiny_scenario(plan__deadline_s=TIGHT, engine__name="processes", engine__workers=workers)
    list(ap.run(scenario, out=tmp_path / "run", dataset=blobs(), train=distil))
    assert final_bytes(tmp_path / "run") == in_one_go


def test_a_training_function_goes_on_where_it_stopped_to_the_same_bytes(in_one_go, tmp_path: Path):
    scenario, stops = tiny_scenario(plan__deadline_s=TIGHT), 0
    while True:
        own = {"dataset": blobs(), "train": distil, "resume": stops > 0}
        with contextlib.closing(ap.run(scenario, out=tmp_path / "run", **own)) as records:
            if next(records, None) is None:
                break
        stops += 1
    assert stops == 6 and final_bytes(tmp_path / "run") == in_one_go


def test_a_run_with_a_function_is_resumed_with_the_function_only(tmp_path: Path):
    with contextlib.closing(ap.run(tiny_scenario(), out=tmp_path, dataset=blobs(), train=distil)) as records:
        next(records)
    with pytest.raises(UsageError, match=r"train\.loop"):
        list(ap.run(tiny_scenario(), out=tmp_path, dataset=blobs(), resume=True))
    with pytest.raises(InvalidValue, match=r"train\.loop names a function of the script .*run\(…, train=…\)"):
        list(ap.run(tiny_scenario(train__loop="own:distil"), dataset=blobs()))


def test_an_optimiser_of_a_script_is_the_one_of_torch():
    scenario = tiny_scenario(plan__deadline_s=TIGHT, train__learning_rate=0.01)
    by_class = ap.train(scenario, dataset=blobs(), optimizer=torch.optim.NAdam).weights
    by_name = ap.train(
        scenario.with_values({"train.optimizer": "torch", "train.torch.kind": "NAdam"}), dataset=blobs()
    ).weights
    assert all(np.array_equal(by_class[name], by_name[name]) for name in by_class)


def test_the_context_says_what_the_round_is():
    seen = []

    def look(model, batches, context):
        received = {name: tensor.clone() for name, tensor in context.received.items()}
        zeros = {name: (dict(model.named_parameters())[name][~mask] == 0).all() for name, mask in context.mask.items()}
        seen.append((context.device, context.global_round, context.edge_round, context.round_index, context.seed))
        assert context.num_steps == len(batches) == 10 and context.rates == (0.05,) * 10
        assert context.time_left_s == pytest.approx(TIGHT) and all(zeros.values()) and zeros
        teacher = context.received_model()
        for x, y in batches:
            context.loss(model(x), y).backward()
        assert not any(parameter.requires_grad for parameter in teacher.parameters())
        assert all(torch.equal(dict(teacher.named_parameters())[name], received[name]) for name in received)

    changes = {"rounds__global_rounds": 1, "network__num_edges": 1}
    ap.train(tiny_scenario(plan__deadline_s=TIGHT, **changes), dataset=blobs(), train=look)
    assert [place[:4] for place in seen] == [(n, 0, e, e) for e in range(2) for n in range(3)]
    assert len({place[4] for place in seen}) == 6


def shift_all(model, batches, context):
    for x, y in batches:
        context.loss(model(x), y)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1.0)


@pytest.mark.parametrize("masking", ["probe", "frozen"])
def test_what_a_function_does_to_pruned_and_frozen_weights_is_undone(masking):
    one = device(choices={"masking__name": masking}, loop=Loop.of(shift_all)())
    start, upload = ours(one, keep=300)
    prunable, kept = upload.state[one.model.prunable], upload.mask
    assert np.all(prunable[~kept] == 0.0)
    np.testing.assert_allclose(prunable[kept], start[one.model.prunable][kept] + 8.0, rtol=1e-5)  # eight steps


def unchanged_views(model, batches, context):
    for x, y in batches:
        context.loss(model(x), y)
    for parameter in model.parameters():
        parameter.data = parameter.data + 2.0  # new memory
        parameter.requires_grad_(False)
    model.eval()


def test_new_memory_modes_and_flags_of_a_function_are_put_in_order():
    one = device(loop=Loop.of(unchanged_views)())
    start, upload = ours(one)
    np.testing.assert_allclose(upload.state, start + 2.0, rtol=1e-6)
    assert one.model.module.training and all(p.requires_grad for p in one.model.module.parameters())
    again, upload = ours(one)
    np.testing.assert_allclose(upload.state, again + 2.0, rtol=1e-6)


def pass_again(model, batches, context):
    for _ in range(2):
        for x, y in batches:
            context.loss(model(x), y)


def remember(model, batches, context):
    for x, y in batches:
        context.loss(model(x), y)
    model.last_loss = 1.0


def replace_layer(model, batches, context):
    for x, y in batches:
        context.loss(model(x), y)
    model.fc1 = torch.nn.Linear(12, 3)


def sleep(model, batches, context):
    pass


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (pass_again, "must take every minibatch once, got another pass over them"),
        (remember, "must leave nothing in the model, got last_loss of MLP"),
        (replace_layer, "must leave the layers of the model as they are, got a change of fc1"),
        (sleep, "must train on a minibatch at least, got none"),
    ],
)
def test_a_function_that_breaks_a_rule_is_refused_in_a_sentence(function, sentence):
    with pytest.raises(AirpruneError, match=sentence):
        ap.train(tiny_scenario(), dataset=blobs(), train=function)


def test_without_a_recorded_loss_that_of_the_trained_model_is_taken():
    def quiet(model, batches, context):
        for _ in batches:
            pass

    one = device(loop=Loop.of(quiet)())
    start, upload = ours(one)
    one.model.load(start)
    batches = minibatches(one.settings, None, SAMPLES, Streams(0, 0, 0).batches[3])
    assert upload.loss == pytest.approx(one.loss.value(batches[-1]), rel=1e-6)  # nothing has moved


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"objective__name": "prox"}, "loop must be steps with objective 'prox'"),
        ({"diagnostics__gradients": True}, "loop must be steps with diagnostics"),
        ({"method": "fjord"}, "masking 'fjord'"),
    ],
)
def test_what_comes_between_the_steps_does_not_go_with_a_function(changes, sentence):
    with pytest.raises(AirpruneError, match=sentence):
        ap.train(tiny_scenario(**changes), dataset=blobs(), train=distil)


def test_the_native_kernel_refuses_what_needs_the_module_in_a_sentence():
    scenario = ap.Scenario.preset("smoke").with_values({"train.kernel": "native", "engine.name": "serial"})
    for changes in ({"train.loop": "distilled"}, {"train.augmentation": "images"}):
        with pytest.raises(InvalidValue, match="cannot be native: it computes without the torch module"):
            ap.train(scenario.with_values(changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kind": "Adamm"}, r"train\.torch\.kind 'Adamm' is unknown; did you mean 'Adam'"),
        ({"kind": "LBFGS"}, "must make a step from one dense gradient"),
        ({"kind": "SGD", "nesterof": True}, "'nesterof' is unknown; did you mean 'nesterov'"),
        ({"kind": "RMSprop", "lr": 0.1}, r"must be set as train\.learning_rate"),
        ({"kind": "RMSprop", "alpha": -1.0}, "must have arguments that torch accepts"),
    ],
)
def test_wrong_optimisers_of_torch_are_found_before_the_first_round(changes, sentence):
    options = {f"train__torch__{key}": value for key, value in changes.items()}
    with pytest.raises((InvalidValue, UnknownName), match=sentence):
        ap.train(tiny_scenario(train__optimizer="torch", **options), dataset=blobs())
