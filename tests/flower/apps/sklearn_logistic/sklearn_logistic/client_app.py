"""The client: a few iterations of a warm-started solver."""

import warnings

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

app = ClientApp()


def new_model() -> LogisticRegression:
    model = LogisticRegression(max_iter=3, warm_start=True)
    model.classes_ = np.arange(3)
    model.coef_, model.intercept_ = np.zeros((3, 4)), np.zeros(3)
    return model


def samples(partition_id: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds of points."""
    rng = np.random.default_rng(partition_id)
    labels = np.arange(count) % 3
    return rng.normal(size=(count, 4)) + 2.0 * np.eye(3, 4)[labels], labels


def received(message: Message) -> LogisticRegression:
    model = new_model()
    model.coef_, model.intercept_ = message.content["arrays"].to_numpy_ndarrays()
    return model


@app.train()
def train(message: Message, context: Context) -> Message:
    model, (x, y) = received(message), samples(int(context.node_config["partition-id"]), 90)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not converge in three iterations
        model.fit(x, y)
    metrics = MetricRecord({"train_loss": log_loss(y, model.predict_proba(x)), "num-examples": len(y)})
    arrays = ArrayRecord([model.coef_, model.intercept_])
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    model, (x, y) = received(message), samples(100 + int(context.node_config["partition-id"]), 60)
    metrics = {
        "accuracy": float(model.score(x, y)),
        "loss": log_loss(y, model.predict_proba(x)),
        "num-examples": len(y),
    }
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
