"""Confusion pairs and mis-similar pairs, one sample at a time."""

import pytest
import torch
from likewise.errors import LikewiseError
from likewise.metrics import metric
from torch.nn import functional as F

from likewise.core.retrieval.ranking import rank
from likewise.curate.audit import retrieval_errors as module
from likewise.curate.audit.retrieval_errors import WrongPairs, find_pairs, group_by_class


def some(rows=70, classes=9, seed=0):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (rows,), generator=g) ** 2
    y[5] = 100  # alone
    z = torch.randn(rows, 4, generator=g)
    z[11] = 2 * z[10]  # equal directions, to the last bit
    z[13] = z[10]
    return z, y


def by_hand(z, y, group=None):
    """Every failing query as (query, nearest other, nearest mate or -1, both squared distances)."""
    z = F.normalize(z.double(), dim=1)
    found = []
    for i in range(len(z)):
        away = [(round(float((z[i] - z[j]).square().sum()), 9), j) for j in range(len(z)) if j != i]
        if group is not None:
            away = [
                (d, j) for d, j in away if not any(a == b >= 0 for a, b in zip(group[i].tolist(), group[j].tolist()))
            ]
        d, wrong = min(away)
        if y[wrong] != y[i]:
            near, mate = min([(d, j) for d, j in away if y[j] == y[i]], default=(None, -1))
            found.append((i, wrong, mate, d, near))
    return found


@pytest.mark.parametrize("chunk", [2**24, 1, 300])
@pytest.mark.parametrize("seed", [0, 1])
def test_both_kinds_by_hand(seed, chunk, monkeypatch):
    monkeypatch.setattr(module, "SIMILARITY_BLOCK_SIZE", chunk)
    z, y = some(seed=seed)
    expected = by_hand(z, y)
    confusion, mis_similar = find_pairs(z, y)
    assert {(q, w, m) for q, w, m, _, _ in expected} == set(
        zip(confusion.query.tolist(), confusion.wrong.tolist(), confusion.mate.tolist())
    )
    assert confusion.partner.tolist() == confusion.wrong.tolist()
    assert confusion.distance.tolist() == pytest.approx(sorted(d for *_, d, _ in expected), abs=1e-6)
    with_mate = [e for e in expected if e[2] >= 0]
    assert len(with_mate) == len(expected) - 1
    assert {(q, m, w) for q, w, m, _, _ in with_mate} == set(
        zip(mis_similar.query.tolist(), mis_similar.partner.tolist(), mis_similar.wrong.tolist())
    )
    assert mis_similar.distance.tolist() == pytest.approx(sorted((e[4] for e in with_mate), reverse=True), abs=1e-6)


def test_samples_that_share_a_group_are_not_compared():
    z, y = some(rows=90)
    g = torch.Generator().manual_seed(1)
    group = torch.randint(-1, 5, (90, 2), generator=g)
    expected = by_hand(z, y, group)
    assert expected != by_hand(z, y)
    confusion = find_pairs(z, y, group).confusion
    assert {(q, w, m) for q, w, m, _, _ in expected} == set(
        zip(confusion.query.tolist(), confusion.wrong.tolist(), confusion.mate.tolist())
    )


def test_confusion_pairs_are_the_failures_of_recall_at_1():
    z, y = some(rows=200)
    recall = metric("R@1")(rank(z, y))
    query = find_pairs(z, y).confusion.query
    failed = (recall == 0).nonzero()[:, 0].tolist()
    assert sorted(set(query.tolist()) - {5}) == failed  # 5 is alone: recall is not defined there


def test_without_errors_there_are_no_pairs():
    z, y = torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)
    found = find_pairs(z, y)
    assert not len(found.confusion.query) and not len(found.mis_similar.query)
    assert group_by_class(found.confusion, y) == []


def grouped():
    """Class 1 fails 5 times: thrice into 2, once into 3, once into 4; class 2 fails twice, all of it."""
    y = torch.tensor([1] * 10 + [2, 2, 3, 3, 4, 4])
    query = torch.tensor([0, 10, 1, 2, 11, 3, 4])
    wrong = torch.tensor([12, 0, 10, 11, 1, 10, 14])
    return WrongPairs(query, wrong, wrong, torch.full_like(wrong, -1), torch.linspace(0, 1, 7)), y


@pytest.mark.parametrize(
    ("coverage", "member"),
    [(1.0, [0, 2, 3, 5, 6]), (0.5, [2, 3, 5]), (0.6, [2, 3, 5]), (0.7, [0, 2, 3, 5]), (0.1, [2, 3, 5])],
)
def test_groups_hold_the_fewest_classes_that_cover_a_share(coverage, member):
    pairs, y = grouped()
    first, second = group_by_class(pairs, y, coverage=coverage)
    assert (first.label, first.wrong, first.size, first.member.tolist()) == (1, 5, 10, member)
    assert (second.label, second.wrong, second.size, second.member.tolist()) == (2, 2, 2, [1, 4])


def test_groups_go_by_count_or_by_rate():
    pairs, y = grouped()
    assert [g.label for g in group_by_class(pairs, y, by="rate")] == [2, 1]
    assert [g.label for g in group_by_class(pairs, y, top=1)] == [1]


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: find_pairs(torch.randn(3, 2), torch.randn(3)), "find_pairs: .*integer per row"),
        (lambda: find_pairs(torch.full((3, 2), torch.inf), torch.arange(3)), "first: row 0"),
        (lambda: group_by_class(*grouped(), coverage=0.0), "coverage must lie in"),
        (lambda: group_by_class(*grouped(), by="share"), "got by='share'"),
    ],
)
def test_bad_input_is_named(work, message, unchecked):
    with pytest.raises(LikewiseError, match=message):
        work()
