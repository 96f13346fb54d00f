"""The server: FedAvg of coefficients."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from sklearn_logistic.client_app import new_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    model = new_model()
    start = ArrayRecord([model.coef_, model.intercept_])
    FedAvg().start(grid=grid, initial_arrays=start, num_rounds=int(context.run_config["num-server-rounds"]))
