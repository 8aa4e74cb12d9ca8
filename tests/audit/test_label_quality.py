"""Labels of a part, judged: scores, neighbours, what is counted as wrong, and how well it works where that is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from likewise.audit import label_quality
from likewise.audit.attribution import explain
from likewise.audit.label_quality import STORED_NEIGHBOURS, measure, neighbours, score_split, to_unit_interval
from likewise.audit.source import UNSPLIT_NAME, open_subject
from likewise.config import Audit


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory):
    """Five clear classes of 20; every tenth label is that of the next class."""
    rng, y = np.random.default_rng(0), np.repeat(np.arange(5), 20)
    x = np.eye(5, 8)[y] * 3 + rng.normal(size=(100, 8)) * 0.5
    wrong = np.where(np.arange(100) % 10 == 0, (y + 1) % 5, y)
    file = tmp_path_factory.mktemp("spoiled") / "z.npz"
    np.savez(file, x=x, label=wrong, label_clean=y)
    config = Audit(targets=(str(file),), device="cpu", quiet=True)
    subject = open_subject(config, print)
    return subject, score_split(subject, UNSPLIT_NAME, explain(subject, config), config), config


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


def test_members_as_shares():
    found = to_unit_interval({"centre": torch.tensor([-2.0, 0, 2]), "centres": torch.tensor([-20.0, 0, 20])})
    torch.testing.assert_close(found["centre"], torch.tensor([0, 0.5, 1]))
    torch.testing.assert_close(found["centres"], torch.tensor([0, 0.5, 1]), atol=1e-6, rtol=0)


def test_a_class_of_one_is_neither_suspect_nor_counted(spoiled):
    subject, _, config = spoiled
    part = subject.splits[UNSPLIT_NAME]
    y = part.e.y.clone()
    y[3] = 5
    alone = replace(subject, splits={UNSPLIT_NAME: part._replace(e=replace(part.e, y=y), names=(*part.names, "alone"))})
    found = score_split(alone, UNSPLIT_NAME, explain(subject, config), config)
    others = torch.arange(100) != 3
    assert not found.flagged[3] and found.wrong == pytest.approx(float((1 - found.quality.score)[others].sum()))
    assert found.state[3] == "unknown" and found.quality.score[3].isnan() and found.alone.nonzero()[0].tolist() == [3]
    assert found.classes.kind[5] == "unknown" and "unknown" not in found.classes.kind[:5]


def test_features_that_say_nothing_are_told(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", x=rng.normal(size=(120, 16)), label=np.arange(120) % 6)
    config = Audit(targets=(str(tmp_path / "noise.npz"),), device="cpu", quiet=True)
    subject = open_subject(config, print)
    found = score_split(subject, "all", explain(subject, config), config)
    assert any("do not separate the classes" in note for note in subject.notes) and not found.flagged.any()


def test_images_of_no_class_have_a_state_of_their_own(spoiled, monkeypatch):
    subject, before, config = spoiled
    off = torch.zeros(100, dtype=torch.float64)
    off[[1, 10]], off[2] = 0.9, 0.4  # row 10 has a wrong label
    plain = label_quality.score_labels
    monkeypatch.setattr(label_quality, "score_labels", lambda *a, **k: replace(plain(*a, **k), off_topic=off))
    found = score_split(subject, UNSPLIT_NAME, explain(subject, config), config)
    assert found.state[[1, 2, 10]].tolist() == ["off-topic", "ok", "off-topic"] and found.state[0] == "flagged"
    assert found.quality.score[1] == pytest.approx(0.1) and found.quality.score[2] == before.quality.score[2]
