"""The client: counts its rounds, and keeps its model."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    count = 1
    if "counter" in context.state:
        count += int(context.state["counter"]["count"])
    context.state["counter"] = ConfigRecord({"count": count})
    weights = message.content["arrays"]["weights"].numpy() + 1.0
    moved = 0.0
    if "model" in context.state:
        moved = float(np.abs(weights - context.state["model"]["weights"].numpy()).mean())
    context.state["model"] = ArrayRecord({"weights": Array(weights)})
    metrics = MetricRecord({"count": count, "moved": moved, "num-examples": 1})
    content = RecordDict({"arrays": ArrayRecord({"weights": Array(weights)}), "metrics": metrics})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Shows what the training calls have left."""
    count = int(context.state["counter"]["count"])
    return Message(RecordDict({"metrics": MetricRecord({"loss": float(count), "num-examples": 1})}), reply_to=message)
