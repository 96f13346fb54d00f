"""FedAvg of half of the clients."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_train=0.5, fraction_evaluate=0.5)
    start = ArrayRecord([np.zeros((8, 5), dtype=np.float32)])
    strategy.start(grid=grid, initial_arrays=start, num_rounds=context.run_config["num-server-rounds"])
