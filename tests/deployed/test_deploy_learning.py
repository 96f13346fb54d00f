"""One round shows the cloud a device's rate and speed, whatever the outcome of its upload."""

import math
from dataclasses import fields

import pytest

from airprune.deployment.cloud_estimates import slowdown_of, uplink_bps_of
from airprune.deployment.pacing import WIRE_OVERHEAD
from airprune.runs.measured import MeasuredRow

NOTHING = {"bytes": None, "uplink_s": None, "compute_s": None, "started_s": None, "arrived_s": None}
# A share of 0.5 carries 2 Mbit/s, 250 kB/s.
WHOLE = {"bytes": 250_000, "uplink_s": 1.0, "compute_s": 0.2, "started_s": 0.3, "arrived_s": 1.3}


def row(fate: str, **values) -> MeasuredRow:
    unknown = dict.fromkeys(field.name for field in fields(MeasuredRow))
    known = dict(round=0, global_round=1, edge_round=1, edge=0, device=0, fate=fate, share=0.5, rate_bps=2e6, extra={})
    return MeasuredRow(**{**unknown, **known, "planned_compute_s": 0.3, **values})


@pytest.mark.parametrize(
    ("fate", "values", "uplink_bps", "slowdown"),
    [
        ("ok", WHOLE, math.nan, 1.0),  # as planned
        ("ok", {**WHOLE, "uplink_s": 2.0}, 2e6, 1.0),  # half the rate, on half of the band
        ("late", {**WHOLE, "uplink_s": 2.0, "started_s": 0.6}, 2e6, 2.0),
        ("late", {**WHOLE, "bytes": 125_000, "arrived_s": None}, 2e6, 1.0),  # under way
        ("late", {**WHOLE, "bytes": 0, "arrived_s": None}, 2e6, 1.0),  # begun, and nothing came
        ("late", NOTHING, math.nan, 2.0),  # not begun
        ("dropped", NOTHING, math.nan, math.nan),
        ("failed", NOTHING, math.nan, math.nan),
    ],
)
def test_what_an_upload_tells(fate, values, uplink_bps, slowdown):
    found = row(fate, **values)
    assert uplink_bps_of(found) == pytest.approx(WIRE_OVERHEAD * uplink_bps, nan_ok=True)
    assert slowdown_of(found) == pytest.approx(slowdown, nan_ok=True)
