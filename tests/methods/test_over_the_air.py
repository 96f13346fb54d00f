"""Over-the-air aggregation in runs: its limit case, noise, truncation, and what it is charged in time and joules."""

from __future__ import annotations

import numpy as np
import pytest

import airprune as ap
from airprune.deployment.run_definition import check_deployable
from airprune.errors import InvalidValue, UsageError
from airprune.flower.air import Air
from airprune.methods.aggregation.over_the_air import AirCohort, AirSum, OverTheAir
from airprune.rounds.experiment import Experiment
from airprune.rounds.method import Method
from airprune.units import dbm_to_watt
from support.tiny import blobs, last_state, tiny_scenario

ONE = {"rounds.global_rounds": 1, "rounds.edge_rounds": 1, "network.num_edges": 1, "network.devices_per_edge": 6}
FADES = {"radio.fading": "rayleigh", "radio.noise": "thermal", "network.edge_distance_m": 400.0}


def on_air(**changes):
    return tiny_scenario(method="over-the-air").with_values(changes)


def first_record(scenario):
    return next(iter(ap.run(scenario, dataset=blobs())))


def model_of(scenario):
    return last_state(scenario)[0].global_state


def candidates_of(scenario):
    """Returns (the devices of the first edge round as planning sees them, the experiment)."""
    experiment = Experiment.of(scenario, dataset=blobs())
    state = experiment.initial_state()
    at = experiment.place(state)
    return experiment.candidates(at, state, experiment.served(at, state))[0], experiment


def test_without_noise_and_threshold_it_is_fedavg():
    """-300 dBm is 10²⁸ times weaker than the signal here, so that the noise is below the rounding of float64."""
    changes = {"model.float64": True, "data.size_spread": 0.8}
    quiet = {"radio.noise_power_dbm": -300.0, "aggregation.over-the-air.min_snr_db": None}
    ours, theirs = model_of(on_air(**changes, **quiet)), model_of(on_air(**changes, method="hierfavg"))
    assert np.abs(ours - theirs).max() < 1e-12
    assert np.abs(model_of(on_air(**changes)) - theirs).max() > 1e-6


def test_the_noise_in_a_model_is_the_recorded_error():
    """One round of one edge against the same without noise: χ² of all weights, within 5 standard deviations."""
    noisy, quiet = on_air(**ONE, **FADES), on_air(**ONE, **FADES).with_("method", "hierfavg")
    state, records, experiment = last_state(noisy.with_("aggregation.over-the-air.min_snr_db", None))
    off = state.global_state.astype(np.float64) - model_of(quiet)
    (expected,) = records[0]["mean_error_sq"]
    assert np.square(off).sum() / expected == pytest.approx(1.0, abs=5 * np.sqrt(2 / experiment.shape.num_state))


def test_a_device_below_the_threshold_is_truncated_and_costs_nothing():
    """The device with the median SNR is the threshold: half of the six are below it."""
    probe = on_air(**ONE, **FADES)
    candidates, _ = candidates_of(probe)
    snr = candidates.snr(candidates.device)
    threshold_db = 10.0 * np.log10(np.median(snr))
    record = first_record(probe.with_("aggregation.over-the-air.min_snr_db", float(threshold_db)))
    assert record["fate"] == ["truncated" if low else "ok" for low in snr < np.median(snr)]
    assert record["left_out"]["truncated"] == record["fate"].count("truncated") == 3
    for name in ("device_energy_j", "kept_weights"):
        assert [value == 0 for value in record[name]] == [fate == "truncated" for fate in record["fate"]]
    for name in ("compute_s", "bandwidth_share", "loss"):
        assert [value is None for value in record[name]] == [fate == "truncated" for fate in record["fate"]]
    assert "truncated" not in first_record(probe.with_("method", "hierfavg"))["left_out"]


def test_an_edge_whose_devices_are_all_truncated_keeps_its_model():
    scenario = on_air(**ONE).with_("aggregation.over-the-air.min_snr_db", 200.0)
    start = Experiment.of(scenario, dataset=blobs()).initial_state().global_state
    record = first_record(scenario)
    assert set(record["fate"]) == {"truncated"} and record["mean_error_sq"] == [None]
    assert record["uploaded_bits"] == record["energy_j"] == 0.0 and record["edge_latency_s"] == [0.0]
    assert np.array_equal(model_of(scenario), start)


@pytest.mark.parametrize("per_symbol", [1, 2])
def test_a_round_takes_as_long_as_one_message_however_many_devices_there_are(per_symbol):
    """max T_n + W / (k B) + Σ 32 / r_n by hand, for 6 and for 12 devices of equal clocks."""
    option = {"aggregation.over-the-air.both_quadratures": per_symbol == 2}
    for count in (6, 12):
        scenario = on_air(**ONE, **option).with_("network.devices_per_edge", count)
        (candidates, experiment), record = candidates_of(scenario), first_record(scenario)
        message_s = experiment.shape.num_weights / (per_symbol * 20e6)
        assert record["uplink_s"] == pytest.approx([message_s] * count, rel=1e-12)  # closed form
        assert record["exchange_s"] == pytest.approx([(32 / candidates.full_band_rate_bps).sum()], rel=1e-12)
        took_s = max(record["compute_s"]) + message_s + record["exchange_s"][0]
        assert record["edge_latency_s"] == pytest.approx([took_s], rel=1e-12)
        assert record["exchange_bits"] == 32 * count
        assert record["uploaded_bits"] == 32 * count + 64 * experiment.shape.num_weights * count


def test_energy_is_that_of_the_power_that_was_really_used(monkeypatch):
    """p / η times the E / SNR of each update over the largest one, times W / (2 B); computing takes no energy here."""
    updates = {}

    def seen(total, state, mask, weight, *, master, **others):
        updates[master] = state.copy()
        add_member(total, state, mask, weight, master=master, **others)

    add_member = AirSum.add_member
    monkeypatch.setattr(AirSum, "add_member", seen)
    scenario = on_air(**ONE, **FADES, **{"clock.effective_capacitance": 1e-60, "radio.amplifier_efficiency": 0.5})
    record = first_record(scenario.with_("aggregation.over-the-air.min_snr_db", None))
    candidates, experiment = candidates_of(scenario)
    needed = [np.square(updates[n]).sum() for n in record["device"]] / candidates.snr(candidates.device)
    limit_w, message_s = dbm_to_watt(28.0) / 0.5, experiment.shape.num_weights / 40e6
    expected_j = limit_w * (message_s * needed / needed.max() + 32 / candidates.full_band_rate_bps)
    assert record["device_energy_j"] == pytest.approx(
        expected_j.tolist(), rel=1e-9
    )  # planned at the limit, then corrected
    assert needed.max() > 5 * needed.min()


def test_a_device_that_drops_out_sends_nothing_and_does_not_set_the_amplitude():
    changes = {"events.dropout_probability": 0.5, "clock.effective_capacitance": 1e-60}
    record = first_record(on_air(**ONE, **FADES, **changes))
    assert {"ok", "dropped"} <= set(record["fate"])
    energy = dict(zip(record["device"], record["device_energy_j"], strict=True))
    assert all(
        (energy[n] == pytest.approx(0.0, abs=1e-18)) == (fate != "ok")
        for n, fate in zip(record["device"], record["fate"], strict=True)
    )


def test_the_downlink_carries_the_amplitude_beside_the_model():
    charged = {"radio.downlink": "broadcast"}
    ours = first_record(on_air(**charged))
    theirs = first_record(on_air(**charged, **{"aggregation.edge": "data-weighted"}))
    assert ours["downlink_bits"] == theirs["downlink_bits"] + 2 * 32
    assert all(more > less for more, less in zip(ours["downlink_s"], theirs["downlink_s"], strict=True))


def test_all_methods_of_a_comparison_meet_the_same_noise_at_the_same_place():
    """Another option, the same address: two thresholds that exclude no device end in the same bytes."""
    first, second = (
        model_of(on_air(**ONE).with_("aggregation.over-the-air.min_snr_db", least)) for least in (-100.0, -200.0)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, model_of(on_air(**ONE).with_("seed", 6)))


def on_air_sum(masks):
    """Two devices of weight 1 whose SNRs are 4 and 1, with updates of 2, and their noise-free sum."""
    cohort = AirCohort(devices=(7, 9), snr=(4.0, 1.0), address=(1, 0, 0, 0), values_per_symbol=2)
    total = AirSum.zeros(4, slice(2, 4))
    total.begin(cohort)
    for device, mask in zip((7, 9), masks, strict=True):
        state = np.full(4, 2.0)
        if mask is not None:
            state[2:] *= mask
        total.add_member(state, mask, 1.0, is_master=True, master=device)
    return total


def test_a_weight_that_a_shared_mask_prunes_is_neither_sent_nor_noisy():
    mask = np.array([True, False])
    total = on_air_sum([mask, mask])
    model = OverTheAir().finish(total, np.ones(4))
    assert model[3] == 1.0 and (model[:3] != 3.0).all()
    assert total.sent().mean_error_sq == pytest.approx(12.0 / (2 * 2 * 4) * 3, rel=1e-15)  # E = 3 · 2² at SNR 1, S = 2
    assert total.sent().power_share.tolist() == [0.25, 1.0]


def test_masks_that_differ_are_refused():
    with pytest.raises(InvalidValue, match=r"must not be 'over-the-air' unless .* masks differ from device to device"):
        on_air_sum([np.array([True, False]), np.array([False, True])])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"plan.scheme": "optimal"}, "whose devices send different weights"),
        ({"plan.scheme": "optimal", "masking.name": "snip"}, "must be 'no-pruning'"),
        ({"plan.framing": True}, "no bytes travel"),
        ({"aggregation.cloud": "over-the-air"}, "not models at the cloud"),
        ({"aggregation.rollback": 10.0}, "measures every update"),
        ({"topology.name": "d2d"}, "do not upload together"),
        ({"objective.name": "scaffold"}, "report more of their data"),
        ({"compression.name": "sign"}, "must be 'cast'"),
        ({"radio.num_antennas": 2}, "aligned at one antenna"),
        ({"radio.fading": "rayleigh", "radio.csi_correlation": 0.9}, "invert channels that they know"),
        ({"radio.fading": "rayleigh", "radio.pilots": 4}, "without pilots and age"),
        ({"radio.reuse": 1}, "whose noise is the receiver's alone"),
        ({"radio.power_p0_dbm": -70.0}, "which sets powers itself"),
        ({"radio.report_bits": 8.0}, "which charges the reports that it needs"),
        ({"model.personal": ["last"]}, "layers that no device sends"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_does_not_go_with_it_is_refused_in_one_sentence(changes, sentence):
    with pytest.raises(InvalidValue, match=sentence) as caught:
        Experiment.of(on_air(**changes), dataset=blobs())
    assert str(caught.value).startswith("Scenario.") and "\n" not in str(caught.value)


def test_a_model_with_running_variances_is_refused():
    images = {"model.name": "resnet-8", "data.name": "glyphs", "data.train_samples": 60, "data.test_samples": 20}
    with pytest.raises(InvalidValue, match="noise could make negative"):
        Experiment.of(on_air(**images))


def test_deployments_and_flower_apps_refuse_it():
    with pytest.raises(UsageError, match=r"add up on a simulated channel, cannot be deployed"):
        check_deployable(Method.of(on_air()))
    with pytest.raises(InvalidValue, match="whose strategy adds updates up itself"):
        Air(on_air())
