"""MLflow: at MLFLOW_TRACKING_URI, else in a store beside the run, which `mlflow ui --backend-store-uri` shows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airprune.extras import needed
from airprune.sinks.base import Sink

_LONGEST_VALUE = 500  # of a parameter, in every store


class MLflow(Sink):
    """The experiment is that of MLFLOW_EXPERIMENT_NAME, else `airprune`."""

    name = "mlflow"
    _client: Any
    _run_id: str

    def open(self, folder: Path, title: str, parameters: Mapping[str, str]) -> None:
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # recent versions ask for a database
        tracking = needed("mlflow.tracking", extra="mlflow", what="The logger mlflow")
        uri = os.environ.get("MLFLOW_TRACKING_URI") or folder.as_uri()
        self._client = tracking.MlflowClient(tracking_uri=uri)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "airprune"
        known = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if known is None else known.experiment_id
        self._run_id = self._client.create_run(experiment, run_name=title).info.run_id
        for key, value in parameters.items():
            self._client.log_param(self._run_id, key, value[:_LONGEST_VALUE])

    def write(self, numbers: Mapping[str, float], *, step: int, step_name: str) -> None:
        for name, value in numbers.items():
            self._client.log_metric(self._run_id, name, value, step=step)

    def close(self, *, finished: bool) -> None:
        self._client.set_terminated(self._run_id, status="FINISHED" if finished else "KILLED")
