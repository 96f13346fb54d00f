"""The run, deployment, reproduction and league folders under the runs folder. Links are not followed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from airprune.web.runs.names import HERE, MAX_DEPTH, is_part

MAX_FOLDERS = 5_000
MAX_RUNS = 2_000

_SCENARIO, _RECORDS, _CLAIMS, _FINAL = "scenario.toml", "records.jsonl", "claims.json", "final.safetensors"
_LEAGUE = "league.json"
# Of a fleet's cloud, and of a run on real machines: before its first round, and after.
_FLEET = "fleet.sqlite"
_DEPLOYED = ("status.json", "measured.jsonl")
_KNOWN = frozenset((_SCENARIO, _RECORDS, _CLAIMS, _LEAGUE, _FINAL, _FLEET, *_DEPLOYED))


@dataclass(frozen=True)
class Found:
    """A run folder.

    Attributes:
      written: when its records (or else its scenario) were last written, in seconds since 1970.
      signature: changes whenever one of its files does.
    """

    name: str
    path: Path
    written: float
    signature: tuple[object, ...]


@dataclass(frozen=True)
class Findings:
    """Lists the folders found under the runs folder.

    Attributes:
      runs: last written first, at most `MAX_RUNS`.
      num_left_out: runs beyond those.
      reproductions: names of the folders with claims, last written first.
      leagues: names of the folders with a league, last written first.
      deployments: names of the folders of fleets, then of single runs on real machines; last written first.
      is_complete: whether every folder was looked at.
    """

    runs: list[Found]
    num_left_out: int
    reproductions: list[str]
    leagues: list[str]
    deployments: list[str]
    is_complete: bool


def find(root: Path) -> Findings:
    runs: list[Found] = []
    claims: list[tuple[float, str]] = []
    leagues: list[tuple[float, str]] = []
    deployed: list[tuple[bool, float, str]] = []
    fleets: list[str] = []
    waiting = [(HERE, root, 0)]
    looked_at = 0
    while waiting and looked_at < MAX_FOLDERS:
        looked_at += 1
        name, path, depth = waiting.pop(0)
        files, folders = _contents(path)
        if _CLAIMS in files:
            claims.append((-files[_CLAIMS].st_mtime, name))
        if _LEAGUE in files:
            leagues.append((-files[_LEAGUE].st_mtime, name))
        if (written := _deployed_at(files)) is not None and not any(_is_below(name, fleet) for fleet in fleets):
            deployed.append((_FLEET not in files, -written, name))
            fleets += [name] if _FLEET in files else []
        if _SCENARIO in files or _RECORDS in files:
            runs.append(_found(name, path, files))
        elif depth < MAX_DEPTH:
            prefix = "" if name == HERE else f"{name}/"
            waiting += [(f"{prefix}{folder}", path / folder, depth + 1) for folder in folders]
    runs.sort(key=lambda run: (-run.written, run.name))
    return Findings(
        runs=runs[:MAX_RUNS],
        num_left_out=max(0, len(runs) - MAX_RUNS),
        reproductions=[name for _, name in sorted(claims)],
        leagues=[name for _, name in sorted(leagues)],
        deployments=[name for _, _, name in sorted(deployed)],
        is_complete=not waiting,
    )


def _contents(path: Path) -> tuple[dict[str, os.stat_result], list[str]]:
    """The plain files that tell what a folder is, and its folders in order."""
    files, folders = {}, []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if is_part(entry.name):
                        folders.append(entry.name)
                elif entry.name in _KNOWN:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        files[entry.name] = status
    except OSError:  # gone meanwhile, or not ours to see
        pass
    return files, sorted(folders)


def is_deployment(path: Path) -> bool:
    """True for the folder of a fleet's cloud or of a run on real machines."""
    return _deployed_at(_contents(path)[0]) is not None


def _deployed_at(files: dict[str, os.stat_result]) -> float | None:
    """Returns when a deployment was last written; None if the folder is none."""
    return max((files[name].st_mtime for name in (_FLEET, *_DEPLOYED) if name in files), default=None)


def _is_below(name: str, fleet: str) -> bool:
    return fleet == HERE or name.startswith(f"{fleet}/")


def _found(name: str, path: Path, files: dict[str, os.stat_result]) -> Found:
    status = files.get(_RECORDS) or files[_SCENARIO]
    signature = tuple(
        (key, files[key].st_ino, files[key].st_size, files[key].st_mtime_ns)
        for key in (_SCENARIO, _RECORDS, _FINAL)
        if key in files
    )
    return Found(name, path, status.st_mtime, signature)
