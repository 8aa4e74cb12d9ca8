"""Queue of a review: orders, the update after decisions, the stop rule, units, and the file."""

import numpy as np
import pytest
import torch

from likewise.audit.review_queue import POSTERIOR_FILE, build_queue, read_queue
from likewise.numerics.label_draws import Candidates
from likewise.types import LikewiseError


def make_queue(n=40):
    """Twenty suspects: twelve go from class 0 to 1, eight from 2 to 3; the last ten rows are not trained."""
    random = torch.Generator().manual_seed(0)
    label = torch.tensor([[0, 1]] * 12 + [[2, 3]] * 8 + [[1, 0]] * 10 + [[3, 2]] * 10)
    wrong = torch.cat([torch.linspace(0.99, 0.65, 20), torch.zeros(20)]).double()
    candidates = Candidates(label, torch.stack([1 - wrong, wrong], 1))
    x = torch.randn(n, 6, generator=random)
    suspects = wrong.argsort(descending=True, stable=True)[:20]
    return build_queue(x, torch.arange(n) + 100, candidates, suspects, torch.arange(n) < 30)


def test_orders():
    queue = make_queue()
    assert [one.rows for one in queue.actions("suspicion")] == [(at,) for at in range(20)]
    groups = queue.actions("gain")
    assert sorted(at for one in groups for at in one.rows) == list(range(20)) and len(groups) == 2
    gain = [one.gain / one.cost for one in groups]
    assert gain == sorted(gain, reverse=True)


def test_decisions_leave_the_queue_and_change_the_rest():
    queue = make_queue()
    positions = torch.arange(6)
    kept = queue.decide(positions, queue.candidates.label[positions, 0])
    assert sorted(kept.open.tolist()) == list(range(6, 20)) and len(queue.open) == 20
    assert float(kept.candidates.wrong[11]) < float(queue.candidates.wrong[11])
    assert kept.remaining(5) < queue.remaining(5)
    assert kept.should_stop(least=queue.remaining(5), block=5) and not queue.should_stop(least=0.0, block=5)


def test_units():
    queue = make_queue().scaled(0.04)
    assert float(queue.gain[queue.suspects].sum()) == pytest.approx(0.04)
    assert queue.remaining(1000) == pytest.approx(0.04) and queue.remaining(1000, "suspicion") == pytest.approx(0.04)
    assert make_queue().scaled(None).remaining(9) == make_queue().scaled(-0.1).remaining(9) == make_queue().remaining(9)


def test_rows_that_are_not_trained_gain_nothing():
    assert (make_queue().effect[30:] == 0).all()


def test_the_file(tmp_path):
    queue = make_queue()
    queue.write(tmp_path)
    again = read_queue(tmp_path)
    assert again.actions("gain") == queue.actions("gain") and torch.equal(again.row, queue.row)
    with np.load(tmp_path / POSTERIOR_FILE) as stored:
        arrays = dict(stored)
    np.savez(tmp_path / POSTERIOR_FILE, **arrays | {"effect": arrays["effect"][1:]})
    with pytest.raises(LikewiseError, match="must fit together"):
        read_queue(tmp_path)
