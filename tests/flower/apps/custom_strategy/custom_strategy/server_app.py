"""The server: a strategy written from the base class."""

from collections.abc import Iterable

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

app = ServerApp()


class Median(Strategy):
    """All nodes train; each weight becomes the median of theirs."""

    def summary(self) -> None:
        pass

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, node, MessageType.TRAIN) for node in grid.get_node_ids()]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        found = [reply.content["arrays"]["weights"].numpy() for reply in replies if not reply.has_error()]
        if not found:
            return None, None
        return ArrayRecord({"weights": Array(np.median(found, axis=0))}), MetricRecord({"replies": len(found)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None


@app.main()
def main(grid: Grid, context: Context) -> None:
    start = ArrayRecord({"weights": Array(np.zeros((2, 3)))})
    rounds = int(context.run_config["num-server-rounds"])
    Median().start(grid=grid, initial_arrays=start, num_rounds=rounds, evaluate_fn=largest)


def largest(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"loss": float(np.abs(arrays["weights"].numpy() - 10.0).max())})
