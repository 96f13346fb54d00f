"""A NumPyClient that moves the model towards its own numbers."""

import numpy as np
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context


class MeanClient(NumPyClient):
    def __init__(self, partition: int, lr: float) -> None:
        self.own, self.lr = np.full((8, 5), float(partition), dtype=np.float32), lr

    def get_parameters(self, config):
        return [np.zeros((8, 5), dtype=np.float32)]

    def fit(self, parameters, config):
        return [parameters[0] + np.float32(self.lr) * (self.own - parameters[0])], 10, {"train_loss": 1.0}

    def evaluate(self, parameters, config):
        error = float(np.abs(parameters[0] - self.own).mean())
        return error, 10, {"accuracy": 1.0 / (1.0 + error)}


def client_fn(context: Context):
    return MeanClient(context.node_config["partition-id"], context.run_config["lr"]).to_client()


app = ClientApp(client_fn)
