"""The server: FedAvg whose evaluation is a rule of the app's own: the worst client."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


def worst(contents: list[RecordDict], weighted_by: str) -> MetricRecord:
    metrics = [next(iter(content.metric_records.values())) for content in contents]
    return MetricRecord(
        {"accuracy": min(one["accuracy"] for one in metrics), "loss": max(one["loss"] for one in metrics)}
    )


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    strategy = FedAvg(fraction_evaluate=1.0, evaluate_metrics_aggr_fn=worst)
    start = ArrayRecord(torch.nn.Linear(6, 2).state_dict())
    strategy.start(grid=grid, initial_arrays=start, num_rounds=int(context.run_config["num-server-rounds"]))
