"""FjORD with distillation: what a step moves, what it costs, and which width fits once that is charged."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import airprune as ap
from airprune.errors import InvalidValue
from airprune.methods.masking import MASKINGS
from airprune.methods.masking.fjord_kd import FjordKd
from airprune.methods.masking.widths import weights_at
from airprune.models.catalogue import FlatModel, PaperCNN
from airprune.models.kernels import KERNELS, kernel_for
from airprune.rounds.device import device_round
from airprune.rounds.local import Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.wireless.device_speed.work import SecondPass
from support.tiny import blobs, timed_rounds, tiny_device, tiny_scenario

pytestmark = pytest.mark.usefixtures("one_thread")

DISTILLED = {"masking.name": "fjord-kd", "plan.scheme": "equal-resolved"}


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_step_adds_the_gradients_of_the_teacher_and_of_what_it_teaches(momentum):
    """Against a loop over really narrow matrices: 4 units learn from labels, 2 or 4 from what those predict."""
    one = tiny_device("fjord-kd", {"widths": [0.25, 0.5, 1.0]}, momentum=momentum)
    start, graph = one.model.state_array.copy(), one.shape.units
    orders = Orders(device=3, keep=weights_at(graph, 0.5), learning_rate=0.1, round_index=0)
    upload = device_round(one, Broadcast(model=start), orders, samples=np.arange(60), streams=Streams(0, 0, 0))

    streams = Streams(0, 0, 0)
    rng, draws = streams.batches[3], streams.masking[3]
    whole = {part.name: torch.from_numpy(part.view(start).copy()) for part in one.model.parts}
    parameters = whole["fc1.weight"][:4], whole["fc1.bias"][:4], whole["fc2.weight"][:, :4], whole["fc2.bias"]
    leaves = [tensor.clone().requires_grad_() for tensor in parameters]
    speeds = [torch.zeros_like(leaf) for leaf in leaves]

    def outputs(x, units):
        w1, b1, w2, b2 = leaves
        return F.linear(torch.relu(F.linear(x, w1[:units], b1[:units])), w2[:, :units], b2)

    drawn = []
    for _ in range(2):
        order = rng.permutation(np.arange(60))
        for begin in range(0, 60, 16):
            batch = torch.from_numpy(order[begin : begin + 16])
            drawn.append((2, 4)[int(draws.integers(2))])
            x, y = one.loss.x[batch], one.loss.y[batch]
            widest = outputs(x, 4)
            loss = F.cross_entropy(widest, y)
            loss = loss + F.cross_entropy(outputs(x, drawn[-1]), widest.detach().softmax(dim=1))
            for leaf, speed, gradient in zip(leaves, speeds, torch.autograd.grad(loss, leaves), strict=True):
                speed.mul_(momentum).add_(gradient)
                leaf.data.sub_(speed, alpha=0.1)
    assert set(drawn) == {2, 4}
    trained = {part.name: part.view(upload.state) for part in one.model.parts}
    ours = trained["fc1.weight"][:4], trained["fc1.bias"][:4], trained["fc2.weight"][:, :4], trained["fc2.bias"]
    for array, leaf in zip(ours, leaves, strict=True):
        assert array == pytest.approx(leaf.detach().numpy(), rel=1e-9, abs=1e-12)  # float64, another order of sums


@pytest.mark.parametrize(
    ("prunable", "weights"),
    [((), [25_012, 31_304, 34_450, 40_742, 43_888]), (("*",), [2_176, 8_295, 16_805, 30_308, 43_888])],
)
def test_a_step_is_charged_the_widest_model_and_the_mean_of_those_it_may_teach(prunable, weights):
    shape = FlatModel(PaperCNN(), prunable=prunable).shape
    second = FjordKd().charges(0, shape, 64.0).second_pass
    assert (shape.fixed_weights + second.kept).tolist() == weights
    means = [np.mean(weights[: count + 1]) for count in range(5)]
    assert shape.fixed_weights + second.weights(second.kept) == pytest.approx(means, rel=1e-12)  # one mean


def test_the_clock_takes_the_time_of_both_passes():
    """T C / f · (W(p_max) + mean W(p)) with 64 hidden units of 16 weights each, in every round."""
    scenario = tiny_scenario(
        **{
            **DISTILLED,
            "masking.fjord-kd.widths": [0.25, 0.5, 1.0],
            "radio.fading": "rayleigh",
            "plan.deadline_s": 3e-4,
        }
    )
    second = {256: 256.0, 512: 384.0, 1_024: 1_792 / 3}
    seen = set()
    for record in ap.run(scenario, dataset=blobs()):
        if "kept_weights" not in record:
            continue
        for kept, compute_s in zip(record["kept_weights"], record["compute_s"], strict=True):
            if compute_s is not None:
                seen.add(kept)
                assert compute_s == pytest.approx(40 / 3e9 * (kept + second[kept]), rel=1e-12)  # closed form
    assert len(seen) > 1


def test_the_planners_line_is_never_below_a_second_pass_and_meets_the_smallest():
    rng = np.random.default_rng(0)
    for _ in range(200):
        kept = np.unique(rng.integers(1, 10_000, size=rng.integers(1, 8)))
        means = np.cumsum(kept) / np.arange(1, len(kept) + 1)
        second = SecondPass(tuple(zip(kept.tolist(), means.tolist(), strict=True)))
        more, least = second.line
        bound = more * kept + least
        assert np.all(bound >= means * (1 - 1e-12)) and 0.0 <= more <= 1.0
        assert bound[0] == pytest.approx(means[0], rel=1e-9)  # a difference of two larger numbers


@pytest.mark.parametrize("scheme", ["equal-resolved", "optimal"])
@pytest.mark.parametrize("compute", ["paper", "flops"])
def test_every_device_has_the_largest_width_that_meets_the_deadline_with_its_share(scheme, compute):
    """Against a search over the widths with the clock's own times; compute is made dear enough to decide."""
    values = {**DISTILLED, "plan.scheme": scheme, "plan.cycles_per_weight": 400.0, "plan.deadline_s": 8e-4}
    values |= {"clock.compute": "flops", "clock.flops_per_cycle": 0.5} if compute == "flops" else {}
    rounds, experiment = timed_rounds(tiny_scenario(**values, **{"radio.fading": "rayleigh"}))
    context, graph = experiment.context, experiment.shape.units
    family = np.array([weights_at(graph, width) for width in FjordKd().widths])
    kept = {int(n) for timed in rounds for n in timed.planned.keep[timed.planned.in_plan]}
    assert len(kept) > 1
    for timed in rounds:
        planned = timed.planned
        for n in np.flatnonzero(planned.in_plan):
            one = slice(n, n + 1)
            rate_bps = planned.share[one] * planned.full_band_rate_bps[one]
            fits = [
                weights
                for weights in family.tolist()
                if context.training_s(np.array([weights]), planned.device[one], planned.cpu_hz[one], planned.charges)
                + context.upload_bits(np.array([weights]), planned.charges) / rate_bps
                <= planned.deadline_s
            ]
            assert planned.keep[n] == max(fits)
            assert timed.total_s[n] <= planned.deadline_s * (1 + 1e-9)


def test_the_native_kernel_is_refused_and_auto_takes_torch():
    model = FlatModel(PaperCNN())
    x, y = np.zeros((4, 1, 28, 28), dtype=np.float32), np.zeros(4, dtype=np.int64)
    assert kernel_for("auto", model, x, y, teaches=True) == "torch"
    assert [name for name in KERNELS if KERNELS[name].teaching is None] == ["native"]
    with pytest.raises(InvalidValue, match="cannot be native: it does not distil, which the masking asks for"):
        kernel_for("native", model, x, y, teaches=True)
    assert [name for name in MASKINGS if MASKINGS[name].teaches] == ["fjord-kd"]
