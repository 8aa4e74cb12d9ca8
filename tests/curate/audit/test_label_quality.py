"""Labels of all splits, scored: scores, neighbours, what is counted as wrong, and how well it works where that is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from likewise.config import Audit

from likewise.curate.audit import label_quality
from likewise.curate.audit.error_causes import explain
from likewise.curate.audit.label_probability import UNINFORMATIVE_REASON
from likewise.curate.audit.label_quality import find_classes, measure, score_splits, unscored
from likewise.curate.audit.label_scores import STORED_NEIGHBOURS, neighbours
from likewise.curate.audit.source import UNSPLIT_NAME, open_subject, renumber_labels


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory):
    """Five clear classes of 20; every tenth label is that of another class."""
    rng, y = np.random.default_rng(0), np.repeat(np.arange(5), 20)
    x = np.eye(5, 8)[y] * 3 + rng.normal(size=(100, 8)) * 0.5
    wrong = np.where(np.arange(100) % 10 == 0, (y + rng.integers(1, 5, 100)) % 5, y)
    file = tmp_path_factory.mktemp("spoiled") / "z.npz"
    np.savez(file, x=x, label=wrong, label_clean=y)
    config = Audit(targets=(str(file),), device="cpu", quiet=True)
    subject = open_subject(config, print)
    return subject, score_splits(subject, explain(subject, config), config)[UNSPLIT_NAME], config


def test_wrong_labels_are_found_and_the_right_ones_suggested(spoiled):
    subject, found, _ = spoiled
    wrong = torch.as_tensor(subject.items.y != subject.items.y_clean)
    assert torch.equal(found.flagged, wrong) and torch.equal(found.flagged, found.quality.score < 0.5)
    assert torch.equal(found.quality.suggested[wrong], torch.as_tensor(subject.items.y_clean)[wrong])
    assert found.wrong == pytest.approx(float((1 - found.quality.score).sum())) and 8 < found.wrong < 13
    for name, score in found.single.items():
        assert score.min() >= 0 and score.max() <= 1 and score[wrong].mean() < score[~wrong].mean() - 0.05, name


def test_measured_by_the_truth(spoiled):
    subject, found, _ = spoiled
    told = measure(subject.splits[UNSPLIT_NAME], found, subject.items)
    assert told["measured"]["score"]["AUROC"] == told["measured"]["score"]["recall"] == 1
    assert told["measured"]["score"]["share"] == pytest.approx(0.1) and told["suggested"]["top1"] == 1
    nothing = {"measured": None, "suggested": None}
    for clean in (None, subject.items.y):  # not known; known, and nothing is wrong
        assert measure(subject.splits[UNSPLIT_NAME], found, replace(subject.items, y_clean=clean)) == nothing


def test_neighbours_by_hand():
    z = torch.nn.functional.normalize(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    order = (z @ z.T).fill_diagonal_(-9).argsort(dim=1, descending=True)[:, :STORED_NEIGHBOURS]
    assert neighbours(z).tolist() == order.tolist()
    assert neighbours(z[:3])[:, 2:].tolist() == [[-1] * 4] * 3
    assert neighbours(z[:1]).tolist() == [[-1] * STORED_NEIGHBOURS]


def test_a_class_of_one_is_neither_suspect_nor_counted(spoiled):
    subject, _, config = spoiled
    y = subject.items.y.copy()
    y[3] = 5
    items = replace(subject.items, y=y, class_name=(*subject.items.class_name, "alone"))
    part = renumber_labels(replace(subject.splits[UNSPLIT_NAME].e, y=torch.as_tensor(y)), items)
    alone = replace(subject, items=items, splits={UNSPLIT_NAME: part})
    found = score_splits(alone, explain(alone, config), config)[UNSPLIT_NAME]
    others = torch.arange(100) != 3
    assert not found.flagged[3] and found.wrong == pytest.approx(float((1 - found.quality.score)[others].sum()))
    assert found.state[3] == "unknown" and found.quality.score[3].isnan() and found.alone.nonzero()[0].tolist() == [3]
    assert found.classes.kind[5] == "unknown" and "unknown" not in found.classes.kind[:5]


def test_features_that_say_nothing_are_told(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", x=rng.normal(size=(120, 16)), label=np.arange(120) % 6)
    config = Audit(targets=(str(tmp_path / "noise.npz"),), device="cpu", quiet=True)
    subject = open_subject(config, print)
    found = score_splits(subject, explain(subject, config), config)["all"]
    assert found.quality.unknown_reason == UNINFORMATIVE_REASON and set(found.state) == {"unknown"}
    assert not found.flagged.any() and np.isnan(found.wrong) and set(found.classes.kind) <= {"unknown", "merge"}


def test_images_of_no_class_have_a_state_of_their_own(spoiled, monkeypatch):
    subject, before, config = spoiled
    off = torch.zeros(100, dtype=torch.float64)
    off[[1, 10]], off[2] = 0.9, 0.4  # row 10 has a wrong label
    plain = label_quality.score_labels
    monkeypatch.setattr(label_quality, "score_labels", lambda *a: replace(plain(*a), off_topic=off))
    found = score_splits(subject, explain(subject, config), config)[UNSPLIT_NAME]
    assert found.state[[1, 2, 10]].tolist() == ["off-topic", "ok", "off-topic"] and found.state[0] == "flagged"
    assert found.quality.score[2] == before.quality.score[2]
    moved = before.classes.moved.sum()
    assert found.classes.moved.sum() == moved - 1  # row 10 is not claimed by another class


def test_off_topic_samples_are_not_claimed_by_another_class():
    y = torch.tensor([3] * 10 + [7] * 10)
    scored = replace(unscored(y, ""), score=torch.ones(20).double(), suggested=10 - y, unknown=None)
    scored.score[:4] = 0.1
    off = torch.zeros(20).double()
    off[:3] = 0.8
    for outside, moved in ((None, 4), (off, 1)):
        found = find_classes(y, replace(scored, off_topic=outside), None, np.array([3, 7]))
        assert found.moved.tolist() == [moved, 0] and found.target.tolist() == [7, -1]


def crossed(tmp_path, own_split):
    """Embeddings of ten classes in two splits by class; row 3 of the first class has the label of a class of the other split."""
    rng, y = np.random.default_rng(0), np.repeat(np.arange(10), 20)
    x = 2 * rng.normal(size=(10, 16))[y] + rng.normal(size=(200, 16))
    given = y.copy()
    given[3] = 7
    np.savez(
        tmp_path / "z.npz", x=x, label=given, **({"split": np.where(given < 5, "train", "test")} if own_split else {})
    )
    config = Audit(targets=(str(tmp_path / "z.npz"),), device="cpu", quiet=True)
    subject = open_subject(config, print)
    if not own_split:  # as a protocol divides the classes
        e = subject.splits[UNSPLIT_NAME].e
        halves = {name: np.flatnonzero((given < 5) == (name == "train")) for name in ("train", "test")}
        splits = {
            name: renumber_labels(
                replace(e, z=e.z[rows], y=torch.as_tensor(given[rows]), row=e.row[rows]), subject.items
            )
            for name, rows in halves.items()
        }
        subject = replace(subject, splits=splits, test=splits["test"])
    return subject, score_splits(subject, explain(subject, config), config)


@pytest.mark.parametrize("own_split", [False, True])
def test_labels_are_scored_against_all_classes_unless_the_data_has_a_split(tmp_path, own_split):
    subject, found = crossed(tmp_path, own_split)
    place = subject.splits["test"].e.row.tolist().index(3)
    suggested, *_ = found["test"].suggestion(place, subject.items.class_name)
    inside = {subject.items.class_name[c] for c in found["test"].quality.suggested.tolist()}
    if own_split:
        assert inside <= set(subject.splits["test"].names)
    else:
        assert found["test"].flagged[place] and suggested == subject.items.class_name[0]
        assert found["test"].classes.target[found["test"].classes.label == 7].tolist() == [0]
