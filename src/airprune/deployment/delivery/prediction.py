"""Predicts with the model that a device holds: by the native kernel where that can, else the ONNX runtime or torch."""

from __future__ import annotations

import base64
import importlib.util
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from airprune.components.component import Owner
from airprune.deployment.delivery.graphs import RUNTIME, onnx_scores
from airprune.deployment.delivery.offers import Manifest
from airprune.deployment.delivery.shelf import Shelf
from airprune.deployment.ledger import DeviceLedger
from airprune.deployment.run_definition import torch_model
from airprune.engines.machine import single_thread
from airprune.errors import UsageError
from airprune.extras import install_command
from airprune.models.kernels import KERNELS
from airprune.models.layout import LocalModel
from airprune.models.names import HIDDEN
from airprune.rounds.method import Method
from airprune.rounds.model_source import plain_cnn
from airprune.rounds.sending import with_own_layers
from airprune.scenario import Scenario

Array = np.ndarray
Scorer = Callable[[Array], Array]
_NATIVE = ("paper-cnn", "cifar-cnn")
_BATCH = 256
_TIMED = 100


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Scores of samples, and what they cost.

    Attributes:
      scores: of each class before softmax.  [num_samples, num_classes]
      kernel: native, onnx or torch.
      is_personal: whether the device's own layers were used.
      latency_s: of one sample at a time, median; latency_p95_s: of 95 in 100 at the most.
      peak_bytes: the most memory that this process has had.
    """

    version: int
    scores: Array
    kernel: str
    is_personal: bool
    latency_s: float
    latency_p95_s: float
    peak_bytes: int

    @property
    def labels(self) -> Array:
        return self.scores.argmax(axis=1)


def predict(shelf: Shelf, x: Array, *, state: Path) -> Predictions:
    """Returns the scores of samples by the current model of a device.

    Args:
      x: as the model takes it.  [num_samples, *input_shape]
      state: folder of the device, with the layers that it keeps to itself.
    """
    version = shelf.held.current
    if not version:
        raise UsageError(f"{shelf.folder} holds no model yet; deliver one with `airprune deploy deliver`.")
    manifest = shelf.manifest(version)
    x = np.ascontiguousarray(x, dtype=np.float32)
    if x.shape[1:] != manifest.input_shape or not len(x):
        raise UsageError(f"x must have samples of shape {manifest.input_shape}, got an array of shape {x.shape}.")
    scenario = Scenario.from_text(manifest.scenario, source="the manifest")
    score, kernel, is_personal = _scorer(scenario, manifest, shelf.content(version), x, state)
    scores = np.concatenate([score(x[start : start + _BATCH]) for start in range(0, len(x), _BATCH)])
    taken_s = sorted(_timed(score, x[n : n + 1]) for n in range(min(len(x), _TIMED)))
    return Predictions(
        version=version,
        scores=scores,
        kernel=kernel,
        is_personal=is_personal,
        latency_s=taken_s[len(taken_s) // 2],
        latency_p95_s=taken_s[min(len(taken_s) - 1, int(0.95 * len(taken_s)))],
        peak_bytes=_peak_bytes(),
    )


def _timed(score: Scorer, x: Array) -> float:
    start_s = time.perf_counter()
    score(x)
    return time.perf_counter() - start_s


def _peak_bytes() -> int:
    """Returns the most memory that this process has had; in ru_maxrss Linux counts its parent's too."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    own_kb = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    return 1024 * (own_kb or [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss])[0]


def has_native_kernel(scenario: Scenario) -> bool:
    """True if the native kernel computes the scenario's model, where it is compiled."""
    settings = scenario.model
    return settings.name in _NATIVE and settings.name in HIDDEN and not settings.float64


def _scorer(scenario: Scenario, manifest: Manifest, content: bytes, x: Array, state: Path) -> tuple[Scorer, str, bool]:
    """Returns what computes the scores, the kernel's name, and whether layers of the device's own are in it."""
    import safetensors.numpy

    arrays, settings = safetensors.numpy.load(content), scenario.model
    trouble = f"the native kernel does not compute the model {settings.name!r}"
    if has_native_kernel(scenario):
        names = {"prunable": settings.prunable, "personal": settings.personal}
        plain = plain_cnn(settings.name, manifest.input_shape, manifest.num_classes, **names)
        trouble = KERNELS["native"].unsupported(plain, x[:1], np.zeros(1, np.int64))
        if not trouble:
            is_personal = _load(plain, scenario, manifest, arrays, state)
            return _native(plain), "native", is_personal
    if manifest.graph and not settings.personal and importlib.util.find_spec(RUNTIME) is not None:
        _check_tensors(manifest, manifest.graph_weights, arrays)
        weights = {name: arrays[name] for name in manifest.graph_weights}
        return onnx_scores(base64.b64decode(manifest.graph), weights), "onnx", False
    if importlib.util.find_spec("torch") is None:
        wanted, extra = "torch", "train"
        if manifest.graph and not settings.personal:
            wanted, extra = f"{RUNTIME} or torch", "predict"
        raise UsageError(f"Predictions need {wanted} here, since {trouble}: {install_command(extra)}")
    model = torch_model(scenario, input_shape=manifest.input_shape, num_classes=manifest.num_classes)
    is_personal = _load(model, scenario, manifest, arrays, state)
    return _torch(model), "torch", is_personal


def _check_tensors(manifest: Manifest, names: Iterable[str], arrays: Mapping[str, Array]) -> None:
    if missing := [name for name in names if name not in arrays]:
        raise UsageError(f"Model {manifest.version} has no tensor {missing[0]}; methods with several models cannot do.")


def _load(model: LocalModel, scenario: Scenario, manifest: Manifest, arrays: Mapping[str, Array], state: Path) -> bool:
    """Loads the delivered weights, and the device's own layers over them; returns whether it has such layers."""
    flat = np.array(model.state_array)
    _check_tensors(manifest, [part.name for part in model.parts], arrays)
    for part in model.parts:
        part.view(flat)[...] = arrays[part.name]
    path, is_personal = state / f"ledger-{manifest.run}.safetensors", False
    if model.shape.num_personal and path.exists():
        results = DeviceLedger.load(path, run=manifest.run).results
        slots = {slot.name for slot in Method.of(scenario).slots(model.shape) if slot.owner == Owner.DEVICE}
        if results and slots <= results[-1].memory.keys():
            flat, is_personal = with_own_layers(flat, results[-1].memory, model.shape), True
    model.load(flat)
    return is_personal


def _native(model: LocalModel) -> Scorer:
    from airprune.models.kernels.native import NativeScores

    def score(x: Array) -> Array:
        return NativeScores(model, x, np.zeros(len(x), np.int64))(slice(None))

    return score


def _torch(model: LocalModel) -> Scorer:
    import torch

    from airprune.models.catalogue import FlatModel

    assert isinstance(model, FlatModel)
    single_thread()  # a second one would wait for the processor longer than it helps with a single sample
    module = model.module.eval()

    def score(x: Array) -> Array:
        with torch.inference_mode():
            found = module(torch.tensor(x, dtype=next(module.parameters()).dtype))
        return np.asarray(found.numpy(), dtype=np.float32)

    return score
