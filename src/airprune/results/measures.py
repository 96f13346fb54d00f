"""Every measure once: its name, unit and form for people.

Tables, figures, reports, the web page and the docs read this list. Records are in SI units, as the names say; people
see scaled ones. `records` documents the meaning of each field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from airprune.text import number


class Better(StrEnum):
    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One key of a record.

    Attributes:
      label: in a sentence or on an axis.
      recorded_unit: of the number in the record.
      unit: as people see it, after `scale`; empty for plain numbers.
      scale: shown = recorded × scale.
      form: how the shown number is formatted, as `wording.number` takes it.
      better: which way is better; None where neither is.
      heading: above a column, unit included; by default label and unit.
      brief: the same where there is little room.
      stem: in the names of figure files.
    """

    name: str
    label: str
    recorded_unit: str = ""
    unit: str = ""
    scale: float = 1.0
    form: str = ".4g"
    better: Better | None = None
    heading: str = ""
    brief: str = ""
    stem: str = ""

    def __post_init__(self) -> None:
        heading = self.heading or (f"{self.label} ({self.unit})" if self.unit else self.label)
        for name, default in (("heading", heading), ("brief", heading), ("stem", self.name.replace("_", "-"))):
            object.__setattr__(self, name, getattr(self, name) or default)

    def text(self, value: float | None) -> str:
        """Returns a recorded value as it stands under the heading."""
        return number(value, self.form, scale=self.scale)

    def with_unit(self, value: float | None) -> str:
        """Returns a recorded value with its unit."""
        return number(value, self.form, f" {self.unit}" if self.unit else "", scale=self.scale)

    @property
    def axis_label(self) -> str:
        return self.label if self.unit == "%" else self.heading

    @property
    def axis_scale(self) -> float:
        """The factor on an axis: shares are drawn as shares, as in the paper, though tables show percent."""
        return 1.0 if self.unit == "%" else self.scale

    def as_json(self) -> dict[str, Any]:
        """Returns the values for the web page: `digits` are significant ones, `decimals` those after the point."""
        return {
            "label": self.label,
            "axis_label": self.axis_label,
            "axis_scale": self.axis_scale,
            "heading": self.heading,
            "brief": self.brief,
            "unit": self.unit,
            "scale": self.scale,
            "better": self.better,
            "digits" if self.form.endswith("g") else "decimals": int(self.form.strip(",.fg")),
        }


_PERCENT: Any = {"recorded_unit": "0 … 1", "unit": "%", "scale": 100.0, "form": ".2f", "better": Better.HIGHER}
_SECONDS: Any = {"recorded_unit": "s", "unit": "s", "better": Better.LOWER}
_MILLISECONDS: Any = {"recorded_unit": "s", "unit": "ms", "scale": 1e3, "better": Better.LOWER}
_MEGABITS: Any = {"recorded_unit": "bit", "unit": "Mbit", "scale": 1e-6, "form": ",.2f", "better": Better.LOWER}
_JOULES: Any = {"recorded_unit": "J", "unit": "J", "better": Better.LOWER}
_COUNT: Any = {"form": ",.0f"}
_SHARE: Any = {"recorded_unit": "0 … 1", "form": ".4f"}

# By the key in a record; keys that are names or places, such as `fate` and `device`, are no measures.
MEASURES: Mapping[str, Measure] = {
    measure.name: measure
    for measure in (
        # of a round, or since the start
        Measure(name="global_round", label="global round", stem="rounds", **_COUNT),
        Measure(name="edge_round", label="edge round", **_COUNT),
        Measure(name="test_accuracy", label="test accuracy", brief="accuracy %", stem="accuracy", **_PERCENT),
        Measure(name="test_loss", label="test loss", form=".4f", better=Better.LOWER, stem="loss"),
        Measure(name="train_loss", label="training loss", form=".4f", better=Better.LOWER, stem="training-loss"),
        Measure(name="time_s", label="simulated time", brief="simulated s", stem="time", **_SECONDS),
        Measure(name="latency_s", label="latency", **_MILLISECONDS),
        Measure(
            name="uploaded_weights",
            label="uploaded weights",
            unit="million",
            scale=1e-6,
            better=Better.LOWER,
            heading="uploaded weights (millions)",
            brief="uploaded Mweights",
        ),
        Measure(
            name="uploaded_bits",
            label="uploaded bits",
            heading="uploaded (Mbit)",
            brief="uploaded Mbit",
            stem="bits",
            **_MEGABITS,
        ),
        Measure(name="downlink_bits", label="downlink bits", heading="downlink (Mbit)", **_MEGABITS),
        Measure(name="downlink_s", label="downlink", **_MILLISECONDS),
        Measure(name="exchange_bits", label="bits of the secure exchange", heading="exchange (Mbit)", **_MEGABITS),
        Measure(name="exchange_s", label="secure exchange", **_MILLISECONDS),
        Measure(name="mean_error_sq", label="squared error of the mean by noise", better=Better.LOWER),
        Measure(name="station_energy_j", label="energy of stations", **_JOULES),
        Measure(name="d2d_bits", label="bits between devices", heading="between devices (Mbit)", **_MEGABITS),
        Measure(name="backhaul_bits", label="backhaul bits", heading="backhaul (Mbit)", **_MEGABITS),
        Measure(name="d2d_energy_j", label="energy between devices", **_JOULES),
        Measure(name="energy_j", label="energy", brief="energy J", stem="energy", **_JOULES),
        Measure(
            name="mean_pruning_ratio",
            label="mean pruning ratio",
            recorded_unit="0 … 1",
            form=".3f",
            brief="mean pruning",
            stem="pruning",
        ),
        Measure(name="num_samples", label="samples", **_COUNT),
        Measure(name="participants", label="device rounds that took part", **_COUNT),
        Measure(name="left_out", label="left-out device rounds", better=Better.LOWER, **_COUNT),
        Measure(name="asked", label="asked devices", **_COUNT),
        Measure(name="sampled_of", label="devices of the round", **_COUNT),
        Measure(name="pruning_ratio_quartiles", label="quartiles of pruning", **_SHARE),
        Measure(name="latency_quartiles_s", label="quartiles of latency", **_MILLISECONDS),
        Measure(name="loss_quartiles", label="quartiles of loss", form=".4f", better=Better.LOWER),
        Measure(name="deadline_s", label="deadline", recorded_unit="s", unit="ms", scale=1e3),
        Measure(name="device_accuracy", label="accuracy on the median device", brief="median device %", **_PERCENT),
        Measure(name="gradient_sq", label="squared gradient"),
        # until the target accuracy was reached, see `reaching`
        Measure(name="time_to_target_s", label="time to target", brief="simulated s", **_SECONDS),
        Measure(
            name="bits_to_target",
            label="bits to target",
            heading="uploaded to target (Mbit)",
            brief="uploaded Mbit",
            **_MEGABITS,
        ),
        Measure(name="joules_to_target", label="energy to target", brief="energy J", **_JOULES),
        Measure(name="rounds_to_target", label="global rounds to target", better=Better.LOWER, brief="global rounds"),
        # of each edge
        Measure(name="edge_latency_s", label="latency", **_MILLISECONDS),
        Measure(name="shadow_price", label="shadow price"),
        Measure(name="min_count", label="fewest devices per kept weight", better=Better.HIGHER, **_COUNT),
        Measure(name="num_uncovered", label="weights that no device kept", better=Better.LOWER, **_COUNT),
        # of each device
        Measure(name="bandwidth_share", label="bandwidth share", brief="bandwidth", **_SHARE),
        Measure(name="pruning_ratio", label="pruning ratio", brief="pruning", **_SHARE),
        Measure(name="kept_weights", label="kept weights", **_COUNT),
        Measure(name="bits_per_weight", label="bits per weight", recorded_unit="bit"),
        Measure(name="code_error", label="lost by the code", better=Better.LOWER, **_SHARE),
        Measure(name="compute_s", label="compute", **_MILLISECONDS),
        Measure(name="uplink_s", label="uplink", **_MILLISECONDS),
        Measure(name="relay_s", label="wait for the uplink", **_MILLISECONDS),
        Measure(name="local_steps", label="local steps", **_COUNT),
        Measure(name="first_trained", label="lowest trained layer", **_COUNT),
        Measure(name="last_trained", label="highest trained layer", **_COUNT),
        Measure(name="lag", label="rounds since its start", **_COUNT),
        Measure(name="device_energy_j", label="energy", **_JOULES),
        Measure(name="loss", label="training loss", form=".4f", better=Better.LOWER),
        Measure(name="pruning_error_sq", label="squared pruning error"),
        Measure(name="gradient_sq_max", label="largest squared gradient"),
        Measure(name="gradient_noise_sq", label="squared gradient noise"),
        Measure(name="smoothness", label="smoothness"),
    )
}

# The records of a deployment have the times it was planned with; `measured.jsonl` has those that were measured.
DEPLOYED_MEASURES: Mapping[str, Measure] = {
    **MEASURES,
    "time_s": replace(MEASURES["time_s"], label="planned time", heading="", brief="planned s"),
}
# Where simulated and deployed runs are shown together.
_MIXED_TIME = replace(MEASURES["time_s"], label="simulated or planned time", heading="", brief="simulated or planned s")
TIMES: Mapping[str, Measure] = {
    "simulated": MEASURES["time_s"],
    "deployed": DEPLOYED_MEASURES["time_s"],
    "mixed": _MIXED_TIME,
}

# The columns of a tidy table of curves, one row per global round; the web page gets the same.
CURVE_COLUMNS = (
    "global_round",
    "time_s",
    "uploaded_weights",
    "uploaded_bits",
    "energy_j",
    "mean_pruning_ratio",
    "train_loss",
    "test_loss",
    "test_accuracy",
)
# Curves are drawn of these, and against these.
DRAWN = ("test_accuracy", "test_loss", "train_loss", "mean_pruning_ratio")
AXES = ("global_round", "time_s", "uploaded_bits", "energy_j")
# A run in one line of a table.
SUMMARY = ("test_accuracy", "test_loss", "time_s", "uploaded_weights", "energy_j", "mean_pruning_ratio")
# Costs until the target accuracy → the field of an evaluation.
TO_TARGET: Mapping[str, str] = {
    "time_to_target_s": "time_s",
    "bits_to_target": "uploaded_bits",
    "joules_to_target": "energy_j",
    "rounds_to_target": "global_round",
}
# Shown and drawn for each device.
DEVICE_COLUMNS = ("bandwidth_share", "pruning_ratio", "compute_s", "uplink_s")
