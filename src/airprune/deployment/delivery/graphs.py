"""A model's operations as ONNX beside its tensors: devices without torch predict with them in the ONNX runtime.

The cloud exports them where it has the packages of the extra `export`; the manifest carries them, a few kilobytes
without weights. The file that is delivered stays the same for every kernel.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from airprune.deployment.run_definition import torch_model
from airprune.errors import WorkFailed
from airprune.extras import EXTRAS, install_command, missing
from airprune.scenario import Scenario

Array = np.ndarray
RUNTIME = "onnxruntime"
MAX_GRAPH_BYTES = 2**17
_MAX_WORDS = 300
_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64}


def made_graph(scenario: Scenario, *, input_shape: tuple[int, ...], num_classes: int) -> tuple[bytes, tuple[str, ...]]:
    """Returns the operations of a scenario's model and the names of its weights; needs torch.

    Raises WorkFailed if there are none.
    """
    if packages := missing(EXTRAS["export"]):
        raise WorkFailed(f"It needs {' and '.join(packages)}: {install_command('export')}")
    from airprune.runs.exporting import onnx_graph

    model = torch_model(scenario, input_shape=input_shape, num_classes=num_classes)
    graph, names = onnx_graph(model.module, input_shape)
    if len(graph) > MAX_GRAPH_BYTES:
        raise WorkFailed(f"It would have {len(graph):,} bytes, and may have {MAX_GRAPH_BYTES:,}.")
    return graph, names


def onnx_scores(graph: bytes, arrays: Mapping[str, Array]) -> Callable[[Array], Array]:
    """Returns what computes the scores of samples in the ONNX runtime; raises WorkFailed if it refuses the model.

    Args:
      arrays: its weights by name, and no others.
    """
    runtime: Any = importlib.import_module(RUNTIME)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what is wrong is raised
    try:
        weights = [runtime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)) for array in arrays.values()]
        options.add_external_initializers(list(arrays), weights)
        session = runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        (taken,), (given,) = session.get_inputs(), session.get_outputs()
        kind = _TYPES[taken.type]
    except Exception as error:
        words = " ".join(str(error).split())[:_MAX_WORDS].removesuffix(".")
        raise WorkFailed(f"The ONNX runtime cannot take the model: {words}.") from None

    def score(x: Array) -> Array:
        return np.asarray(session.run([given.name], {taken.name: x.astype(kind, copy=False)})[0], dtype=np.float32)

    return score
