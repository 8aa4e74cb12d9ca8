from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from likewise.core.contracts import Logger
from likewise.core.errors import require_package


class MLflow(Logger):
    """A run of MLflow: metrics by step, the settings as parameters, the folder as a tag.

    Needs: `pip install "likewise[mlflow]"`. MLflow allows few characters in names: "MAP@R" becomes "MAP at R". A resumed training
        continues its MLflow run.

    Args:
        uri: the tracking server, or a database: "sqlite:///mlflow.db"; None: MLFLOW_TRACKING_URI, or the default of MLflow.
        experiment: name of the MLflow experiment; created if it does not exist.
    """

    def __init__(self, uri: str | None = None, experiment: str = "likewise"):
        require_package("mlflow", "MLflow")
        self.uri = uri
        self.experiment = experiment
        self.last = 0
        self.client: Any = None  # set by start
        self.key = ""

    def start(self, name: str, folder: Path, config: dict, key: str | None) -> str:
        from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]
        from mlflow.entities import Param  # pyright: ignore[reportMissingImports]

        self.client = MlflowClient(tracking_uri=self.uri)
        if key is not None:
            self.key = key
            self.client.update_run(key, status="RUNNING")
            return key
        experiment = self.client.get_experiment_by_name(self.experiment)
        number = self.client.create_experiment(self.experiment) if experiment is None else experiment.experiment_id
        self.key = self.client.create_run(number, run_name=name, tags={"folder": str(folder)}).info.run_id
        self.client.log_batch(self.key, params=[Param(word, str(value)) for word, value in config.items()])
        return self.key

    def log(self, step: int, numbers: dict[str, float]) -> None:
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]

        now = int(1000 * time.time())
        self.client.log_batch(self.key, metrics=[Metric(mlflow_name(n), v, now, step) for n, v in numbers.items()])
        self.last = step

    def end(self, scores: dict[str, float] | None) -> None:
        if scores:
            self.log(self.last, scores)
        self.client.set_terminated(self.key, "KILLED" if scores is None else "FINISHED")


def mlflow_name(name: str) -> str:
    """Return a metric name with only the characters that MLflow allows."""
    return re.sub(r"[^\w\-. /]", "_", name.replace("@", " at ").replace("=", " "))
