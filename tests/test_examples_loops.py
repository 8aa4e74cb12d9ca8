"""Loops of one's own, plain and in Lightning: they run in seconds, and recall rises."""

from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def beside(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)


def test_a_plain_loop_learns_and_is_short():
    import plain_loop

    before, after = plain_loop.train()
    assert after > before + 0.1 and before > 0
    assert len((EXAMPLES / "plain_loop.py").read_text("utf-8").splitlines()) <= 40


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_loop_learns():
    pytest.importorskip("lightning")
    import lightning_loop

    before, after = lightning_loop.train()
    assert after["R@1"] > before["R@1"] + 0.1 and after["MAP@R"] > before["MAP@R"]


def test_one_pass_after_another_is_that_of_the_sampler():
    pytest.importorskip("lightning")
    import lightning_loop

    from likewise.samplers import SamplesPerClass

    sampler = SamplesPerClass(labels=np.arange(24) % 6, batch=8, per_class=4, seed=0)
    passes = lightning_loop.OnePass(sampler)
    assert [list(passes), list(passes)] == [sampler.one_pass(0), sampler.one_pass(1)] and len(passes) == len(sampler)
