"""Suggested labels by hand, one vote at a time, and what they say about classes."""

import math

import numpy as np
import pytest
import torch
from likewise.errors import LikewiseError
from torch.nn import functional as F

from likewise.curate.audit import label_scores
from likewise.curate.audit.relabel import class_findings, suggest, with_overlap
from likewise.labels.class_overlap import ClassOverlap


def some(sizes=(1, 2, 5, 9, 6, 6), dim=5, seed=0, far=1.0):
    """Classes of these sizes in mixed order, with labels that have gaps, below zero too."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    z = far * torch.randn(len(sizes), dim, generator=g)[y] + torch.randn(len(y), dim, generator=g)
    order = torch.randperm(len(y), generator=g)
    return z[order], 3 * y[order] - 4


def by_hand(z, y, i, k, temperature, foreign):
    """(label, confidence, margin) of sample i."""
    z = F.normalize(z.double(), dim=1)
    others = [j for j in range(len(z)) if j != i and not (foreign and y[j] == y[i])]
    k = k if foreign else min(k, int((y == y[i]).sum()) - 1)
    near = sorted((float((z[i] - z[j]).norm()), j) for j in others)[:k]
    share = {}
    for d, j in near:
        share[int(y[j])] = share.get(int(y[j]), 0) + math.exp(-d / temperature)
    if not share:
        return int(y[i]), 0.0, 0.0
    ranked = sorted(((w / sum(share.values()), label) for label, w in share.items()), reverse=True)
    return ranked[0][1], ranked[0][0], ranked[0][0] - (ranked[1][0] if len(ranked) > 1 else 0.0)


@pytest.mark.parametrize("chunk", [2**23, 12])
@pytest.mark.parametrize("foreign", [True, False])
@pytest.mark.parametrize(("k", "temperature"), [(None, 0.05), (4, 1.0), (100, 0.5)])
def test_suggestions_by_hand(k, temperature, foreign, chunk, monkeypatch):
    monkeypatch.setattr(label_scores, "SCORE_BLOCK_SIZE", chunk)
    z, y = some()
    found = suggest(z, y, foreign=foreign, k=k, temperature=temperature)
    expected = [by_hand(z, y, i, k or 5, temperature, foreign) for i in range(len(z))]
    assert found.row.tolist() == list(range(len(z)))
    assert found.y.tolist() == [label for label, _, _ in expected]
    np.testing.assert_allclose(found.confidence, [c for _, c, _ in expected], atol=1e-6)
    np.testing.assert_allclose(found.margin, [m for _, _, m in expected], atol=1e-6)
    assert not foreign or (found.y != y).all()


def test_only_the_rows_asked_for():
    z, y = some()
    rows = torch.tensor([7, 0, 20])
    some_of, all_of = suggest(z, y, rows), suggest(z, y)
    assert some_of.row.tolist() == [7, 0, 20] and some_of.y.tolist() == all_of.y[rows].tolist()
    assert [len(t) for t in suggest(z, y, rows[:0])] == [0] * 4


@pytest.mark.parametrize("size", [2, 5, 20])
def test_swapped_labels_are_found_again(size):
    z, true = some((size,) * 12, dim=32, far=5.0)
    y = true.clone()
    y[:3] = true[3:6].where(true[3:6] != true[:3], true[true != true[0]][0])
    wrong = (y != true).nonzero()[:, 0]
    found = suggest(z, y, wrong)
    assert found.y.tolist() == true[wrong].tolist()


def test_a_tie_goes_to_the_nearest():
    z = F.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.3], [1.0, -0.3]]), dim=1)
    found = suggest(z, torch.tensor([0, 8, 4]), torch.tensor([0]))
    assert found.y.tolist() == [8] and found.confidence.tolist() == [1.0]  # classes of one: one voter
    found = suggest(z, torch.tensor([0, 8, 4]), torch.tensor([0]), k=2)
    assert found.y.tolist() == [8] and found.confidence.tolist() == [0.5] and found.margin.tolist() == [0.0]


def test_findings_by_hand():
    y = torch.tensor([0] * 20 + [3] * 20 + [5] * 20 + [6] * 20 + [8] * 5)
    suggested = y.clone()
    suggested[:4] = 3  # 4 of 20, all to one class: merge
    suggested[20:24] = torch.tensor([0, 5, 5, 6])  # 4 of 20, to three classes: diffuse
    suggested[40:41] = 3  # 1 of 20
    suggested[80:81] = 0  # 1 of 5: a fifth of the class, but one sample is no pattern
    found = class_findings(y, suggested)
    assert found.kind == ("merge", "diffuse", "individual", "clean", "individual")
    assert found.label.tolist() == [0, 3, 5, 6, 8] and found.size.tolist() == [20, 20, 20, 20, 5]
    assert found.moved.tolist() == [4, 4, 1, 0, 1]
    assert found.target.tolist() == [3, 5, 3, -1, 0]
    entropy = -(0.25 * math.log(0.25) * 2 + 0.5 * math.log(0.5))
    np.testing.assert_allclose(found.entropy, [0, entropy, 0, 0, 0], atol=1e-12)
    assert found.of_all == pytest.approx(10 / 85) and found.of_touched == pytest.approx(10 / 65)


def test_merges_come_from_the_overlap_by_hand():
    y = torch.tensor([0] * 20 + [3] * 20 + [5] * 20 + [6] * 20 + [8] * 5)
    suggested = y.clone()
    suggested[:4] = 3  # a merge by the suggested labels, but not by the overlap
    pairs = torch.tensor([[0, 1, 0.01], [0, 2, 0.2], [2, 3, 0.98], [2, 1, torch.nan]]).T
    state = ("distinct", "distinct", "merge", "unknown")
    overlap = ClassOverlap(*pairs[:2].long(), *pairs[2].expand(4, -1), state)
    found = with_overlap(class_findings(y, suggested), overlap, np.array([0, 3, 5, 6, 8]))
    assert found.partner is not None and found.overlap is not None
    assert found.kind == ("mixed", "clean", "merge", "merge", "clean")
    assert found.partner.tolist() == [5, 5, 6, 5, -1]  # labels
    assert found.state == ("distinct", "unknown", "merge", "merge", "unknown")
    np.testing.assert_allclose(found.overlap, [0.2, np.nan, 0.98, 0.98, np.nan], rtol=1e-6)
    nothing = ClassOverlap(*pairs[:2, :0].long(), *pairs[2, :0].expand(4, -1), ())
    assert with_overlap(class_findings(y, suggested), nothing, found.label).state == ("unknown",) * 5
    part = with_overlap(
        class_findings(y[20:60], suggested[20:60]), overlap, found.label
    )  # of a split with two of the classes
    assert part.partner is not None and part.partner.tolist() == [5, 6] and part.kind == ("clean", "merge")


@pytest.mark.parity
def test_the_entropy_is_scipys():
    from scipy.stats import entropy

    g = torch.Generator().manual_seed(0)
    y, suggested = torch.randint(0, 4, (2, 300), generator=g)
    found = class_findings(y, suggested)
    for label, value in zip(found.label, found.entropy):
        goal = suggested[(y == label) & (suggested != label)]
        assert value == pytest.approx(entropy(torch.bincount(goal).numpy()))


def test_of_equal_targets_the_lowest_is_named_and_thresholds_count():
    y, suggested = torch.zeros(10, dtype=torch.int64), torch.tensor([7, 4, 7, 4, 9, 0, 0, 0, 0, 0])
    found = class_findings(y, suggested)
    assert found.target.tolist() == [4] and found.kind == ("diffuse",)
    assert class_findings(y, suggested, spread=2.0).kind == ("merge",)
    assert class_findings(y, suggested, many=0.6).kind == ("individual",)
    calm = class_findings(y, y)
    assert (calm.kind, calm.of_all, calm.of_touched) == (("clean",), 0.0, 0.0)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (
            lambda: suggest(torch.randn(4, 2), torch.zeros(4, dtype=torch.int64)),
            "must have two classes or more, got one",
        ),
        (lambda: suggest(torch.randn(4, 2), torch.arange(4), k=-1), "k >= 1"),
        (lambda: suggest(torch.randn(4, 2), torch.arange(4), torch.tensor([-1, 2])), "between 0 and 3, got -1 to 2"),
        (lambda: class_findings(torch.arange(3), torch.arange(2)), "got 2 for 3"),
    ],
)
def test_bad_input_is_named(work, message, unchecked):
    with pytest.raises(LikewiseError, match=message):
        work()
