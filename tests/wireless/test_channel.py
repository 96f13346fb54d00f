import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from airprune.errors import InvalidValue, UnknownName
from airprune.units import ratio_to_db
from airprune.wireless.channel import (
    PATH_LOSS,
    Radio,
    full_band_rate_bps,
    full_band_rates,
    gains_to_stations,
    has_line_of_sight,
    large_scale_gain,
    path_loss_db,
    small_scale_gain,
    snr,
    uplink_rate_bps,
)
from airprune.wireless.network import Ring, place_flat, place_hierarchical

HAND = 5e-4  # hand values below have three decimals


def test_rate_is_one_bit_per_hz_at_unit_snr():
    assert full_band_rate_bps(1.0, 20e6) == 20e6


def test_rate_is_ten_bits_per_hz_at_snr_1023():
    assert full_band_rate_bps(1023.0, 1e6) == pytest.approx(10e6, rel=1e-15, abs=0)  # one log and one division


def test_rate_at_tiny_snr_is_snr_over_ln2():
    assert full_band_rate_bps(1e-20, 1.0) == pytest.approx(1e-20 / math.log(2), rel=1e-15, abs=0)  # log2(1 + x) gives 0


def test_rate_of_the_papers_device_at_130_m_by_hand_in_db():
    # 128.1 + 37.6 log10(0.13) = 94.784 dB; 28 - 94.784 + 110 = 43.216 dB; 20 MHz · 14.356 bit/Hz.
    loss_db = 128.1 + 37.6 * math.log10(0.13)
    by_hand = 20e6 * math.log2(1 + 10 ** ((28 - loss_db + 110) / 10))
    network = place_flat(num_devices=1, placement=Ring(130, 130), seed=0)
    assert by_hand == pytest.approx(287.1e6, rel=1e-3, abs=0)  # a MHz or bit/byte slip in both would show here
    assert full_band_rates(network, Radio(), seed=0)[0] == pytest.approx(by_hand, rel=1e-12, abs=0)  # same closed form


def test_snr_is_gain_times_power_over_noise():
    assert snr(1e-10, Radio(transmit_power_w=2.0, noise_power_w=1e-12)) == pytest.approx(200.0, rel=1e-15, abs=0)


def test_noise_density_is_taken_over_the_whole_band_and_the_noise_figure():
    # -174 dBm/Hz over 20 MHz with 5 dB noise figure: -174 + 73.0103 + 5 = -95.9897 dBm.
    radio = Radio(noise_density_w_per_hz=10 ** (-17.4 - 3), noise_figure=10**0.5)
    assert ratio_to_db(radio.band_noise_w) + 30 == pytest.approx(-95.9897, abs=5e-5)  # four decimals


@given(st.floats(0, 1), st.floats(0, 1e10))
def test_rate_is_linear_in_the_share(share, rate):
    assert uplink_rate_bps(share, rate) == share * rate


def test_log_distance_is_128_1_db_at_one_kilometre_and_37_6_more_per_decade():
    assert path_loss_db(1000.0, Radio()) == 128.1
    assert path_loss_db([100.0, 10_000.0], Radio()) == pytest.approx([90.5, 165.7], rel=1e-14, abs=0)  # rounding


# TR 38.901 at 3.5 GHz, devices at 1.5 m, UMi base at 10 m, UMa at 25 m; 20 log10(3.5) = 10.881.
# d_3D = 100.361, 500.072 m (UMi), 102.724, 1000.276 m (UMa); d'_BP = 4·9·0.5·3.5/0.3 = 210 m, 4·24·0.5·3.5/0.3 = 560 m.
@pytest.mark.parametrize(
    ("model", "distance_m", "loss_db"),
    [
        ("umi-los", 100, 85.314),  # 32.4 + 21·2.00156 + 10.881
        ("umi-los", 500, 107.114),  # 32.4 + 40·2.69903 + 10.881 - 9.5·log10(210² + 8.5²)
        ("umi-nlos", 100, 104.644),  # 22.4 + 35.3·2.00156 + 21.3·0.54407
        ("uma-los", 100, 83.138),  # 28 + 22·2.01167 + 10.881
        ("uma-los", 1000, 109.412),  # 28 + 40·3.00012 + 10.881 - 9·log10(560² + 23.5²)
        ("uma-nlos", 100, 103.038),  # 13.54 + 39.08·2.01167 + 10.881
        # Factory halls: d_3D = 50 m with stations at 1.5 m, 50.421 m with stations at 8 m; 19 log10(3.5) = 10.337.
        ("inf-sl-los", 50, 78.705),  # 31.84 + 21.5·1.69897 + 10.337
        ("inf-sh-los", 50, 78.783),  # 31.84 + 21.5·1.70261 + 10.337
        ("inf-sl-nlos", 50, 87.205),  # 33 + 25.5·1.69897 + 10.881
        ("inf-dl-nlos", 50, 90.134),  # 18.6 + 35.7·1.69897 + 10.881
        ("inf-dl-nlos", 10, 69.381),  # 33 + 25.5 + 10.881: near by, that of sparse clutter is larger
        ("inf-sh-nlos", 50, 82.441),  # 32.4 + 23·1.70261 + 10.881
        ("inf-dh-nlos", 50, 81.798),  # 33.63 + 21.9·1.70261 + 10.881
    ],
)
def test_tr_38_901_hand_values(model, distance_m, loss_db):
    radio = Radio(path_loss=model, shadowing_std_db=0.0)
    network = place_flat(num_devices=1, placement=Ring(distance_m, distance_m), seed=0)
    gain = large_scale_gain(network, radio, seed=0)
    assert -ratio_to_db(gain)[0] == pytest.approx(loss_db, abs=2 * HAND)
    assert path_loss_db(distance_m, radio) == pytest.approx(loss_db, abs=2 * HAND)


@pytest.mark.parametrize(("model", "breakpoint_m"), [("umi-los", 210.0), ("uma-los", 560.0)])
def test_loss_is_continuous_and_bends_to_40_db_per_decade_at_the_breakpoint(model, breakpoint_m):
    radio = Radio(path_loss=model)
    below, above = path_loss_db([breakpoint_m, breakpoint_m * (1 + 1e-9)], radio)
    assert above - below == pytest.approx(0.0, abs=1e-6)  # a step of 1e-9 in distance is 2e-8 dB
    far = path_loss_db([1e6, 1e7], radio)
    assert far[1] - far[0] == pytest.approx(40.0, abs=1e-4)  # heights still matter at (25/1e6)^2


def test_no_sight_is_never_better_than_sight():
    distance_m = np.geomspace(1, 5000, 200)
    for model in PATH_LOSS:
        for carrier_hz in (0.5e9, 3.5e9, 100e9):
            for device_height_m in (1.5, 13.0):
                radio = Radio(path_loss=model, carrier_hz=carrier_hz, device_height_m=device_height_m)
                seen, hidden = (path_loss_db(distance_m, radio, line_of_sight=see) for see in (True, False))
                assert (hidden >= seen).all()


@pytest.mark.parametrize("model", PATH_LOSS)
def test_loss_grows_with_distance_and_stands_still_below_the_models_reach(model):
    radio = Radio(path_loss=model)
    reach_m = PATH_LOSS[model].min_distance_m
    for see in (True, False):
        loss = path_loss_db(np.geomspace(reach_m, 5000, 100), radio, line_of_sight=see)
        assert (np.diff(loss) > 0).all()
        assert path_loss_db(0.0, radio, line_of_sight=see) == loss[0]


def test_a_higher_carrier_loses_20_db_per_decade():
    low, high = (path_loss_db(100.0, Radio(path_loss="uma-los", carrier_hz=f)) for f in (1e9, 10e9))
    assert high - low == pytest.approx(20.0, rel=1e-12, abs=0)  # closed form


@pytest.mark.parametrize(("model", "gain_db"), [("umi", 0.3), ("uma", 0.6)])
def test_a_taller_device_gains_per_metre_without_sight(model, gain_db):
    # Base and device rise together, so that d_3D stays the same.
    low, high = (
        path_loss_db(
            400.0,
            Radio(path_loss=model, device_height_m=1.5 + rise, base_height_m=25 + rise),
            line_of_sight=False,
        )
        for rise in (0.0, 1.0)
    )
    assert low - high == pytest.approx(gain_db, rel=1e-10, abs=0)  # difference of two losses near 126 dB


# 18/36 + e^-1 (1 - 18/36) = 0.68394 and 18/63 + e^-1 (1 - 18/63) = 0.54849.
# Of halls, exp(-50/k) with k = 10/0.22314 = 44.814 m (SL), 13 times that (SH), 2/0.91629 = 2.1827 m (DL; at 4 m)
# and 6.5/4.5 times that (DH; at 4 m): 0.4² and 0.4^1.38462.
@pytest.mark.parametrize(
    ("model", "distance_m", "chance"),
    [
        ("umi", 36.0, 0.68394),
        ("uma", 63.0, 0.54849),
        ("inf-sl", 50.0, 0.32768),
        ("inf-sh", 50.0, 0.91776),
        ("inf-dl", 4.0, 0.16000),
        ("inf-dh", 4.0, 0.28119),
    ],
)
def test_line_of_sight_probability_hand_values(model, distance_m, chance):
    assert PATH_LOSS[model].los_probability(np.array([distance_m]))[0] == pytest.approx(chance, abs=5e-6)
    seen = has_line_of_sight(np.full(20_000, distance_m), Radio(path_loss=model), seed=0)
    assert stats.binomtest(int(seen.sum()), seen.size, chance).pvalue > 0.01  # fixed seed


def test_everyone_within_18_m_sees_the_station():
    assert has_line_of_sight(np.linspace(0, 18, 1000), Radio(path_loss="umi"), seed=0).all()


def test_the_drawing_model_mixes_its_two_fixed_variants():
    network = place_flat(num_devices=300, placement=Ring(20, 100), seed=0)
    gains = {
        model: large_scale_gain(network, Radio(path_loss=model), seed=4) for model in ("umi", "umi-los", "umi-nlos")
    }
    seen = has_line_of_sight(network.link_distance_m, Radio(path_loss="umi"), seed=4)
    assert 0 < seen.sum() < 300
    assert np.array_equal(gains["umi"], np.where(seen, gains["umi-los"], gains["umi-nlos"]))


@pytest.mark.parametrize(
    ("model", "std_db"),
    [
        ("umi-los", 4.0),
        ("umi-nlos", 7.82),
        ("uma-los", 4.0),
        ("uma-nlos", 6.0),
        ("inf-dh-nlos", 4.0),
        ("inf-dl-nlos", 7.2),
    ],
)
def test_shadowing_is_log_normal_with_the_models_spread(model, std_db):
    network = place_flat(num_devices=4000, seed=0)
    radio = Radio(path_loss=model)
    median_db = -path_loss_db(network.link_distance_m, radio)
    shadowing_db = ratio_to_db(large_scale_gain(network, radio, seed=2)) - median_db
    assert stats.kstest(shadowing_db, stats.norm(0, std_db).cdf).pvalue > 0.01  # fixed seed


def test_the_papers_model_has_no_shadowing_unless_asked():
    network = place_flat(num_devices=50, placement=Ring(600, 600), seed=0)
    # Distances round at 1e-16 of 600 m.
    assert np.ptp(ratio_to_db(large_scale_gain(network, Radio(), seed=0))) == pytest.approx(0, abs=1e-12)
    asked = ratio_to_db(large_scale_gain(network, Radio(shadowing_std_db=8.0), seed=0))
    assert 4 < np.std(asked) < 12


@pytest.mark.parametrize("path_loss", ["log-distance", "umi"])
def test_the_serving_stations_column_is_the_gain_of_the_link(path_loss):
    network = place_hierarchical(num_edges=3, devices_per_edge=(4, 0, 7), seed=3)
    radio = Radio(path_loss=path_loss, shadowing_std_db=6.0)
    gains = gains_to_stations(network, radio, seed=5)
    assert gains.shape == (11, 3)
    np.testing.assert_array_equal(gains[np.arange(11), network.edge], large_scale_gain(network, radio, seed=5))
    np.testing.assert_array_equal(gains, gains_to_stations(network, radio, seed=5))
    cloud = gains_to_stations(network.flat(), radio, seed=5)
    np.testing.assert_array_equal(cloud, large_scale_gain(network.flat(), radio, seed=5)[:, np.newaxis])


def test_without_shadowing_a_gain_follows_the_distance_to_each_station():
    network = place_hierarchical(num_edges=4, devices_per_edge=5, seed=1)
    distance_m = np.linalg.norm(network.device_position_m[:, None] - network.edge_position_m[None], axis=2)
    loss_db = 128.1 + 37.6 * np.log10(distance_m / 1e3)
    np.testing.assert_allclose(ratio_to_db(gains_to_stations(network, Radio(), seed=0)), -loss_db, rtol=1e-12)


def test_who_serves_whom_changes_no_other_link():
    network = place_hierarchical(num_edges=3, devices_per_edge=4, seed=3)
    radio = Radio(path_loss="umi")
    moved = dataclasses.replace(network, edge=np.where(np.arange(12) == 5, 2, network.edge))
    before, after = (gains_to_stations(each, radio, seed=5) for each in (network, moved))
    links = np.ones((12, 3), dtype=bool)
    links[5, [1, 2]] = False  # the link that it leaves and the one that it takes
    np.testing.assert_array_equal(before[links], after[links])
    assert len(np.unique(before)) == before.size


def test_no_fading_gives_exactly_the_array_gain():
    assert (small_scale_gain(5, Radio(num_antennas=4), seed=0, round_index=9) == 4.0).all()


# Fixed seeds: p > 0.01 either always holds or the distribution is wrong.
@pytest.mark.parametrize("antennas", [1, 2, 8])
def test_rayleigh_after_combining_is_gamma(antennas):
    gain = small_scale_gain(10_000, Radio(fading="rayleigh", num_antennas=antennas), seed=0, round_index=0)
    assert stats.kstest(gain, stats.gamma(antennas).cdf).pvalue > 0.01


@pytest.mark.parametrize(("antennas", "k"), [(1, 0.5), (1, 10.0), (4, 3.0)])
def test_rician_after_combining_is_noncentral_chi_square(antennas, k):
    radio = Radio(fading="rician", rician_k=k, num_antennas=antennas)
    gain = small_scale_gain(10_000, radio, seed=1, round_index=0)
    assert stats.kstest(2 * (k + 1) * gain, stats.ncx2(2 * antennas, 2 * antennas * k).cdf).pvalue > 0.01
    variance = antennas * (2 * k + 1) / (k + 1) ** 2
    assert gain.mean() == pytest.approx(antennas, abs=4 * math.sqrt(variance / gain.size))  # four standard errors


def test_rician_without_a_direct_path_is_rayleigh():
    rician, rayleigh = Radio(fading="rician", rician_k=0.0), Radio(fading="rayleigh")
    draws = [small_scale_gain(9, radio, seed=0, round_index=3) for radio in (rician, rayleigh)]
    assert np.array_equal(*draws)


def test_rician_with_only_a_direct_path_does_not_fade():
    radio = Radio(fading="rician", rician_k=1e12, num_antennas=2)
    gain = small_scale_gain(100, radio, seed=0, round_index=0)
    assert gain == pytest.approx(2.0, abs=2e-5)  # ten standard deviations, each sqrt(2·2/K) = 2e-6


def test_fading_changes_from_round_to_round_and_large_scale_gain_does_not():
    network, radio = place_hierarchical(seed=0), Radio(fading="rayleigh", path_loss="umi")
    first, second = (full_band_rates(network, radio, seed=0, round_index=i) for i in (0, 1))
    assert (first != second).all()
    assert np.array_equal(first, full_band_rates(network, radio, seed=0, round_index=0))
    assert np.array_equal(large_scale_gain(network, radio, seed=0), large_scale_gain(network, radio, seed=0))


@pytest.mark.parametrize("fading", ["none", "rayleigh", "rician"])
@pytest.mark.parametrize("antennas", [1, 3])
def test_a_devices_channel_does_not_depend_on_how_many_follow(fading, antennas):
    radio = Radio(fading=fading, num_antennas=antennas, path_loss="umi")
    few, many = (full_band_rates(place_flat(num_devices=n, seed=0), radio, seed=0, round_index=2) for n in (7, 100))
    assert np.array_equal(few, many[:7])


def test_more_antennas_more_bandwidth_and_more_power_all_raise_the_rate():
    network, base = place_hierarchical(seed=0), Radio()
    rate = full_band_rates(network, base, seed=0)
    for better in ({"num_antennas": 2}, {"bandwidth_hz": 40e6}, {"transmit_power_w": 1.0}, {"noise_power_w": 1e-15}):
        assert (full_band_rates(network, dataclasses.replace(base, **better), seed=0) > rate).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bandwidth_hz": 0}, r"Radio\.bandwidth_hz must be > 0, got 0\. Example"),
        ({"bandwidth_hz": math.nan}, "bandwidth_hz"),
        ({"transmit_power_w": math.inf}, "transmit_power_w"),
        ({"noise_power_w": 1e-14, "noise_density_w_per_hz": 4e-21}, "must be None with a noise density"),
        ({"noise_power_w": 1e-14, "noise_figure": 3.0}, "noise_figure must be 1 with a noise power"),
        ({"noise_density_w_per_hz": 4e-21, "noise_figure": 0.5}, "noise_figure"),
        ({"noise_power_w": -110}, "noise_power_w"),
        ({"carrier_hz": 3.5}, r"carrier_hz must be in \[5e\+08"),
        ({"device_height_m": 20}, "device_height_m"),
        ({"base_height_m": 1.0}, "base_height_m"),
        ({"shadowing_std_db": -1}, "shadowing_std_db"),
        ({"rician_k": -3}, "plain ratio, not dB"),
        ({"num_antennas": 0}, "num_antennas"),
        ({"num_antennas": 2.0}, "num_antennas"),
    ],
)
def test_a_radio_that_cannot_be_says_why(fields, message):
    with pytest.raises(InvalidValue, match=message):
        Radio(**fields)


def test_unknown_models_list_the_known_ones():
    with pytest.raises(UnknownName, match="did you mean 'umi-nlos'"):
        Radio(path_loss="umi-nlo")
    with pytest.raises(UnknownName, match="none, rayleigh, rician"):
        Radio(fading="nakagami")


@pytest.mark.parametrize(
    "call",
    [
        lambda: snr(math.nan, Radio()),
        lambda: snr(-1.0, Radio()),
        lambda: full_band_rate_bps(-1.0, 20e6),
        lambda: full_band_rate_bps(1.0, math.inf),
        lambda: path_loss_db(-1.0, Radio()),
        lambda: path_loss_db(math.inf, Radio()),
        lambda: small_scale_gain(3, Radio(), seed=0, round_index=-1),
        lambda: small_scale_gain(-3, Radio(), seed=0, round_index=0),
    ],
)
def test_misuse_raises(call):
    with pytest.raises(InvalidValue):
        call()


def test_the_papers_noise_is_9_db_below_thermal_noise():
    thermal_dbm = 10 * math.log10(1.380649e-23 * 290 * 20e6 / 1e-3)  # kTB
    paper = Radio()
    assert thermal_dbm - 10 * math.log10(paper.band_noise_w / 1e-3) == pytest.approx(9.0, abs=0.1)
    loss_db = 128.1 + 37.6 * math.log10(0.135)
    ratio = snr(10 ** (-loss_db / 10), paper)
    assert ratio_to_db(ratio) == pytest.approx(42.6, abs=0.1)
    assert full_band_rate_bps(ratio, 20e6) / 20e6 == pytest.approx(14.2, abs=0.1)
    physical = Radio(noise_density_w_per_hz=10 ** (-174 / 10) * 1e-3)
    assert 10 * math.log10(physical.band_noise_w / 1e-3) == pytest.approx(thermal_dbm, abs=0.1)
