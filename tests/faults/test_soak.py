"""The rule by which a soak is judged, and a short soak."""

import random
import subprocess
from pathlib import Path

import pytest
from tools import growth
from tools.growth import MIB, Reading

ROOT = Path(__file__).parents[2]


def readings(memory=lambda t: 100 * MIB, descriptors=lambda t: 9, span_s: float = 900.0, count: int = 16, **held):
    return [
        Reading(
            at_s=t, memory_bytes=int(memory(t)), descriptors=int(descriptors(t)), threads=held.get("threads", 3),
            processes=held.get("processes", 1),
        )
        for t in (span_s * number / (count - 1) for number in range(count))
    ]  # fmt: skip


def test_what_stays_as_it_is_has_no_finding():
    rng = random.Random(1)
    noisy = readings(
        memory=lambda t: 100 * MIB + rng.uniform(-8, 8) * MIB, descriptors=lambda t: 9 + (rng.random() < 0.3)
    )
    assert growth.findings("server", noisy) == []


def test_a_leak_of_a_mebibyte_a_minute_is_found_beneath_noise_ten_times_its_size():
    rng = random.Random(2)
    leaking = readings(memory=lambda t: 100 * MIB + t / 60 * MIB + rng.uniform(-5, 5) * MIB)
    (finding,) = growth.findings("server", leaking)
    assert finding.startswith("server: memory_bytes grew by")


def test_a_descriptor_lost_every_few_minutes_is_found_also_in_a_short_soak():
    lost = readings(descriptors=lambda t: 9 + t // 20, span_s=60.0)
    assert [finding.split()[1] for finding in growth.findings("server", lost)] == ["descriptors"]


def test_one_odd_reading_is_no_growth_and_one_process_more_for_good_is():
    odd = readings(memory=lambda t: (400 if t == 900.0 else 100) * MIB)
    assert growth.findings("server", odd) == []
    more = readings()
    more[8:] = readings(processes=2)[8:]
    assert [finding.split()[1] for finding in growth.findings("server", more)] == ["processes"]


def test_memory_is_not_judged_over_less_than_five_minutes():
    filling = readings(memory=lambda t: 100 * MIB + t * MIB, span_s=growth.JUDGED_MEMORY_S - 1)
    assert growth.findings("server", filling) == []
    assert growth.growth(filling, "memory_bytes") == pytest.approx(299 * MIB, rel=1e-6)


@pytest.mark.slow
def test_a_short_soak_has_no_finding():
    done = subprocess.run(
        [ROOT / "scripts" / "soak", "0.5", "--seed", "1"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runs that ended in the right bytes" in done.stdout and done.stdout.endswith("\n0 findings.\n")
