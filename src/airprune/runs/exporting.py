"""The trained model of a run folder as others take it: a torch module, a file of its tensors, or ONNX.

model = load_model("runs/paper-seed0")              in evaluation mode, with the final weights
export_state_dict("runs/paper-seed0", "cnn.pt")     for model.load_state_dict(torch.load("cnn.pt"))
export_onnx("runs/paper-seed0", "cnn.onnx")         any number of samples at once
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from airprune.checks import path_of
from airprune.data import DATASETS
from airprune.errors import InvalidValue, UsageError, WorkFailed
from airprune.files import atomic_file
from airprune.models.catalogue import build_model
from airprune.models.losses import LOSSES
from airprune.models.user_modules import check_module, first_sentence
from airprune.runs import checkpoint
from airprune.runs.layout import RunFolder
from airprune.scenario.data import entry_of

if TYPE_CHECKING:
    from airprune.data import DatasetEntry
    from airprune.scenario import Scenario

_OWN = "Give the one that was trained: load_model(run, model=…)."


def load_model(run: str | Path, *, model: nn.Module | None = None) -> nn.Module:
    """Loads the model that a run has trained, in evaluation mode.

    Where models stay apart, as with the method `small-ensemble`, a ModuleList of them.

    Args:
      run: its folder.
      model: a module like the one that was given to `run`, whatever its weights; it is copied. Not needed for models of
        the catalogue on data sets of the catalogue.
    """
    folder = path_of("load_model.run", run, what="a run folder")
    tensors = _tensors(folder)
    module = _built(RunFolder(folder).scenario()) if model is None else copy.deepcopy(_checked(model))
    if members := _members(tensors, module):
        module = nn.ModuleList([copy.deepcopy(module) for _ in range(members)])
    floating = next(tensor.dtype for tensor in tensors.values() if tensor.is_floating_point())
    try:
        module.to(floating).load_state_dict(tensors)
    except RuntimeError as error:
        got = " ".join(str(error).split())[:200]
        rule = f"must have the tensors of the model that {run} has trained"
        raise InvalidValue("load_model.model", rule, got, _OWN if model is None else "") from None
    return module.eval()


def export_state_dict(run: str | Path, out: str | Path) -> Path:
    """Writes the final tensors under the module's own names, for `load_state_dict`."""
    content = io.BytesIO()
    torch.save(_tensors(Path(run)), content)
    return _written(Path(out), content.getvalue())


def export_onnx(run: str | Path, out: str | Path, *, model: nn.Module | None = None, sample: Any = None) -> Path:
    """Writes the final model as ONNX, in evaluation mode; its input `x` is a batch of any size.

    Args:
      model: as `load_model` takes it.
      sample: one input, without the batch; not needed for data sets of the catalogue.
    """
    module = load_model(run, model=model)
    if isinstance(module, nn.ModuleList):
        raise UsageError(f"{run} has trained {len(module)} models; export one of load_model(run) by torch.onnx.")
    x = _batch(run, sample, next(module.parameters()).dtype)
    return _written(Path(out), _onnx(module, x, f"{run} cannot be exported").SerializeToString())


def onnx_graph(module: nn.Module, input_shape: Sequence[int]) -> tuple[bytes, tuple[str, ...]]:
    """Returns a module's operations as ONNX, in evaluation mode, without its weights, and the names of these.

    The names are those of the module's tensors; the runtime has to be given them.
    """
    from onnx import TensorProto

    tensors = module.state_dict()
    x = torch.zeros(2, *input_shape, dtype=next(module.parameters()).dtype)
    model = _onnx(module.eval(), x, "The model has no ONNX graph", optimize=False)
    used = {name for node in model.graph.node for name in node.input}
    kept = [one for one in model.graph.initializer if one.name in used]
    del model.graph.initializer[:]  # the runtime refuses a tensor that is given and used nowhere
    model.graph.initializer.extend(kept)
    outside = [one for one in model.graph.initializer if one.name in tensors]
    for one in outside:
        name, kind, dims = one.name, one.data_type, list(one.dims)
        one.Clear()
        one.name, one.data_type, one.data_location = name, kind, TensorProto.EXTERNAL
        one.dims.extend(dims)
        one.external_data.add(key="location", value="weights")
    for part in (*model.graph.node, *model.graph.input, *model.graph.output, model.graph):  # places in source files
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    model.ClearField("metadata_props")
    model.graph.ClearField("value_info")
    return bytes(model.SerializeToString()), tuple(one.name for one in outside)


def _onnx(module: nn.Module, x: torch.Tensor, failure: str, **options: Any) -> Any:
    """Returns the module as ONNX for any number of samples like these."""
    try:
        with _quiet_torch():
            program = torch.onnx.export(
                module, (x,), dynamo=True, verbose=False, input_names=["x"], dynamic_shapes=({0: "batch"},), **options
            )
    except ImportError as error:
        raise UsageError(
            f"ONNX needs the packages onnx and onnxscript ({first_sentence(error)}); pip install 'airprune[export]'."
        ) from None
    except Exception as error:  # whatever the module's own forward raises on symbols
        raise WorkFailed(f"{failure}: {first_sentence(error)}.") from None
    assert program is not None
    return program.model_proto


@contextlib.contextmanager
def _quiet_torch() -> Iterator[None]:
    """Silences torch's notes on packages that are not needed and on its own future."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _tensors(run: Path) -> dict[str, torch.Tensor]:
    folder = RunFolder(run)
    if not folder.has_run:
        got = "a folder without scenario.toml" if run.is_dir() else "a file" if run.exists() else "nothing of that name"
        raise UsageError(f"{run} must be a run folder, got {got}. Example: runs/smoke-seed0")
    if not os.path.lexists(folder.final_file):
        raise UsageError(f"{run} has no final model yet; finish the run with --resume.")
    arrays, _ = checkpoint.read(folder.final_file, inside=run)
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def _entry(scenario: Scenario) -> DatasetEntry | None:
    return entry_of(scenario) if scenario.data.path is not None else DATASETS.get(scenario.data.name)


def _built(scenario: Scenario) -> nn.Module:
    entry = _entry(scenario)
    if entry is None:
        raise InvalidValue("load_model.model", "must be given for a data set that is not listed", "none", _OWN)
    loss = LOSSES.get(scenario.train.loss)
    outputs = 1 if loss is not None and loss.targets == "values" else entry.num_classes
    name, shape = scenario.model.name, entry.feature_shape
    return build_model(name, input_shape=shape, num_classes=outputs, seed=scenario.seed, shape_only=True)


def _checked(model: Any) -> nn.Module:
    check_module(model)
    module: nn.Module = model
    return module


def _members(tensors: dict[str, torch.Tensor], module: nn.Module) -> int:
    """Returns the number of models, if each has a number before its names; 0 for one model."""
    names = set(module.state_dict())
    numbers = {name.partition(".")[0] for name in tensors}
    apart = {f"{number}.{name}" for number in range(len(numbers)) for name in names}
    return len(numbers) if set(tensors) == apart and set(tensors) != names else 0


def _batch(run: str | Path, sample: Any, dtype: torch.dtype) -> torch.Tensor:
    """Returns two samples, since torch takes the size of a batch of one as fixed."""
    if sample is None:
        entry = _entry(RunFolder(Path(run)).scenario())
        if entry is None:
            raise InvalidValue("export_onnx.sample", "must be given for a data set that is not listed", "none")
        return torch.zeros(2, *entry.feature_shape, dtype=dtype)
    one = torch.as_tensor(sample)
    one = one.to(dtype) if one.is_floating_point() else one
    return torch.stack([one, one])


def _written(out: Path, content: bytes) -> Path:
    with atomic_file(out) as file:
        file.write(content)
    return out
