import numpy as np
import pytest
import torch
from learn.training.labelled_work import Judged, Near
from likewise.relevance import GivenValues, SharedLabels
from likewise.samplers import RelatedSamples
from likewise.types import LikewiseError

from likewise.testing import check_sampler

NONE = np.zeros(60, np.int64)  # classes, which a relevance between samples does not use
NAMES = tuple(map(str, range(60)))


def positives(relevance, ids) -> int:
    """Number of positives of every sample of a batch."""
    ids = torch.as_tensor(ids)
    return (relevance.pairs(ids, ids).pos & ~torch.eye(len(ids), dtype=torch.bool)).sum(1)


def test_every_anchor_has_relevant_samples():
    relevance = Near(NAMES)
    sampler = RelatedSamples(NONE, relevance, batch=12, per_anchor=3)
    assert len(sampler) == 5
    for batch in sampler.epoch_batches(0) + sampler.epoch_batches(3):
        assert len(set(batch)) == 12
        assert (positives(relevance, batch) > 0).sum() >= 11  # the last place may be left to any sample


def test_between_classes():
    """Sets of labels: samples of one class are relevant to each other, and classes that share labels."""
    sets = [(0, 1), (0, 1, 2), (3,), (4, 5), (4, 5, 6), (7,)]
    labels, relevance = np.repeat(np.arange(6), [4, 4, 4, 4, 4, 1]), SharedLabels(sets)
    sampler = RelatedSamples(labels, relevance, batch=8, per_anchor=4)
    seen = set()
    for number in range(20):
        for batch in sampler.epoch_batches(number):
            assert len(set(batch)) == 8 and (positives(relevance, labels[batch]) > 0).sum() >= 7
            seen |= set(batch)
    assert len(seen - {20}) == 20  # row 20 has no relevant sample, and only fills up


def test_whole_triplets():
    relevance = Judged(NAMES)
    for batch in RelatedSamples(NONE, relevance, batch=12).epoch_batches(0):
        found = relevance.triplets(torch.as_tensor(batch))
        assert len(set(batch)) == 12 and found.valid.sum() >= 3


@pytest.mark.parametrize("kind", [Near, Judged])
def test_contract(kind):
    check_sampler(
        lambda labels, seed: RelatedSamples(labels, kind(NAMES[: len(labels)]), batch=6, per_anchor=3, seed=seed), 6
    )


def test_related_ids_by_hand():
    nan = torch.nan
    values = torch.tensor([[1.0, 0.6, nan], [0.2, 1.0, 0.5], [nan, 0.4, 1.0]])
    start, found = GivenValues(values).related()
    assert start.tolist() == [0, 1, 2, 2] and found.tolist() == [1, 2]


def test_bad_arguments():
    values = GivenValues(torch.eye(60))
    values.by = "sample"
    for change, says in (
        ({}, r"no pair of relevance 0.5 or more among them; lower its threshold"),
        ({"relevance": None}, "there must be a relevance, got none"),
        ({"batch": 64}, "at most the 60 training samples, got 64"),
        ({"relevance": Near(NAMES[:9])}, "Near must be between the 60 training samples, got 9 samples"),
        ({"relevance": Judged(NAMES), "batch": 2, "per_anchor": 2}, "batch must be 3 or more to hold a triplet"),
    ):
        with pytest.raises(LikewiseError, match=says):
            RelatedSamples(**{"labels": NONE, "relevance": values, "batch": 12} | change)


def test_a_batch_does_not_sort_all_samples(monkeypatch):
    """The samples that fill up a batch are found without an ordered difference of sets, and are the same as ever."""
    monkeypatch.setattr(np, "setdiff1d", lambda *sides: pytest.fail("sorts all samples"))
    batch = RelatedSamples(NONE, Judged(NAMES), batch=20, seed=5).epoch_batches(0)[1]
    assert batch == [23, 24, 32, 9, 10, 18, 34, 35, 43, 22, 31, 12, 13, 21, 40, 2, 3, 11, 19, 27]
