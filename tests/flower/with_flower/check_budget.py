"""The client mod on messages of Flower; run by `test_flower_environments.py` in environments of their own."""

import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg as LegacyFedAvg
from flwr.server.workflow import DefaultWorkflow
from flwr.serverapp.strategy import FedAvg
from plain_grid import PlainGrid, identify

from airprune.flower.budget import batches_within, within_budget

RNG = np.random.default_rng(0)
START = {"weight": RNG.normal(size=(6, 10)).astype(np.float32), "bias": RNG.normal(size=6).astype(np.float32)}
MOVED = RNG.normal(size=(6, 10)).astype(np.float32)


@pytest.fixture(autouse=True)
def _identity():
    identify()


def client(seen: list | None = None) -> ClientApp:
    app = ClientApp(mods=[within_budget])

    @app.train()
    def train(message, context):
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        if seen is not None:
            seen.append(dict(message.content["config"]))
        steps = sum(1 for _ in batches_within(range(20), message.content["config"]))
        arrays = {"weight": arrays["weight"] + MOVED, "bias": arrays["bias"] + 1.0}
        content = RecordDict(
            {
                "arrays": ArrayRecord({name: Array(array) for name, array in arrays.items()}),
                "metrics": MetricRecord({"num-examples": 4, "steps": steps}),
            }
        )
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 4, "loss": 1.0})}), reply_to=message)

    return app


def asked(budget: dict | None, kind: str = "train", seen: list | None = None) -> tuple[Message, Message]:
    records = {"arrays": ArrayRecord({k: Array(v) for k, v in START.items()}), "config": ConfigRecord({"lr": 0.1})}
    if budget is not None:
        records["airprune"] = ConfigRecord(budget)
    message = Message(RecordDict(records), 11, kind)
    grid = PlainGrid(client(seen), 1)
    (reply,) = grid.send_and_receive([message])
    return message, reply


def test_without_a_record_nothing_changes():
    _, reply = asked(None)
    assert set(reply.content) == {"arrays", "metrics"}
    assert np.array_equal(reply.content["arrays"]["weight"].numpy(), START["weight"] + MOVED)


def test_other_messages_than_train_pass():
    _, reply = asked({"kept_share": 0.5, "bits": 4}, kind="evaluate")
    assert set(reply.content) == {"metrics"}


@pytest.mark.parametrize(("share", "bits"), [(1.0, 32), (0.5, 32), (0.5, 8), (1.0, 4)])
def test_sent_bits_are_those_of_the_encoded_reply(share, bits):
    _, reply = asked({"kept_share": share, "bits": bits, "steps": -1, "deadline_s": 0.1, "device": 0})
    kept = round(60 * share)
    num_bytes = 4 * kept if bits == 32 else math.ceil(kept * bits / 8) + 8
    assert reply.content["airprune"]["sent_bits"] == 8 * (num_bytes + 4 * 6)
    got = reply.content["arrays"]["weight"].numpy()
    sent = np.abs(got - START["weight"]) > 0
    scale = np.abs(MOVED).max() / (2 ** (bits - 1) - 1) if bits < 32 else 1e-6
    assert np.count_nonzero(sent) <= kept and np.abs(got - START["weight"] - MOVED)[sent].max() <= 1.001 * scale
    assert np.array_equal(reply.content["arrays"]["bias"].numpy(), START["bias"] + 1.0)


def test_steps_reach_the_config_of_this_client_alone():
    seen: list = []
    _, reply = asked({"kept_share": 1.0, "bits": 32, "steps": 7}, seen=seen)
    assert seen == [{"lr": 0.1, "max-steps": 7}]
    assert reply.content["metrics"]["steps"] == 7


def test_the_same_message_is_quantised_to_the_same_bits():
    budget = {"kept_share": 1.0, "bits": 2, "device": 3}
    one, other = (asked(budget)[1].content["arrays"]["weight"].numpy() for _ in range(2))
    assert np.array_equal(one, other)


def test_a_coded_reply_holds_the_update_alone():
    _, reply = asked({"kept_share": 0.5, "bits": 8, "coded": True})
    (record,) = reply.content.array_records.values()
    assert 8 * record["airprune.update"].numpy().nbytes == reply.content["airprune"]["sent_bits"]
    assert list(record) == ["airprune.update"]


def test_strategies_of_flower_take_the_replies():
    class Limited(FedAvg):
        def configure_train(self, *args):
            messages = list(super().configure_train(*args))
            messages[0].content["airprune"] = ConfigRecord({"kept_share": 0.5, "bits": 8})  # shared by all
            return messages

    grid = PlainGrid(client(), 3)
    start = ArrayRecord({k: Array(v) for k, v in START.items()})
    result = Limited(fraction_evaluate=0.0).start(grid=grid, initial_arrays=start, num_rounds=2)
    got = result.arrays["weight"].numpy()
    assert np.count_nonzero(got != START["weight"]) < 60 and np.abs(got - START["weight"] - 2 * MOVED).max() < 9.0
    assert np.allclose(result.arrays["bias"].numpy(), START["bias"] + 2.0)


def test_a_client_of_the_older_api_keeps_to_its_budget():
    class Older(NumPyClient):
        def fit(self, parameters, config):
            return [parameters[0] + MOVED], 4, {"steps": config.get("max-steps", -1)}

    seen = []

    def as_the_grid_does(message, context, call_next):
        message.content["airprune"] = ConfigRecord({"kept_share": 0.25, "bits": 32, "steps": 3})
        reply = call_next(message, context)
        (array,) = reply.content["fitres.parameters"].values()
        seen.append((array.numpy(), dict(reply.content["airprune"]), dict(reply.content["fitres.metrics"])))
        return reply

    app = ClientApp(client_fn=lambda context: Older().to_client(), mods=[as_the_grid_does, within_budget])
    grid = PlainGrid(app, 2)
    strategy = LegacyFedAvg(initial_parameters=ndarrays_to_parameters([START["weight"]]), fraction_evaluate=0.0)
    context = LegacyContext(next(iter(grid.contexts.values())), config=ServerConfig(num_rounds=1), strategy=strategy)
    DefaultWorkflow()(grid, context)
    assert len(seen) == 2
    for weights, own, metrics in seen:
        assert np.count_nonzero(weights != START["weight"]) == 15
        assert own["sent_bits"] == 15 * 32 and metrics["steps"] == 3
