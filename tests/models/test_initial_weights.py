"""The paper's CNN starts from the weights that torch draws, without torch."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from airprune.models.catalogue import FlatModel, build_model
from airprune.models.initial_weights import centred, initial_tensors
from airprune.models.names import HIDDEN
from airprune.rounds.model_source import PlainSource, plain_cnn
from support.each import each


@pytest.mark.parametrize("seed", [0, 1, 7, 2**40 + 3])
@pytest.mark.parametrize(("name", "input_shape"), [("paper-cnn", (1, 28, 28)), ("cifar-cnn", (3, 32, 32))])
def test_a_model_without_torch_starts_as_torch_draws_it(name, input_shape, seed):
    shapes = {"input_shape": input_shape, "num_classes": 10}
    theirs = FlatModel(build_model(name, seed=seed, **shapes))
    ours = PlainSource(name=name, seed=seed, prunable=(), personal=(), **shapes).open()
    np.testing.assert_array_equal(ours.state_array, theirs.state_array)
    assert ours.state_array.std() > 0


@each("inputs", [1, 7, 8, 31, 32, 33, 288, 1000, 4100, 70_000])
@each("seed", [0, 2**31, 2**63 - 1])
def test_layers_of_any_width_are_drawn_as_torch_draws_them(inputs, seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = torch.nn.Linear(inputs, 3)
    tensors = dict(initial_tensors({"fc": (3, inputs)}, seed))
    np.testing.assert_array_equal(tensors["fc.weight"], layer.weight.detach().numpy())
    np.testing.assert_array_equal(tensors["fc.bias"], layer.bias.detach().numpy())


@pytest.mark.parametrize("inputs", [1, 8, 33, 288, 3136, 70_000])
def test_centred_weights_sum_to_zero(inputs):
    weight = np.random.default_rng(inputs).normal(size=(4, inputs)).astype(np.float32)
    exact = weight.astype(np.float64).mean(1, keepdims=True)
    np.testing.assert_allclose(centred(weight), weight - exact, atol=2e-7)
    np.testing.assert_allclose(centred(weight.astype(np.float64)), weight - exact, atol=1e-13)


def test_what_it_saves_are_the_tensors_of_the_module():
    shapes = {"input_shape": (1, 12, 12), "num_classes": 4}
    module = build_model("paper-cnn", seed=3, **shapes)
    theirs, ours = FlatModel(module), plain_cnn("paper-cnn", (1, 12, 12), 4)
    state = np.random.default_rng(0).normal(size=ours.num_state).astype(np.float32)
    saved = ours.trained_arrays(state)
    expected = theirs.trained_arrays(state)
    assert list(saved) == list(expected) == list(module.state_dict())
    for name, array in expected.items():
        np.testing.assert_array_equal(saved[name], array)
        assert saved[name].flags.c_contiguous


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_run_that_the_native_kernel_serves_never_imports_torch(engine, tmp_path):
    """The slowest of all imports: neither the driver nor its workers wait for it."""
    program = (
        "import sys\n"
        "class Refused:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': raise ImportError('torch was asked for')\n"
        "sys.meta_path.insert(0, Refused())\n"
        "import airprune as ap\n"
        f"scenario = ap.Scenario.preset('smoke').with_values({{'engine.name': {engine!r}, 'engine.workers': 1}})\n"
        f"print(len(list(ap.run(scenario, out={str(tmp_path / 'run')!r}))))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and int(done.stdout) > 0, done.stderr


def test_the_models_that_start_without_torch_have_hidden_units_of_their_own():
    for name in ("paper-cnn", "cifar-cnn"):
        assert plain_cnn(name, (1, 8, 8), 3).cnn_sizes().hidden == HIDDEN[name]
