"""FedAvg of all clients."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from like_app.task import model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0)
    start = ArrayRecord(model().state_dict())
    strategy.start(grid=grid, initial_arrays=start, num_rounds=context.run_config["num-server-rounds"])
