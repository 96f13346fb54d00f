"""The client: NumPyClient of a linear model."""

import numpy as np
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context

TRUE = np.array([[2.0, -1.0]], dtype=np.float32)


class Client(NumPyClient):
    """Gradient steps on equations of its own."""

    def __init__(self, number: int) -> None:
        self.x = np.random.default_rng(number).normal(size=(30, 2)).astype(np.float32)
        self.y = self.x @ TRUE.T

    def fit(self, parameters, config):
        (weights,) = parameters
        for _ in range(int(config["local-steps"])):
            weights = weights - 0.2 * (self.x @ weights.T - self.y).T @ self.x / len(self.x)
        return [weights], len(self.x), {"round": int(config["round"])}

    def evaluate(self, parameters, config):
        loss = float(np.mean((self.x @ parameters[0].T - self.y) ** 2))
        return loss, len(self.x), {"accuracy": float(loss < 0.01)}


def client_fn(context: Context):
    return Client(int(context.node_config["partition-id"])).to_client()


app = ClientApp(client_fn=client_fn)
