"""Plans of a network without samples, and what pilots, channel reports and the downlink take of a round."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import airprune as ap
from airprune.errors import InvalidValue
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import first_round
from airprune.rounds.overhead import overhead_of, overhead_sentences
from airprune.rounds.planned_network import PlannedNetwork

GLYPHS = {"data.name": "glyphs", "data.train_samples": 1600, "data.test_samples": 200}
KNOWN_INEXACTLY = {"radio.fading": "rayleigh", "radio.num_antennas": 4, "radio.csi_correlation": 0.9}
COSTLY = KNOWN_INEXACTLY | {"radio.pilots": 16, "radio.report_bits": 2000, "plan.deadline_s": 0.04}


def found(changes=None, preset="paper"):
    return first_round(PlannedNetwork.of(ap.Scenario.preset(preset).with_values(changes or {})))


@pytest.mark.parametrize("preset", ["paper", "urban-5g", "factory", "iot", "million"])
def test_a_network_without_samples_is_planned_to_the_bit_as_its_experiment(preset):
    scenario = ap.Scenario.preset(preset).with_values(GLYPHS)
    if preset == "million":
        scenario = scenario.with_values({"network.num_edges": 3, "network.devices_per_edge": 40})
    without, whole = (first_round(of(scenario)).plan for of in (PlannedNetwork.of, Experiment.of))
    np.testing.assert_array_equal(without.bandwidth_share, whole.bandwidth_share)
    np.testing.assert_array_equal(without.pruning_ratio, whole.pruning_ratio)
    np.testing.assert_array_equal(without.min_deadline_s, whole.min_deadline_s)


def test_a_clock_that_counts_samples_is_refused():
    with pytest.raises(InvalidValue, match=r"Scenario\.clock\.compute must be paper"):
        PlannedNetwork.of(ap.Scenario.preset("boards"))


def test_pilots_take_turns_and_energy_of_their_own():
    """Five devices at an edge send 16 symbols of 1/B each: 4 µs. Each radiates 28 dBm for 0.8 µs."""
    overhead = overhead_of(found(COSTLY))
    np.testing.assert_allclose(overhead.pilot_s, 5 * 16 / 20e6, rtol=1e-12)
    np.testing.assert_allclose(overhead.pilot_j, 16 / 20e6 * 10**-0.2, rtol=1e-12)
    assert overhead.as_json()["pilot_time_share"] == pytest.approx(4e-6 / 0.04, rel=1e-12)


def test_a_report_takes_its_bits_at_the_devices_rate():
    planned = found(COSTLY)
    overhead = overhead_of(planned)
    rate_bps = planned.plan.bandwidth_share * planned.problem.full_band_rate_bps
    np.testing.assert_allclose(overhead.report_s, 2000 / rate_bps, rtol=1e-12)
    np.testing.assert_allclose(overhead.report_j, 2000 / rate_bps * 10**-0.2, rtol=1e-12)


def test_free_knowledge_is_the_plan_without_pilots_and_reports_that_knows_as_much():
    """16 pilots of 10 dB leave a correlation of sqrt(160/161)."""
    overhead = overhead_of(found(COSTLY))
    known = 0.9 * np.sqrt(160 / 161)
    free = found(COSTLY | {"radio.pilots": 0, "radio.report_bits": 0, "radio.csi_correlation": known})
    assert overhead.free_mean_ratio == pytest.approx(free.plan.mean_pruning_ratio, rel=1e-9)  # the root is rounded
    assert overhead.mean_ratio > overhead.free_mean_ratio


def test_amplifiers_and_power_control_count_in_the_energy_of_pilots():
    """With P0 = −72 dBm and α = 0.9, no device sends with more than half of 28 dBm."""
    half = overhead_of(found(COSTLY | {"radio.amplifier_efficiency": 0.5}))
    whole = overhead_of(found(COSTLY))
    np.testing.assert_allclose(half.pilot_j, 2 * whole.pilot_j, rtol=1e-12)
    controlled = overhead_of(
        found(COSTLY | {"radio.power_p0_dbm": -72, "radio.power_alpha": 0.9, "plan.deadline_s": 1})
    )
    assert (controlled.pilot_j < 0.5 * whole.pilot_j).all()


def test_the_downlink_is_the_broadcast_of_the_slowest_device():
    planned = found({"radio.downlink": "broadcast", "radio.station_power_dbm": 28})
    overhead = overhead_of(planned)
    slowest_bps = planned.problem.full_band_rate_bps.reshape(5, 5).min(axis=1)
    np.testing.assert_allclose(overhead.downlink_s, 64 * 43_888 / slowest_bps, rtol=1e-12)
    assert overhead.downlink_bits.sum() == 5 * 64 * 43_888


def test_a_round_without_any_of_it_has_no_overhead():
    assert overhead_of(found()) is None
    assert overhead_of(found(COSTLY | {"plan.deadline_s": 1e-6})) is None  # no edge has a plan


def test_edges_without_a_plan_go_without_the_devices_that_block_them():
    changes = {"network.outer_m": 400, "radio.pilots": 16, "radio.fading": "rayleigh"}
    least_s = found(changes).plan.min_deadline_s
    blocked = found(changes | {"plan.deadline_s": float(np.median(least_s))})
    assert blocked.plan.failed.any() and not blocked.plan.failed.all()
    overhead = overhead_of(blocked)
    assert 0 < len(overhead.pilot_s) < 25 and np.isfinite(overhead.energy_j).all()


def test_sentences_name_what_is_there_and_nothing_else():
    both, down = overhead_sentences(overhead_of(found(COSTLY))), found({"radio.downlink": "unicast"})
    assert len(both) == 3 and both[0].startswith("Pilots take 0.004 ms") and "2000 bits" in both[1]
    assert [sentence[:19] for sentence in overhead_sentences(overhead_of(down))] == ["The models go down "]


def test_planning_needs_neither_torch_nor_samples():
    program = textwrap.dedent("""
        import sys
        import airprune as ap
        from airprune.rounds.first_round import first_round
        from airprune.rounds.overhead import overhead_of
        from airprune.rounds.planned_network import PlannedNetwork
        found = first_round(PlannedNetwork.of(ap.Scenario.preset("urban-5g")))
        overhead_of(found)
        print("torch" in sys.modules)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False"], done.stderr
