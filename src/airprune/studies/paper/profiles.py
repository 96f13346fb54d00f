"""The schedules of a reproduction: minutes, half an hour, or Table I to the letter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airprune.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A schedule for all training figures.

    Attributes:
      note: printed on every figure.
      seeds: one run of everything per seed.
      presets: the scenarios that claims are judged on.
      changes: of the preset.
      samples_per_device: D_n; smaller networks have fewer samples in all.
      target_accuracy: the accuracy that time, bits and joules are given for: below that which the paper's method ends
        with, so that this method and better ones reach it.
    """

    name: str
    note: str
    seeds: tuple[int, ...]
    presets: tuple[str, ...]
    samples_per_device: int
    target_accuracy: float
    changes: dict[str, Any] = field(default_factory=dict)

    def scenario(self, preset: str, seed: int, changes: dict[str, Any]) -> Scenario:
        """Returns the preset on this profile's schedule, with one series' own changes on top."""
        base = Scenario.preset(preset).with_values({**self.changes, **changes, "seed": seed})
        return base.with_("data.train_samples", self.samples_per_device * base.num_devices)


def _schedule(*, batch_size: int, global_rounds: int, edge_rounds: int, test_samples: int) -> dict[str, Any]:
    return {
        "train.batch_size": batch_size,
        "rounds.global_rounds": global_rounds,
        "rounds.edge_rounds": edge_rounds,
        "data.test_samples": test_samples,
    }


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            name="quick",
            note="quick profile: 100 samples per device, batch 16, 3 global × 1 edge rounds, 1 seed; noisy",
            seeds=(0,),
            presets=("paper-converged",),
            samples_per_device=100,
            target_accuracy=0.4,
            changes=_schedule(batch_size=16, global_rounds=3, edge_rounds=1, test_samples=1000),
        ),
        Profile(
            name="default",
            note="default profile: 200 samples per device, batch 32, 6 global × 2 edge rounds, 5 seeds",
            seeds=(0, 1, 2, 3, 4),
            presets=("paper-converged",),
            samples_per_device=200,
            target_accuracy=0.65,
            changes=_schedule(batch_size=32, global_rounds=6, edge_rounds=2, test_samples=5000),
        ),
        Profile(
            name="full",
            note="full profile: Table I to the letter, 3 seeds",
            seeds=(0, 1, 2),
            presets=("paper", "paper-converged"),
            samples_per_device=2000,
            target_accuracy=0.8,
        ),
    )
}
