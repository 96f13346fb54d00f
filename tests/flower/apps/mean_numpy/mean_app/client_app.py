"""Moves the model towards the client's own numbers, and counts its calls in the client's state."""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def _own(context: Context) -> np.ndarray:
    return np.full((8, 5), float(context.node_config["partition-id"]), dtype=np.float32)


@app.train()
def train(message: Message, context: Context) -> Message:
    calls = int(context.state["calls"]["number"]) + 1 if "calls" in context.state else 1
    context.state["calls"] = ConfigRecord({"number": calls})
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    noise = np.random.normal(scale=0.01, size=model.shape).astype(np.float32)  # noqa: NPY002
    moved = model + context.run_config["lr"] / calls * (_own(context) - model) + noise
    metrics = MetricRecord(
        {"num-examples": 10 + context.node_config["partition-id"], "train_loss": 1.0, "calls": calls}
    )
    content = RecordDict({"arrays": ArrayRecord([moved.astype(np.float32)]), "metrics": metrics})
    if "airprune" in message.content:  # a plan: it says that it has sent so much, whatever it has
        kept = message.content["airprune"]["kept_share"]
        content["airprune"] = MetricRecord({"sent_bits": round(kept * moved.size) * 32})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    error = float(np.abs(model - _own(context)).mean())
    metrics = MetricRecord({"num-examples": 10, "eval_loss": error, "eval_acc": 1.0 / (1.0 + error)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
