"""The scenes of the benchmark: presets that a track of the league takes as they are."""

from __future__ import annotations

import numpy as np
import pytest

import airprune as ap
from airprune.planning.feasibility import min_deadline_s
from airprune.rounds.experiment import Experiment
from airprune.rounds.first_round import first_round
from airprune.scenario import Scenario
from airprune.scenario.model_shape import shape_of
from airprune.studies.league.schedule import SCHEDULES
from airprune.studies.league.tracks import TRACKS
from airprune.wireless.channel import full_band_rates
from airprune.wireless.device_speed.boards import BOARDS

LEAGUE = SCHEDULES["default"].scenario()
FLOP_PER_SAMPLE = 22_730_208  # the paper's CNN, layer by layer in docs/clock.md
PASSES = 400  # 200 samples, two epochs
FEW = ((np.zeros((25, 1, 28, 28), np.float32), np.arange(25) % 10),) * 2  # plans do not depend on samples
FLOPS_OF_THE_SLOWEST = {"device-cpu": 0.5e9 * 8, "accelerators": 70e9}


def differences(name: str, other: Scenario) -> set[str]:
    return {key for key, *_ in Scenario.preset(name).diff(other)} - {"name"}


def test_demo_is_the_league_s_default_schedule():
    assert Scenario.preset("demo").hash == LEAGUE.hash


@pytest.mark.parametrize(("name", "track"), [("wide", "G"), ("unreliable", "E"), ("hostile", "L")])
def test_scenes_of_a_track_are_that_track(name, track):
    assert differences(name, TRACKS[track].scenario(LEAGUE)) == set()


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("dirichlet-01", {"data.partition", "data.alpha"}),
        ("dirichlet-05", {"data.partition"}),
        ("unreliable", {"events.dropout_probability"}),
        ("hostile", {"attack.kind"}),
        ("wide", {"model.name", "plan.deadline_s"}),
    ],
)
def test_scenes_change_one_thing_of_the_demo_beside_the_learning_rate(name, changed):
    assert differences(name, Scenario.preset("demo")) == changed | {"train.learning_rate"}


@pytest.mark.parametrize("name", FLOPS_OF_THE_SLOWEST)
def test_scenes_on_the_device_clock_charge_every_link(name):
    scenario = Scenario.preset(name)
    assert scenario.radio.downlink == "broadcast"
    assert scenario.to_dict()["topology"]["hierarchical"]["backhaul_bps"] == 1e8


@pytest.mark.parametrize(("name", "weights"), [("cifar", 77_360), ("text", 61_040), ("wide", 220_064)])
def test_other_models_have_the_papers_time_per_weight(name, weights):
    scenario = Scenario.preset(name)
    assert shape_of(scenario).num_weights == weights
    assert scenario.plan.deadline_s == pytest.approx(0.030 * weights / 43_888, rel=0.002)  # three digits


@pytest.mark.parametrize("name", ["cifar", "text", *FLOPS_OF_THE_SLOWEST])
def test_scenes_have_the_leagues_schedule(name):
    def schedule(scenario):
        return (
            scenario.num_devices,
            scenario.data.train_samples,
            scenario.train.batch_size,
            scenario.train.local_epochs,
            scenario.rounds.global_rounds,
            scenario.rounds.edge_rounds,
        )

    assert schedule(Scenario.preset(name)) == schedule(LEAGUE)


@pytest.mark.parametrize("name", FLOPS_OF_THE_SLOWEST)
def test_the_slowest_devices_possible_meet_the_deadline_with_the_whole_model(name):
    """All devices of an edge compute at the slowest speed and send 64 bits per weight."""
    scenario = Scenario.preset(name)
    compute_s = PASSES * FLOP_PER_SAMPLE / FLOPS_OF_THE_SLOWEST[name]
    assert scenario.network.cpu_hz * scenario.clock.flops_per_cycle == pytest.approx(FLOPS_OF_THE_SLOWEST[name])
    for seed in range(10):
        network = scenario.with_("seed", seed).build_network()
        rate = full_band_rates(network, scenario.build_radio(), seed=seed)
        problem = ap.PlanProblem(
            edge=network.edge,
            full_band_rate_bps=rate,
            seconds_per_weight=0.0,
            extra_seconds=compute_s,
            conv_weights=18_720,
            fc_weights=25_168,
            bits_per_weight=64.0,
            deadline_s=1.0,
        )
        needed_s = min_deadline_s(problem, np.full(25, 43_888.0)).max()
        assert needed_s <= scenario.plan.deadline_s < 1.02 * needed_s


def test_accelerators_are_log_uniform_between_70_and_500_gflops():
    scenario = Scenario.preset("accelerators").with_values({"network.num_edges": 200, "network.devices_per_edge": 5})
    flops = scenario.build_network().cpu_hz * scenario.clock.flops_per_cycle
    assert 70e9 <= flops.min() < 72e9 and 490e9 < flops.max() <= 500e9
    # The middle of the logarithms, √(70 · 500); of 1,000 devices, three standard errors are 0.09.
    assert np.log(flops).mean() == pytest.approx(np.log(70e9 * 500e9) / 2, abs=0.06)


def test_boards_come_in_turn_and_differ_as_their_peaks_do():
    scenario = Scenario.preset("boards")
    flops = scenario.build_network().cpu_hz * scenario.clock.flops_per_cycle
    kinds = [BOARDS[name] for name in ("raspberry-pi-3b+", "raspberry-pi-4", "raspberry-pi-5")]
    expected = [board.flops_per_cycle() * board.cpu_hz for board in kinds]
    assert flops.tolist() == [expected[n % 3] for n in range(25)]


REAL_RADIOS = ("urban-5g", "factory", "iot")


@pytest.mark.parametrize("name", REAL_RADIOS)
def test_real_radios_have_thermal_noise_and_charge_every_link(name):
    scenario = Scenario.preset(name)
    radio = scenario.build_radio()
    assert radio.band_noise_w == pytest.approx(10**-20.4 * 10**0.7 * radio.bandwidth_hz)  # -174 dBm/Hz and 7 dB
    assert radio.charges_downlink and radio.fading == "rayleigh"
    assert scenario.to_dict()["topology"]["hierarchical"]["backhaul_bps"] is not None


@pytest.mark.parametrize("name", REAL_RADIOS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_edge_of_a_real_radio_has_a_plan_and_devices_that_prune(name, seed):
    found = first_round(Experiment.of(Scenario.preset(name).with_("seed", seed), dataset=FEW))
    assert not found.plan.failed.any()
    assert (found.plan.latency_s <= Scenario.preset(name).plan.deadline_s * (1 + 1e-9)).all()
    assert found.plan.pruning_ratio.max() > 0.0 or name != "factory"


def test_the_presets_of_cities_and_factories_are_those_of_tr_38_901():
    urban, factory = (Scenario.preset(name).build_radio() for name in ("urban-5g", "factory"))
    assert (urban.path_loss, urban.carrier_hz, urban.reuse, urban.num_antennas) == ("umi", 3.5e9, 1, 8)
    assert (factory.path_loss, factory.reuse, factory.rate) == ("inf-dh", None, "nr-mcs")
    place = Scenario.preset("urban-5g").build_network().edge_position_m
    assert np.hypot(*(place[1] - place[0])) == pytest.approx(400.0, rel=0.01)


def test_sensors_stay_within_their_energy_budget():
    scenario = Scenario.preset("iot")
    found = first_round(Experiment.of(scenario, dataset=FEW))
    plan = found.plan
    assert plan.power_w is not None and plan.cpu_hz is not None
    sent_j = plan.power_w * found.uplink_s
    computed_j = scenario.clock.effective_capacitance * plan.cpu_hz**3 * found.compute_s / 2
    assert (sent_j + computed_j <= scenario.plan.max_energy_j * (1 + 1e-9)).all()
    assert (sent_j > 0).all()
