"""Flower apps on our network: `run` simulates one as it is; a client obeys its plan; methods as a Flower strategy.

air        exchanges of messages on the network: plans, times, energies, records; without Flower
counting   how long a device computes for a call
app        an app's folder: components, config, number of clients
client     calls of its ClientApp, in this process or in workers
contents   contents of messages: size, numbers, files
replies    answers of clients, kept until the run has ended
session    one run: messages to the clients and back
grid       the grid that the app's server gets
server     hooks in Flower's own server code
edges      the app's strategy at every edge
app_run    the run: folder, resume
budget     the client's part: replies within a kept share, bits and steps
one_server the server's part of a method: plans and averages; without Flower
strategy   the same as a strategy of Flower's
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from airprune.flower.app import FlowerApp
    from airprune.flower.app_run import Finished, default_scenario, run
    from airprune.flower.budget import batches_within, within_budget
    from airprune.flower.counting import counted
    from airprune.flower.strategy import Strategy

__all__ = [
    "run",
    "counted",
    "default_scenario",
    "Finished",
    "FlowerApp",
    "within_budget",
    "batches_within",
    "Strategy",
]

_HOMES = {
    "run": "app_run",
    "default_scenario": "app_run",
    "Finished": "app_run",
    "counted": "counting",
    "FlowerApp": "app",
    "within_budget": "budget",
    "batches_within": "budget",
    "Strategy": "strategy",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'airprune.flower' has no attribute {name!r}")
    if name in ("within_budget", "Strategy"):
        from airprune.flower.app import need_flower

        need_flower(f"airprune.flower.{name}")
    return getattr(importlib.import_module(f"airprune.flower.{_HOMES[name]}"), name)
