"""Two trees of this repository compared by what they compute: `scripts/yardstick [BASE] [--only PATTERN]`.

Every scenario of yardstick_scenarios.py runs on the commit BASE and on the present tree, and records and final weights
are compared byte by byte; so are, in the present tree, runs that only differ in their engine or were interrupted. What
BASE gave is kept in .yardstick, so that only the present tree runs the next time.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

sys.path.insert(0, str(Path(__file__).parent))

from yardstick_scenarios import CASES

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").exists())
RUNNER = Path(__file__).with_name("yardstick_scenarios.py")
CACHE = ROOT / ".yardstick"
KERNEL, SOURCES = "_paper_cnn*.so", "*.[ch]"
# Scenarios that run at the same time.
PROGRAMS = 2


def difference(base: Path, present: Path) -> str | None:
    """Where two run folders differ first, in records or final weights; None if they are equal to the byte."""
    failures = [_text(folder / "failed.txt").strip() for folder in (base, present)]
    if any(failures):
        words = [failure or "succeeded" for failure in failures]
        return f"both fail: {words[0]}" if words[0] == words[1] else f"base: {words[0]}; present: {words[1]}"
    return _records(base / "records.jsonl", present / "records.jsonl") or _tensors(
        base / "final.safetensors", present / "final.safetensors"
    )


def _records(base: Path, present: Path) -> str | None:
    before, after = base.read_bytes(), present.read_bytes()
    if before == after:
        return None
    lines = before.splitlines(), after.splitlines()
    for number, (old, new) in enumerate(zip(*lines, strict=False), start=1):
        if old != new:
            change = _key(json.loads(old), json.loads(new)) or "the same values are written differently"
            return f"records.jsonl line {number}, {change}"
    return f"records.jsonl has {len(lines[1])} lines, base {len(lines[0])}"


def _key(old: Any, new: Any, path: str = "") -> str | None:
    """The first key whose value differs, with both values; None if all are equal."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{path}.{key}" if path else key
            if key not in old or key not in new:
                return f"{inner}: {'new' if key not in old else 'gone'}"
            if change := _key(old[key], new[key], inner):
                return change
        return None
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return next((change for i, pair in pairs if (change := _key(*pair, f"{path}[{i}]"))), None)
    return None if repr(old) == repr(new) else f"{path}: {_short(new)}, base {_short(old)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _tensors(base: Path, present: Path) -> str | None:
    before, after = load_file(base), load_file(present)
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            return f"tensor {name}: {'new' if name not in before else 'gone'}"
        old, new = before[name], after[name]
        if (old.dtype, old.shape) != (new.dtype, new.shape):
            return f"tensor {name}: {new.dtype}{list(new.shape)}, base {old.dtype}{list(old.shape)}"
        if old.tobytes() != new.tobytes():
            bits = f"u{old.itemsize}"  # also tells -0 from 0
            return f"tensor {name}: {int((old.view(bits) != new.view(bits)).sum())} of {old.size} values differ"
    return None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def checkout(commit: str, folder: Path) -> None:
    """The files of a commit. An archive, because a registered worktree would outlive an interrupted comparison."""
    archive = folder.with_suffix(".tar")
    _git("archive", "--format=tar", f"--output={archive}", commit)
    shutil.unpack_archive(archive, folder)
    archive.unlink()


def give_kernel(tree: Path) -> None:
    """The present tree's native kernel, if it was built from the same sources; else one is built."""
    built = next((ROOT / "src").rglob(KERNEL), None)
    home = next((path.parent for path in (tree / "src").rglob("paper_cnn.c")), None)
    if built is None or home is None:
        return
    if _sources(tree) == _sources(ROOT):
        shutil.copy2(built, home)
    else:
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
        subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)


def _sources(tree: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (tree / "src").rglob(SOURCES)}


def start(tree: Path, out: Path, names: list[str]) -> subprocess.Popen[bytes]:
    """These scenarios on one tree, in a process that imports airprune from there; those with one `out` share them."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen([sys.executable, "-P", str(RUNNER), str(out), *names], cwd=out.parent, env=environment)


def chosen(pattern: str) -> list[str]:
    """The scenarios whose names contain a shell pattern, and those whose results these must have."""
    found = {name for name in CASES if fnmatch.fnmatchcase(name, f"*{pattern}*")}
    found |= {CASES[name].same_as for name in found}
    return [name for name in CASES if name in found]


def cached(commit: str) -> Path:
    """Where a commit's results are kept; other scenarios, libraries or another CPU make others."""
    kernel = next((ROOT / "src").rglob(KERNEL), None)
    parts = [RUNNER.read_bytes(), b"" if kernel is None else kernel.read_bytes(), platform.processor().encode()]
    parts += [importlib.metadata.version(name).encode() for name in ("torch", "numpy")]
    parts += [platform.python_version().encode(), platform.node().encode()]
    digest = hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
    return CACHE / f"{commit[:12]}-{digest[:12]}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/yardstick", description=__doc__.splitlines()[0])
    parser.add_argument("base", nargs="?", default="HEAD", help="commit to compare the present tree with")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="scenarios whose names contain it: 'rough-*sgd'")
    given = parser.parse_args()
    names = chosen(given.only)
    if not names:
        parser.error(f"--only must match a scenario, got {given.only}; {RUNNER.relative_to(ROOT)} has them")
    commit = _git("rev-parse", "--verify", "--quiet", f"{given.base}^{{commit}}")
    if not commit:
        parser.error(f"BASE must name a commit, got {given.base}; `git log --oneline` lists them")
    kept = cached(commit)
    new = [name for name in names if not (kept / name).exists()]
    with tempfile.TemporaryDirectory(prefix="yardstick-") as folder:
        scratch = Path(folder)
        work = {"present": (ROOT, names)}
        if new:
            work["base"] = (scratch / "tree", new)
            checkout(commit, scratch / "tree")
            give_kernel(scratch / "tree")
        running = [
            (which, start(tree, scratch / which, wanted))
            for which, (tree, wanted) in work.items()
            for _ in range(PROGRAMS // len(work))
        ]
        codes = [(which, process.wait()) for which, process in running]
        for which, code in codes:
            if code:
                sys.exit(f"The scenarios could not be run on the {which} tree (exit {code}); see above.")
        for name in new:
            keep(scratch / "base" / name, kept / name)
        differing = report(kept, scratch / "present", names)
    sys.exit(1 if differing else 0)


def keep(results: Path, folder: Path) -> None:
    """Whole or not at all: an interrupted copy must not be compared with."""
    part = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.copytree(results, part, ignore=shutil.ignore_patterns("checkpoint", "memory", "*.toml", "environment.json"))
    if folder.exists():  # kept by another comparison meanwhile
        shutil.rmtree(part)
    else:
        part.rename(folder)


def report(base: Path, present: Path, names: list[str]) -> int:
    """One line per scenario; how many differ although nobody has announced it. A run that fails is never announced."""
    found = {name: difference(base / name, present / name) for name in sorted(names)}
    failed = {name for name in names if (present / name / "failed.txt").exists()}
    announced = {
        name: "" if name in failed else CASES[name].announced for name, change in found.items() if change is not None
    }
    unlike = unlike_their_model(present, [name for name in found if name not in failed])
    width = max(len(name) for name in names) + 2
    for name, change in found.items():
        word = "equal" if change is None else f"differs: {change}"
        if announced.get(name):
            word = f"differs as announced: {announced[name]}"
        sys.stdout.write(f"{name:{width}}{word}\n")
        if name in unlike:
            sys.stdout.write(f"{'':{width}}is not as {CASES[name].same_as} in the present tree: {unlike[name]}\n")
    unannounced = sum(not reason for reason in announced.values())
    sys.stdout.write(
        f"{len(found) - len(announced)} of {len(found)} scenarios are equal to {base.name[:12]}, "
        f"{len(announced) - unannounced} differ as announced, {unannounced} otherwise.\n"
    )
    if unlike:
        sys.stdout.write(f"{len(unlike)} depend on their engine or on an interruption.\n")
    return unannounced + len(unlike)


def unlike_their_model(tree: Path, names: list[str]) -> dict[str, str]:
    """Where results of one tree differ that must be the same, as `Case.same_as` says."""
    pairs = {name: CASES[name].same_as for name in names if CASES[name].same_as}
    found = {name: difference(tree / model, tree / name) for name, model in pairs.items()}
    return {name: change for name, change in found.items() if change is not None}


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    main()
