"""Lists the optional extras of an installation, whether they are installed, and the command that installs them."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from airprune.errors import UsageError

# The packages of each extra of pyproject.toml; the version of the first is shown.
EXTRAS = {
    "train": ("torch", "cloudpickle"),
    "cluster": ("distributed", "dask", "cryptography"),
    "deploy": ("grpc", "google.protobuf", "cryptography"),
    "flower": ("flwr",),
    "export": ("onnx", "onnxscript"),
    "predict": ("onnxruntime",),
    "analysis": ("pandas",),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
}
# Extras whose packages exclude versions that constraints.txt pins; of its lines they take torch's alone.
UNPINNED = ("flower",)
# Packages of the web pages; part of every installation but those without dependencies.
PAGES = ("fastapi", "uvicorn", "plotly")


class MissingExtra(UsageError, ImportError):
    """A call needs packages that are not installed; the message has the command that installs them."""


def missing(packages: tuple[str, ...]) -> list[str]:
    """Returns the packages that are not installed."""
    return [name for name in packages if not _is_here(name)]


def need(extra: str, what: str) -> None:
    """Raises MissingExtra unless the extra is installed; `what` is the command or call that needs it."""
    if missing(EXTRAS[extra]):
        raise MissingExtra(f"{what} needs the extra `{extra}`: {install_command(extra)}")


def needed(module: str, *, extra: str, what: str) -> Any:
    """Imports the module; raises MissingExtra if its extra is not installed."""
    need(extra, what)
    return importlib.import_module(module)


def sentence_for(error: ModuleNotFoundError, what: str) -> str | None:
    """Returns what to install after a failed import; None if the module belongs to no extra."""
    name = (error.name or "").partition(".")[0]
    owners = (extra for extra, packages in EXTRAS.items() if name in {p.partition(".")[0] for p in packages})
    extra = next(owners, None)
    if extra is None and name not in PAGES:
        return None
    wanted = f"the extra `{extra}`" if extra else f"the package {name}"
    return f"{what} needs {wanted}: {install_command(extra)}"


def install_command(extra: str | None = None) -> str:
    """Returns the command that installs airprune with this extra from its origin: a checkout, a wheel or an index."""
    words = [*_pip(), "install"]
    wanted = "" if extra is None else f"[{extra}]"
    checkout = _checkout()
    if checkout is not None:
        is_here = checkout == Path.cwd()
        constraints = checkout / "constraints.txt"
        if constraints.is_file() and extra in UNPINNED:
            words += [line for line in constraints.read_text(encoding="utf-8").splitlines() if line[:7] == "torch=="]
        elif constraints.is_file():
            words += ["-c", "constraints.txt" if is_here else str(constraints)]
        source = "." if is_here else str(checkout)
        return shlex.join([*words, *(["-e"] if _is_inside(checkout) else [])]) + f" {_quoted(source + wanted)}"
    wheel = _installed_from()
    return f"{shlex.join(words)} {_quoted((str(wheel) if wheel else 'airprune') + wanted)}"


def _quoted(word: str) -> str:
    """Quotes a word with brackets, which some shells read as a pattern."""
    return f"'{word}'" if "[" in word else shlex.quote(word)


def _is_here(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # a parent package
        return False


def _pip() -> list[str]:
    """Returns the pip of this interpreter: by its short name where a terminal finds that one."""
    found = shutil.which("pip")
    is_ours = found is not None and Path(found).absolute().parent == Path(sys.executable).absolute().parent
    return ["pip"] if is_ours else [sys.executable, "-m", "pip"]


def _is_inside(checkout: Path) -> bool:
    """True if this package runs from the checkout itself, not from a copy of it."""
    return checkout / "src" in Path(__file__).resolve().parents


def _checkout() -> Path | None:
    """Returns the source tree that this package runs from or was installed from, if it still exists."""
    own = Path(__file__).resolve().parents[2]
    places = (own, _installed_from())
    return next((place for place in places if place is not None and (place / "pyproject.toml").is_file()), None)


def _installed_from() -> Path | None:
    """Returns the folder or wheel that pip noted (PEP 610), if it still exists."""
    import importlib.metadata  # slow, and needed for a hint only
    from urllib.parse import unquote, urlparse

    try:
        noted = importlib.metadata.distribution("airprune").read_text("direct_url.json")
        url = urlparse(json.loads(noted or "{}").get("url", ""))
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return None
    path = Path(unquote(url.path))
    return path if url.scheme == "file" and path.exists() else None
