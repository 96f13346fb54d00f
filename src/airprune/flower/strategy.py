"""Our methods as a strategy of Flower's own runtime; the server's part is `one_server`, this is what Flower calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from airprune.errors import InvalidValue
from airprune.flower.budget import RECORD, UPDATE, Arrays, Budget, decode
from airprune.flower.one_server import OneServer, Reply, check_method_at_one_server, scenario_of
from airprune.scenario import Scenario


class Strategy(FedAvg):
    """A method as a strategy: it plans each round for a network, and averages each weight among those that sent it.

        strategy = ap.flower.Strategy("fedadam", scenario=ap.Scenario.load("cell.toml"))
        strategy.start(grid=grid, initial_arrays=ArrayRecord(net().state_dict()), num_rounds=5)

    Clients use the mod `ap.flower.within_budget`, which encodes replies as planned. A reply of a client without the mod
    counts as one of all weights.

    Args:
      method: of `ap.METHODS`; one that needs edges, or state on devices, is refused.
      scenario: network, radio, deadline and options; None: a cell of the paper's kind with as many devices as nodes.
      values: settings by scenario key, e.g. {"plan.deadline_s": 0.1}.
      device_of: number of the device in the network for each node; None: in the order of the nodes' ids.
      options: of Flower's FedAvg, such as `fraction_evaluate` and `min_available_nodes`. `fraction_train` is the share
        of nodes among which the method selects.
    """

    def __init__(
        self,
        method: str = "fedavg",
        *,
        scenario: Scenario | None = None,
        values: Mapping[str, Any] | None = None,
        device_of: Callable[[int], int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.method, self.scenario, self.values = method, scenario, dict(values or {})
        self.device_of = device_of
        check_method_at_one_server(method, self.values)
        self._server: OneServer | None = None
        self._model: Arrays = {}
        self._budgets: dict[int, Budget] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Selects nodes, and gives each of them its budget."""
        messages = {m.metadata.dst_node_id: m for m in super().configure_train(server_round, arrays, config, grid)}
        if not messages:
            return []
        self._model = {name: array.numpy() for name, array in arrays.items()}
        every = sorted({*grid.get_node_ids(), *messages})
        if self._server is None:
            self._server = OneServer(scenario_of(self.method, self.scenario, self.values, len(every)), self._model)
        numbers = {node: place if self.device_of is None else self.device_of(node) for place, node in enumerate(every)}
        num_devices = self._server.network.num_devices
        if max(numbers.values()) >= num_devices:
            rule = f"must have a device for each of {len(every)} nodes"
            raise InvalidValue("Scenario.network", rule, f"{num_devices} devices", "Set network.devices_per_edge")
        budgets = self._server.budgets(server_round - 1, [numbers[node] for node in messages])
        self._budgets = {node: budgets[numbers[node]] for node in messages if numbers[node] in budgets}
        return [self._with_budget(messages[node], budget) for node, budget in self._budgets.items()]

    def _with_budget(self, message: Message, budget: Budget) -> Message:
        """Returns the message with a content of its own: those of one round share theirs."""
        assert self._server is not None
        records = dict(message.content.items())
        if (proximal := getattr(self._server.method.objective, "mu", None)) is not None:  # as Flower's FedProx has it
            records[self.configrecord_key] = ConfigRecord({**records[self.configrecord_key], "proximal-mu": proximal})
        message.content = RecordDict({**records, RECORD: ConfigRecord(budget.record)})
        return message

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Decodes the replies and averages them; the metrics have the bits that were sent, `sent-bits`."""
        replies, masks = list(replies), {}
        for reply in replies:
            if not reply.has_error():
                masks[reply.metadata.src_node_id] = self._decode(reply)
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        if not valid:
            return None, None
        assert self._server is not None
        found = [self._reply_of(message, masks[message.metadata.src_node_id]) for message in valid]
        found.sort(key=lambda reply: reply.device)
        model = self._server.average(self._model, found)
        contents = [message.content for message in valid]
        metrics = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        metrics["sent-bits"] = sum(_sent_bits(content) for content in contents)
        return ArrayRecord({name: Array(array) for name, array in model.items()}), metrics

    def _decode(self, reply: Message) -> Any:
        """Puts the arrays in the place of the encoded update; returns which weights were sent."""
        ((name, record),) = reply.content.array_records.items()
        if UPDATE not in record:
            return None
        budget = self._budgets[reply.metadata.src_node_id]
        arrays, mask = decode(self._model, record[UPDATE].numpy().tobytes(), budget)
        reply.content[name] = ArrayRecord({key: Array(array) for key, array in arrays.items()})
        return mask

    def _reply_of(self, message: Message, mask: Any) -> Reply:
        (record,) = message.content.array_records.values()
        (metrics,) = message.content.metric_records.values()
        return Reply(
            device=self._budgets[message.metadata.src_node_id].device,
            arrays={name: array.numpy() for name, array in record.items()},
            mask=mask,
            num_samples=float(metrics[self.weighted_by_key]),
        )


def _sent_bits(content: RecordDict) -> int:
    """Returns what a reply took: as its mod has counted, else its arrays as they are."""
    if RECORD in content.config_records:
        return int(content.config_records[RECORD]["sent_bits"])
    return 8 * sum(array.numpy().nbytes for record in content.array_records.values() for array in record.values())
