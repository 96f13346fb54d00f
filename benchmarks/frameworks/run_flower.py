"""The work in Flower: ClientApp and ServerApp with its FedAvg, in its simulation on Ray, two clients at a time.

`run_simulation` does in one process what the command `flwr run` does with a service beside it, so it is the cheaper.
Every client has one CPU, hence one thread, and keeps the data in its process from one message to the next, both as the
documentation advises. Nothing listens beyond loopback: Ray's node has the address 127.0.0.1, its dashboard is off.
"""

from __future__ import annotations

import tempfile

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from work import CNN, data_of, finish, initial_model, report, settings

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    config = message.content["config"]
    model = CNN()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    own = TensorDataset(*data_of(context.node_config["partition-id"]))
    optimiser = torch.optim.SGD(model.parameters(), lr=config["learning-rate"])
    trained = 0
    for x, y in DataLoader(own, batch_size=config["batch-size"], shuffle=True):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
        trained += len(y)
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": trained})}
    return Message(content=RecordDict(content), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    trained = 0

    def add_up(replies: list[RecordDict], weighted_by: str) -> MetricRecord:
        nonlocal trained
        trained = sum(reply["metrics"]["num-examples"] for reply in replies)
        return MetricRecord({"num-examples": trained})

    def after_round(server_round: int, arrays: ArrayRecord) -> None:
        if server_round:  # 0 is before the first
            report(server_round, trained)

    work = settings()
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=work["num_devices"], train_metrics_aggr_fn=add_up)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(initial_model().state_dict()),
        num_rounds=work["rounds"],
        train_config=ConfigRecord({"learning-rate": work["learning_rate"], "batch-size": work["batch_size"]}),
        evaluate_fn=after_round,
    )
    finish(result.arrays.to_torch_state_dict())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ray") as folder:  # short: sockets in it have long names
        run_simulation(
            server_app=server,
            client_app=client,
            num_supernodes=settings()["num_devices"],
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {
                    "num_cpus": 2,
                    "include_dashboard": False,
                    "_node_ip_address": "127.0.0.1",
                    "_temp_dir": folder,
                },
            },
        )
