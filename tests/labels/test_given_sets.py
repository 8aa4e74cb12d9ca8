"""Given labels as lists: by hand, beside tables, and without a table of samples x labels."""

import numpy as np
import pytest
import torch
from made_label_sets import features_of, label_matrix, noisy_matrix
from no_large_tensor import NoLargeTensor
from numeric_slopes import assert_gradient

from likewise.curate.audit.label_probability import (
    MIN_LISTED_PROBABILITY,
    StateBlocks,
    cluster_counts,
    joined_states,
    label_set_quality,
    listed,
    state_blocks,
)
from likewise.labels import label_evidence, label_noise, neighbour_search
from likewise.labels.class_density import sums_of
from likewise.labels.given_sets import GivenSets, given_sets, label_counts, set_numbers
from likewise.labels.label_evidence import discriminate_sets, set_evidence
from likewise.labels.label_noise import LabelEntries, _LabelLikelihood, draw_entries, fit_label_noise
from likewise.labels.neighbour_votes import LabelVotes


@pytest.fixture
def table():
    return torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1], [1, 0, 1, 0]]).bool()


def test_lists_by_hand(table):
    found = given_sets(table)
    assert found.label.tolist() == [0, 2, 1, 2, 3, 0, 2] and found.size.tolist() == [2, 0, 3, 2]
    assert found.row.tolist() == [0, 0, 2, 2, 2, 3, 3] and found.count.tolist() == [2, 1, 3, 1]
    rows = torch.tensor([3, 1, 2])
    assert torch.equal(found[rows], table[rows].float()) and torch.equal(found.of(rows).size, torch.tensor([2, 0, 3]))
    assert torch.equal(found.of(torch.tensor([True, False, True, False]))[torch.arange(2)], table[[0, 2]].float())
    assert set_numbers(found).tolist() == [0, 1, 2, 0] and set_numbers(table).unique().tolist() == [0, 1, 2]
    assert np.array_equal(found.sparse.toarray(), table.numpy()) and label_counts(found).equal(
        label_counts(table.float())
    )
    few = GivenSets(torch.tensor([5, 2, 5]), torch.tensor([1, 2]), 9).used()
    assert few.label.tolist() == [1, 0, 1] and few.shape == (2, 2)


def test_sums_and_votes_are_those_of_a_table(table):
    random = torch.Generator().manual_seed(0)
    x, near = torch.randn(4, 3, generator=random), torch.tensor([[1, 2], [0, 3], [3, 0], [0, 2]])
    for one, other in zip(sums_of(x, table.float()), sums_of(x, given_sets(table)), strict=True):
        torch.testing.assert_close(one, other)
    distance = torch.rand(4, 2, generator=random)
    found, expected = (
        LabelVotes(near, distance, has).scores(torch.arange(4)) for has in (given_sets(table), table.float())
    )
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)  # float32, another order of sums


def test_evidence_and_noise_are_those_of_a_table():
    true = label_matrix(300)
    x, has = torch.tensor(features_of(true)), torch.tensor(noisy_matrix(true))
    (one, noise), (other, by_table) = (discriminate_sets(x, given) for given in (given_sets(has), has.float()))
    assert one.related is not None and one.setting == other.setting
    torch.testing.assert_close(
        noise.missing, by_table.missing, rtol=1e-3, atol=1e-4
    )  # two fits that stop near the maximum
    rows = torch.arange(300)
    wrong = [n.wrong(e.scores(rows).double(), has.float()) for e, n in ((one, noise), (other, by_table))]
    torch.testing.assert_close(*wrong, rtol=1e-2, atol=1e-3)
    counts = [
        cluster_counts(set_evidence(x, given, setting=(True, 0.5)), given) for given in (given_sets(has), has.float())
    ]
    assert all(torch.equal(a, b) for a, b in zip(*counts, strict=True))


def test_listed_states_by_hand():
    nan = float("nan")
    has = torch.tensor([[True, False, False], [False, True, False], [True, True, False]])
    wrong = torch.tensor([[0.7, 0.05, nan], [0.6, 0.2, nan], [0.01, 0.02, nan]])
    blocks, score = iter([(torch.arange(3), has, wrong)]), torch.tensor([0.3, 0.4, 0.98])
    found = listed(StateBlocks(blocks, torch.zeros(3), torch.zeros(3), ("", "", "few")))
    assert found.row.tolist() == [0, 1, 1, 2, 2] and found.label.tolist() == [0, 0, 1, 0, 1]
    assert (
        found.has.tolist() == [True, False, True, True, True]
        and found.wrong.tolist() == wrong[has | (wrong > 0.1)].tolist()
    )
    assert found.rest.tolist() == pytest.approx([0.05, -1, -1]) and found.score.tolist() == pytest.approx(
        score.tolist()
    )
    assert found.expected == pytest.approx(float(wrong.nansum()))
    assert dict(found.suggested()) == {0: (), 1: (0, 1)}
    part = found.of(torch.tensor([2, 0]))
    assert part.row.tolist() == [0, 0, 1] and part.score.tolist() == pytest.approx(score[[2, 0]].tolist())
    both = joined_states([part, found])
    assert both.row.tolist() == [0, 0, 1, 2, 3, 3, 4, 4] and torch.equal(
        both.score, torch.cat([part.score, found.score])
    )


def test_listed_states_are_those_of_the_table():
    """The list of blocks has the given labels, and all others with a probability of the smallest listed one and more."""
    true = label_matrix(300)
    x, has = torch.tensor(features_of(true)), torch.tensor(noisy_matrix(true))
    found = listed(state_blocks(x, has, 0, None))
    wrong = torch.cat([wrong for _, _, wrong in state_blocks(x, has, 0, None).blocks])
    assert torch.equal(found.has, has[found.row, found.label]) and torch.equal(
        found.wrong, wrong[found.row, found.label]
    )
    left_out = torch.ones_like(has).index_put_((found.row, found.label), torch.tensor(False))
    assert not bool((wrong[left_out] >= MIN_LISTED_PROBABILITY).any()) and not bool((left_out & has).any())


def test_drawn_labels_stand_for_all_others():
    """40 labels, of which 12 by densities, 12 by votes, the given and up to 8 random ones are entries."""
    random = torch.Generator().manual_seed(0)
    has = torch.rand(50, 40, generator=random) < 0.1
    each = set_evidence(torch.randn(50, 8, generator=random), has.float(), setting=(True, 0.5))
    rows = torch.arange(50)
    found = draw_entries(each, given_sets(has), rows, seed=0)
    assert float(found.weight.sum()) == pytest.approx(50 * 40) and int(found.given.sum()) == int(has.sum())
    scores = each.scores(rows).double()
    torch.testing.assert_close(found.middle, scores.mean(1), rtol=1e-4, atol=1e-4)  # sums of float32
    spread = (scores - scores.mean(1, keepdim=True)).square().mean((1, 2))
    torch.testing.assert_close(found.square, spread, rtol=1e-3, atol=1e-3)
    alone = found.weight == 1
    assert int(alone.sum()) >= 12 * 50 and float(found.weight[~alone].min()) > 1


def test_the_gradient_of_entries_is_that_of_the_objective():
    random = torch.Generator().manual_seed(0)
    label, weight = torch.randint(3, (60,), generator=random), torch.rand(60, generator=random).double() + 0.5
    scores, given = torch.randn(2, 60, generator=random).double(), torch.rand(60, generator=random) < 0.4
    entries = LabelEntries(scores, given, torch.zeros(2, 3).double(), torch.ones(2).double(), 20, label, weight)
    fit = _LabelLikelihood(entries, torch.tensor([0.3, 0.4, 0.5]))
    point = fit.start.numpy() + 0.1 * np.random.default_rng(0).normal(size=len(fit.start))
    assert_gradient(fit.objective, point)


def test_no_table_of_samples_by_labels(monkeypatch):
    """2,000 samples with three of 300 labels each, blocks of few samples: no tensor has half of 2,000 x 300 values."""
    monkeypatch.setattr(label_noise, "SCORE_BLOCK_SIZE", 2**16)
    monkeypatch.setattr(neighbour_search, "SIMILARITY_BLOCK_SIZE", 2**16)
    monkeypatch.setattr(label_evidence, "MAX_RELATED_LABELS", 256)  # its tables are of labels x labels

    def fit_on_few(each, has, most=0, seed=0, tolerance=1e-4):
        return fit_label_noise(each, has, 2**16, seed, tolerance)

    monkeypatch.setattr(label_evidence, "fit_label_noise", fit_on_few)
    rng = np.random.default_rng(0)
    true = np.sort(np.stack([rng.integers(100 * k, 100 * (k + 1), 2000) for k in range(3)], 1), 1)
    x = rng.normal(size=(300, 32))[true].sum(1) + 0.5 * rng.normal(size=(2000, 32))
    given = true.copy()
    given[:60, 0] = (given[:60, 0] + 37) % 100  # 60 wrong labels, and 60 missing ones
    has = GivenSets(torch.tensor(given.ravel()), torch.full((2000,), 3), 300)
    with NoLargeTensor(2000 * 300 // 2):
        found = label_set_quality(torch.tensor(x, dtype=torch.float32), torch.zeros(2000).long(), has)
    states = found.states
    assert states is not None and len(states.row) < 2000 * 12
    superfluous = states.row[states.flagged & states.has]
    assert float((superfluous < 60).double().mean()) > 0.7 and len(superfluous) > 14  # measured: 24 of 27
    with pytest.raises(AssertionError, match="more than"), NoLargeTensor(2000 * 300 // 2):
        has[torch.arange(2000)]
