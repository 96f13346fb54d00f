"""The client: one gradient step on its own equations."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

TRUE = np.array([1.0, -2.0, 0.5])


def equations(partition_id: int) -> tuple[np.ndarray, np.ndarray]:
    """As many equations as twenty and the client's number, all with the same solution."""
    x = np.random.default_rng(partition_id).normal(size=(20 + partition_id, 3))
    return x, x @ TRUE


@app.train()
def train(message: Message, context: Context) -> Message:
    weights = message.content["arrays"]["weights"].numpy()
    x, y = equations(int(context.node_config["partition-id"]))
    residual = x @ weights - y
    stepped = weights - float(context.run_config["learning-rate"]) * x.T @ residual / len(y)
    metrics = MetricRecord({"train_loss": float(np.mean(residual**2)), "num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord({"weights": Array(stepped)}), "metrics": metrics})
    return Message(content=content, reply_to=message)
