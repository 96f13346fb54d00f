"""Exchanges of messages on the network, without Flower: times, bits and joules by hand."""

import numpy as np
import pytest

import airprune as ap
from airprune.errors import InvalidValue
from airprune.flower.air import Air, ModelSize, Work
from airprune.flower.app_run import default_scenario, variants_of
from airprune.flower.counting import ComputeClock, Counted

HOUR_S = 3600.0
MODEL = ModelSize((("w", (10, 20)), ("b", (10,))), 210 * 32.0)


@pytest.fixture
def air(tmp_path):
    """Makes a network of three devices with known rates and clocks, at one edge."""

    def make(**changes):
        table = tmp_path / "fleet.csv"
        table.write_text("device,edge,rate_mbps,cpu_hz\na,e,1,1e9\nb,e,2,2e9\nc,e,4,1e9\n")
        values = {"topology.name": "hierarchical", "network.table": str(table), **changes}
        return Air(default_scenario().with_values(values))

    return make


def exchange(air, work, message="train", timeout_s=HOUR_S, model=MODEL):
    orders = air.plan([one.device for one in work], message, model=model, timeout_s=timeout_s)
    return air.settle(orders, [one for one in work if one.device in orders.device])


def three(bits=6720.0, seconds=(0.1, 0.2, 0.3)):
    return [Work(device=n, compute_s=s, bits=bits, num_weights=210, num_samples=10) for n, s in enumerate(seconds)]


def test_a_round_takes_compute_plus_upload_over_a_third_of_the_bandwidth_each(air):
    record, arrived = exchange(air(), three())
    upload_s = 6720.0 / (np.array([1e6, 2e6, 4e6]) / 3)
    assert record["uplink_s"] == pytest.approx(upload_s.tolist(), rel=1e-12)
    assert record["edge_latency_s"] == pytest.approx([0.3 + upload_s[2]], rel=1e-12)
    assert record["uploaded_bits"] == 3 * 6720.0
    assert arrived == {0, 1, 2}


def test_energy_is_that_of_computing_at_the_clock_and_of_sending(air):
    record, _ = exchange(air(), three())
    upload_s = 6720.0 / (np.array([1e6, 2e6, 4e6]) / 3)
    watts = 10 ** ((28.0 - 30.0) / 10.0)  # 28 dBm
    compute_j = 1e-28 * np.array([1e9, 2e9, 1e9]) ** 3 * np.array([0.1, 0.2, 0.3])
    assert record["device_energy_j"] == pytest.approx((compute_j + watts * upload_s).tolist(), rel=1e-12)


def test_a_reply_after_the_deadline_does_not_arrive_and_the_server_waits_until_then(air):
    record, arrived = exchange(air(**{"plan.deadline_s": 0.25}), three())
    assert arrived == {0, 1}
    assert record["left_out"]["late"] == 1
    assert record["uploaded_bits"] == 2 * 6720.0
    assert record["edge_latency_s"] == pytest.approx([0.25], rel=1e-8)  # the tolerance of deadlines is 1e-9


def test_the_app_s_own_timeout_is_a_deadline_too(air):
    assert exchange(air(), three(), timeout_s=0.15)[1] == {0}


def test_a_broadcast_takes_the_message_s_bits_at_the_rate_of_the_slowest(air):
    record, _ = exchange(air(**{"radio.downlink": "broadcast"}), three())
    assert record["downlink_bits"] == 210 * 32.0
    assert record["downlink_s"] == pytest.approx([210 * 32.0 / 1e6], rel=1e-12)


def test_a_message_without_a_model_has_no_download(air):
    found = air(**{"radio.downlink": "broadcast"})
    assert "downlink_bits" not in exchange(found, three(bits=0.0), "query", model=None)[0]


def test_a_global_round_adds_its_exchanges_and_counts_those_that_train(air):
    found = air()
    first, _ = exchange(found, three())
    second, _ = exchange(found, three(bits=0.0), "evaluate")
    assert found.closes_global_round
    record = found.close_global_round({"test_accuracy": 0.5})
    assert record["latency_s"] == pytest.approx(first["edge_latency_s"][0] + second["edge_latency_s"][0], rel=1e-12)
    assert (record["participants"], record["left_out"], record["test_accuracy"]) == (3, 0, 0.5)
    assert record["uploaded_bits"] == first["uploaded_bits"]
    assert record["energy_j"] == pytest.approx(first["energy_j"] + second["energy_j"], rel=1e-12)


def test_a_client_that_fails_sends_nothing_and_does_not_arrive(air):
    work = three()
    work[1] = Work(device=1, compute_s=0.2, bits=0.0, failed=True)
    record, arrived = exchange(air(), work)
    assert arrived == {0, 2}
    assert (record["left_out"]["failed"], record["uploaded_bits"]) == (1, 2 * 6720.0)


def test_our_selection_sends_no_message_to_the_others(air):
    found = air(**{"selection.name": "best-channel", "selection.best-channel.share": 0.5})
    orders = found.plan([0, 1, 2], "train", model=MODEL, timeout_s=HOUR_S)
    assert orders.device.tolist() == [1, 2]
    assert found.plan([0, 1, 2], "evaluate", model=MODEL, timeout_s=HOUR_S).device.tolist() == [0, 1, 2]


def test_a_scheme_that_prunes_gives_each_client_the_share_of_its_plan(air):
    deadline_s = 0.02
    found = air(**{"plan.scheme": "optimal", "plan.deadline_s": deadline_s, "plan.max_pruning_ratio": 0.9})
    orders = found.plan([0, 1, 2], "train", model=MODEL, timeout_s=HOUR_S)
    problem = ap.PlanProblem(
        edge=np.zeros(3, dtype=int),
        full_band_rate_bps=np.array([1e6, 2e6, 4e6]),
        seconds_per_weight=np.zeros(3),
        bits_per_weight=32.0,
        conv_weights=10,
        fc_weights=200,
        deadline_s=deadline_s,
        max_pruning_ratio=0.9,
    )
    by_hand = np.floor((1.0 - ap.plan(problem, scheme="optimal").pruning_ratio) * 200) / 200
    assert orders.has_plan and by_hand.min() >= 0.1
    assert orders.kept_share == pytest.approx(by_hand, abs=1.01 / 200)  # whole weights, rounded either way


def test_a_plan_reckons_with_the_compute_times_that_were_seen(air):
    found = air(**{"plan.scheme": "min-max-time"})
    first = found.plan([0, 1, 2], "train", model=MODEL, timeout_s=HOUR_S)
    found.settle(first, three(seconds=(0.1, 0.1, 0.12)))
    second = found.plan([0, 1, 2], "train", model=MODEL, timeout_s=HOUR_S)
    record, _ = found.settle(second, three(seconds=(0.1, 0.1, 0.12)))
    total_s = np.array(record["compute_s"]) + np.array(record["uplink_s"])
    assert total_s == pytest.approx(np.full(3, total_s[0]), rel=1e-9)  # all arrive together


def test_a_reply_that_was_planned_with_an_estimate_travels_at_its_true_rate():
    """With estimates of Rayleigh fading, the same seed has the same channels as a run that knows them."""
    fading = {"radio.fading": "rayleigh", "network.num_edges": 1, "network.devices_per_edge": 3}
    known, guessed = (
        exchange(Air(default_scenario().with_values({**fading, "radio.csi_correlation": correlation})), three())[0]
        for correlation in (1.0, 0.5)
    )
    assert guessed["uplink_s"] == pytest.approx(known["uplink_s"], rel=1e-12)  # equal shares, whatever is known


def test_fading_that_follows_its_past_moves_with_trainings_alone():
    changes = {"radio.fading": "rayleigh", "radio.channel": "gauss-markov"}
    scenario = default_scenario().with_values({"network.num_edges": 1, "network.devices_per_edge": 3, **changes})
    plain, evaluated = Air(scenario), Air(scenario)
    seen = []
    for _ in range(3):
        seen.append(exchange(plain, three())[0]["uplink_s"])
        assert exchange(evaluated, three())[0]["uplink_s"] == seen[-1]
        exchange(evaluated, three(bits=0.0), "evaluate")
        plain.close_global_round({})
        evaluated.close_global_round({})
    assert len({times[0] for times in seen}) == 3


def test_other_topologies_are_refused():
    with pytest.raises(InvalidValue, match=r"Scenario.topology.name must be one of flat, hierarchical"):
        Air(default_scenario().with_("topology.name", "lan"))


def test_variants_leave_out_what_a_scenario_has():
    assert list(variants_of(default_scenario())) == ["plain"]
    changed = default_scenario().with_values({"plan.deadline_s": 1.0, "selection.name": "best-channel"})
    found = variants_of(changed)
    assert list(found) == ["plain", "deadline", "selection", "deadline+selection"]
    assert found["deadline"].plan.deadline_s == 1.0 and found["deadline"].selection.name == "everyone"
    assert found["selection"].plan.deadline_s == HOUR_S and found["selection"].selection.name == "best-channel"


@pytest.fixture
def seconds(tmp_path):
    """Returns the compute time of a call by a rule, on a device at 1 GHz."""

    def find(rule, *, column="", counts=(), trains=True, **changes):
        table = tmp_path / "fleet.csv"
        table.write_text(f"device,edge,rate_mbps,cpu_hz{',seconds_per_sample' * bool(column)}\na,e,1,1e9{column}\n")
        values = {"topology.name": "hierarchical", "network.table": str(table), "clock.at_hz": 3e9, **changes}
        scenario = default_scenario().with_values(values)
        clock = ComputeClock(scenario, scenario.build_network(), rule)
        return clock.seconds(0, cpu_s=0.5, counts=list(counts), samples=7, num_weights=210, trains=trains)

    return find


FLOPS = {"clock.compute": "flops", "clock.flops_per_cycle": 8.0}


def test_measured_times_scale_with_the_clocks(seconds):
    assert seconds("auto") == (pytest.approx(0.5 * 3.0, rel=1e-12), "measured")


def test_counted_times_are_flops_over_the_speed_of_the_device(seconds):
    counts = [Counted(20, 1e6), Counted(10, 1e6)]
    assert seconds("auto", counts=counts, **FLOPS) == (pytest.approx(30 * 1e6 / 8e9, rel=1e-12), "counted")


def test_counts_without_a_speed_are_measured(seconds):
    assert seconds("auto", counts=[Counted(20, 1e6)])[1] == "measured"


def test_a_fleet_table_s_times_come_first(seconds):
    counts = [Counted(20, 1e6)]
    assert seconds("auto", column=",0.25", counts=counts, **FLOPS) == (pytest.approx(5.0, rel=1e-12), "table")
    assert seconds("auto", column=",0.25") == (pytest.approx(7 * 0.25, rel=1e-12), "table")  # one pass over 7 samples


def test_the_paper_s_times_are_those_of_equation_9(seconds):
    changes = {"plan.cycles_per_weight": 100.0, "plan.local_iterations": 5}
    assert seconds("paper", **changes) == (pytest.approx(5 * 100 * 210 / 1e9, rel=1e-12), "paper")
    assert seconds("paper", trains=False, **changes) == (0.0, "paper")


def test_an_app_that_counts_nothing_is_said_so(seconds):
    with pytest.raises(ap.UsageError, match=r"the app counts nothing"):
        seconds("counted", **FLOPS)
    with pytest.raises(InvalidValue, match=r"needs clock.compute"):
        seconds("counted")
    with pytest.raises(InvalidValue, match=r"needs a fleet table"):
        seconds("table")
