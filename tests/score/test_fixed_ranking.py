"""Scores of other labels on the same ranking are those of a new ranking with these labels."""

import numpy as np
import pytest
import torch
from score.by_hand import NAMES, by_hand, some

from likewise.core.retrieval.ranking import rank
from likewise.score.fixed_ranking import FixedRanking


def ranked(x, **how):
    return rank(torch.as_tensor(x), torch.zeros(len(x), dtype=torch.int64), k=len(x) - 1, **how).row


def test_other_labels_by_hand():
    x, y = some()
    other = np.random.default_rng(1).permutation(y)
    every = torch.ones(len(y), dtype=torch.bool)
    fixed = FixedRanking(torch.arange(len(y)), ranked(x), every)
    for labels in (y, other):
        expected = by_hand(x, labels)[0]
        assert fixed.means(torch.as_tensor(labels), NAMES) == pytest.approx([expected[n] for n in NAMES], abs=1e-12)
    assert not fixed.has_exclusions


def test_groups_and_excluded_pairs_are_not_relevant():
    x, y = some(30, 4)
    group = np.where(np.arange(30) < 12, np.arange(30) // 3, -1)
    g, labels = torch.as_tensor(group), torch.as_tensor(np.random.default_rng(2).permutation(y))
    fixed = FixedRanking(torch.arange(30), ranked(x, group=g), torch.ones(30, dtype=torch.bool), g)
    expected = by_hand(x, labels.tolist(), group=group)[0]
    assert fixed.has_exclusions
    assert fixed.means(labels, NAMES) == pytest.approx([expected[name] for name in NAMES], abs=1e-12)
    pairs = torch.tensor([[0, 5], [7, 2]])
    fixed = FixedRanking(torch.arange(30), ranked(x, exclude=pairs), torch.ones(30, dtype=torch.bool), None, pairs)
    relevant = rank(torch.as_tensor(x), labels, exclude=pairs).relevant
    assert fixed.retrieval(labels).relevant.tolist() == relevant.tolist()


def test_queries_apart_from_the_gallery():
    x, y = some(40, 4)
    z, labels = torch.as_tensor(x), torch.as_tensor(y)
    query, gallery = torch.arange(10), torch.arange(10, 40)
    found = rank(z[query], labels[query], z[gallery], labels[gallery], k=30)
    fixed = FixedRanking(query, found.row + 10, torch.arange(40) >= 10)
    expected = by_hand(x, y, query=np.arange(40) < 10, gallery=np.arange(40) >= 10)[0]
    assert fixed.means(labels, NAMES) == pytest.approx([expected[name] for name in NAMES], abs=1e-12)
