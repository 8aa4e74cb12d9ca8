from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from likewise.contracts import Logger
from likewise.loggers.extras import must_have


class MLflow(Logger):
    """A run of MLflow: metrics by step, the settings as parameters, the folder as a tag.

    Needs: `pip install "likewise[mlflow]"`. MLflow allows few signs in names: "MAP@R" becomes "MAP at R". A training that goes
        on takes up the run it had.

    Args:
        uri: the tracking server, or a database: "sqlite:///mlflow.db"; None: what MLFLOW_TRACKING_URI says, or MLflow's own.
        experiment: where it belongs; made if it is not there.
    """

    def __init__(self, uri: str | None = None, experiment: str = "likewise"):
        must_have("mlflow", "MLflow")
        self.uri = uri
        self.experiment = experiment
        self.last = 0
        self.client: Any = None  # until it starts
        self.key = ""

    def start(self, name: str, folder: Path, config: dict, key: str | None) -> str:
        from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]
        from mlflow.entities import Param  # pyright: ignore[reportMissingImports]

        self.client = MlflowClient(tracking_uri=self.uri)
        if key is not None:
            self.key = key
            self.client.update_run(key, status="RUNNING")
            return key
        found = self.client.get_experiment_by_name(self.experiment)
        place = self.client.create_experiment(self.experiment) if found is None else found.experiment_id
        self.key = self.client.create_run(place, run_name=name, tags={"folder": str(folder)}).info.run_id
        self.client.log_batch(self.key, params=[Param(word, str(value)) for word, value in config.items()])
        return self.key

    def log(self, step: int, numbers: dict[str, float]) -> None:
        from mlflow.entities import Metric  # pyright: ignore[reportMissingImports]

        now = int(1000 * time.time())
        self.client.log_batch(self.key, metrics=[Metric(allowed(n), v, now, step) for n, v in numbers.items()])
        self.last = step

    def end(self, scores: dict[str, float] | None) -> None:
        if scores:
            self.log(self.last, scores)
        self.client.set_terminated(self.key, "KILLED" if scores is None else "FINISHED")


def allowed(name: str) -> str:
    """A name with the signs that MLflow knows."""
    return re.sub(r"[^\w\-. /]", "_", name.replace("@", " at ").replace("=", " "))
