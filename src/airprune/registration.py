"""Components of your own: registered by a script, by a file given with --import, or by an installed package.

ap.register(MY_MASKING)            in a script: known to runs, comparisons, sweeps and their workers at once
airprune … --import my_methods.py  the file is loaded before the command looks at anything
entry points                       group "airprune.masking" (or another kind) of an installed package
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import cloudpickle

from airprune.errors import InvalidValue, UsageError
from airprune.registry import Registry

# Files that were loaded with --import: (module name, path, source), for workers that do not see them.
_FILES: list[tuple[str, str, str]] = []


@cache
def registries() -> dict[type, Registry[Any]]:
    """Every registry, by what it lists."""
    from airprune.aggregation import AGGREGATIONS, Aggregation
    from airprune.aggregation.steps import STEPS, Step
    from airprune.association import ASSOCIATIONS, Association
    from airprune.compression import COMPRESSIONS, Compression
    from airprune.kernels import KERNELS
    from airprune.kernels.base import Kernel
    from airprune.masking import MASKINGS, Masking
    from airprune.methods import METHODS, Recipe
    from airprune.objectives import OBJECTIVES, Objective
    from airprune.pruning.importance import IMPORTANCES, Importance
    from airprune.schemes import SCHEMES, Scheme
    from airprune.selection import SELECTIONS, Selection
    from airprune.topology import TOPOLOGIES, Topology

    return {
        Association: ASSOCIATIONS,
        Selection: SELECTIONS,
        Scheme: SCHEMES,
        Masking: MASKINGS,
        Objective: OBJECTIVES,
        Compression: COMPRESSIONS,
        Aggregation: AGGREGATIONS,
        Step: STEPS,
        Topology: TOPOLOGIES,
        Kernel: KERNELS,
        Importance: IMPORTANCES,
        Recipe: METHODS,
    }


def register(component: Any) -> Any:
    """Lists a component, an importance or a recipe under its name; returns it."""
    for kind, registry in registries().items():
        if isinstance(component, kind):
            return registry.add(component)
    kinds = ", ".join(kind.__name__ for kind in registries())
    raise InvalidValue("register", f"must be given one of {kinds}", type(component).__name__)


def import_file(path: Path | str) -> None:
    """Runs a Python file, which is expected to register components."""
    path = Path(path)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidValue("--import", "must name a readable Python file", f"{str(path)!r} ({reason})") from None
    _run_source(f"airprune_import_{path.stem}", str(path.absolute()), source)


def _run_source(name: str, path: str, source: str) -> None:
    if any(known == (name, path, source) for known in _FILES):
        return
    spec = importlib.util.spec_from_loader(name, loader=None, origin=path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = path
    sys.modules[name] = module  # so that what it defines is pickled by name
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        line = next((f", line {frame.lineno}" for frame in reversed(_frames(error)) if frame.filename == path), "")
        raise UsageError(f"{path}{line} cannot be imported: {type(error).__name__}: {error}.") from error
    _FILES.append((name, path, source))


def _frames(error: BaseException) -> Sequence[Any]:
    import traceback

    return traceback.extract_tb(error.__traceback__)


def luggage() -> bytes | None:
    """What a worker elsewhere must do before it knows what this process knows; None if there is nothing to know."""
    added = [component for registry in registries().values() for component in registry.added]
    from_files = {name for name, _, _ in _FILES}
    scripted = [cloudpickle.dumps(component) for component in added if _home(component) not in from_files]
    if not _FILES and not scripted:
        return None
    files = tuple(_FILES)
    return bytes(cloudpickle.dumps(_Luggage(files, tuple(scripted))))


def _home(component: Any) -> str:
    """The module whose function the component was made of, as far as one can tell."""
    functions = (value for value in vars(component).values() if callable(value))
    homes = [getattr(function, "__module__", "") for function in functions]
    return next((home for home in homes if home in sys.modules and not home.startswith("airprune.")), "")


class _Luggage:
    """Loads files and registers components in a worker."""

    def __init__(self, files: tuple[tuple[str, str, str], ...], components: tuple[bytes, ...]) -> None:
        self.files, self.components = files, components

    def __call__(self) -> None:
        import pickle

        for name, path, source in self.files:
            _run_source(name, path, source)
        for pickled in self.components:
            register(pickle.loads(pickled))
