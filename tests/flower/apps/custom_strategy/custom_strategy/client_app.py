"""The client: moves halfway to its own mean; client 0 sends nonsense."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    number = int(context.node_config["partition-id"])
    weights = message.content["arrays"]["weights"].numpy()
    wanted = np.full((2, 3), 10.0 + 0.01 * number)
    moved = weights + 0.5 * (wanted - weights) if number else np.full((2, 3), 1e6)
    metrics = MetricRecord({"num-examples": 10})
    content = RecordDict({"arrays": ArrayRecord({"weights": Array(moved)}), "metrics": metrics})
    return Message(content=content, reply_to=message)
