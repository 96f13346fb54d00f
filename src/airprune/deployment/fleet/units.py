"""Writes systemd units for the nodes of a fleet."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from airprune.deployment.identity import Node, Role
from airprune.errors import UsageError

_UNIT = """\
[Unit]
Description=airprune {role} {name} of {federation}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
User={user}
ExecStartPre=+/usr/bin/install -d -m 700 -o {user} {state}
ExecStart={command}
Restart=always
RestartSec=2
RestartSteps=8
RestartMaxDelaySec=300
KillSignal=SIGTERM
TimeoutStopSec=30
Nice={nice}
NoNewPrivileges=true
PrivateTmp=true
ProtectSystem=strict
ProtectHome={protect_home}
ReadWritePaths={written}

[Install]
WantedBy=multi-user.target
"""

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,30}")
# Options that name a file or folder.
_PLACES = ("--authority", "--data")


def unit_of(node: Node, state: Path, *, user: str, options: Sequence[str] = ()) -> str:
    """Returns the unit that runs a node as a service, restarted whenever it ends.

    Args:
      state: its folder, which it writes; a cloud that has the authority writes that, and the lists in its own kit, too.
      options: more words of its command; places in them are those of this folder, whatever the service's is.
    """
    command = {Role.CLOUD: "serve", Role.EDGE: "edge", Role.DEVICE: "device"}[node.peer.role]
    kit, state = node.folder.resolve(), state.resolve()
    if not _USER.fullmatch(user):
        raise UsageError(f"--user must be the name of a user, got {user!r}. Example: --user airprune")
    further, places = _with_places(options)
    words = [_program(), "deploy", command, str(kit), "--state-dir", str(state), *further]
    written = [state]
    if "--authority" in places:
        written += [kit, places["--authority"] / "authority"]
    return _UNIT.format(
        role=node.peer.role,
        name=node.peer.name,
        federation=node.peer.federation,
        user=user,
        command=" ".join(map(_quoted, words)),
        nice=10 if node.peer.role is Role.DEVICE else 0,
        protect_home="false" if any(map(_is_at_home, (Path(words[0]), kit, state, *places.values()))) else "true",
        state=_quoted(str(state)),
        written=" ".join(_quoted(str(place)) for place in written),
    )


def _with_places(options: Sequence[str]) -> tuple[list[str], dict[str, Path]]:
    """Returns options word by word, with files and folders named from the root, and these by option."""
    words = [part for option in options for part in (option.split("=", 1) if option.startswith("--") else [option])]
    places = {}
    for at, word in enumerate(words[1:], start=1):
        if words[at - 1] in _PLACES and Path(word).exists():
            places[words[at - 1]] = place = Path(word).resolve()
            words[at] = str(place)
    return words, places


def _program() -> str:
    beside = Path(sys.executable).with_name("airprune")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("airprune")
    if found is None:
        raise UsageError("The command airprune is not on the PATH; install the package where the service is to run.")
    return str(Path(found).absolute())


def _is_at_home(path: Path) -> bool:
    return path.parts[1:2] in (("home",), ("root",))


def _quoted(word: str) -> str:
    """Returns a word as systemd reads it back: % and $ have a meaning there."""
    if any(ord(character) < 32 for character in word):
        raise UsageError(f"A word of a unit must be printable, got {word!r}.")
    word = word.replace("%", "%%").replace("$", "$$").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{word}"' if set(word) & set(" ';\"\\") or not word else word
