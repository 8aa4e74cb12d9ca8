"""Labels judged from arrays: the numbers of `likewise audit` for the same embeddings, in the user's own labels."""

import csv

import numpy as np
import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from likewise.config import Audit
from likewise.errors import LikewiseError
from made_label_sets import NAMES, features_of, label_matrix, noisy_matrix

import likewise
from likewise.curate.audit import label_audit
from likewise.curate.audit.audit import audit
from likewise.curate.audit.label_audit import audit_labels, listed_labels
from likewise.curate.audit.label_probability import ALONE_REASON, UNINFORMATIVE_REASON

WORDS = np.array(["wren", "robin", "finch", "tit"])


@pytest.fixture(scope="module")
def spoiled():
    """Four classes of 20 vectors that are easy to tell apart; every tenth label is wrong."""
    rng, y = np.random.default_rng(0), np.repeat(np.arange(4), 20)
    z = 10 * np.eye(4, 8)[y] + rng.normal(size=(80, 8))
    given = y.copy()
    given[::10] = (given[::10] + np.array([1, 2, 3, 1, 3, 2, 1, 3])) % 4
    return z.astype(np.float32), y, given


def test_the_numbers_are_those_of_the_command(spoiled, tmp_path):
    z, _, given = spoiled
    label = WORDS[given]
    np.savez(tmp_path / "z.npz", x=z, label=label)
    about = audit(
        Audit(targets=(str(tmp_path / "z.npz"),), out=str(tmp_path / "audit"), quiet=True, device="cpu")
    ).about
    with (tmp_path / "audit" / "audit.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    found = audit_labels(z, label, device="cpu")
    assert [f"{score:.6g}" for score in found.score] == [line["score"] for line in lines]
    assert found.is_flagged.tolist() == [line["suggested"] != "" for line in lines]
    flagged = [line for line in lines if line["suggested"]]
    assert found.suggested[found.is_flagged].tolist() == [line["suggested"] for line in flagged]
    assert [f"{one:.6g}" for one in found.confidence[found.is_flagged]] == [line["confidence"] for line in flagged]
    part = about["parts"]["all"]
    assert found.noise_rate == pytest.approx(part["wrong"] / part["samples"], rel=1e-12)


def test_wrong_labels_are_found_and_repaired_in_the_labels_of_the_user(spoiled):
    z, y, given = spoiled
    names = np.array([10, -3, 7, 500])  # their order is not that of the class numbers
    found = likewise.audit_labels(z, names[given], device="cpu")
    wrong = np.flatnonzero(given != y)
    assert set(found.issues[: len(wrong)].tolist()) == set(wrong.tolist())
    assert found.suggested[wrong].tolist() == names[y[wrong]].tolist() and found.suggested.dtype == names.dtype
    assert (found.suggested != found.given).all() and (np.diff(found.score[found.issues]) >= 0).all()
    assert 0.05 < found.noise_rate < 0.2 and len(found) == 80


@pytest.mark.slow
def test_any_float_type_and_torch_or_numpy(spoiled):
    z, _, given = spoiled
    want = audit_labels(z, given, device="cpu")
    for other in (z.astype(np.float64), torch.as_tensor(z), torch.as_tensor(z, dtype=torch.float64).requires_grad_()):
        found = audit_labels(other, torch.as_tensor(given), device="cpu")
        assert np.array_equal(found.score, want.score) and np.array_equal(found.suggested, want.suggested)
    for half in (z.astype(np.float16), torch.as_tensor(z).bfloat16()):
        assert audit_labels(half, given.tolist(), device="cpu").score == pytest.approx(want.score, abs=0.05)


def test_features_have_their_say(spoiled):
    z, y, given = spoiled
    blurred = z + 10 * np.random.default_rng(1).normal(size=z.shape).astype(np.float32)
    wrong = given != y
    alone, both = (audit_labels(blurred, given, x, device="cpu").score for x in (None, z))
    assert both[wrong].mean() < alone[wrong].mean()


def test_it_shows_itself(spoiled):
    z, _, given = spoiled
    found = audit_labels(z, WORDS[given], device="cpu")
    html = DisplayFormatter().format(found)[0]["text/html"]
    assert f"80 labels, {len(found.issues)} flagged" in html and "wren" in html
    assert repr(found).startswith(f"LabelAudit(80 labels, {len(found.issues)} flagged, noise rate ")


def test_bad_input_is_named(spoiled):
    z, _, given = spoiled
    broken, zero = z.copy(), z.copy()
    broken[[3, 5]] = np.nan
    zero[7] = 0
    for arrays, says in (
        ((broken, given), r"must be finite, but 2 of 80 rows \(from 0: 3, 5\) hold NaN"),
        ((zero, given), r"must not be all zeros, but 1 of 80 are \(first: row 7\)"),
        ((z, given[:-1]), "x of z has 80 rows, but label has 79"),
        ((z, np.zeros(80, int)), "two classes or more, one of them with two samples, got one class"),
        ((z, np.arange(80)), "got 80 classes of one sample each"),
        ((z, given + 0.5), "a label must be a whole number or a word, got 1.5"),
        ((z[0], given), r"must have the shape \(N, F\)"),
        (([[1.0], [1.0, 2.0]], [0, 1]), "all rows of an array must have the same length"),
        ((z, given, z[:-1]), "features must have one row per embedding, got 79 rows for 80"),
    ):
        with pytest.raises(LikewiseError, match=says):
            audit_labels(*arrays, device="cpu")


def test_classes_that_the_embeddings_do_not_separate_are_noted():
    rng = np.random.default_rng(0)
    found = audit_labels(rng.normal(size=(200, 8)), np.arange(200) % 4, device="cpu")
    assert found.is_unknown.all() and np.isnan(found.noise_rate) and len(found.issues) == 0
    assert found.reason == UNINFORMATIVE_REASON and repr(found) == (
        f"LabelAudit(200 labels, 0 flagged, 200 unknown ({UNINFORMATIVE_REASON}), noise rate unknown)"
    )


def test_a_class_of_one_group_is_unknown_and_groups_have_one_entry_per_sample(spoiled):
    z, y, _ = spoiled
    group = np.array([f"image {i}" for i in range(80)])
    group[y == 1] = "burst"
    found = audit_labels(z + np.random.default_rng(1).normal(size=z.shape), y, group=group, device="cpu")
    assert found.is_unknown.tolist() == (y == 1).tolist() and found.reason == ALONE_REASON
    assert "20 unknown (the only sample of its class, apart from copies)" in found.summary()
    with pytest.raises(LikewiseError, match="group must have one entry for each of 80 samples"):
        audit_labels(z, y, group=group[:3], device="cpu")


def test_a_sample_of_no_class_is_told():
    rng, y = np.random.default_rng(0), np.arange(400) % 8
    z = 2 * rng.normal(size=(8, 24))[y] + rng.normal(size=(400, 24))
    z[:4] = 12 * rng.normal(size=24) + 0.1 * rng.normal(size=(4, 24))
    found = audit_labels(z, y, z, device="cpu")
    assert (found.off_topic[:4] >= 0.5).all() and (found.off_topic[4:] < 0.5).all() and found.is_flagged[:4].all()


def test_missing_and_superfluous_labels_of_embeddings():
    true = label_matrix(300)
    noisy, z = noisy_matrix(true), features_of(true)
    texts = ["|".join(NAMES[n] for n in np.flatnonzero(row)) for row in noisy]
    found = likewise.audit_labels(z, label_sets=texts, device="cpu")
    assert found.label == NAMES and len(found) == 300 and (found.has == noisy).all()
    row, label = found.issues[0]
    assert found.wrong[row, label] == np.nanmax(found.wrong) and noisy[row, label] != true[row, label]
    assert (found.missing[noisy] == 0).all() and (found.superfluous[~noisy] == 0).all()
    changed = set(texts[row].split("|")) ^ set(found.suggested[row])
    assert NAMES[label] in changed
    assert "300 samples" in found.summary() and found.summary() in repr(found) and "missing" in found._repr_html_()
    lists = [row.split("|") for row in texts]
    again = likewise.audit_labels(z, label_sets=lists, device="cpu")
    np.testing.assert_array_equal(found.wrong, again.wrong)


def test_label_sets_by_hand():
    names, given = listed_labels(["b|a", ["c"], [1, "a", "a"]])
    assert names == ("1", "a", "b", "c")
    assert given.label.tolist() == [1, 2, 3, 0, 1] and given.size.tolist() == [2, 1, 2] and given.labels == 4


def test_many_labels_are_scored_as_by_the_command_and_too_many_are_refused(monkeypatch):
    true = label_matrix(200)
    noisy, z = noisy_matrix(true), features_of(true)
    sets = [[NAMES[n] for n in np.flatnonzero(row)] for row in noisy]
    few = likewise.audit_labels(z, label_sets=sets, device="cpu")
    monkeypatch.setattr(label_audit, "MAX_DENSE_CLASSES", 1)
    many = likewise.audit_labels(z, label_sets=sets, device="cpu")
    assert (many.has == noisy).all()
    np.testing.assert_allclose(many.wrong, few.wrong, rtol=1e-2, atol=1e-3)  # two fits that stop near the maximum
    monkeypatch.setattr(label_audit, "MAX_TABLE_STATES", 200 * len(NAMES) - 1)
    with pytest.raises(LikewiseError, match=rf"at most [\d,]+ states .* got 200 x {len(NAMES)}; .*`likewise audit`"):
        likewise.audit_labels(z, label_sets=sets, device="cpu")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "labels must be given as y or as label_sets, got neither"),
        ({"y": [0, 1], "label_sets": ["a", "b"]}, "got both"),
        ({"label_sets": ["a", "b", "c"]}, "one entry per embedding, got 3 for 2"),
        ({"label_sets": ["a", ""]}, "every sample must have a label or more, but row 1 has none"),
    ],
)
def test_bad_label_sets_are_named(given, message):
    with pytest.raises(LikewiseError, match=message):
        likewise.audit_labels(np.ones((2, 3), np.float32), **given)


def test_spaces_and_empty_parts_of_a_text_are_no_labels():
    names, given = listed_labels(["red | dress", "red|", " dress"])
    assert names == ("dress", "red") and given.label.tolist() == [0, 1, 1, 0] and given.size.tolist() == [2, 1, 1]
