"""Votes with columns of candidate classes: by hand, beside all classes, and without tables of samples x classes."""

import math

import numpy as np
import pytest
import torch
from no_large_tensor import NoLargeTensor

from likewise.labels import ballots, candidate_classes, class_density, neighbour_search
from likewise.labels.annotators import SharedModel, expected_shares, fit_workers, shared_log_votes, similar_shares
from likewise.labels.ballots import cast_ballots, column_prior, own_probability, with_given, worker_quality, wrong_votes
from likewise.labels.candidate_classes import Columns
from likewise.labels.label_evidence import SoftLabels, fold_sums
from likewise.labels.neighbour_votes import SoftVotes
from likewise.labels.vote_evidence import find_consensus, tempered

INF = math.inf


def world(samples=1000, classes=100, accuracy=0.6, distance=3.0, per_sample=2, seed=0):
    """Gaussian classes, and the columns of votes of six workers with different accuracies."""
    rng = np.random.default_rng(seed)
    y = np.arange(samples) % classes
    x = distance * rng.normal(size=(classes, 16))[y] / 2 + rng.normal(size=(samples, 16))
    row = np.arange(samples).repeat(per_sample)
    worker = np.concatenate([rng.choice(6, per_sample, False) for _ in range(samples)])
    wrong = (y[row] + rng.integers(1, classes, len(row))) % classes
    right = rng.random(len(row)) < np.linspace(accuracy - 0.2, accuracy + 0.2, 6)[worker]
    vote = np.where(right, y[row], wrong)
    columns = (*map(torch.as_tensor, (row, worker, vote)), samples, 6, classes)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y), columns


@pytest.fixture
def three():
    """Three samples of ten classes: sample 0 has two votes for class 7 and one for class 2."""
    row, worker, label = torch.tensor([[0, 0, 0, 1, 2, 2], [0, 1, 2, 0, 1, -1], [7, 2, 7, 4, 4, 1]])
    return cast_ballots(row, worker, label, 3, 3, 10, dense=False)


def test_columns_of_voted_classes_by_hand(three):
    assert three.columns.label.tolist() == [[7, 2, 0], [4, 0, 0], [1, 4, 0]]  # of equal votes, the smaller class first
    rest = [math.log(8), math.log(9), math.log(8)]
    assert three.columns.size[:, 2].tolist() == pytest.approx(rest) and three.columns.size[1, 1] == -INF
    assert three.slot.tolist() == [0, 1, 0, 0, 1, 0] and three.same.tolist() == [2, 1, 2, 1, 1, 1]
    assert three.counts.tolist() == [[2, 1, 0], [1, 0, 0], [1, 1, 0]] and three.size.tolist() == [3, 1, 2]


def test_the_least_voted_classes_have_no_column(monkeypatch):
    monkeypatch.setattr(ballots, "MAX_VOTED_CANDIDATES", 1)
    votes = cast_ballots(*torch.tensor([[0, 0, 0], [0, 1, 2], [7, 2, 7]]), 1, 3, 10, dense=False)
    assert votes.columns.label.tolist() == [[7, 0]] and votes.slot.tolist() == [0, -1, 0]
    assert votes.of_label(torch.tensor([[0.9, 0.1]])).tolist() == pytest.approx([0.9, 0.0, 0.9])
    _, q, _ = fit_workers(votes)
    assert votes.decided(q).label.tolist() == [7] and bool(q.isfinite().all())


def test_more_candidates_replace_the_column_of_all_others(three):
    label = torch.tensor([[7, 5, 3, 9], [4, 8, 8, 2], [1, 0, 4, 6]])  # the last two are drawn
    found = three.with_candidates(label, 2).columns
    assert found.label.masked_fill(found.size.isinf(), -1).tolist() == [
        [7, 2, -1, 5, 3, 9], [4, -1, -1, 8, -1, 2], [1, 4, -1, 0, -1, 6]
    ]  # fmt: skip
    # sample 0: 10 - 3 candidates for two drawn classes; sample 1: 10 - 2 for one; sample 2: 10 - 3 for one
    assert found.size[:, -1].exp().tolist() == pytest.approx([3.5, 8.0, 7.0])


def test_prior_and_probability_of_the_rest_by_hand(three):
    frequency = torch.full((10,), 0.05, dtype=torch.float64)
    frequency[7] = 0.55
    prior = column_prior(frequency.log(), three.columns).exp()
    torch.testing.assert_close(prior[0], torch.tensor([0.55, 0.05, 0.4], dtype=torch.float64))
    torch.testing.assert_close(prior[1], torch.tensor([0.05, 0.0, 0.95], dtype=torch.float64))
    q = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.0, 0.9], [0.6, 0.2, 0.2]], dtype=torch.float64)
    found = own_probability(q, torch.tensor([2, 5, 0]), three.columns)  # 5 and 0 are among the rest
    torch.testing.assert_close(found, torch.tensor([0.3, 0.1, 0.025], dtype=torch.float64))
    table, label = with_given(q, torch.tensor([2, 5, 0]), three.columns)
    assert label[:, 0].tolist() == [2, 5, 0]
    torch.testing.assert_close(table[0], torch.tensor([0.3, 0.5, 0.0, 0.0], dtype=torch.float64))


def test_the_likelihood_of_votes_by_hand(three):
    """Shares of wrong votes without the votes about the same sample; the column of the rest has an equal share."""
    q = torch.tensor([[0.7, 0.2, 0.1], [0.8, 0.0, 0.2], [0.3, 0.6, 0.1]], dtype=torch.float64)
    at = three.exchanges
    # (true, label): (7, 2) and (2, 7) of sample 0, (1, 4) and (4, 1) of sample 2
    assert at.code.tolist() == [-1, 14, 27, 41, 72]
    count = torch.tensor([0, 0.3, 0.4, 0.6, 0.7], dtype=torch.float64)
    total = torch.zeros(10, dtype=torch.float64)
    total[[1, 2, 4, 7]] = count[1:]
    skill = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64)
    model = SharedModel(
        count, total, torch.full_like(count, 1 / 9), 1 / 9, 2.0, 0.75, q, skill, 0.5, torch.zeros(10).bool()
    )
    found = shared_log_votes(three, q, model, torch.arange(6)).exp()
    right = [1 / (1 + math.exp(-math.log(3) - s)) for s in (0.5, 0.0, -0.5, 0.5, 0.0, 0.0)]  # -1: not known, no skill
    share = 2 * (1 / 9) / 2  # the wrong votes of sample 0 are its own: none are left
    by_hand = [right[0], (1 - right[0]) * share, (1 - right[0]) / 9]
    torch.testing.assert_close(found[0], torch.tensor(by_hand, dtype=torch.float64))
    count2 = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64).new_tensor([0, 0.3, 0.4, 0.6, 5.7])
    more = model._replace(count=count2, total=total.index_fill(0, torch.tensor([7]), 5.7))
    found = shared_log_votes(three, q, more, torch.arange(6)).exp()
    share = (5.7 - 0.7 + 2 / 9) / (5.7 - 0.7 + 2)  # five votes for class 2 about other samples of class 7
    assert float(found[1, 0]) == pytest.approx((1 - right[1]) * share, rel=1e-12)
    assert float(found[1, 1]) == pytest.approx(right[1], rel=1e-12)


def test_expected_shares_are_those_that_the_features_suggest():
    """All wrong votes about class 0 are for class 1; the features suggest class 1 or class 2."""
    count, total = torch.tensor([0.0, 40.0, 0.0]).double(), torch.zeros(50).double()
    total[0] = 40
    near, far = torch.tensor([0.0, 1.0, 0.0]).double(), torch.tensor([0.0, 0.0, 1.0]).double()
    assert float(expected_shares(count, total, near, 1 / 49)[0][1]) > 0.5
    assert float(expected_shares(count, total, far, 1 / 49)[0][1]) == pytest.approx(1 / 49)


def test_shares_that_features_suggest_by_hand(three):
    q = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0, 0], [0.0, 1.0, 0]], dtype=torch.float64)
    p = torch.tensor([[0.5, 0.4, 0.1], [0.9, 0.0, 0.1], [0.6, 0.3, 0.1]], dtype=torch.float64)
    near = similar_shares(three.exchanges, q, p.log(), three.columns, 10)
    # class 7 suggests only class 2, class 4 only class 1; classes 1 and 2 have no sample
    torch.testing.assert_close(near, torch.tensor([0, 0, 0, 1, 1], dtype=torch.float64))


def test_votes_of_neighbours_for_candidates_are_those_for_all_classes():
    random = torch.Generator().manual_seed(0)
    label = torch.stack([torch.randperm(30, generator=random)[:4] for _ in range(40)])
    q = torch.rand(40, 4, generator=random).add(0.1)
    q = q / q.sum(1, keepdim=True)
    columns = Columns(label, torch.zeros(40, 4), torch.zeros(40, 1, dtype=torch.int64))
    near = torch.stack([torch.randperm(40, generator=random)[:6] for _ in range(40)])
    distance = torch.rand(40, 6, generator=random).masked_fill(torch.rand(40, 6, generator=random) < 0.1, INF)
    rows = torch.arange(5, 30)
    every = SoftVotes(near, distance, torch.zeros(40, 30).scatter_(1, label, q), None, 30).scores(rows)[0]
    found = SoftVotes(near, distance, q, columns, 30).scores(rows)[0]
    torch.testing.assert_close(found, every.gather(1, label[rows]), rtol=1e-5, atol=1e-6)  # float32, other order


def test_soft_sums_of_candidates_are_those_of_all_classes():
    random = torch.Generator().manual_seed(0)
    x, fold = torch.randn(60, 5, generator=random), torch.arange(60) % 3
    label = torch.stack([torch.randperm(20, generator=random)[:3] for _ in range(60)])
    q = torch.tensor([0.7, 0.2, 0.1]).expand(60, 3)
    every = fold_sums(x, fold, 3, SoftLabels(torch.zeros(60, 20).scatter_(1, label, q)), 20, 0.5)
    found = fold_sums(x, fold, 3, SoftLabels(q, label), 20, 0.5)
    torch.testing.assert_close(found.count, every.count, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.total, every.total, rtol=1e-5, atol=1e-5)


def test_the_temperature_of_a_column_of_several_classes():
    """Eight classes of 0.05 each, and one of 0.6: at temperature 2, each class by itself is the root of its probability."""
    logs = torch.tensor([[0.6, 0.4]]).double().log()
    found = tempered(logs, 2.0, torch.tensor([[0.0, math.log(8)]]).double()).exp()
    torch.testing.assert_close(found, torch.tensor([[math.sqrt(0.6), 8 * math.sqrt(0.05)]]).double())


@pytest.mark.parametrize("features", [False, True])
def test_candidates_agree_with_all_classes(features):
    """100 classes, two votes per sample: measured agreement 0.999 and more, mean difference 0.0011 and less."""
    x, _, columns = world()
    few, every = (
        find_consensus(x if features else None, cast_ballots(*columns, dense=dense)) for dense in (False, True)
    )
    assert few.votes.width < 100 and isinstance(few.model, SharedModel)
    assert (few.features is not None) == (every.features is not None) == features
    found, expected = (one.votes.decided(one.q) for one in (few, every))
    assert float((found.label == expected.label).double().mean()) > 0.98
    assert float((found.wrong - expected.wrong).abs().mean()) < 0.01
    torch.testing.assert_close(few.model.skill, every.model.skill, atol=0.1, rtol=0)
    quality = [worker_quality(one.votes, one.q) for one in (few, every)]
    torch.testing.assert_close(quality[0].accuracy, quality[1].accuracy, atol=0.01, rtol=0)
    torch.testing.assert_close(quality[0].disagreement, quality[1].disagreement)
    pair, true, count = wrong_votes(few.votes, few.q, 0.5)
    share = few.model.share(few.votes, pair, true)
    assert len(count) and float(count.min()) >= 0.5 and ((share > 0) & (share < 1)).all()


def test_no_table_of_samples_or_classes_by_classes(monkeypatch):
    """2,400 samples, 1,200 classes: no tensor has half of 1,200 x 1,200 values; products are computed in small blocks."""
    for module in (neighbour_search, ballots, candidate_classes, class_density):
        for name, size in (("SIMILARITY_BLOCK_SIZE", 2**18), ("COLUMN_BLOCK_ROWS", 32), ("GATHERED_BLOCK_SIZE", 2**18)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, size)
    x, y, columns = world(2400, 1200, distance=6.0)
    with torch.no_grad(), NoLargeTensor(1200 * 1200 // 2):
        votes = cast_ballots(*columns)
        found = find_consensus(x, votes)
        decided, quality = found.votes.decided(found.q), worker_quality(found.votes, found.q)
    assert found.features is not None and float((decided.label == y).double().mean()) > 0.75  # votes: 0.6
    assert quality.accuracy.argsort().tolist()[-1] == 5
    with pytest.raises(AssertionError, match="more than"), NoLargeTensor(1200 * 1200 // 2):
        torch.zeros(2400, 1200)
