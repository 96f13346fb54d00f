"""Methods as strategies of Flower; run by `test_flower_environments.py` in environments of their own."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from plain_grid import PlainGrid, identify

import airprune as ap
from airprune.errors import UsageError
from airprune.flower.budget import within_budget
from airprune.flower.strategy import Strategy

RNG = np.random.default_rng(0)
START = {
    "weight": RNG.normal(size=(20, 10)).astype(np.float32),
    "bias": RNG.normal(size=20).astype(np.float32),
    "count": np.array(0),
}


@pytest.fixture(autouse=True)
def _identity():
    identify()


def target(number: int) -> np.ndarray:
    return np.random.default_rng(100 + number).normal(size=(20, 10)).astype(np.float32)


def client(*mods) -> ClientApp:
    """Moves halfway to a target of its own; clients have 1, 2, … samples."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message, context):
        number = context.node_config["partition-id"]
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        pull = 0.5 / (1.0 + message.content["config"].get("proximal-mu", 0.0))
        weight = arrays["weight"] + np.float32(pull) * (target(number) - arrays["weight"])
        new = {"weight": weight, "bias": arrays["bias"] * 0.5, "count": np.asarray(arrays["count"] + 1)}
        content = RecordDict(
            {
                "arrays": ArrayRecord({name: Array(array) for name, array in new.items()}),
                "metrics": MetricRecord({"num-examples": 1 + number, "train_loss": 1.0 + number}),
            }
        )
        return Message(content, reply_to=message)

    return app


def played(strategy, *mods, num_rounds: int = 2, num_nodes: int = 4):
    grid = PlainGrid(client(*mods), num_nodes)
    start = ArrayRecord({name: Array(array) for name, array in START.items()})
    return strategy.start(grid=grid, initial_arrays=start, num_rounds=num_rounds), grid


def far(one, other) -> float:
    return max(
        float(np.abs(one.arrays[name].numpy() - other.arrays[name].numpy()).max()) for name in ("weight", "bias")
    )


@pytest.mark.parametrize("mods", [(within_budget,), ()], ids=["with the mod", "without it"])
def test_fedavg_is_that_of_flower(mods):
    ours, _ = played(Strategy("fedavg", fraction_evaluate=0.0), *mods)
    theirs, _ = played(FedAvg(fraction_evaluate=0.0))
    assert far(ours, theirs) < 1e-6
    assert ours.arrays["count"].numpy() == 2
    assert ours.train_metrics_clientapp[1]["sent-bits"] == 4 * (32 * 220 + 64)
    assert ours.train_metrics_clientapp[1]["train_loss"] == pytest.approx(
        theirs.train_metrics_clientapp[1]["train_loss"]
    )


def test_replies_travel_as_they_are_charged():
    result, _ = played(Strategy("bf16", fraction_evaluate=0.0), within_budget, num_rounds=1)
    assert result.train_metrics_clientapp[1]["sent-bits"] == 4 * (16 * 200 + 32 * 20 + 64)


def test_a_coded_reply_is_shorter_on_the_way():
    sizes = {}

    def watched(message, context, call_next):
        reply = call_next(message, context)
        sizes[message.metadata.dst_node_id] = sum(len(array.data) for array in reply.content["arrays"].values())
        return reply

    played(Strategy("bf16", fraction_evaluate=0.0), watched, within_budget, num_rounds=1)
    assert set(sizes.values()) == {2 * 200 + 4 * 20 + 8 + 128}  # numpy's header is 128 bytes


def test_weights_are_averaged_among_those_that_sent_them():
    values = {
        "masking.name": "magnitude-rechosen",
        "plan.cycles_per_weight": 1e-6,
        "plan.max_pruning_ratio": 0.9,
        "plan.deadline_s": 5e-5,
    }
    strategy = Strategy("adaptive-pruning", values=values, fraction_evaluate=0.0)
    result, grid = played(strategy, within_budget, num_rounds=1)
    budgets = [message.content["airprune"] for message in grid.sent]
    shares = [budget["kept_share"] for budget in budgets]
    assert min(shares) < 1.0, shares
    order = np.argsort(-np.abs(START["weight"]).ravel(), kind="stable")
    firsts = {int(np.abs(row).argmax()) + 10 * n for n, row in enumerate(START["weight"])}
    values, masks = [], []
    for budget in budgets:
        keep = round(budget["kept_share"] * 200)
        chosen = [*firsts, *(n for n in order.tolist() if n not in firsts)][:keep]
        masks.append(np.isin(np.arange(200), chosen))
        values.append((START["weight"] + np.float32(0.5) * (target(budget["device"]) - START["weight"])).ravel())
    expected = ap.aggregate(np.array(values), np.array(masks), START["weight"].ravel())
    np.testing.assert_allclose(result.arrays["weight"].numpy().ravel(), expected, rtol=1e-6, atol=1e-7)


def test_a_random_share_of_the_nodes_is_selected():
    strategy = Strategy("fedavg", values={"selection.random-share.share": 0.5}, fraction_evaluate=0.0)
    _, grid = played(strategy, within_budget, num_rounds=3)
    rounds = [{m.metadata.dst_node_id for m in grid.sent[start : start + 2]} for start in (0, 2, 4)]
    assert len(grid.sent) == 6 and all(len(nodes) == 2 for nodes in rounds)


def test_the_proximal_term_reaches_clients_as_flowers_own_does():
    _, grid = played(Strategy("fedprox", fraction_evaluate=0.0), within_budget, num_rounds=1)
    assert {message.content["config"]["proximal-mu"] for message in grid.sent} == {0.01}


def test_a_method_with_state_on_devices_is_refused():
    with pytest.raises(UsageError, match=r"scaffold\.own"):
        Strategy("scaffold")


def test_a_network_with_too_few_devices_is_refused():
    scenario = ap.Scenario().with_values({"network.num_edges": 1, "network.devices_per_edge": 2})
    with pytest.raises(UsageError, match="each of 4 nodes"):
        played(Strategy("fedavg", scenario=scenario, fraction_evaluate=0.0), within_budget)
