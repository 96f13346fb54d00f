"""The server: FedAvg of a matrix and a bias."""

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()
START = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)


@app.main()
def main(grid: Grid, context: Context) -> None:
    start = ArrayRecord([START, np.zeros(40, np.float32)])
    rounds = int(context.run_config["num-server-rounds"])
    FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=start, num_rounds=rounds, evaluate_fn=moved)


def moved(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    weight, bias = arrays.to_numpy_ndarrays()
    return MetricRecord({"loss": float(bias.mean()), "moved": float(np.mean(weight != START))})
