"""The server: FedAvg that halves the learning rate in every round."""

from collections.abc import Iterable

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


class Halving(FedAvg):
    """FedAvg with a rate of its own in each round."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if server_round > 1:
            config["lr"] *= 0.5
        return super().configure_train(server_round, arrays, config, grid)


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = Halving(fraction_train=0.5, min_available_nodes=6)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({"weights": Array(np.ones((3, 3)))}),
        train_config=ConfigRecord({"lr": float(context.run_config["learning-rate"])}),
        num_rounds=int(context.run_config["num-server-rounds"]),
    )
