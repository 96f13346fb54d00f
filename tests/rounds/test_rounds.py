"""Algorithm 1 against independent programs, limit cases and the simulated clock."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import airprune as ap
from airprune.components.component import paper_shape
from airprune.engines.serial import SerialEngine
from airprune.methods import METHODS
from airprune.methods.masking.base import FREE, own_mask
from airprune.methods.masking.ranking import Ranking
from airprune.models.catalogue import MLP, build_model
from airprune.randomness import NumberedStreams
from airprune.rounds.device import device_round
from airprune.rounds.edge import select_and_plan
from airprune.rounds.experiment import Experiment
from airprune.rounds.local import Streams
from airprune.rounds.messages import Broadcast, Orders
from airprune.rounds.method import Method
from airprune.rounds.rates import round_rate
from airprune.rounds.state import RunState
from airprune.rounds.training.chunks import distinct_pairs
from airprune.runs.driver import InProcess
from airprune.simulation import run_rounds
from support.tiny import blobs, tiny_scenario


def run_with_state(scenario: ap.Scenario, data=None) -> tuple[Experiment, RunState, list[dict]]:
    experiment = Experiment.of(scenario, dataset=data or blobs())
    state = experiment.initial_state()
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        records = list(run_rounds(experiment, engine, state))
    return experiment, state, records


def independent_fedavg(scenario: ap.Scenario, data, *, hierarchical: bool) -> dict[str, np.ndarray]:
    """FedAvg written with torch.optim and state dicts: no masks, no flat vectors, no engine.

    It shares with the program under test only who owns which samples and in which order they are visited.
    """
    (x, y), _ = data
    x, y = torch.tensor(x, dtype=torch.float64), torch.tensor(y)
    experiment = Experiment.of(scenario, dataset=data)
    cloud = build_model("mlp", input_shape=(12,), num_classes=4, seed=scenario.seed).double()
    groups = [np.flatnonzero(experiment.network.edge == k) for k in range(experiment.network.num_edges)]
    if not hierarchical:
        assert len(groups) == 1
    for q in range(scenario.rounds.global_rounds):
        edge_models = []
        for devices in groups:
            edge_state = {name: value.clone() for name, value in cloud.state_dict().items()}
            for e in range(scenario.rounds.edge_rounds):
                locals_ = []
                for n in devices:
                    model = MLP((12,), 4).double()
                    model.load_state_dict(edge_state)
                    optimiser = torch.optim.SGD(
                        model.parameters(), lr=scenario.train.learning_rate, momentum=scenario.train.momentum
                    )
                    rng = NumberedStreams(scenario.seed, "device", q, e)[int(n)]
                    for _ in range(scenario.train.local_epochs):
                        order = experiment.samples[n][rng.permutation(len(experiment.samples[n]))]
                        for start in range(0, len(order), scenario.train.batch_size):
                            batch = torch.tensor(order[start : start + scenario.train.batch_size])
                            optimiser.zero_grad()
                            F.cross_entropy(model(x[batch]), y[batch]).backward()
                            optimiser.step()
                    locals_.append(model.state_dict())
                edge_state = {name: sum(s[name] for s in locals_) / len(locals_) for name in edge_state}
            edge_models.append(edge_state)
        cloud.load_state_dict({name: sum(s[name] for s in edge_models) / len(edge_models) for name in edge_models[0]})
    return {name: value.numpy() for name, value in cloud.state_dict().items()}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_zero_pruning_is_hierarchical_fedavg(momentum):
    scenario = tiny_scenario(model__float64=True, train__momentum=momentum, plan__scheme="no-pruning")
    experiment, state, _ = run_with_state(scenario)
    expected = independent_fedavg(scenario, blobs(), hierarchical=True)
    for name, value in experiment.model.named_arrays(state.global_state).items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-12)


def test_one_edge_and_one_edge_round_is_flat_fedavg():
    scenario = tiny_scenario(
        model__float64=True, network__num_edges=1, network__devices_per_edge=4, rounds__edge_rounds=1
    )
    experiment, state, _ = run_with_state(scenario)
    expected = independent_fedavg(scenario, blobs(), hierarchical=False)
    for name, value in experiment.model.named_arrays(state.global_state).items():
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-12)


def test_flat_topology_is_one_band_for_all():
    _, state, records = run_with_state(tiny_scenario(topology__name="flat"))
    assert state.edge_states.shape[0] == 1
    edge = records[0]
    assert edge["edge_id"] == [0] and len(edge["device"]) == 6
    assert sum(edge["bandwidth_share"]) <= 1 + 1e-12


def test_one_edge_rounds_average_is_eq_12_of_its_devices():
    """The engine's streaming average equals `aggregate` on the devices' models and masks, gathered one by one."""
    scenario = tiny_scenario(plan__min_pruning_ratio=0.6, plan__max_pruning_ratio=0.6, rounds__global_rounds=1)
    experiment = Experiment.of(scenario, dataset=blobs())
    state = experiment.initial_state()
    received = state.global_state.copy()
    at = experiment.place(state)
    candidates, _ = experiment.candidates(at, state, experiment.served(at, state))
    planned = select_and_plan(experiment.context, candidates, experiment.network.cpu_hz, 0)
    with SerialEngine(experiment.job(InProcess(experiment.dataset))) as engine:
        device, prunable = engine._worker.device, experiment.model.prunable
        for edge in (0, 1):
            states, masks = [], []
            for n, keep in zip(planned.device[planned.edge == edge], planned.keep[planned.edge == edge], strict=True):
                orders = Orders(
                    device=int(n), keep=int(keep), learning_rate=scenario.train.learning_rate, round_index=0
                )
                upload = device_round(
                    device,
                    Broadcast(model=received),
                    orders,
                    samples=experiment.samples[n],
                    streams=Streams(scenario.seed, 0, 0),
                )
                mask = np.ones(experiment.model.num_state, dtype=bool)
                mask[prunable] = upload.mask
                states.append(upload.state.copy())
                masks.append(mask)
            expected = ap.aggregate(np.array(states), np.array(masks), received)
            if edge == 0:
                next(iter(run_rounds(experiment, engine, state)))
            np.testing.assert_array_equal(state.edge_states[edge], expected)


def test_records_come_once_per_edge_round_and_global_round():
    _, _, records = run_with_state(tiny_scenario(rounds__global_rounds=3, rounds__edge_rounds=2))
    assert [record["kind"] for record in records] == ["edge", "edge", "global"] * 3
    assert [record["global_round"] for record in records] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_the_clock_waits_for_the_slowest_device_of_an_edge_and_the_slowest_edge_of_the_cloud():
    _, _, records = run_with_state(tiny_scenario(rounds__global_rounds=1, plan__scheme="no-pruning"))
    edges = [record for record in records if record["kind"] == "edge"]
    for record in edges:
        latency = np.array(record["compute_s"]) + np.array(record["uplink_s"])
        for k, waited in zip(record["edge_id"], record["edge_latency_s"], strict=True):
            assert waited == latency[np.array(record["edge"]) == k].max()
    per_edge = np.sum([record["edge_latency_s"] for record in edges], axis=0)
    assert records[-1]["latency_s"] == per_edge.max() == records[-1]["time_s"]


def test_uploads_count_weights_and_bits():
    experiment, _, records = run_with_state(
        tiny_scenario(rounds__global_rounds=1, plan__min_pruning_ratio=0.5, plan__max_pruning_ratio=0.5)
    )
    kept = experiment.model.prunable_weights // 2
    assert records[0]["uploaded_weights"] == 6 * (experiment.model.fixed_weights + kept)
    assert records[0]["uploaded_bits"] == 64 * records[0]["uploaded_weights"]
    assert records[-1]["uploaded_weights"] == 2 * records[0]["uploaded_weights"]


def test_mask_bits_and_probe_time_are_counted_when_asked():
    common = {"rounds__global_rounds": 1, "plan__min_pruning_ratio": 0.5, "plan__max_pruning_ratio": 0.5}
    experiment, _, plain = run_with_state(tiny_scenario(**common))
    _, _, counted = run_with_state(
        tiny_scenario(**common, masking__probe__count_mask_bits=True, masking__probe__count_probe=True)
    )
    assert counted[0]["uploaded_bits"] == plain[0]["uploaded_bits"] + 6 * experiment.model.prunable_weights
    probe_s = 20 * (experiment.model.fixed_weights + experiment.model.prunable_weights) / 3e9
    np.testing.assert_allclose(np.array(counted[0]["compute_s"]) - np.array(plain[0]["compute_s"]), probe_s, rtol=1e-9)


def test_one_setting_charges_masks_and_probes_as_the_maskings_own_options_do():
    common = {"rounds__global_rounds": 1, "plan__min_pruning_ratio": 0.5, "plan__max_pruning_ratio": 0.5}
    _, _, counted = run_with_state(
        tiny_scenario(**common, masking__probe__count_mask_bits=True, masking__probe__count_probe=True)
    )
    _, _, charged = run_with_state(tiny_scenario(**common, masking__charged=True))
    assert charged == counted


def test_every_method_that_ranks_weights_on_devices_can_be_charged_by_one_setting():
    shape, ranked = paper_shape(), []
    for name in METHODS:
        scenario = ap.Scenario.preset("paper").with_values({"method": name})
        free = Method.of(scenario).masking
        if not isinstance(free, Ranking) or free.name == "shared":
            continue
        charges = Method.of(scenario.with_("masking.charged", True)).masking.charges(0, shape, 64.0)
        assert (charges.uplink_bits, charges.index_bits, charges.probe) == (25_168.0, 15.0, True), name
        ranked.append(name)
        assert free.charges(0, shape, 64.0) == FREE, name
    assert {"adaptive-pruning", "frozen-pruning", "random", "oort", "variance", "minmax-pruning", "japp"} <= set(ranked)


def test_magnitude_ranks_without_a_probe_so_only_its_mask_is_charged():
    scenario = tiny_scenario(masking__probe__importance="magnitude", masking__charged=True)
    charges = Method.of(scenario).masking.charges(0, paper_shape(), 64.0)
    assert charges.uplink_bits == 25_168.0 and not charges.probe


def test_a_mask_is_a_bitmap_or_a_list_of_positions_whichever_is_shorter():
    charges = own_mask(paper_shape())  # 25,168 prunable weights: 15 bits for a position
    assert charges.mask_bits(np.array([0, 100, 1_677, 1_678, 25_000])).tolist() == [0, 1_500, 25_155, 25_168, 25_168]
    assert FREE.mask_bits(np.array([0, 100])).tolist() == [0.0, 0.0]


def test_planned_devices_meet_the_deadline_with_everything_counted():
    scenario = tiny_scenario(
        plan__deadline_s=0.0004,
        masking__probe__count_mask_bits=True,
        masking__probe__count_probe=True,
        rounds__global_rounds=1,
    )
    _, _, records = run_with_state(scenario)
    assert 0.0 < records[0]["mean_pruning_ratio"] < 0.95
    assert max(records[0]["edge_latency_s"]) <= 0.0004 * (1 + 1e-9)


def test_edges_may_run_different_numbers_of_rounds():
    _, _, records = run_with_state(tiny_scenario(rounds__edge_rounds=[1, 3], rounds__global_rounds=1))
    assert [record.get("edge_id") for record in records] == [[0, 1], [1], [1], None]


def test_dropped_devices_are_left_out_and_counted():
    _, state, records = run_with_state(tiny_scenario(events__dropout_probability=0.4))
    edges = [record for record in records if record["kind"] == "edge"]
    dropped = sum(record["left_out"]["dropped"] for record in edges)
    assert 0 < dropped == state.totals.left_out
    for record in edges:
        gone = [fate != "ok" for fate in record["fate"]]
        assert [loss is None for loss in record["loss"]] == gone


def test_an_edge_without_anybody_keeps_its_model():
    _, state, records = run_with_state(tiny_scenario(events__dropout_probability=1.0, rounds__global_rounds=1))
    assert records[-1]["participants"] == 0
    assert records[0]["uploaded_weights"] == 0 and records[0]["train_loss"] is None
    np.testing.assert_array_equal(state.edge_states[0], state.global_state)


def test_stragglers_miss_the_deadline_and_the_edge_waits_for_it():
    scenario = tiny_scenario(
        events__straggler_probability=0.5,
        events__straggler_slowdown=1e6,
        plan__deadline_s=0.01,
        rounds__global_rounds=1,
    )
    _, _, records = run_with_state(scenario)
    late = records[0]["left_out"]["late"]
    assert 0 < late < 6
    assert set(records[0]["edge_status"]) == {"ok"}  # an edge goes on without them at the deadline
    for k, waited in zip(records[0]["edge_id"], records[0]["edge_latency_s"], strict=True):
        fates = [fate for fate, edge in zip(records[0]["fate"], records[0]["edge"], strict=True) if edge == k]
        if "late" in fates:
            assert waited == pytest.approx(0.01, rel=1e-8)


@pytest.mark.parametrize(
    ("method", "statuses"),
    [
        ("adaptive-pruning", {"ok"}),
        ("hierfavg", {"late"}),  # a scheme that does not adapt
        ("fedpart", {"late"}),  # maskings that send more than the scheme has planned for
        ("snip", {"ok", "late"}),  # it prunes after the first round
        ("feddrop-bernoulli", {"ok", "late"}),
        ("lanfl", {"late"}),  # a topology with an uplink of its own
    ],
)
def test_an_edge_is_recorded_as_late_if_its_round_takes_longer_than_the_deadline(method, statuses):
    scenario = tiny_scenario(rounds__global_rounds=1).with_values({"method": method, "plan.deadline_s": 0.0004})
    _, _, records = run_with_state(scenario)
    edges = [record for record in records if record["kind"] == "edge"]
    assert {status for record in edges for status in record["edge_status"]} == statuses
    for record in edges:
        for status, latency_s in zip(record["edge_status"], record["edge_latency_s"], strict=True):
            assert status == ("late" if latency_s > 0.0004 * (1 + 1e-9) else "ok")  # rounding


def test_devices_that_block_their_edge_are_left_out_or_fail_the_run():
    cpus = {"network.cpu_hz": 1e3, "network.cpu_hz_max": 1e9}
    scenario = tiny_scenario(rounds__global_rounds=1, plan__deadline_s=0.05).with_values(cpus)
    with pytest.raises(ap.Infeasible, match="has no plan"):
        run_with_state(scenario.with_values({"plan.infeasible": "fail", "plan.deadline_s": 1e-5}))
    with pytest.raises(ap.Infeasible, match="has no plan"):
        run_with_state(scenario.with_("plan.deadline_s", 1e-9))  # nobody could take part


def test_an_edge_without_a_feasible_device_sits_out_and_the_others_go_on():
    """Two edges of one device each, of which the second is a million times too slow."""
    cpus = {"network.num_edges": 2, "network.devices_per_edge": 1, "network.cpu_kinds_hz": [3e9, 3e3]}
    scenario = tiny_scenario(rounds__global_rounds=1, plan__deadline_s=0.05).with_values(cpus)
    _, _, records = run_with_state(scenario)
    edges = [record for record in records if record["kind"] == "edge"]
    for record in edges:
        assert record["fate"] == ["ok", "blocked"]
        assert record["edge_status"][0] == "ok" and record["edge_status"][1] == "infeasible-compute"
        assert record["shadow_price"][1] is None and record["edge_latency_s"][1] == 0.0
    with pytest.raises(ap.Infeasible, match="has no plan"):
        run_with_state(scenario.with_("plan.infeasible", "fail"))


def test_fading_leaves_out_only_devices_in_a_deep_fade():
    scenario = tiny_scenario(
        radio__fading="rayleigh", plan__deadline_s=0.00007, rounds__global_rounds=3, rounds__edge_rounds=4
    )
    _, _, records = run_with_state(scenario)
    blocked = sum(record["left_out"]["blocked"] for record in records if record["kind"] == "edge")
    assert 0 < blocked < 3 * 4 * 6 / 2


def test_two_schemes_see_the_same_channel_and_the_same_minibatches():
    first = run_with_state(tiny_scenario(radio__fading="rayleigh", plan__scheme="no-pruning"))[2]
    second = run_with_state(tiny_scenario(radio__fading="rayleigh", plan__scheme="equal-resolved"))[2]
    assert first[0]["uplink_s"] == second[0]["uplink_s"]  # a loose deadline: neither prunes
    assert first[0]["loss"] == second[0]["loss"]


def test_training_learns():
    _, _, records = run_with_state(tiny_scenario(rounds__global_rounds=4))
    accuracy = [record["test_accuracy"] for record in records if record["kind"] == "global"]
    assert accuracy[-1] >= 0.9


@pytest.mark.parametrize("importance", ["update", "magnitude", "taylor", "random"])
@pytest.mark.parametrize("structure", ["weights", "neurons"])
def test_every_importance_and_structure_trains_with_the_planned_counts(importance, structure):
    scenario = tiny_scenario(
        masking__probe__importance=importance,
        masking__probe__structure=structure,
        plan__min_pruning_ratio=0.5,
        plan__max_pruning_ratio=0.5,
        rounds__global_rounds=1,
    )
    experiment, _, records = run_with_state(scenario)
    for record in records[:-1]:
        kept = np.array(record["kept_weights"])
        assert np.all(kept <= experiment.model.prunable_weights // 2) and np.all(kept > 0)
        assert record["uploaded_weights"] == kept.sum()


def test_data_weighted_averages_favour_devices_with_more_samples():
    uneven = {"data__size_spread": 1.0, "rounds__global_rounds": 1}
    uniform = run_with_state(tiny_scenario(**uneven))[1].global_state
    by_data = run_with_state(
        tiny_scenario(**uneven, aggregation__edge="data-weighted", aggregation__cloud="data-weighted")
    )[1]
    assert not np.allclose(uniform, by_data.global_state)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("constant", [0.1] * 4), ("step", [0.1, 0.1, 0.05, 0.05]), ("cosine", [0.1, 0.0853553, 0.05, 0.0146447])],
)
def test_learning_rate_schedules(schedule, expected):
    train = tiny_scenario(train__learning_rate=0.1, train__schedule=schedule, train__step_every=2).train
    rates = [round_rate(train, global_round=q, global_rounds=4) for q in range(4)]
    assert rates == pytest.approx(expected, rel=1e-5)  # digits given


def test_the_cap_leaves_every_unit_a_weight():
    experiment = Experiment.of(tiny_scenario(plan__max_pruning_ratio=1.0), dataset=blobs())
    rows, weights = 64 + 4, 12 * 64 + 64 * 4
    assert experiment.max_pruning_ratio == 1 - rows / weights
    with pytest.raises(ap.InvalidValue, match="each of the model's 68 units keeps a weight"):
        run_with_state(tiny_scenario(plan__min_pruning_ratio=0.99, plan__max_pruning_ratio=1.0))


def test_gradient_norms_and_constants_are_recorded_when_asked():
    _, _, records = run_with_state(
        tiny_scenario(diagnostics__gradients=True, plan__min_pruning_ratio=0.5, plan__max_pruning_ratio=0.5)
    )
    assert all(value > 0 for value in records[0]["gradient_sq_max"])
    assert all(value > 0 for value in records[0]["smoothness"])
    assert records[-1]["gradient_sq"] > 0


def test_a_network_table_is_read_once_and_may_go_while_the_run_goes_on(tmp_path):
    table = tmp_path / "fleet.csv"
    table.write_text("device,edge,distance_m\na,0,120\nb,0,130\nc,1,140\n")
    records = ap.run(tiny_scenario(network__table=str(table)), dataset=blobs())
    first = next(records)
    table.unlink()
    assert len(first["device"]) == 3
    assert [record["kind"] for record in records] == ["edge", "global", "edge", "edge", "global"]


@pytest.mark.parametrize("num_devices", [0, 1, 7, 1_000])
def test_groups_that_start_together_are_the_distinct_rows_in_order(num_devices):
    rng = np.random.default_rng(num_devices)
    for most_lag in (0, 1, 50):
        edge, lag = rng.integers(0, 40, num_devices), rng.integers(0, most_lag + 1, num_devices)
        rows = np.unique(np.column_stack((edge, lag)), axis=0)
        assert distinct_pairs(edge, lag) == [tuple(row) for row in rows.tolist()]
