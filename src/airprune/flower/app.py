"""A Flower app as its folder describes it: components, config, number of clients; imported by their names."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airprune.errors import InvalidValue, UsageError, WorkFailed, trouble_of
from airprune.extras import need
from airprune.settings import toml_text

MAX_BYTES = 2**20
_ROUNDS = ("num-server-rounds", "num_server_rounds", "num-rounds", "num_rounds")
# Parts of an app's folder that are no source of it.
_NO_SOURCE = {"__pycache__", ".git", ".venv", "venv", "build", "dist", "runs", "data", "node_modules"}


def switch_off_telemetry() -> None:
    """Switches off Flower's telemetry and update check; must come before its first import."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"


def need_flower(what: str) -> None:
    """Raises MissingExtra unless Flower is installed."""
    switch_off_telemetry()
    need("flower", what)


def identify() -> None:
    """Gives this process the identity that messages carry since Flower 1.30; earlier ones need none."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


@dataclass(frozen=True, kw_only=True)
class FlowerApp:
    """The description of an app.

    Attributes:
      folder: of its pyproject.toml.
      server, client: its components, each `module:name`.
      config: its run config, flat, with dots between the words of a key.
      num_clients: `num-supernodes` of its default federation; None if it has none.
    """

    folder: Path
    name: str
    server: str
    client: str
    config: Mapping[str, Any]
    num_clients: int | None = None

    @classmethod
    def read(cls, folder: Path | str) -> FlowerApp:
        """Reads the pyproject.toml of an app's folder."""
        folder = Path(folder).resolve()
        file = folder / "pyproject.toml"
        way_out = "Example: airprune flower path/to/app"
        if not file.is_file():
            raise InvalidValue("flower.app", "must be a folder with a pyproject.toml", repr(str(folder)), way_out)
        text = toml_text.read_text(file, way_out=way_out)
        values = toml_text.parse(text, source=str(file))
        flwr = values.get("tool", {}).get("flwr", {})
        app = flwr.get("app", {})
        components = app.get("components", {})
        for part in ("serverapp", "clientapp"):
            if not isinstance(components.get(part), str) or ":" not in components[part]:
                rule = f"must name its {part} as module:name in [tool.flwr.app.components]"
                raise InvalidValue(str(file), rule, repr(components.get(part)), 'Example: "myapp.server_app:app"')
        return cls(
            folder=folder,
            name=str(values.get("project", {}).get("name") or folder.name),
            server=components["serverapp"],
            client=components["clientapp"],
            config=_flat(app.get("config", {})),
            num_clients=_num_clients(flwr.get("federations", {})),
        )

    def with_config(self, changes: Mapping[str, Any]) -> FlowerApp:
        """Returns the app with changes to its run config; refuses keys that it does not have."""
        for key in changes:
            if key not in self.config:
                known = ", ".join(self.config) or "none"
                rule = "must change a key of [tool.flwr.app.config]"
                raise InvalidValue("flower.run_config", rule, repr(key), f"Its keys: {known}")
        return replace(self, config={**self.config, **changes})

    @property
    def num_rounds(self) -> int | None:
        """Rounds as its config usually names them; None if it does not."""
        found = next((self.config[key] for key in _ROUNDS if key in self.config), None)
        return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None

    @property
    def digest(self) -> str:
        """SHA-256 of its Python files and its config: a resumed run must have the same."""
        digest = hashlib.sha256()
        for path in sources(self.folder):
            digest.update(path.relative_to(self.folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
        digest.update(repr(sorted(self.config.items())).encode())
        return digest.hexdigest()


def sources(folder: Path) -> list[Path]:
    """Returns the Python files of an app's folder, in order."""
    found = sorted(folder.rglob("*.py"))
    return [path for path in found if not _NO_SOURCE & set(path.relative_to(folder).parts) and path.is_file()]


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {before + key: value}
    return found


def _num_clients(federations: Mapping[str, Any]) -> int | None:
    """Returns `num-supernodes` of the default federation, or of the only one that has it."""
    named = [part for key, part in federations.items() if isinstance(part, Mapping)]
    default = federations.get("default")
    if isinstance(default, str) and isinstance(federations.get(default), Mapping):
        named = [federations[default]]
    counts = {part.get("options", {}).get("num-supernodes") for part in named} - {None}
    number = counts.pop() if len(counts) == 1 else None
    return number if isinstance(number, int) and number > 0 else None


def config_words(text: str) -> dict[str, Any]:
    """Returns the changes in words like `num-server-rounds=5 lr=0.1`, as `flwr run --run-config` takes them."""
    try:
        return _flat(tomllib.loads("\n".join(_words(text))))
    except tomllib.TOMLDecodeError:
        example = "Example: --run-config 'num-server-rounds=5 name=\"x\"'"
        raise InvalidValue("--run-config", "must be key=value words, values as in TOML", repr(text), example) from None


def _words(text: str) -> list[str]:
    """Splits at blanks outside of quotes and brackets."""
    words: list[str] = []
    word, quote, depth = "", "", 0
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        else:
            depth += (char in "[{") - (char in "]}")
        if char.isspace() and not quote and depth == 0:
            words.append(word)
            word = ""
        else:
            word += char
    return [one for one in [*words, word] if one]


@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Puts an app's folder first among the places that modules are imported from."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))


def load(name: str, folder: Path, what: str) -> Any:
    """Imports `module:name` of an app; `what` it is must fit."""
    module, _, attribute = name.partition(":")
    _forget_others(module.partition(".")[0], folder)
    with importable(folder):
        try:
            found = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except Exception as error:
            raise WorkFailed(f"The app's {what} {name} cannot be imported: {trouble_of(error)}") from error
    if type(found).__name__ != what:
        raise UsageError(f"{name} must be a {what}, got a {type(found).__name__}; name another in pyproject.toml.")
    return found


def _forget_others(package: str, folder: Path) -> None:
    """Forgets a package of the same name that another app has brought into this process."""
    found = sys.modules.get(package)
    origins = [getattr(found, "__file__", None), *list(getattr(found, "__path__", []))] if found else []
    if found is None or any(origin and Path(origin).resolve().is_relative_to(folder) for origin in origins):
        return
    if not (folder / package).exists() and not (folder / f"{package}.py").exists():
        return  # an installed package
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
    importlib.invalidate_caches()
