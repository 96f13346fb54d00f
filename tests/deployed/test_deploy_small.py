"""A small device: no torch in its process, and the bits of one that has it."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from tools.readme import _split as split

from airprune.deployment.run_definition import catalogue_shape
from airprune.deployment.training import local_device
from airprune.methods.compression.base import Wire
from airprune.models.catalogue import FlatModel, build_model
from airprune.models.kernels import native
from airprune.models.without_torch import PlainCnn
from airprune.rounds.local import Device, LocalSettings
from airprune.rounds.method import Method
from airprune.rounds.model_source import torch_needed_for
from support import small_rounds
from support.docs_blocks import blocks
from support.each import each
from support.small_rounds import CASES, NUM_CLASSES, SHAPE, digests, samples, scenario_of

pytestmark = pytest.mark.usefixtures("one_thread")
needs_kernel = pytest.mark.skipif(bool(native.trouble), reason=f"no native kernel: {native.trouble}")


@pytest.fixture(scope="module")
def without_torch():
    """Returns what a process that cannot import torch has computed."""
    program = [sys.executable, str(Path(small_rounds.__file__))]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def torch_device(scenario) -> Device:
    model = flat_model(scenario)
    wire = Wire.of(model.shape, value_bits=scenario.plan.bits_per_weight)
    return Device(model, *samples(), LocalSettings.of(scenario, "native"), Method.of(scenario).local, wire)


def flat_model(scenario, input_shape=SHAPE, num_classes=NUM_CLASSES) -> FlatModel:
    settings = scenario.model
    module = build_model(settings.name, input_shape=input_shape, num_classes=num_classes, seed=0)
    return FlatModel(module, prunable=settings.prunable, personal=settings.personal, float64=settings.float64)


@needs_kernel
@pytest.mark.parametrize("case", CASES)
def test_a_device_without_torch_sends_and_remembers_the_same_bits(without_torch, case):
    assert without_torch[case] == digests(CASES[case], torch_device)


@needs_kernel
def test_a_device_without_torch_says_what_it_would_need_torch_for(without_torch):
    assert without_torch["refused"] == (
        "Scenario must be one that devices without torch can train, got train.optimizer = 'adam'. "
        "Install torch on this device, or change the scenario."
    )


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ({"model.name": "mlp"}, "model.name = 'mlp'"),
        ({"model.float64": True}, "model.float64"),
        ({"train.optimizer": "adam"}, "train.optimizer = 'adam'"),
        ({"diagnostics.gradients": True}, "diagnostics.gradients"),
        ({"masking.probe.importance": "exact"}, "the importance 'exact'"),
        ({"train.kernel": "torch"}, "train.kernel = 'torch'"),
        ({"masking.name": "fjord-kd"}, "masking.name = 'fjord-kd'"),
    ],
)
def test_what_needs_torch_gets_a_torch_module(changes, needed):
    x, y = samples()
    scenario = scenario_of(changes)
    assert torch_needed_for(scenario) == needed
    device = local_device(scenario, input_shape=SHAPE, num_classes=NUM_CLASSES, x=x, y=y)
    assert isinstance(device.model, FlatModel)


@needs_kernel
def test_what_does_not_need_torch_gets_none_and_the_kernel_of_the_run_decides():
    x, y = samples()
    for kernel, kind in (("auto", PlainCnn), ("native", PlainCnn), ("torch", FlatModel)):
        scenario = scenario_of({"train.kernel": kernel})
        device = local_device(scenario, input_shape=SHAPE, num_classes=NUM_CLASSES, x=x, y=y)
        assert isinstance(device.model, kind) and device.settings.kernel == ("torch" if kernel == "torch" else "native")


LAYERS = {"paper-cnn": ("conv1", "conv2", "fc1", "fc2"), "cifar-cnn": ("fc1", "conv2"), "mlp": ("fc1", "fc2")}
CHOICES = [
    (name, prunable, personal)
    for name, layers in LAYERS.items()
    for prunable in [(), ("*",), *(some for n in range(1, 5) for some in combinations(layers, n)), layers[::-1]]
    for personal in [(), ("last",), ("fc1",)]
    if set(prunable) - {"fc2" if own == "last" else own for own in personal} or not prunable
]


@each(("name", "prunable", "personal"), CHOICES)
def test_the_shape_without_torch_is_that_of_the_module(name, prunable, personal):
    scenario = scenario_of({"model.name": name, "model.prunable": prunable, "model.personal": personal})
    ours = catalogue_shape(scenario, input_shape=(3, 12, 16), num_classes=5)
    theirs = flat_model(scenario, (3, 12, 16), 5).shape
    fields = "num_state", "num_parameters", "prunable", "layers", "tensors", "num_personal", "personal_weights"
    assert [getattr(ours, field) for field in fields] == [getattr(theirs, field) for field in fields]
    assert ours.units.trouble == theirs.units.trouble
    for one, other in zip(ours.units.groups, theirs.units.groups, strict=True):
        assert (one.layer, one.num_units) == (other.layer, other.num_units)
        for (layer, columns), (its_layer, its_columns) in zip(one.feeds, other.feeds, strict=True):
            assert layer == its_layer and np.array_equal(columns, its_columns)


@needs_kernel
@pytest.mark.parametrize("instruction_set", native.instruction_sets)
@pytest.mark.parametrize("size", [1, 7, 44_002, 1_000_003])
def test_native_steps_are_those_of_torch_to_the_bit(instruction_set, size):
    rng = np.random.default_rng(size)
    anything = rng.integers(2**32, size=(2, size), dtype=np.uint32).view(np.float32)  # infinities and denormals, too
    numbers = {
        "any": np.where(np.isnan(anything), np.float32(0), anything),
        "weights": (rng.standard_normal((2, size)) * [[0.1], [0.01]]).astype(np.float32),
        "denormal": (rng.standard_normal((2, size)) * [[1e-39], [1e-37]]).astype(np.float32),
    }
    for weights, gradient in numbers.values():
        for factor in (-0.001, -1.0 / 3.0):
            theirs = torch.from_numpy(weights.copy()).add_(torch.from_numpy(gradient), alpha=factor)
            ours = weights.copy()
            native._paper_cnn.add_scaled(instruction_set, ours, gradient, factor)
            assert ours.tobytes() == theirs.numpy().tobytes()
            elsewhere = np.empty_like(weights)
            native._paper_cnn.add_scaled(instruction_set, elsewhere, gradient, factor, weights)
            assert elsewhere.tobytes() == ours.tobytes()


@needs_kernel
def test_native_steps_refuse_what_would_reach_outside_of_an_array():
    target, values = np.zeros(4, np.float32), np.zeros(5, np.float32)
    for wrong in (values, values[:4].astype(np.float64), values[:2]):
        with pytest.raises(ValueError, match=r"lengths do not go together|wrong type"):
            native.add_scaled(target, wrong, 1.0, target)
        with pytest.raises(ValueError, match=r"lengths do not go together|wrong type"):
            native.add_scaled(target, target.copy(), 1.0, wrong)
    with pytest.raises(ValueError, match="no such instruction set"):
        native._paper_cnn.add_scaled("mmx", target, target.copy(), 1.0)


ROOT = Path(__file__).parents[2]
INSTALLS = ("pip install -c constraints.txt -r requirements-device.txt", "pip install --no-deps .")


@needs_kernel
@pytest.mark.slow
def test_the_commands_of_the_page_make_a_device_that_has_no_torch_and_the_same_bits(tmp_path):
    page = (ROOT / "docs/deploy-small.md").read_text()
    (block,) = (split(block.content) for block in blocks(page) if "requirements-device.txt" in block.content)
    assert block == [*INSTALLS, "airprune doctor"]
    sources = tmp_path / "sources"
    sources.mkdir()
    lists = ("constraints.txt", "requirements-device.txt")
    for name in ("setup.py", "pyproject.toml", "README.md", "MANIFEST.in", *lists):
        shutil.copy(ROOT / name, sources)
    unwanted = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", sources / "src", ignore=unwanted)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "device"], check=True, timeout=300)
    programs = tmp_path / "device/bin"
    # Without PYTHONPATH, by which this checkout may be found.
    found = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**found, "PATH": f"{programs}:{found['PATH']}"}
    for command in INSTALLS:
        subprocess.run(shlex.split(command), cwd=sources, env=environment, check=True, timeout=1_200)
    checked = subprocess.run([programs / "airprune", "doctor"], env=environment, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
    rows = {row.split()[0]: row for row in checked.stdout.splitlines() if row.strip()}
    assert "native" in rows["kernel"] and "✗" not in rows["kernel"]
    absent = "import importlib.util as u; print([u.find_spec(n) for n in ('torch', 'matplotlib')])"
    assert said(programs / "python", "-c", absent, environment=environment) == "[None, None]\n"
    ours = said(sys.executable, Path(small_rounds.__file__), environment=environment)
    assert said(programs / "python", Path(small_rounds.__file__), environment=environment) == ours


def said(*command: object, environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600).stdout
