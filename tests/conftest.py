"""Shapes in annotations are checked while tests run; production pays nothing."""

import multiprocessing
import os
import signal
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import beartype
from jaxtyping import install_import_hook

warnings.filterwarnings("ignore", module="beartype")
beartype.beartype = beartype.beartype(
    conf=beartype.BeartypeConf(is_pep484_tower=True)
)  # 2 is a float where one is wanted
install_import_hook("likewise", "beartype.beartype")

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)  # modules that tests send to another process

import pytest  # noqa: E402
import torch  # noqa: E402


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch, tmp_path_factory):
    """Tests draw and cache in their own folder, on one thread each: two of them run side by side."""
    torch.set_num_threads(1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp().parent / "cache"))


@pytest.fixture(scope="session")
def bare():
    """A process with the package as users have it: the compiler cannot look through checked shapes. `bare(work, *arguments)`."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), sys.path.insert, (0, HERE)) as pool:
        yield lambda work, *arguments: pool.submit(work, *arguments).result()


@pytest.fixture
def stop_at(monkeypatch):
    """`stop_at(23)`: the next training is asked to stop after that step; those after it go on undisturbed."""
    from likewise.stages.train import Training

    def arrange(step: int, how: signal.Signals = signal.SIGINT) -> None:
        real, asked = Training.one_step, []

        def one_step(self, batch):
            real(self, batch)
            if self.step == step and not asked:
                asked.append(step)
                os.kill(os.getpid(), how)

        monkeypatch.setattr(Training, "one_step", one_step)

    return arrange


@pytest.fixture
def unchecked():
    """As users run it: without the shape checks of the tests, so that our own messages must come."""
    from jaxtyping import config

    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
