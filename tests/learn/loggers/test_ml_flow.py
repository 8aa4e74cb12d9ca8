"""MLflow is too heavy to be installed for tests: a stand-in notes what its client is asked for."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from likewise.loggers import MLflow

from likewise.learn.loggers.ml_flow import mlflow_name


class Client:
    """The calls of MlflowClient that are used, with their signatures."""

    made = []

    def __init__(self, tracking_uri=None):
        self.uri, self.experiments, self.calls = tracking_uri, {}, []
        Client.made.append(self)

    def get_experiment_by_name(self, name):
        return None if name != "there" else SimpleNamespace(experiment_id="7")

    def create_experiment(self, name):
        self.calls.append(("experiment", name))
        return "8"

    def create_run(self, experiment_id, run_name=None, tags=None):
        self.calls.append(("run", experiment_id, run_name, tags))
        return SimpleNamespace(info=SimpleNamespace(run_id="abc"))

    def update_run(self, run_id, status=None):
        self.calls.append(("update", run_id, status))

    def log_batch(self, run_id, metrics=(), params=()):
        self.calls.append(("batch", run_id, [(m.key, m.value, m.step) for m in metrics], [tuple(p) for p in params]))

    def set_terminated(self, run_id, status=None):
        self.calls.append(("over", run_id, status))


@pytest.fixture(autouse=True)
def client(monkeypatch):
    mlflow, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    mlflow.MlflowClient = Client
    entities.Param = lambda key, value: (key, value)
    entities.Metric = lambda key, value, timestamp, step: SimpleNamespace(key=key, value=value, step=step)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    Client.made.clear()


def test_a_new_run_is_made_told_and_finished(tmp_path):
    logger = MLflow(uri="sqlite:///x.db", experiment="birds")
    assert logger.start("run", tmp_path, {"dim": 8}, None) == "abc"
    logger.log(20, {"loss": 0.5, "val MAP@R": 0.25})
    logger.end({"test R@1": 0.75})
    (client,) = Client.made
    assert client.uri == "sqlite:///x.db" and client.calls == [
        ("experiment", "birds"),
        ("run", "8", "run", {"folder": str(tmp_path)}),
        ("batch", "abc", [], [("dim", "8")]),
        ("batch", "abc", [("loss", 0.5, 20), ("val MAP at R", 0.25, 20)], []),
        ("batch", "abc", [("test R at 1", 0.75, 20)], []),
        ("over", "abc", "FINISHED"),
    ]


def test_going_on_takes_the_run_up_and_stopping_says_so(tmp_path):
    logger = MLflow(experiment="there")
    assert logger.start("run", tmp_path, {"dim": 8}, "old") == "old"
    logger.log(40, {"loss": 0.5})
    logger.end(None)
    (client,) = Client.made
    assert client.calls == [
        ("update", "old", "RUNNING"), ("batch", "old", [("loss", 0.5, 40)], []), ("over", "old", "KILLED"),
    ]  # fmt: skip


def test_an_experiment_that_is_there_is_used(tmp_path):
    MLflow(experiment="there").start("run", tmp_path, {}, None)
    assert Client.made[0].calls[0][:2] == ("run", "7")


def test_names_by_hand():
    assert mlflow_name("lr/head") == "lr/head" and mlflow_name("test TAR@FAR=0.1") == "test TAR at FAR 0.1"
    assert mlflow_name("Größe (µ)") == "Größe _µ_"
