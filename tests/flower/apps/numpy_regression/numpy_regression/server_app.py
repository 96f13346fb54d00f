"""The server: FedAvg from zero; its evaluation is the distance to the solution."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from numpy_regression.client_app import TRUE

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    start = ArrayRecord({"weights": Array(np.zeros(3))})
    strategy = FedAvg(fraction_evaluate=0.0)
    rounds = int(context.run_config["num-server-rounds"])
    strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds, evaluate_fn=distance)


def distance(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"loss": float(np.linalg.norm(arrays["weights"].numpy() - TRUE))})
