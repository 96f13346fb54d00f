"""Loggers that a run's numbers go to: TensorBoard, Weights & Biases, MLflow.

Each is a callback of `airprune.run` and a word of `airprune run --log`. Its package is imported when it is first used.
All log the same names (`airprune.results.rows`): global rounds as they are, edge rounds under `edge/`, and the scenario
as parameters. Nothing leaves the machine unless the user has named a server: W&B is offline unless WANDB_MODE says
otherwise, MLflow writes beside the run unless MLFLOW_TRACKING_URI is set, and their usage reports are turned off.
"""

from __future__ import annotations

from airprune.components.registry import Registry
from airprune.sinks.base import Sink

SINKS: Registry[type[Sink]] = Registry(
    "loggers",
    {
        "tensorboard": "airprune.sinks.tensorboard:TensorBoard",
        "wandb": "airprune.sinks.wandb:WeightsAndBiases",
        "mlflow": "airprune.sinks.mlflow:MLflow",
    },
)


def sink_named(name: str) -> type[Sink]:
    return SINKS[name]


__all__ = ["SINKS", "Sink", "sink_named"]
