"""Channels are components: gains, fading and rates of one's own, the same for every method."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import airprune as ap
from airprune.errors import InvalidValue, UnknownName
from airprune.methods.registration import import_file
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import first_round
from airprune.scenario import Scenario
from airprune.studies.conformance import check, points
from airprune.wireless.channel import Radio, full_band_rates, small_scale_gain
from airprune.wireless.channels import CHANNELS
from airprune.wireless.channels.base import FadingView
from airprune.wireless.channels.gauss_markov import GaussMarkov

pytestmark = pytest.mark.usefixtures("unregistered")

SMALL = {"model.name": "mlp", "network.num_edges": 2, "network.devices_per_edge": 3}
FREE_SPACE = """
import numpy as np
import airprune as ap
from airprune.wireless.channels.block_fading import BlockFading

@ap.register
class FreeSpace(BlockFading):
    name = "free-space"
    summary = "free-space path loss"
    exponent: float = 2.0

    def large_scale(self, links):
        return (3e8 / (4 * np.pi * links.radio.carrier_hz * links.distance_m)) ** self.exponent
"""


def fading_of(channel, radio, num_rounds, *, num_devices=20, seed=3):
    """The gains of consecutive edge rounds, with slots as the driver hands them on.  [num_rounds, num_devices]"""
    values, found = {}, []
    for round_index in range(num_rounds):
        view = FadingView(num_devices=num_devices, radio=radio, seed=seed, round_index=round_index)
        gain, changed = channel.small_scale(view, values)
        values |= changed
        found.append(gain)
    return np.array(found)


def planned_rates(scenario):
    return first_round(Experiment.of(scenario, dataset=points())).plan.problem.full_band_rate_bps


@pytest.mark.parametrize("radio", [{}, {"fading": "rayleigh", "shadowing_std_db": 6.0}, {"path_loss": "umi"}])
def test_a_run_of_the_default_channel_has_the_rates_of_the_radios_functions_to_the_bit(radio):
    scenario = Scenario().with_values(SMALL | {f"radio.{key}": value for key, value in radio.items()})
    by_functions = full_band_rates(scenario.build_network(), scenario.build_radio(), seed=0)
    np.testing.assert_array_equal(planned_rates(scenario), by_functions)


@pytest.mark.parametrize("antennas", [1, 3])
def test_gauss_markov_without_correlation_is_block_fading_to_the_bit(antennas):
    radio = Radio(fading="rician", num_antennas=antennas)
    ours = fading_of(GaussMarkov(correlation=0.0), radio, 4)
    theirs = [small_scale_gain(20, radio, seed=3, round_index=t) for t in range(4)]
    np.testing.assert_array_equal(ours, theirs)


def test_gauss_markov_with_full_correlation_never_changes():
    gains = fading_of(GaussMarkov(correlation=1.0), Radio(fading="rayleigh"), 4)
    np.testing.assert_array_equal(gains, np.tile(gains[0], (4, 1)))


def test_the_autocorrelation_of_gauss_markov_is_the_power_of_its_option():
    """The gains |h|² of Rayleigh fading have the squared correlation of the amplitudes, c^(2k) after k rounds."""
    gains = fading_of(GaussMarkov(correlation=0.9), Radio(fading="rayleigh"), 6, num_devices=100_000)
    for k in range(1, 6):
        assert np.corrcoef(gains[0], gains[k])[0, 1] == pytest.approx(0.9 ** (2 * k), abs=0.015)  # about 4 / √100,000


def test_gauss_markov_is_rayleigh_in_every_round():
    gains = fading_of(GaussMarkov(correlation=0.8), Radio(fading="rayleigh", num_antennas=2), 5, num_devices=20_000)
    assert stats.kstest(gains[4], stats.gamma(2).cdf).pvalue > 1e-3


def test_a_channel_in_a_file_of_ones_own_sets_the_rates_of_a_run(tmp_path):
    file = tmp_path / "free_space.py"
    file.write_text(FREE_SPACE)
    assert import_file(file) == ["channels free-space"]
    scenario = Scenario().with_values(SMALL | {"radio.channel": "free-space"})
    assert scenario.radio.chosen("channel").exponent == 2.0
    gain = (3e8 / (4 * np.pi * 3.5e9 * scenario.build_network().link_distance_m)) ** 2
    by_hand = 20e6 * np.log2(1 + gain * 10 ** (13.8))  # 28 dBm over -110 dBm
    np.testing.assert_allclose(planned_rates(scenario), by_hand, rtol=1e-12)  # the same closed form
    assert all(finding.kept for finding in check("free-space", processes=False))


def test_options_of_a_channel_are_keys_of_the_radio():
    scenario = Scenario().with_values({"radio.channel": "gauss-markov", "radio.gauss-markov.correlation": 0.5})
    assert scenario.radio.chosen("channel") == GaussMarkov(correlation=0.5)
    assert Scenario.from_text(scenario.to_toml()) == scenario


def test_an_unknown_channel_names_the_known_ones():
    known = r"Scenario\.radio\.channel .free-spice. is unknown; known: block-fading, clarke, gauss-markov"
    with pytest.raises(UnknownName, match=known):
        Scenario().with_("radio.channel", "free-spice")


def test_a_channel_whose_fading_depends_on_the_call_is_found_out():
    calls = []

    @ap.register
    class Forgetful(CHANNELS["block-fading"]):
        name = "forgetful-channel"
        summary = "fading by the number of calls"

        def small_scale(self, view, values):
            calls.append(1)
            return np.full(view.num_devices, 1.0 + len(calls)), {}

    findings = {finding.rule: finding for finding in check("forgetful-channel", processes=False)}
    assert not findings["gains at least 0, the same for every method"].kept


def test_a_channel_with_negative_gains_is_found_out():
    @ap.register
    class Negative(CHANNELS["block-fading"]):
        name = "negative-channel"
        summary = "fading below zero"

        def small_scale(self, view, values):
            return np.full(view.num_devices, -1.0), {}

    findings = check("negative-channel", processes=False)
    assert not findings[0].kept and "small_scale must be ≥ 0" in findings[0].seen


RETURNS = {
    "one gain for all links": ("large_scale", "return 1.0", r"large_scale must return an array of shape \(6,\)"),
    "gains of some links": (
        "large_scale",
        "return args[0].distance_m[:2]",
        "large_scale must return an array of shape",
    ),
    "negative gains": ("large_scale", "return -args[0].distance_m", "large_scale must be ≥ 0"),
    "fading without slots": ("small_scale", "return [1.0] * 6", "small_scale must return .the gain of each device"),
    "fading of fewer devices": ("small_scale", "return [1.0], {}", r"small_scale must return an array of shape \(6,\)"),
    "knowledge of fewer devices": ("known", "return [1.0]", r"known must return an array of shape \(6,\)"),
    "words as rates": ("rate_bps", "return 'fast'", "rate_bps must be a number or an array of numbers"),
    "no rate": ("rate_bps", "return args[0] * float('nan')", "rate_bps must be finite"),
}


@pytest.mark.parametrize(("method", "body", "sentence"), RETURNS.values(), ids=RETURNS)
def test_a_channel_that_returns_something_else_is_named_in_one_sentence(tmp_path, method, body, sentence):
    file = tmp_path / "wrong.py"
    wrong = FREE_SPACE.split("    def large_scale")[0] + f"    def {method}(self, *args):\n        {body}\n"
    file.write_text(wrong)
    import_file(file)
    fading = {"radio.fading": "rayleigh", "radio.csi_correlation": 0.9 if method == "known" else 1.0}
    scenario = Scenario().with_values(SMALL | fading | {"radio.channel": "free-space"})
    with pytest.raises(InvalidValue, match=f"Channel 'free-space', (?:{sentence})"):
        planned_rates(scenario)
