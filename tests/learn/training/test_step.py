"""Several processes train as one does, whatever the parts, and go on with what others began."""

import json
import math

import numpy as np
import pytest
import torch
from learn.training.step_work import (
    CASES,
    FEW,
    STOPPED,
    cases,
    config,
    found,
    go_on,
    start,
    start_all,
    stop_half_way,
    train_case,
)
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.data import load
from likewise.learn.training.build import build_state, make_samples
from likewise.learn.training.defaults import resolve
from likewise.learn.training.step import check_chunks
from likewise.runs.folder import Run

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    """Where several processes have trained the cases that the selected tests ask for."""
    folder = tmp_path_factory.mktemp("together")
    mine = [i.callspec.params for i in request.session.items if i.path == request.path and hasattr(i, "callspec")]
    asked, most = {one.get("name") for one in mine}, max(2, *(one.get("many", 2) for one in mine))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp().parent / "cache"))
        start_all(folder, asked & (CASES.keys() | STOPPED.keys()), most)
    return folder


def case(name: str, many: int):
    return pytest.param(name, many, marks=() if name in FEW and many == 2 else pytest.mark.slow)


def assert_close(a, b, where: str, rounded: float = 1e-6) -> None:
    """Numbers to the rounding of some steps in float32 (a histogram in the log, of some digits), all else exactly."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            assert_close(a[key], b[key], f"{where} {key}", 1.1e-4 if key.endswith("suspicion") else rounded)
        return
    if isinstance(a, list):
        a, b = (np.array([math.nan if number is None else number for number in numbers]) for numbers in (a, b))
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape and a.dtype == b.dtype, where
    if a.dtype.kind != "f":
        assert np.array_equal(a, b), (where, a, b)
    else:
        largest = np.abs(a, where=np.isfinite(a), out=np.zeros_like(a)).max(initial=0)
        np.testing.assert_allclose(b, a, rtol=0, atol=2e-5 * largest + rounded, err_msg=where)


@pytest.mark.parametrize(("name", "many"), [case(name, many) for many in (2, 3) for name in cases(many)])
def test_many_train_as_one(folder, name, many):
    """Networks, losses, terms and confidences with all they keep; optimiser, sampler, log, validation, trust and losses."""
    for rank in range(many):
        assert name not in (errors := json.loads((folder / f"errors {rank} of {many}.json").read_text())), errors[name]
    alone, together = found(train_case(folder, name)), found(Run(folder / str(many) / name))
    losses = [value for key, value in alone.items() if key.startswith("log") and key.endswith(" loss")]
    assert len(losses) >= 4 and len(set(losses)) == len(losses) and np.isfinite(losses).all()
    assert any("val MAP@R" in key for key in alone) == (CASES[name].get("protocol", "") is not None)
    assert_close(alone, together, name)


@pytest.mark.parametrize("many", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", STOPPED)
def test_what_two_began_others_finish(folder, name, many):
    """One of two processes was asked to stop. Another number of them ends where one alone ends that was never stopped."""
    half = Run(folder / "2" / f"stopped {name}")
    assert half.load_state()["step"] == 3 and not half.done and not (half.path / "lock").exists()
    whole = start(config(folder, f"whole {name}", STOPPED[name]))
    resumed = go_on(folder, name, 2) if many == 1 else Run(folder / "3" / f"{name} from 2")
    assert resumed.done
    assert_close(found(whole), found(resumed), name)


@pytest.mark.parametrize("name", STOPPED)
def test_one_goes_on_to_the_bit(folder, name):
    whole = start(config(folder, f"whole {name}", STOPPED[name]))
    stop_half_way(folder, name)
    resumed = go_on(folder, name, 1)
    a, b = (
        {key: value.numpy() if isinstance(value, torch.Tensor) else value for key, value in found(run).items()}
        for run in (whole, resumed)
    )
    np.testing.assert_equal(b, a)


def test_mixtures_need_the_whole_batch(settings):
    config, device = Train(**settings, mixup=2.0, mixup_at="input"), torch.device("cpu")
    items = load(config.data)
    config = resolve(config, items)
    with pytest.raises(LikewiseError, match=r"drop --mixup or --gpus"):
        build_state(config, make_samples(config, items, device), device, rank=0, processes=2)


def test_processes_have_as_many_chunks_as_one_another():
    """They meet in every norm."""
    check_chunks(9, 4, processes=1)
    for count, chunk in ((8, 4), (9, 5), (9, 3), (16, 3)):
        check_chunks(count, chunk, processes=2)
    with pytest.raises(LikewiseError, match=r"batch of 9 over 2 processes .* --chunk-size 5"):
        check_chunks(9, 4, processes=2)
