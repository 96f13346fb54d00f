"""The rule by which a soak is judged, and a short soak."""

import os
import random
import subprocess
import sys
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


def test_memory_that_fills_up_and_stays_is_no_growth_and_a_leak_behind_it_is():
    filling = readings(memory=lambda t: (63 + 12 * (1 - 0.5 ** (t / 150))) * MIB)  # half of the rest in each sixth
    assert growth.growth(filling, "memory_bytes") > 6 * MIB and growth.findings("edge", filling) == []
    leaking = readings(memory=lambda t: (63 + 12 * (1 - 0.5 ** (t / 150)) + 6.5 * t / 900) * MIB)
    assert [finding.split()[1] for finding in growth.findings("edge", leaking)] == ["memory_bytes"]


@pytest.mark.parametrize("grown, is_found", [(5.9, False), (6.1, True)])
def test_a_steady_leak_is_found_from_the_same_rate_on_in_the_half_as_in_the_whole(grown, is_found):
    steady = readings(memory=lambda t: (100 + grown * t / 900) * MIB)
    assert growth.lasting_growth(steady) == pytest.approx(
        growth.growth(steady, "memory_bytes"), rel=1e-5
    )  # whole bytes
    assert bool(growth.findings("edge", steady)) == is_found


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


@pytest.mark.slow
def test_a_short_soak_of_a_fleet_has_no_finding():
    path = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "tools.fleet_soak", "0.5", "--seed", "1", "--pause", "0"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=900, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "jobs replayed to the same bytes" in done.stdout and done.stdout.endswith("\n0 findings.\n")
