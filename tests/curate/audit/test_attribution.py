"""Causes of test errors: which errors are chosen, what is planted is found, and pieces give the whole."""

import numpy as np
import pytest
import torch
from likewise.config import Audit, Train
from likewise.losses import Triplet

from likewise.curate.audit import attribution as causes
from likewise.curate.audit.attribution import (
    INFLUENCE_METHODS,
    Errors,
    choose_errors,
    describe_lissa,
    explain,
    influences,
    one_thread,
)
from likewise.curate.audit.source import open_subject
from likewise.learn.training.fit import train

PLANTED = range(44, 48)


def settings(run, **changes):
    return Audit(targets=(str(run.path),), device="cpu", workers=0, quiet=True, **{"max_classes": 2, "k": 8} | changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Test class 7 looks like training class 3, and four training samples of class 3 look like test class 6."""
    rng, y = np.random.default_rng(2), np.repeat(np.arange(8), 12)
    centre = rng.normal(size=(8, 10)) * 1.6
    centre[7] = centre[3] + rng.normal(size=10) * 0.3
    centre[6] = centre[3] + rng.normal(size=10) * 2.0
    look = y.copy()
    look[list(PLANTED)] = 6
    x = centre[look] + rng.normal(size=(96, 10)) * 0.9
    file = tmp_path_factory.mktemp("planted") / "planted.npz"
    np.savez(file, x=x, label=y, split=np.where(y < 6, "train", "test"))
    return train(Train(
        data=str(file), out=str(file.parent / "run"), loss="NormSoftmax()", dim=6, steps=200, lr=3e-3, quiet=True,
        sampler="SamplesPerClass(batch=24, per_class=4)", device="cpu", evaluate=False,
    ))  # fmt: skip


@pytest.fixture(scope="module")
def subject(run):
    return open_subject(settings(run), print)


@pytest.mark.parametrize("way", ["finite", "first"])
def test_samples_that_were_planted_are_found(run, subject, way):
    found = explain(subject, settings(run, influence=way))
    groups = [place for place, (_, kind) in enumerate(found.errors.name) if kind == "group"]
    assert {found.errors.name[place][0] for place in groups} == {"6", "7"}
    for place in groups:  # by chance, two of the four would be among the first three of 72 once in 130 times
        assert len(set(found.causes.harmful_row[place, :3].tolist()) & set(PLANTED)) >= 2
        assert not set(found.causes.helpful_row[place, :3].tolist()) & set(PLANTED)
    assert found.pull.shape == (72,) and found.pull.min() > 0


def test_a_pass_of_lissa_over_few_samples_is_noted(run):
    alone = open_subject(settings(run), print)
    explain(alone, settings(run, influence="lissa"))
    assert [note for note in alone.notes if note.startswith("lissa: one pass of 72 steps")]
    pairs = describe_lissa(Triplet(), alone.splits["train"].e)
    assert pairs[0].startswith("lissa: Triplet compares samples, so one step takes a batch of about 32 samples")
    assert pairs[1].startswith("lissa: one pass of 2 steps")
    plain = open_subject(settings(run), print)
    explain(plain, settings(run, influence="first"))
    assert not any("lissa" in note for note in plain.notes)


def test_errors_are_the_worst_of_each_kind_and_whole_classes(run, subject):
    found = explain(subject, settings(run, max_errors=0, max_classes=0))
    assert found.errors.name == [] and found.causes is None and found.pull is None
    confusion, apart = found.pairs
    errors = choose_errors(found.pairs, subject, settings(run, max_errors=2))
    rows = subject.test.e.row
    for at, pairs, kind, sign in ((0, confusion, "confusion", 1), (2, apart, "mis-similar", -1)):
        for place in range(2):
            query, other = int(pairs.query[place]), int(pairs.partner[place])
            assert errors.pair[at + place].tolist() == [query, other] and errors.sign[at + place] == sign
            assert errors.name[at + place] == (f"{rows[query]}-{rows[other]}", kind)
    y = subject.test.e.y
    for error, (name, kind) in list(enumerate(errors.name))[4:]:
        mine = errors.pair[errors.error == error].tolist()
        label = subject.test.names.index(name)
        assert kind == "group" and mine == [
            [q, p] for q, p in zip(confusion.query.tolist(), confusion.partner.tolist()) if y[q] == label
        ]
    some = errors.some(1, 3)
    assert isinstance(some, Errors) and some.error.tolist() == [0, 1] and some.name == errors.name[1:3]


@pytest.mark.parametrize("way", INFLUENCE_METHODS)
def test_some_errors_at_a_time_give_the_same(run, subject, way, monkeypatch):
    config = settings(run, influence=way, max_errors=2)
    whole = explain(subject, config)
    monkeypatch.setattr(causes, "INFLUENCE_BLOCK_SIZE", 2 * len(subject.splits["train"].e.y))
    pieces = explain(subject, config)
    assert torch.equal(whole.causes.harmful_row, pieces.causes.harmful_row)
    torch.testing.assert_close(whole.pull, pieces.pull)
    g = causes.embedding_gradients(subject.loss, subject.splits["train"].e)
    assert [low for low, _ in influences(subject, whole.errors, way, g, config)] == [0, 2, 4]


def test_threads_come_back():
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match="x"), one_thread():
        assert torch.get_num_threads() == 1
        raise ValueError("x")
    assert torch.get_num_threads() == before


def test_acting_without_errors_says_so(run, subject):
    found = explain(subject, settings(run, max_errors=1, max_classes=0, verify=True))
    assert found.verified["pairs"] == 2 and found.verified["rows"]
    g = causes.embedding_gradients(subject.loss, subject.splits["train"].e)
    nothing = causes.verify_causes(subject, found.errors.some(0, 1), g, torch.zeros(1, len(g)), settings(run))
    assert nothing == {"pairs": 1, "rows": [], "summary": "there are too few errors for this measurement"}
