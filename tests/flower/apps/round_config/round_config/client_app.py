"""The client: one step at the round's learning rate; a mod counts how often it is called."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp


def marked(message: Message, context: Context, call_next) -> Message:
    """Adds a metric to every reply."""
    reply = call_next(message, context)
    if not reply.has_error() and "metrics" in reply.content:
        reply.content["metrics"]["marked"] = 1.0
    return reply


app = ClientApp(mods=[marked])


@app.train()
def train(message: Message, context: Context) -> Message:
    rate = message.content["config"]["lr"]
    weights = message.content["arrays"]["weights"].numpy()
    stepped = weights - rate * weights
    metrics = MetricRecord({"lr": rate, "num-examples": 5})
    content = RecordDict({"arrays": ArrayRecord({"weights": Array(stepped)}), "metrics": metrics})
    return Message(content=content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    loss = float(np.abs(message.content["arrays"]["weights"].numpy()).max())
    return Message(RecordDict({"metrics": MetricRecord({"loss": loss, "num-examples": 5})}), reply_to=message)
