"""Missing and superfluous labels of simple data: what is flagged, what is unknown, and how sure it can be."""

import numpy as np
import pytest
import torch
from likewise.errors import LikewiseError
from made_label_sets import features_of, label_matrix, noisy_matrix

from likewise.curate.audit.label_set_probability import (
    FEW_REASON,
    MIN_LABEL_SAMPLES,
    UNINFORMATIVE_REASON,
    as_matrix,
    cluster_counts,
    score_label_sets,
)
from likewise.labels.label_set_evidence import weigh_labels


def scored(has, x, **settings):
    return score_label_sets(torch.tensor(x), torch.tensor(has), **settings)


def test_planted_errors_are_flagged_and_the_sets_are_repaired():
    true = label_matrix(400)
    noisy = noisy_matrix(true)
    found = scored(noisy, features_of(true))
    wrong, flagged = torch.tensor(noisy != true), found.flagged
    assert (flagged & wrong).sum() > 0.85 * flagged.sum() and (flagged & wrong).sum() > 0.85 * wrong.sum()
    assert (found.suggested != torch.tensor(true)).sum() < 0.3 * wrong.sum()
    worst = found.wrong.max(1).values
    torch.testing.assert_close(found.score, 1 - worst)


def test_no_probability_is_surer_than_the_samples_of_the_label_allow():
    true = label_matrix(300)
    found = scored(noisy_matrix(true), features_of(true, noise=0.05))
    least = np.minimum(true.sum(0), (~true).sum(0)).min()
    assert found.wrong.max() < 1 and found.wrong.max() <= 1 - 1 / (2 * least)


def test_a_label_of_few_samples_is_unknown():
    true = label_matrix(200)
    has = np.concatenate([true, np.arange(200)[:, None] < MIN_LABEL_SAMPLES - 1], 1)
    found = scored(has, features_of(true))
    assert found.reason[6] == FEW_REASON and bool(found.wrong[:, 6].isnan().all()) and not found.flagged[:, 6].any()
    assert bool(found.missing[6].isnan()) and not any(found.reason[:6])


def test_labels_that_nothing_explains_are_unknown():
    rng = np.random.default_rng(0)
    found = scored(rng.random((200, 2)) < 0.4, rng.normal(size=(200, 8)).astype(np.float32))
    assert found.reason == (UNINFORMATIVE_REASON,) * 2 and bool(found.score.isnan().all())


def test_copies_count_once():
    true = label_matrix(200)
    x = np.concatenate([features_of(true), features_of(true)[:1].repeat(5, 0)])
    has = np.concatenate([true, true[:1].repeat(5, 0)])
    each, _ = weigh_labels(torch.tensor(x), torch.tensor(has).float(), lambda e: 0.0, setting=(True, 0.5))
    with_it, without = cluster_counts(each)
    most = torch.tensor(true).sum(0), torch.tensor(~true).sum(0)  # other samples may be near copies by chance
    assert bool((with_it <= most[0]).all()) and bool((without <= most[1]).all())


def test_errors_say_what_is_wrong():
    x = np.zeros((4, 2), np.float32)
    with pytest.raises(
        LikewiseError, match="three samples or more .* needed, got 2 feature vectors and labels of shape"
    ):
        scored(np.ones((2, 2), bool), x[:2])
    x[0, 0] = np.nan
    with pytest.raises(LikewiseError, match="features must be finite"):
        scored(np.ones((4, 2), bool), x)


def test_matrix_of_label_sets():
    found = as_matrix(((0, 2), (1,)), np.array([1, 0]), 3)
    assert found.tolist() == [[False, True, False], [True, False, True]]
