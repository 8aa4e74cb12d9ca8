"""Queue of a review: orders, the update after decisions, the stop rule, units, and the file."""

import numpy as np
import pytest
import torch
from likewise.types import LikewiseError

from likewise.curate.audit.read import read_findings
from likewise.curate.audit.review_queue import POSTERIOR_FILE, build_queue, class_numbers, queue_of_findings, read_queue
from likewise.labels.posterior_update import Candidates
from likewise.labels.review_forecast import remaining_gain


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
    assert remaining_gain(kept.actions("gain"), 5) < remaining_gain(queue.actions("gain"), 5)


def test_units():
    queue = make_queue().scaled(0.04)
    assert float(queue.gain[queue.suspects].sum()) == pytest.approx(0.04)
    for order in ("gain", "suspicion"):
        assert remaining_gain(queue.actions(order), 1000) == pytest.approx(0.04)
    for total in (0.0, -0.1):  # no gain was forecast: the effects keep their unit
        assert torch.equal(make_queue().scaled(total).effect, make_queue().effect)


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


AUDIT = """row,path,label,score,suggested,confidence,margin,reason,split
3,,wren,0.2,robin,0.75,,,train
4,,wren,0.9,,,,,train
6,,robin,0.4,wren,0.05,,,train
7,,tit,0.1,robin,,,,test
"""


def test_an_audit_without_a_forecast_by_hand(tmp_path):
    (tmp_path / "audit.json").write_text('{"title": "birds", "root": "", "rows": 9, "pictures": false}')
    (tmp_path / "audit.csv").write_text(AUDIT)
    findings = read_findings(tmp_path)
    queue = queue_of_findings(findings)
    number = class_numbers(queue, findings)
    assert queue.row.tolist() == [3, 4, 6, 7] and queue.row[queue.suspects].tolist() == [7, 3, 6]
    assert queue.candidates.wrong.tolist() == pytest.approx([0.8, 0.1, 0.6, 0.9])
    assert queue.candidates.probability.sum(1).tolist() == pytest.approx([1.0] * 4)
    best = queue.candidates.probability[:, 1:].amax(1).tolist()
    assert best == pytest.approx([0.8 * 0.75, 0.1 * 0.5, 0.6 / 6, 0.9 * 0.5])  # 0.05 is less than others would have
    assert [queue.candidates.suggested[at].item() for at in (0, 2, 3)] == [
        number[n] for n in ("robin", "wren", "robin")
    ]
    # two wrens count half as much as the robin, with mean 1 over the three that are trained; the tit is not
    assert queue.effect.tolist() == pytest.approx([0.75, 0.75, 1.5, 0.0])
    assert queue.without(queue.suspects[:1]).open.tolist() == queue.suspects[1:].tolist()
    assert [queue.row[one.rows[0]].item() for one in queue.actions("gain")] == [6, 3, 7]


def test_a_queue_of_another_audit(tmp_path):
    (tmp_path / "audit.json").write_text('{"title": "birds", "root": "", "rows": 9, "pictures": false}')
    (tmp_path / "audit.csv").write_text(AUDIT)
    queue = queue_of_findings(read_findings(tmp_path))
    (tmp_path / "audit.csv").write_text(AUDIT.replace("4,,wren", "4,,tit"))
    with pytest.raises(LikewiseError, match="samples and labels of audit.csv"):
        class_numbers(queue, read_findings(tmp_path))
