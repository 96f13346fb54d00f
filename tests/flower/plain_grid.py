"""Calls the clients of an app one after the other in this process: Flower's runtime without processes, for tests.

`python plain_grid.py FOLDER` runs the app of a folder.
"""

import importlib
import itertools
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

from flwr.app import Context, RecordDict
from flwr.serverapp import Grid


def identify() -> None:
    """Gives this process the identity that messages carry since Flower 1.30."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


class PlainGrid(Grid):
    """A grid whose nodes 11, 12, … answer at once.

    Attributes:
      sent: messages, as the server sent them.
      got: replies, as it got them.
    """

    def __init__(self, client_app, num_nodes: int, run_config=None) -> None:
        self.client_app, self.sent, self.got = client_app, [], []
        self._replies, self._number = {}, itertools.count()
        self.contexts = {
            11 + number: Context(
                run_id=1,
                node_id=11 + number,
                node_config={"partition-id": number, "num-partitions": num_nodes},
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for number in range(num_nodes)
        }

    def set_run(self, *args, **kwargs) -> None:
        pass

    @property
    def run(self):
        return SimpleNamespace(run_id=1)

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            number = str(next(self._number))
            message.metadata.__dict__["_message_id"] = number
            self.sent.append(message)
            self._replies[number] = self.client_app(message, self.contexts[message.metadata.dst_node_id])
            numbers.append(number)
        return numbers

    def pull_messages(self, message_ids):
        found = [self._replies.pop(number) for number in message_ids]
        self.got += found
        return found

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))


def run_app(folder: Path) -> PlainGrid:
    """Runs the app of a folder to its end."""
    identify()
    described = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]
    sys.path.insert(0, str(folder))
    found = {}
    for part, name in described["app"]["components"].items():
        module, _, attribute = name.partition(":")
        found[part] = getattr(importlib.import_module(module), attribute)
    federations = described["federations"]
    config = described["app"].get("config", {})
    grid = PlainGrid(found["clientapp"], federations[federations["default"]]["options"]["num-supernodes"], config)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    found["serverapp"](grid, context)
    return grid


if __name__ == "__main__":
    run_app(Path(sys.argv[1]).resolve())
