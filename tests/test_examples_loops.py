"""Loops of one's own, plain and in Lightning: they run in seconds, and recall rises."""

import ast
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def beside(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)


def started(name: str, capsys) -> str:
    """What an example prints, run as a script."""
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def test_a_plain_loop_learns_and_is_short(capsys):
    said = re.fullmatch(r"R@1 before and after: (0\.\d{3}) (0\.\d{3})\n", started("plain_loop", capsys))
    before, after = map(float, said.groups())
    assert after > before + 0.1 and before > 0
    assert len((EXAMPLES / "plain_loop.py").read_text("utf-8").splitlines()) <= 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_lightning_loop_learns(capsys):
    pytest.importorskip("lightning")
    said = re.search(r"^before (\{.*\})\nafter (\{.*\})$", started("lightning_loop", capsys), re.M)
    before, after = map(ast.literal_eval, said.groups())
    assert after["R@1"] > before["R@1"] + 0.1 and after["MAP@R"] > before["MAP@R"]


def test_one_pass_after_another_is_that_of_the_sampler():
    pytest.importorskip("lightning")
    import lightning_loop
    from likewise.samplers import SamplesPerClass

    sampler = SamplesPerClass(labels=np.arange(24) % 6, batch=8, per_class=4, seed=0)
    passes = lightning_loop.OnePass(sampler)
    assert [list(passes), list(passes)] == [sampler.epoch_batches(0), sampler.epoch_batches(1)] and len(passes) == len(
        sampler
    )
