"""An app's own strategy at every edge, and the mean of the edges' models at the cloud.

Every edge has a copy of the strategy, which sees the clients of that edge alone. After `rounds.edge_rounds` rounds of
the app the cloud takes the mean of the edges' models, weighted by the examples that they heard of, and sends it down.
Evaluation is the cloud's: of the mean, by all clients or on the server.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from airprune.errors import UsageError
from airprune.flower.client import device_of
from airprune.flower.contents import num_examples
from airprune.flower.grid import AirGrid, NotYet
from airprune.flower.session import Session

# Attributes of strategies: the fewest clients without which they wait.
FEWEST = (
    *("min_available_nodes", "min_train_nodes", "min_evaluate_nodes"),
    *("min_available_clients", "min_fit_clients", "min_evaluate_clients"),
)

Arrays = dict[str, np.ndarray]


def mean_of_edges(models: Sequence[Arrays], examples: np.ndarray) -> Arrays:
    """Returns Σ n_k w_k / Σ n_k, in the types of the first; edges that heard of no examples do not count."""
    total = examples.sum()
    weights = examples / total if total > 0 else np.full(len(models), 1.0 / len(models))
    found: Arrays = {}
    for name, first in models[0].items():
        mean = sum(w * model[name].astype(np.float64) for w, model in zip(weights, models, strict=True))
        found[name] = np.asarray(mean).astype(first.dtype)
    return found


def edge_strategy(strategy: Any, num_clients: int) -> Any:
    """Returns a copy of a strategy for an edge with so many clients: it waits for no more than those."""
    try:
        own = copy.deepcopy(strategy)
    except Exception as error:
        raise UsageError(
            f"{type(strategy).__name__} cannot be copied for every edge ({error}); run the app without --edges."
        ) from error
    for name in FEWEST:
        if isinstance(getattr(own, name, None), int):
            setattr(own, name, min(getattr(own, name), num_clients))
    return own


def clients_of_edges(session: Session, edges: int) -> list[list[int]]:
    """Returns the devices of each edge."""
    serving = session.air.stations.serving(session.air.state.values)
    return [np.flatnonzero(serving == edge).tolist() for edge in range(edges)]


def strategy_edge_rounds(session: Session, edges: int, given: Mapping[str, Any]) -> Any:
    """Runs the rounds of `Strategy.start`, whose arguments are `given`, with a strategy at every edge."""
    from flwr.app import Array, ArrayRecord, ConfigRecord
    from flwr.serverapp.strategy import Result

    session.has_edges = True
    cloud, evaluate_fn = given["self"], given.get("evaluate_fn")
    train_config = given.get("train_config") or ConfigRecord()
    evaluate_config = given.get("evaluate_config") or ConfigRecord()
    clients = clients_of_edges(session, edges)
    strategies = [edge_strategy(cloud, len(devices)) for devices in clients]
    grids = [AirGrid(session, devices) for devices in clients]
    arrays = given["initial_arrays"]
    at_edge, examples = [arrays] * edges, np.zeros(edges)
    result, last = Result(), given["num_rounds"]
    if evaluate_fn is not None and (found := evaluate_fn(0, arrays)) is not None:
        result.evaluate_metrics_serverapp[0] = found
    for number in range(1, last + 1):
        messages: list[Any] = []
        owner: list[int] = []
        for edge, strategy in enumerate(strategies):
            config = ConfigRecord(dict(train_config))
            own = list(strategy.configure_train(number, at_edge[edge], config, grids[edge])) if clients[edge] else []
            messages += own
            owner += [edge] * len(own)
        replies = _sent(session, messages, given.get("timeout"))
        for edge, strategy in enumerate(strategies):
            heard = [r for r, of in zip(replies, owner, strict=True) if of == edge and r is not None]
            combined, metrics = strategy.aggregate_train(number, heard)
            if combined is not None:
                at_edge[edge] = combined
                examples[edge] += sum(num_examples(reply.content) for reply in heard)
            if metrics is not None:
                result.train_metrics_clientapp[number] = metrics
        if not session.air.closes_global_round and number < last:
            continue
        mean = mean_of_edges([{n: a.numpy() for n, a in one.items()} for one in at_edge], examples)
        arrays = ArrayRecord({name: Array(np.asarray(array)) for name, array in mean.items()})
        at_edge, examples = [arrays] * edges, np.zeros(edges)
        result.arrays = arrays
        asked = list(cloud.configure_evaluate(number, arrays, ConfigRecord(dict(evaluate_config)), AirGrid(session)))
        heard = [reply for reply in _sent(session, asked, given.get("timeout")) if reply is not None]
        found = cloud.aggregate_evaluate(number, heard) if asked else None
        if found is not None:
            result.evaluate_metrics_clientapp[number] = found
        if evaluate_fn is not None and (found := evaluate_fn(number, arrays)) is not None:
            result.evaluate_metrics_serverapp[number] = found
    return result


def _sent(session: Session, messages: Sequence[Any], timeout: float | None) -> list[Any]:
    for message in messages:
        session.name_message(message)
    return session.exchange(messages, timeout) if messages else []


def legacy_edge_rounds(
    session: Session, grid: AirGrid, edges: int, server: Any, num_rounds: int, timeout: float | None
) -> Any:
    """Runs the rounds of a legacy server's `fit` with a strategy at every edge."""
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server.client_manager import SimpleClientManager
    from flwr.server.history import History
    from flwr.server.server import fit_client

    session.has_edges = True
    history, manager = History(), server.client_manager()
    clients = clients_of_edges(session, edges)
    proxies = {device_of(int(proxy.cid)): proxy for proxy in manager.all().values()}
    managers = []
    for devices in clients:
        own = SimpleClientManager()
        for device in devices:
            own.register(proxies[device])
        managers.append(own)
    strategies = [edge_strategy(server.strategy, len(devices)) for devices in clients]
    server.parameters = server._get_initial_parameters(server_round=0, timeout=timeout)
    server.strategy.evaluate(0, parameters=server.parameters)
    at_edge, examples = [server.parameters] * edges, np.zeros(edges)
    for number in range(1, num_rounds + 1):
        orders: list[tuple[int, Any, Any]] = []
        for edge, strategy in enumerate(strategies):
            own_orders = strategy.configure_fit(number, at_edge[edge], managers[edge]) if clients[edge] else []
            orders += [(edge, proxy, instruction) for proxy, instruction in own_orders]
        with grid.taking():
            for _, proxy, instruction in orders:
                with contextlib.suppress(NotYet):
                    fit_client(proxy, instruction, timeout, number)
        for edge, strategy in enumerate(strategies):
            results: list[Any] = []
            failures: list[Any] = []
            for of, proxy, instruction in orders:
                if of == edge:
                    try:
                        results.append(fit_client(proxy, instruction, timeout, number))
                    except Exception as error:
                        failures.append(error)
            combined, _ = strategy.aggregate_fit(number, results, failures)
            if combined is not None:
                at_edge[edge] = combined
                examples[edge] += sum(found.num_examples for _, found in results)
        if not session.air.closes_global_round and number < num_rounds:
            continue
        models = [dict(enumerate(parameters_to_ndarrays(one))) for one in at_edge]
        mean = mean_of_edges([{str(k): v for k, v in one.items()} for one in models], examples)
        server.parameters = ndarrays_to_parameters(list(mean.values()))
        at_edge, examples = [server.parameters] * edges, np.zeros(edges)
        server.strategy.evaluate(number, parameters=server.parameters)
        server.evaluate_round(server_round=number, timeout=timeout)
    return history, 0.0
