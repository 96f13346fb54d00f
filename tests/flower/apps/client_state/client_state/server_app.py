"""The server: FedAvg."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    start = ArrayRecord({"weights": Array(np.zeros((4, 4), dtype=np.float32))})
    FedAvg().start(grid=grid, initial_arrays=start, num_rounds=int(context.run_config["num-server-rounds"]))
