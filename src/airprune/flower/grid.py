"""A Flower grid whose messages go over our network."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from airprune.errors import WorkFailed
from airprune.flower.client import node_of

if TYPE_CHECKING:
    from airprune.flower.session import Session

# An app that looks for nodes so often, without sending a message, waits for more of them than there are.
_MAX_LOOKS = 20


class NotYet(Exception):
    """Ends the call of a legacy client whose message has been taken, to be sent together with the others'."""


class AirGrid(Grid):
    """Sends an app's messages over the network of a scenario, and returns the replies that arrive in time.

    Messages that are pushed together make one exchange: they share bandwidth and end together.

    Args:
      devices: that this grid shows to the app; None: all.
    """

    def __init__(self, session: Session, devices: Sequence[int] | None = None) -> None:
        self._session = session
        self._devices = range(session.num_devices) if devices is None else devices
        self._replies: dict[str, Any] = {}
        self._taken: list[Any] | None = None
        self._ready: dict[int, Any] = {}
        self._looks = 0

    def set_run(self, run: Any) -> None:
        """Flower's own runtime sets a run; here there is one."""

    @property
    def run(self) -> Any:
        return SimpleNamespace(run_id=1)

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        if threading.current_thread() is threading.main_thread():
            self._looks += 1
            if self._looks > _MAX_LOOKS:
                raise WorkFailed(
                    f"The app waits for more clients than the {len(self._devices)} that this server has: it looked "
                    f"{_MAX_LOOKS} times; lower its minimum number of nodes, or give more with --devices."
                )
        return [node_of(device) for device in self._devices]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = list(messages)
        names = [self._session.name_message(message) for message in sent]
        for name, reply in zip(names, self._exchanged(sent, None), strict=True):
            self._replies[name] = reply
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found = [self._replies.pop(name, None) for name in message_ids]
        return [reply for reply in found if reply is not None]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        sent = list(messages)
        if self._taken is not None:
            self._taken += sent
            raise NotYet
        if len(sent) == 1 and sent[0].metadata.dst_node_id in self._ready:
            reply = self._ready.pop(sent[0].metadata.dst_node_id)
            return [] if reply is None else [reply]
        for message in sent:
            self._session.name_message(message)
        return [reply for reply in self._exchanged(sent, timeout) if reply is not None]

    def _exchanged(self, messages: Sequence[Message], timeout: float | None) -> list[Message | None]:
        self._looks = 0
        return self._session.exchange(messages, timeout) if messages else []

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Takes the messages of calls, each of which ends with `NotYet`; then sends them together.

        The same calls get the replies when they are made again.
        """
        self._taken = []
        try:
            yield
            taken = self._taken
        finally:
            self._taken = None
        for message in taken:
            self._session.name_message(message)
        replies = self._exchanged(taken, None)
        self._ready = {m.metadata.dst_node_id: r for m, r in zip(taken, replies, strict=True)}
