"""How labels come about: posteriors, shares and sharpness by hand, and what is not to be believed."""

import itertools
import math

import pytest
import torch

from likewise.numerics import label_noise
from likewise.numerics import lda as discriminant
from likewise.numerics.label_noise import (
    Evidence,
    Noise,
    StoredScores,
    discriminate,
    fit_at_sharpness,
    fit_noise,
    fit_shares,
)
from likewise.numerics.lda import Discriminant


def scores(n=60, classes=4, wrong=0.2, seed=0):
    """Scores that favour the true class, and given labels."""
    g = torch.Generator().manual_seed(seed)
    true = torch.arange(n) % classes
    table = torch.randn(n, classes, generator=g, dtype=torch.float64)
    table[torch.arange(n), true] += 4
    y, bad = true.clone(), torch.randperm(n, generator=g)[: round(wrong * n)]
    y[bad] = (y[bad] + torch.randint(1, classes, (len(bad),), generator=g)) % classes
    return table, y


def test_the_posterior_by_hand():
    scores, y = torch.tensor([[1.0, 0.2, -0.5], [0.3, 0.1, 2.0]]).double(), torch.tensor([1, 2])
    table = torch.tensor([[0.0, 0.7, 0.3], [0.6, 0.0, 0.4], [0.5, 0.5, 0.0]]).double()
    noise = Noise(2.0, 0.2, 0.1, table)
    found = noise.posterior(scores, y)
    plain = Noise(2.0, 0.2, 0.0, None).posterior(scores, y)
    for i in range(2):
        power = [math.exp(2.0 * float(s)) for s in scores[i]]
        for similar, result in ((0.1, found), (0.0, plain)):
            joint = []
            for c in range(3):
                said = 1 - 0.2 - similar if c == y[i] else 0.2 / 2 + similar * float(table[c, y[i]])
                joint.append(power[c] / sum(power) * said)
            assert result[i].tolist() == pytest.approx([j / sum(joint) for j in joint])


def test_shares_of_a_mixture_are_the_most_likely_ones():
    """No other shares on a grid make what was seen likelier."""
    grid = torch.tensor([[a, b, 20 - a - b] for a, b in itertools.product(range(21), repeat=2) if a + b <= 20]) / 20
    for seed in range(2):
        ways = torch.rand(3, 60, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        shares, likelihood = fit_shares(ways, steps=2000)
        best = max(sum(math.log(float(s @ ways[:, i])) for i in range(60)) for s in grid.double())
        by_hand = sum(math.log(float(torch.tensor(shares).double() @ ways[:, i])) for i in range(60))
        assert sum(shares) == pytest.approx(1) and likelihood == pytest.approx(by_hand)
        assert likelihood >= best - 1e-6


@pytest.mark.parametrize("mixed", [False, True])
def test_the_likelihood_at_a_sharpness_by_hand(mixed):
    table, y = scores(30)
    likelihood, noise = fit_at_sharpness(StoredScores(table), y, 0.6, mixed)
    power = [[math.exp(0.6 * float(s)) for s in row] for row in table]
    p = [[v / sum(row) for v in row] for row in power]
    likeness = [[sum(one[a] * one[b] for one in p) if a != b else 0.0 for b in range(4)] for a in range(4)]
    said = [[v / sum(row) for v in row] for row in likeness]
    if mixed:
        torch.testing.assert_close(noise.table, torch.tensor(said, dtype=torch.float64))
    else:
        assert noise.table is None and noise.similar == 0
    by_hand = 0.0
    for one, own in zip(p, y.tolist()):
        any_other = noise.any * (1 - one[own]) / 3
        similar = noise.similar * sum(one[c] * said[c][own] for c in range(4))
        by_hand += math.log((1 - noise.any - noise.similar) * one[own] + any_other + similar)
    assert noise.sharpness == 0.6 and likelihood == pytest.approx(by_hand)


def test_the_likeliest_sharpness_wins():
    table, y = scores()
    tried = (0.1, 0.7, 1.5, 6.0)
    each = [fit_at_sharpness(StoredScores(table), y, t, True) for t in tried]
    best = max(range(4), key=lambda i: each[i][0])
    assert fit_noise(StoredScores(table), y, tried).sharpness == tried[best] and 0 < best < 3


def test_shares_are_fitted_by_the_rows_asked_for():
    table, y = scores(400, wrong=0.2)
    true = torch.arange(400) % 4
    some = ((y == true) | (torch.arange(400) < 100)).nonzero()[:, 0]
    found = fit_noise(StoredScores(table), y, (1.0,), by=some)
    assert found[:3] == pytest.approx(fit_noise(StoredScores(table[some]), y[some], (1.0,))[:3])
    whole = fit_noise(StoredScores(table), y, (1.0,))
    assert found.any + found.similar < (whole.any + whole.similar) / 2  # most wrong ones were left out
    assert fit_noise(StoredScores(table), y, (1.0,), by=torch.arange(400))[:3] == whole[:3]


def test_labels_no_likelier_than_by_chance_prove_nothing():
    g = torch.Generator().manual_seed(0)
    table, y = torch.randn(300, 6, generator=g), torch.randint(0, 6, (300,), generator=g)
    assert fit_noise(StoredScores(table), y, (1.0, 2.0), proven=True) == Noise(0.0, 0.0, 0.0, None)
    loose = fit_noise(StoredScores(table), y, (1.0, 2.0))
    assert loose.any + loose.similar > 0.5  # what would be said without proof
    good, given = scores(300)
    plain, proven = (
        fit_noise(StoredScores(good), given, (1.0,)),
        fit_noise(StoredScores(good), given, (1.0,), proven=True),
    )
    assert proven[:3] == pytest.approx(plain[:3]) and 0.1 < proven.any + proven.similar < 0.3


def test_two_classes_the_wrong_way_round_prove_nothing():
    y = torch.arange(100) % 2
    table = 5 * torch.nn.functional.one_hot(1 - y, 2).double()
    loose = fit_noise(StoredScores(table), y, (1.0,))
    assert loose.any + loose.similar > 0.9
    assert fit_noise(StoredScores(table), y, (1.0,), proven=True).sharpness == 0


def test_who_believes_nothing_doubts_nobody():
    table, y = scores()
    found = Noise(0.0, 0.0, 0.0, None).posterior(table, y)
    assert torch.equal(found, torch.nn.functional.one_hot(y, 4).double())


def test_similar_classes_that_would_explain_most_labels_away_are_left_out(monkeypatch):
    table, y = scores()
    plain = fit_noise(StoredScores(table), y, (1.0,), similar=False)
    real = label_noise.fit_at_sharpness

    def greedy(each, y, sharpness, mixed, min_probability):
        likelihood, noise = real(each, y, sharpness, mixed, min_probability)
        return likelihood, noise._replace(similar=0.9) if mixed else noise

    monkeypatch.setattr(label_noise, "fit_at_sharpness", greedy)
    assert fit_noise(StoredScores(table), y, (1.0,), proven=True) == plain


def test_the_faintest_chances_make_no_table():
    table, y = scores()
    _, whole = fit_at_sharpness(StoredScores(table), y, 1.0, True)
    _, cut = fit_at_sharpness(StoredScores(table), y, 1.0, True, min_probability=1e-19)
    assert torch.equal(whole.table, cut.table)  # there are none so min_probability
    _, coarse = fit_at_sharpness(StoredScores(table), y, 1.0, True, min_probability=0.9)
    assert not coarse.table.any() and coarse.table.isfinite().all()


def test_blocks_of_known_scores(monkeypatch):
    table, y = scores(23)
    known = StoredScores(table)
    assert isinstance(known, Evidence) and known.classes == 4 and len(list(known.blocks())) == 1
    whole = fit_noise(known, y, (1.0, 2.0))
    monkeypatch.setattr(discriminant, "SCORE_BLOCK_SIZE", 20)
    assert [rows.tolist() for rows in known.blocks()] == [list(range(i, min(i + 5, 23))) for i in range(0, 23, 5)]
    assert fit_noise(known, y, (1.0, 2.0))[:3] == pytest.approx(whole[:3])


def test_rounds_by_hand():
    """A fit by the labels, then one by what the first makes of them."""
    g = torch.Generator().manual_seed(0)
    y = torch.arange(90) % 3
    x = 1.5 * torch.randn(3, 5, generator=g, dtype=torch.float64)[y] + torch.randn(90, 5, generator=g).double()
    each, noise = discriminate(x, y, 3, folds=4, shrink=0.3, seed=7)
    fold = torch.randperm(90, generator=torch.Generator().manual_seed(7)) % 4
    mine, rows = Discriminant((x - x.mean(0)) / x.std(), fold, 4, 3), torch.arange(90)
    mine.add(rows, torch.nn.functional.one_hot(y, 3).double())
    mine.fit(0.3)
    first = fit_noise(mine, y)
    once = discriminate(x, y, 3, rounds=1, folds=4, shrink=0.3, seed=7)
    assert torch.equal(once[0].scores(rows), mine.scores(rows)) and once[1][:3] == first[:3]
    mine.add(rows, first.posterior(mine.scores(rows), y))
    mine.fit(0.3)
    assert isinstance(each, Evidence) and torch.allclose(each.scores(rows), mine.scores(rows))
    assert noise[:3] == pytest.approx(fit_noise(mine, y)[:3])
