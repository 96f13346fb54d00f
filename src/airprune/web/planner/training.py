"""From a plan to a run: the planned devices as the network of a scenario, and what else of it the planner has set."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from airprune import files
from airprune.errors import WorkFailed
from airprune.web.planner.settings import PlannerSettings

FOLDER = "fleets"


def overrides(settings: PlannerSettings) -> dict[str, str]:
    """The planner's settings by a scenario's keys, as one types them after `key=`."""
    return {
        "plan.scheme": settings.scheme,
        "plan.deadline_s": f"{settings.deadline_ms / 1e3:.12g}",
        "plan.max_pruning_ratio": f"{settings.max_pruning:.12g}",
        "radio.bandwidth_hz": f"{settings.bandwidth_mhz * 1e6:.12g}",
    }


def offer(settings: PlannerSettings) -> dict[str, Any]:
    """Returns the preset and the changes that train the planned devices.

    By a table of their SNRs where these say all of a link; else by the scenario itself, without devices moved by hand.
    """
    if settings.fleet is not None or settings.is_papers_radio:
        return {"preset": "smoke", "has_table": True, "overrides": overrides(settings)}
    preset, *words = settings.command_words()
    given = dict(word.split("=", 1) for word in words)
    if given.pop("radio.noise", None):  # short for two keys, which a form has
        given |= {"radio.noise_density_dbm_per_hz": "-174", "radio.noise_figure_db": "7"}
    return {"preset": preset, "has_table": False, "overrides": given}


def keep_table(root: Path, content: bytes) -> Path:
    """Writes the table below the runs folder, named by its content: the same devices are one file."""
    path = root / FOLDER / f"{hashlib.sha256(content).hexdigest()[:12]}.csv"
    try:
        root.mkdir(parents=True, exist_ok=True)
        files.make_folder(path.parent)
        if not files.is_regular(path, inside=root):
            with files.replacing(path, inside=root) as file:
                file.write(content)
    except OSError as error:
        raise WorkFailed(f"The table was not written: {error.strerror}.") from None
    return path
