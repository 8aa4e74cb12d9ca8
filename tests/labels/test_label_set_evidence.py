"""Evidence about single labels: densities against scikit-learn, relations and votes by hand, and no use of the own state."""

import math

import numpy as np
import pytest
import torch
from made_label_sets import features_of, label_matrix, noisy_matrix

from likewise.labels.label_evidence import ADDED_VOTES_SHARE, Votes
from likewise.labels.label_set_evidence import (
    RELATED_SHRINK_SHARE,
    density_odds,
    related_odds,
    sums_of,
    vote_odds,
    weigh_labels,
)


def data(count=120):
    has = noisy_matrix(label_matrix(count))
    return torch.tensor(features_of(label_matrix(count))).double(), torch.tensor(has).double()


@pytest.mark.parity
def test_densities_are_those_of_discriminant_analysis():
    """Without shrinkage, the log odds of all labels are those of one analysis per label, up to its prior."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    x, has = data()
    found = density_odds(sums_of(x, has), 0.0).scores(x)
    for label in range(has.shape[1]):
        given = has[:, label].numpy() > 0
        theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(x.numpy(), given)
        odds = theirs.decision_function(x.numpy()) - math.log(given.mean() / (1 - given.mean()))
        # scikit-learn divides by n as we do; both invert a 16 x 16 matrix in float64
        np.testing.assert_allclose(found[:, label], odds, rtol=1e-6, atol=1e-6)


def test_a_label_of_all_or_no_samples_has_no_odds():
    x, has = data()
    has[:, 0], has[:, 1] = 0, 1
    found = density_odds(sums_of(x, has), 0.5).scores(x)
    assert bool((found[:, :2] == 0).all()) and bool(found.isfinite().all())


def test_relation_of_two_labels_by_hand():
    """With two labels, the odds of one are its covariance with the other over the determinant, times the other's deviation."""
    n, count, both = 10, torch.tensor([4.0, 5.0]).double(), torch.tensor([[4.0, 3.0], [3.0, 5.0]]).double()
    a, b = 0.4, 0.5
    cov = (1 - RELATED_SHRINK_SHARE) * (0.3 - a * b)
    det = (a * (1 - a)) * (b * (1 - b)) - cov**2
    odds = related_odds(n, count, both)
    found = odds.scores(torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double())
    assert found[0, 0].item() == pytest.approx(cov / det * (1 - b))
    assert found[1, 1].item() == pytest.approx(cov / det * (1 - a))
    assert found[1, 0].item() == pytest.approx(cov / det * (0 - b))


def test_votes_by_hand():
    near, distance = torch.tensor([[1, 2], [0, 2], [0, 1]]), torch.tensor([[0.0, 1.0], [0.0, torch.inf], [0.0, 0.0]])
    has = torch.tensor([[1.0], [1.0], [0.0]])
    found = vote_odds(Votes(near, distance, torch.zeros(3, dtype=torch.long), 1), has, torch.tensor([0, 1]))
    weight = 1 / (1 + math.exp(-1))
    prior = ADDED_VOTES_SHARE * 1 / 2  # of the other samples
    share = [(weight + prior) / (1 + ADDED_VOTES_SHARE), (1 + prior) / (1 + ADDED_VOTES_SHARE)]
    for value, expected in zip(found[:, 0].tolist(), share, strict=True):
        assert value == pytest.approx(math.log(expected / (1 - expected)), rel=1e-4)  # float32


def test_no_score_uses_the_own_state():
    """A changed state of one sample changes no score of that label of that sample, but scores of others."""
    x, has = (t.float() for t in data())
    rows, other = torch.arange(len(x)), has.clone()
    other[7, 1] = 1 - other[7, 1]
    cleaned, cleaned_other = has * 0.9, other * 0.9
    first, second = (
        weigh_labels(x, one, lambda e: 0.0, setting=(True, 0.5))[0].with_related(soft).scores(rows)
        for one, soft in ((has, cleaned), (other, cleaned_other))
    )
    assert torch.equal(first[:, 7, 1], second[:, 7, 1])
    assert not torch.equal(first[:, :, 1], second[:, :, 1])


def test_the_setting_with_the_highest_gain_is_used():
    x, has = (t.float() for t in data())
    seen = []

    def gain(each):
        seen.append(each)
        return float(-len(seen))

    assert weigh_labels(x, has, gain)[1] == (False, 0.5) and len(seen) == 5
