"""Takes the scores out of the outputs of models that give several, as `ModelOutput` of transformers and PEFT does.

Language models have the classes last, [samples, positions, classes]; losses and metrics here have them second. What a
model says of its loss is not used: losses are the scenario's, on the same scores that the model is evaluated by.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

Array = np.ndarray


def take_scores(module: Any, inputs: Any, outputs: Any) -> Any:
    """A forward hook: returns the scores, classes second; None, which changes nothing, for a tensor."""
    logits = logits_of(outputs)
    if logits is None:
        return None
    return logits.movedim(-1, 1) if logits.dim() > 2 else logits


def logits_of(outputs: Any) -> Any:
    """Returns `outputs.logits` or `outputs["logits"]`; None if there is none."""
    found = outputs.get("logits") if isinstance(outputs, Mapping) else getattr(outputs, "logits", None)
    return found if hasattr(found, "movedim") else None


@contextlib.contextmanager
def giving_scores(module: Any, x: Array) -> Iterator[None]:
    """Lets copies of a module that are made inside give its scores alone; the module itself stays as it is.

    Args:
      x: samples, of which one is tried on a copy.
    """
    if not hasattr(module, "register_forward_hook") or not _gives_logits(module, x):
        yield
        return
    handle = module.register_forward_hook(take_scores)
    try:
        yield
    finally:
        handle.remove()


def _gives_logits(module: Any, x: Array) -> bool:
    import torch

    try:
        tried = copy.deepcopy(module).eval()
        dtype = next(tried.parameters()).dtype
        sample = torch.from_numpy(np.array(x[:1]))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            return logits_of(tried(sample.to(dtype) if sample.is_floating_point() else sample)) is not None
    except Exception:  # whatever a module raises: `dry_run` finds it again, and says it
        return False
