"""The places where Flower's own server code meets a session: it reports results, and legacy rounds go out together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from airprune.errors import InvalidValue
from airprune.flower.app import identify
from airprune.flower.contents import values_of
from airprune.flower.edges import FEWEST, legacy_edge_rounds, strategy_edge_rounds
from airprune.flower.grid import AirGrid
from airprune.flower.session import Session


@contextmanager
def hooked(session: Session, grid: AirGrid, edges: int, begin: Callable[[int | None], None]) -> Iterator[None]:
    """Has strategies of both kinds report to a session while an app runs.

    Args:
      edges: number of edges, each with a strategy of its own; 0: the app's server has all clients.
      begin: called with the number of rounds, as soon as it is known.
    """
    with ExitStack() as stack:
        _hook_strategies(stack, session, edges, begin)
        _hook_legacy(stack, session, grid, edges, begin)
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replaces a function of Flower's for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _hook_strategies(stack: ExitStack, session: Session, edges: int, begin: Callable[[int | None], None]) -> None:
    from flwr.serverapp.strategy import Strategy

    original = Strategy.start
    signature = inspect.signature(original)

    def start(self: Any, *args: Any, **options: Any) -> Any:
        given = signature.bind(self, *args, **options)
        given.apply_defaults()
        values = given.arguments
        check_fewest(self, session.num_devices)
        begin(values["num_rounds"])
        if values.get("evaluate_fn") is not None:
            values["evaluate_fn"] = _reported(session, values["evaluate_fn"])
        result = strategy_edge_rounds(session, edges, values) if edges else original(*given.args, **given.kwargs)
        if result.arrays:
            session.final = {name: values_of(array) for name, array in result.arrays.items()}
        return result

    stack.enter_context(_replaced(Strategy, "start", start))


def _reported(session: Session, evaluate: Callable[..., Any]) -> Callable[..., Any]:
    def evaluate_fn(*args: Any, **options: Any) -> Any:
        found = evaluate(*args, **options)
        session.server_evaluated(found)
        return found

    return evaluate_fn


def _hook_legacy(
    stack: ExitStack, session: Session, grid: AirGrid, edges: int, begin: Callable[[int | None], None]
) -> None:
    from flwr.server import server

    original = server.Server.fit

    def fit(self: Any, num_rounds: int, timeout: float | None) -> Any:
        check_fewest(self.strategy, session.num_devices)
        begin(num_rounds)
        identify()  # Flower's start has taken another
        self.strategy.evaluate = _legacy_reported(session, self.strategy.evaluate)
        if edges:
            found = legacy_edge_rounds(session, grid, edges, self, num_rounds, timeout)
        else:
            found = original(self, num_rounds, timeout)
        session.final = legacy_arrays(self.parameters)
        return found

    stack.enter_context(_replaced(server.Server, "fit", fit))
    for name, one in (("fit_clients", server.fit_client), ("evaluate_clients", server.evaluate_client)):
        stack.enter_context(_replaced(server, name, _together(grid, one)))


def _legacy_reported(session: Session, evaluate: Callable[..., Any]) -> Callable[..., Any]:
    def reported(*args: Any, **options: Any) -> Any:
        found = evaluate(*args, **options)
        if found is not None:
            loss, metrics = found
            session.server_evaluated({"loss": loss, **metrics})
        return found

    return reported


def _together(grid: AirGrid, one: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function in place of the one that calls clients from threads, one message at a time.

    Every client is called twice: first to take its message, then, when all have been sent, with the reply.
    """

    def clients(client_instructions: Any, max_workers: Any, timeout: Any, group_id: Any) -> tuple[list[Any], list[Any]]:
        from flwr.common import Code

        results: list[Any] = []
        failures: list[Any] = []
        with grid.taking():
            for client, instruction in client_instructions:
                with suppress(Exception):  # an error but `NotYet` comes again below
                    one(client, instruction, timeout, group_id)
        for client, instruction in client_instructions:
            try:
                found = one(client, instruction, timeout, group_id)
            except Exception as error:
                failures.append(error)
                continue
            (results if found[1].status.code == Code.OK else failures).append(found)
        return results, failures

    return clients


def legacy_arrays(parameters: Any) -> dict[str, Any]:
    """Returns the arrays of legacy parameters, which have no names, by their numbers."""
    from flwr.common import parameters_to_ndarrays

    return {str(place): array for place, array in enumerate(parameters_to_ndarrays(parameters))}


def check_fewest(strategy: Any, num_clients: int) -> None:
    """Refuses a strategy that would wait for ever."""
    for name in FEWEST:
        wanted = getattr(strategy, name, 0)
        if isinstance(wanted, int) and wanted > num_clients:
            rule = f"must be at most the number of clients, {num_clients}"
            raise InvalidValue(f"{type(strategy).__name__}.{name}", rule, wanted, "Give more clients with --devices")
