"""Shapes in annotations are checked while tests run; production pays nothing."""

import gc
import multiprocessing
import os
import signal
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # also for the processes that tests start: two tests run side by side
import beartype
from jaxtyping import install_import_hook

warnings.filterwarnings("ignore", module="beartype")
beartype.beartype = beartype.beartype(
    conf=beartype.BeartypeConf(is_pep484_tower=True)
)  # 2 is a float where one is wanted
install_import_hook("likewise", "beartype.beartype")

pytest_plugins = ["small_runs", "calibrated_runs", "browser", "ray_nodes"]
HERE = str(Path(__file__).parent)
sys.path[:0] = [HERE, str(Path(HERE).parent)]  # modules that tests send to another process, and `tests` itself

import pytest  # noqa: E402
import torch  # noqa: E402

# Shells start background jobs without SIGINT, and nohup without SIGHUP: some tests send them, and wait for what they do.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

NUMERIC = (
    "core/retrieval", "core/test_class_sums", "core/test_kmeans", "curate/audit", "data/noise", "data/relevance", "labels",
    "learn/confidence", "learn/losses", "learn/miners", "learn/samplers", "learn/terms", "learn/test_lambert_w",
    "learn/test_ring_buffer", "learn/training/test_objective", "models/test_grad_cache", "score/metrics",
    "score/test_error_overlap", "score/test_intervals", "score/test_scoring", "score/test_significance", "test_examples",
    "test_similarity",
)  # fmt: skip
"""Folders and files whose tests are about formulas and numbers: CI runs them under a second instruction set."""


OLD_EXPORTER = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11)
"""Exporters of torch before 2.11 fail at common layers with the onnxscript of today, or trace what they cannot export."""


def pytest_collection_finish():
    """Exempt what is imported by now from garbage collection, which would walk through it again and again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items):
    """Mark the numeric tests, and skip tests that this machine cannot run."""
    no_gpu = None if torch.cuda.is_available() else pytest.mark.skip(reason="needs a GPU")
    for item in items:
        place = item.path.relative_to(HERE).with_suffix("")
        if any(place.as_posix() == name or place.as_posix().startswith(f"{name}/") for name in NUMERIC):
            item.add_marker(pytest.mark.numeric)
        if no_gpu and item.get_closest_marker("gpu"):
            item.add_marker(no_gpu)
        if OLD_EXPORTER and ("exported" in item.fixturenames or item.get_closest_marker("onnx")):
            item.add_marker(pytest.mark.skip(reason="exporting to ONNX needs torch 2.11"))


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch, tmp_path_factory):
    """Tests draw and cache in their own folder, on one thread each.

    Workers that read pictures take threads from the network, which changes the order of its sums: trainings with different
    numbers of workers are the same to the bit on one thread only.
    """
    torch.set_num_threads(1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp().parent / "cache"))


@pytest.fixture(scope="session")
def bare():
    """A process with the package as users have it: the compiler cannot look through checked shapes. `bare(work, *arguments)`."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield lambda work, *arguments: pool.submit(work, *arguments).result()


@pytest.fixture
def stop_at():
    """`train(config, hooks=stop_at(23))`: the training is asked to stop after that step."""
    from likewise.learn.training.loop import Hooks

    def hooks(step: int, how: signal.Signals = signal.SIGINT) -> Hooks:
        return Hooks(after_step=lambda state: state.step == step and os.kill(os.getpid(), how))

    return hooks


@pytest.fixture
def unchecked():
    """As users run it: without the shape checks of the tests, so that our own messages must come."""
    from jaxtyping import config

    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
