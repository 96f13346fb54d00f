"""One run of an app: exchanges of messages on the network, the clients' answers, and what is kept of both."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from airprune.engines import engine_named
from airprune.engines.base import Engine
from airprune.errors import UsageError, WorkFailed
from airprune.flower import contents
from airprune.flower.air import Air, Orders, Work
from airprune.flower.app import FlowerApp
from airprune.flower.client import Answer, Call, ClientFactory, device_of, kept_randomness
from airprune.flower.counting import ComputeClock, Rule
from airprune.flower.replies import Replies
from airprune.scenario import Scenario

Record = dict[str, Any]
_CATEGORIES = ("train", "evaluate", "query")


class Keeper(Protocol):
    """Keeps what a session finds.

    Attributes:
      replies: folder in which answers are kept until the run has ended; None: nowhere.
    """

    @property
    def replies(self) -> Path | None: ...
    def begin(self) -> None: ...
    def save(self, record: Record) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a session."""

    app: FlowerApp
    scenario: Scenario
    compute: Rule
    kept: Keeper


@dataclass
class _Evaluation:
    """Numbers of the global round under way: those of the clients, and those of the server, which come first."""

    clients: dict[str, float] = field(default_factory=dict)
    server: dict[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, Any]:
        return contents.as_metrics(self.clients) | contents.as_metrics(self.server)


class Session:
    """Carries an app's messages to its clients and back.

    Attributes:
      final: the model that the server has in the end: what its strategy returned, or the last that it sent.
      rules: the ways in which compute times were found.
      has_edges: set once the app's strategy is at every edge.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._scenario = settings.scenario
        self.air = Air(settings.scenario)
        self.num_devices = self.air.network.num_devices
        self.clock = ComputeClock(settings.scenario, self.air.network, settings.compute)
        self._replies = None if settings.kept.replies is None else Replies(settings.kept.replies)
        self._states: dict[int, Any] = {}
        self._evaluation = _Evaluation()
        self._engine: Engine | None = None
        self._stack = contextlib.ExitStack()
        self._num_exchanges = self._num_messages = 0
        self.final: dict[str, np.ndarray] = {}
        self.rules: set[str] = set()
        self.has_edges = False

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def engine(self) -> Engine:
        """The engine that calls clients; started when the first call is made."""
        if self._engine is None:
            settings, app = self._scenario.engine, self._settings.app
            factory = ClientFactory(
                name=app.client,
                folder=app.folder,
                config=dict(app.config),
                num_clients=self.num_devices,
                seed=self._scenario.seed,
            )
            self._engine = self._stack.enter_context(
                engine_named(settings.name)(
                    factory,
                    workers=settings.workers,
                    scheduler=settings.scheduler,
                    tls=None if settings.tls is None else Path(settings.tls),
                    silence_s=settings.worker_timeout_s,
                )
            )
        return self._engine

    def name_message(self, message: Any) -> str:
        """Gives a message its number, to which its reply will refer."""
        self._num_messages += 1
        name = f"airprune-{self._num_messages}"
        message.metadata.__dict__["_message_id"] = name
        return name

    def exchange(self, messages: Sequence[Any], timeout: float | None) -> list[Any]:
        """Returns the reply to each message; None for those that do not arrive.

        Messages of several types, or several to one client, are sent one after the other.
        """
        if self.air.network.num_edges > 1 and not self.has_edges:
            raise UsageError(
                "The app's server has a loop of its own instead of a strategy's start, so that no strategy can be put "
                "at edges; run it without --edges."
            )
        self._settings.kept.begin()
        replies: list[Any] = [None] * len(messages)
        waiting = list(range(len(messages)))
        while waiting:
            kind = messages[waiting[0]].metadata.message_type
            nodes: set[int] = set()
            batch: list[int] = []
            later: list[int] = []
            for place in waiting:
                metadata = messages[place].metadata
                fits = metadata.message_type == kind and metadata.dst_node_id not in nodes
                (batch if fits else later).append(place)
                nodes.add(metadata.dst_node_id)
            waiting = later
            for place, reply in self._one_exchange({place: messages[place] for place in batch}, timeout).items():
                replies[place] = reply
        return replies

    def _one_exchange(self, messages: dict[int, Any], timeout: float | None) -> dict[int, Any]:
        """Returns the replies that arrive, by the places of their messages."""
        first = next(iter(messages.values()))
        kind = first.metadata.message_type.partition(".")[0]
        kind = kind if kind in _CATEGORIES else "query"
        if kind == "train" and self.air.closes_global_round:
            self.close_global_round()
        place_of = {device_of(message.metadata.dst_node_id): place for place, message in messages.items()}
        for device in place_of:
            if not 0 <= device < self.num_devices:
                raise WorkFailed(f"The app sends a message to node {device + 2}, which is not among its clients.")
        model = contents.model_of(first.content)
        if kind == "train" and model is not None and (known := self.clock.expected_s(model.num_weights)) is not None:
            self.air.expected_s = known
        orders = self.air.plan(
            list(place_of), kind, model=model, timeout_s=math.inf if timeout is None else float(timeout)
        )
        if model is not None and kind != "query":
            self.final = numpy_arrays(first.content)
        by_device = {device: messages[place_of[device]] for device in orders.device.tolist()}
        answers = self._answers(orders, by_device)
        work, rules = self._work(orders, answers, 0 if model is None else model.num_weights)
        self.rules |= rules
        record, arrived = self.air.settle(orders, work, compute_from="+".join(sorted(rules)))
        self._settings.kept.save(record)
        heard = {device: answer for device, answer in answers.items() if device in arrived}
        if kind == "evaluate":
            self._evaluation.clients = contents.mean_numbers(answer.content for answer in heard.values())
        return {place_of[device]: self._reply(by_device[device], answer) for device, answer in heard.items()}

    def _answers(self, orders: Orders, messages: dict[int, Any]) -> dict[int, Answer]:
        """Returns the answers of the clients: those that were kept, if the run is resumed; else they are called."""
        number, self._num_exchanges = self._num_exchanges, self._num_exchanges + 1
        said = contents.digest(messages.values())
        found = None if self._replies is None else self._replies.read(number, said)
        if found is None:
            calls = [
                Call(
                    device=device,
                    exchange=number,
                    message=self._addressed(orders, place, message),
                    state=self._state(device),
                )
                for place, (device, message) in enumerate(messages.items())
            ]
            with kept_randomness():
                answers = dict(zip(messages, self.engine.map("call", None, calls), strict=True))
            if self._replies is not None:
                self._replies.write(number, said, answers)
        else:
            answers = found
        for device, answer in answers.items():
            self._states[device] = answer.state
            if answer.trouble and self._scenario.engine.on_device_failure == "fail":
                raise WorkFailed(
                    f"The client of device {device} failed, and engine.on_device_failure is fail; "
                    f"drop-device goes on without it: {answer.trouble}"
                )
        return answers

    def _state(self, device: int) -> Any:
        from flwr.app import RecordDict

        return self._states.get(device) or RecordDict()

    def _addressed(self, orders: Orders, place: int, message: Any) -> Any:
        """Returns the message of one client, with records of its own and its plan, if there is one but the server's."""
        from flwr.app import ConfigRecord, Message, RecordDict

        content = RecordDict()
        for key, record in message.content.items():
            is_config = type(record).__name__ in ("ConfigRecord", "ConfigsRecord")
            content[key] = ConfigRecord(dict(record)) if is_config else record
        if orders.has_plan and contents.OWN not in content:
            content[contents.OWN] = ConfigRecord(
                {
                    "kept_share": float(orders.kept_share[place]),
                    "bits": round(float(orders.bits_per_weight[place])),
                    "steps": -1,
                    "deadline_s": orders.deadline_s,
                    "device": int(orders.device[place]),
                }
            )
        return Message(content=content, metadata=message.metadata)

    def _work(self, orders: Orders, answers: dict[int, Answer], num_weights: int) -> tuple[list[Work], set[str]]:
        """Returns what each client did, and the ways in which compute times were found."""
        found, rules = [], set()
        trains = orders.message == "train"
        for device, answer in answers.items():
            content = answer.content
            numbers = {} if content is None else contents.numbers_of(content)
            samples = contents.examples_in(numbers)
            seconds, rule = self.clock.seconds(
                device,
                cpu_s=answer.cpu_s,
                counts=list(answer.counts),
                samples=samples,
                num_weights=num_weights,
                trains=trains,
            )
            rules.add(rule)
            bits, weights = (0.0, 0) if content is None else contents.reply_bits(content)
            found.append(
                Work(
                    device=device,
                    compute_s=seconds,
                    bits=bits,
                    num_weights=weights,
                    num_samples=samples,
                    passes=round(sum(one.samples for one in answer.counts)) or samples,
                    loss=contents.loss_in(numbers),
                    failed=bool(answer.trouble),
                )
            )
        return found, rules

    def _reply(self, message: Any, answer: Answer) -> Any:
        """Returns the reply as the server gets it: without what is between airprune and the client.

        A server that plans itself, such as `airprune.flower.Strategy`, gets all.
        """
        from flwr.app import Message, RecordDict

        plans = contents.OWN in message.content
        content = RecordDict({k: record for k, record in answer.content.items() if plans or k != contents.OWN})
        return Message(content, reply_to=message)

    def server_evaluated(self, numbers: Any) -> None:
        """Takes the numbers of an evaluation on the server; those before the first round are not of a round."""
        if numbers is not None and self.air.num_trainings:
            self._evaluation.server = dict(numbers)

    def close_global_round(self) -> None:
        """Closes the global round, if one is under way."""
        if self.air.state.edge_round:
            metrics, self._evaluation = self._evaluation.metrics, _Evaluation()
            self._settings.kept.save(self.air.close_global_round(metrics))


def numpy_arrays(content: Any) -> dict[str, np.ndarray]:
    """Returns the arrays of a message by their own names."""
    found: dict[str, np.ndarray] = {}
    for _, record in contents.records_of(content, "Array"):
        found |= {name: contents.values_of(array) for name, array in record.items()}
    return found
