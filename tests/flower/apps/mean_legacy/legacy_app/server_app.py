"""Legacy FedAvg of all clients; the first model comes from a client."""

from flwr.common import Context
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


def server_fn(context: Context) -> ServerAppComponents:
    config = ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    return ServerAppComponents(strategy=FedAvg(fraction_evaluate=1.0), config=config)


app = ServerApp(server_fn=server_fn)
