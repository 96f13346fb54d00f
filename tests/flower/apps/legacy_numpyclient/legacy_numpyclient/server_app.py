"""The server: a legacy FedAvg with its config functions."""

import numpy as np
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


def mean_accuracy(metrics):
    total = sum(count for count, _ in metrics)
    return {"accuracy": sum(count * one["accuracy"] for count, one in metrics) / total}


def server_fn(context: Context):
    strategy = FedAvg(
        initial_parameters=ndarrays_to_parameters([np.zeros((1, 2), dtype=np.float32)]),
        on_fit_config_fn=lambda server_round: {"local-steps": 4, "round": server_round},
        evaluate_metrics_aggregation_fn=mean_accuracy,
    )
    config = ServerConfig(num_rounds=int(context.run_config["num-server-rounds"]))
    return ServerAppComponents(strategy=strategy, config=config)


app = ServerApp(server_fn=server_fn)
