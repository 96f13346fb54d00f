"""Components of your own: registered by a script, by a file given with --import, or by an installed package.

ap.register(MY_MASKING)            in a script: known to runs, comparisons, sweeps and their workers at once
airprune … --import my_methods.py  the file is loaded before the command looks at anything
entry points                       group "airprune.masking" (or another kind) of an installed package

Workers get it by `setup_payload`. A run folder notes the files by hash, since its results depend on them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airprune.components.component import Component, check_complete
from airprune.components.registry import Registry
from airprune.errors import AirpruneError, InvalidValue, UsageError
from airprune.models.losses import terms_of

if TYPE_CHECKING:
    from airprune.scenario import Scenario

Address = tuple[str, str]
"""(kind, name) of a component."""


@dataclass(frozen=True)
class ImportedFile:
    """A file that was loaded with --import, with its source for workers that do not see it."""

    path: str
    source: bytes

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.source).hexdigest()

    @property
    def module(self) -> str:
        """Name of the module here and in workers; differs for files of one name in two folders."""
        stem = re.sub(r"\W", "_", Path(self.path).stem)
        return f"airprune_import_{stem}_{hashlib.sha256(self.path.encode()).hexdigest()[:8]}"


# By module name.
_FILES: dict[str, ImportedFile] = {}
# The module that registered a component, of those that files registered.
_ORIGINS: dict[Address, str] = {}


@cache
def registries() -> dict[type, Registry[Any]]:
    """Every registry, by what it lists."""
    from airprune.data import DATASETS, PARTITIONS, DatasetEntry, Partition
    from airprune.methods import METHODS, Recipe
    from airprune.methods.aggregation import AGGREGATIONS, Aggregation
    from airprune.methods.aggregation.steps import STEPS, Step
    from airprune.methods.association import ASSOCIATIONS, Association
    from airprune.methods.augmentations import AUGMENTATIONS, Augmentation
    from airprune.methods.compression import COMPRESSIONS, Compression
    from airprune.methods.loops import LOOPS, Loop
    from airprune.methods.masking import MASKINGS, Masking
    from airprune.methods.masking.core.importance import IMPORTANCES, Importance
    from airprune.methods.objectives import OBJECTIVES, Objective
    from airprune.methods.optimisers import OPTIMISERS, Optimiser
    from airprune.methods.schedules import SCHEDULES, Schedule
    from airprune.methods.selection import SELECTIONS, Selection
    from airprune.methods.topology import TOPOLOGIES, Topology
    from airprune.methods.weighting import WEIGHTINGS, Weighting
    from airprune.models.base import Model
    from airprune.models.kernels import KERNELS
    from airprune.models.kernels.base import Kernel
    from airprune.models.losses import LOSSES, METRICS
    from airprune.models.losses.base import Loss, Metric
    from airprune.models.names import MODELS
    from airprune.planning.schemes import SCHEMES, Scheme
    from airprune.wireless.channels import CHANNELS, Channel

    return {
        Channel: CHANNELS,
        Association: ASSOCIATIONS,
        Selection: SELECTIONS,
        Weighting: WEIGHTINGS,
        Scheme: SCHEMES,
        Masking: MASKINGS,
        Objective: OBJECTIVES,
        Compression: COMPRESSIONS,
        Aggregation: AGGREGATIONS,
        Step: STEPS,
        Topology: TOPOLOGIES,
        Loop: LOOPS,
        Optimiser: OPTIMISERS,
        Schedule: SCHEDULES,
        Augmentation: AUGMENTATIONS,
        Kernel: KERNELS,
        Loss: LOSSES,
        Metric: METRICS,
        Importance: IMPORTANCES,
        Model: MODELS,
        DatasetEntry: DATASETS,
        Partition: PARTITIONS,
        Recipe: METHODS,
    }


def register(component: Any) -> Any:
    """Lists a component, an importance or a recipe under its name; returns it."""
    import airprune.scenario  # noqa: F401, whose sections reserve names

    for kind, registry in registries().items():
        if isinstance(component, type) and issubclass(component, kind):
            if issubclass(component, Component):
                check_complete(component)
            return registry.add(component)
        if isinstance(component, kind):
            if isinstance(component, Component):
                own = type(component).__name__
                raise InvalidValue("register", f"must be given the class {own}", "a value of it", f"register({own})")
            return registry.add(component)
    kinds = ", ".join(kind.__name__ for kind in registries())
    raise InvalidValue("register", f"must be given one of {kinds}", type(component).__name__)


def import_file(path: Path | str) -> list[str]:
    """Runs a Python file, which is expected to register components; returns their names."""
    path = Path(path)
    try:
        file = ImportedFile(str(path.resolve()), path.read_bytes())
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidValue("--import", "must name a readable Python file", f"{str(path)!r} ({reason})") from None
    before = _added()
    owners = dict(_ORIGINS)
    _load(file)
    found = [address for address, module in _ORIGINS.items() if module == file.module]
    for kind, name in found:
        other = owners.get((kind, name), "")
        if (kind, name) in before and other != file.module:
            where = _FILES[other].path if other in _FILES else "a script"
            _unload(file, before)
            _ORIGINS.clear()
            _ORIGINS.update(owners)
            raise UsageError(f"{path} registers {kind} {name!r}, which {where} has registered already; rename one.")
    return [f"{kind} {name}" for kind, name in found]


def _load(file: ImportedFile) -> None:
    """Runs the file as a module, unless that has been done; a file that fails leaves nothing registered."""
    if _FILES.get(file.module) == file:
        return
    spec = importlib.util.spec_from_loader(file.module, loader=None, origin=file.path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = file.path
    before = _added()
    sys.modules[file.module] = module  # so that what it defines is pickled by name
    try:
        exec(compile(file.source, file.path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        _unload(file, before)
        raise UsageError(f"{file.path}{_line(error, file.path)} cannot be imported: {_reason(error)}") from error
    _FILES[file.module] = file
    for address, component in _added().items():
        if before.get(address) is not component:
            _ORIGINS[address] = file.module


def _unload(file: ImportedFile, before: Mapping[Address, Any]) -> None:
    """Restores the registries."""
    sys.modules.pop(file.module, None)
    _FILES.pop(file.module, None)
    for registry in registries().values():
        for component in registry.added:
            was = before.get((registry.kind, component.name))
            if was is None:
                registry.remove(component.name)
            elif was is not component:
                registry.add(was)


def _line(error: BaseException, path: str) -> str:
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
        return f", line {error.lineno},"
    frames = traceback.extract_tb(error.__traceback__)
    return next((f", line {frame.lineno}," for frame in reversed(frames) if frame.filename == path), "")


def _reason(error: BaseException) -> str:
    """Returns the reason in one line."""
    if isinstance(error, AirpruneError):
        return str(error)
    words = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    if isinstance(error, SystemExit):
        words = f"it leaves with status {words or 0}"
    way_out = _way_out(error) if isinstance(error, ImportError) else ""
    return f"{type(error).__name__}: {words[:300]}".removesuffix(": ").removesuffix(".") + f"{way_out}."


def _way_out(error: ImportError) -> str:
    """Returns the place of a part of airprune that a file imports from elsewhere; nothing for other modules."""
    package, *inner = (error.name or "").split(".")
    if package != "airprune":
        return ""
    home = Path(__file__).parents[1]
    found = sorted(home.glob(f"*/{'/'.join(inner)}")) if isinstance(error, ModuleNotFoundError) else []
    here = "".join(f"it is {'.'.join((package, *path.relative_to(home).parts))} here, " for path in found[:1])
    return f"; {here}see docs/your-own.md"


def _added() -> dict[Address, Any]:
    return {(registry.kind, one.name): one for registry in registries().values() for one in registry.added}


def is_own(component: Any) -> bool:
    """Returns whether a script or a file has registered this component, so that other processes need it sent."""
    registry = next((listed for kind, listed in registries().items() if isinstance(component, kind)), None)
    return registry is not None and any(one is component or one is type(component) for one in registry.added)


def imported_files() -> tuple[ImportedFile, ...]:
    """Returns them in the order in which they were given."""
    return tuple(_FILES.values())


def import_words() -> list[str]:
    """Returns the words of a command line that import the same files."""
    return [word for file in imported_files() for word in ("--import", file.path)]


def files_used_by(scenario: Scenario) -> dict[str, str]:
    """Returns the SHA-256 by file name of the imported files whose components a scenario has chosen."""
    modules = {_ORIGINS[address] for address in _choices(scenario) if address in _ORIGINS}
    return {file.name: file.sha256 for module, file in sorted(_FILES.items()) if module in modules}


def code_used_by(scenario: Scenario) -> dict[str, str]:
    """Returns the SHA-256 of the code beyond airprune's own that a scenario has chosen components of.

    By name: imported files, and installed packages, whose digest is that of all their Python files.
    """
    by_kind = {registry.kind: registry for registry in registries().values()}
    chosen = [(by_kind[kind], name) for kind, name in _choices(scenario) if kind in by_kind]
    modules = {registry.module_of(name) for registry, name in chosen} - {""}
    return {**files_used_by(scenario), **{module: package_digest(module) for module in sorted(modules)}}


def package_digest(module: str) -> str:
    """Returns the digest of the Python files of an installed package, with their places in it; empty if it has none."""
    found = importlib.util.find_spec(module)
    folders = [] if found is None else [Path(place) for place in found.submodule_search_locations or ()]
    files = [(path, path.relative_to(folder)) for folder in folders for path in sorted(folder.rglob("*.py"))]
    if not files and found is not None and found.origin is not None:
        files = [(Path(found.origin), Path(Path(found.origin).name))]
    digest = hashlib.sha256()
    for path, place in files:
        content = path.read_bytes()
        digest.update(f"{place} {len(content)}\n".encode() + content)
    return digest.hexdigest() if files else ""


def _choices(scenario: Scenario) -> Iterator[Address]:
    """Yields the components that a scenario names. Importances are named in options."""
    yield "kernels", scenario.train.kernel
    for loss in terms_of(scenario.train.loss):
        yield "losses", loss
    yield "metrics", scenario.train.metric
    yield "models", scenario.model.name
    yield "datasets", scenario.data.name
    yield "partitions", scenario.data.partition
    for section, field, registry in scenario.choice_fields():
        part = getattr(scenario, section)
        yield registry.kind, (name := getattr(part, field))
        for value in part.chosen(field).model_dump().values() if name in registry else ():
            if isinstance(value, str):
                yield "importance", value


def registered() -> dict[str, Any]:
    """Returns the components beyond those of installed packages, as a run folder records them; empty if none."""
    by_file: dict[str, list[str]] = {module: [] for module in _FILES}
    by_script: list[str] = []
    for kind, name in _added():
        by_file.get(_ORIGINS.get((kind, name), ""), by_script).append(f"{kind} {name}")
    files = [
        {"path": file.path, "sha256": file.sha256, "registers": by_file[module]} for module, file in _FILES.items()
    ]
    found = {"imported": files, "registered_by_script": by_script}
    return {key: value for key, value in found.items() if value}


def origin_of(kind: str, name: str) -> str:
    """Returns the origin of a component that is not of this package: a file, a script or a package; else nothing."""
    registry = next(registry for registry in registries().values() if registry.kind == kind)
    if any(one.name == name for one in registry.added):
        module = _ORIGINS.get((kind, name))
        return "a script" if module is None else _FILES[module].path
    return registry.package_of(name)


def setup_payload() -> bytes | None:
    """Returns a pickled call that registers the same components in a worker; None if there are none."""
    import cloudpickle  # slow to import, and needed only to start workers

    scripted = [cloudpickle.dumps(component) for address, component in _added().items() if address not in _ORIGINS]
    if not _FILES and not scripted:
        return None
    return bytes(cloudpickle.dumps(_SetupPayload(imported_files(), tuple(scripted))))


class _SetupPayload:
    """Loads files and registers components in a worker."""

    def __init__(self, files: tuple[ImportedFile, ...], components: tuple[bytes, ...]) -> None:
        self.files, self.components = files, components

    def __call__(self) -> None:
        import pickle

        for file in self.files:
            _load(file)
        for pickled in self.components:
            register(pickle.loads(pickled))
