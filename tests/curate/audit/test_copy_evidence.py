"""Copies with other labels: posteriors by hand, and a folder of real images with planted conflicts from end to end."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import torch
from likewise.config import Audit
from likewise.types import Embedded, Items
from PIL import Image, ImageFilter

from likewise.curate.audit import audit as stage
from likewise.curate.audit.copy_evidence import (
    Copies,
    Judged,
    add_copies,
    at_most_one_right,
    copy_reason,
    exact_evidence,
    in_conflict,
    near_evidence,
    note_conflicts,
)
from likewise.curate.audit.label_quality import class_findings
from likewise.curate.audit.near_duplicates import Duplicates, NearCopies
from likewise.curate.audit.read import read_findings
from likewise.curate.audit.records import AuditSplit, LabelQuality, SplitQuality, Subject
from likewise.curate.audit.retrain import suggested_labels
from likewise.curate.review.consensus import changes, corrected
from likewise.curate.review.store import Store

NAMES = ("wren", "robin", "tit")
ROWS = np.arange(10, 20)
CALLED = [f"row {row}" for row in ROWS]


def test_at_most_one_label_is_right():
    # Odds 9 and 1/9: 9 / (1 + 9 + 1/9) = 81 / 91, and 1 / 91.
    assert at_most_one_right(np.array([0.9, 0.1])) == pytest.approx([81 / 91, 1 / 91])
    assert at_most_one_right(np.array([0.5, 0.5])) == pytest.approx([1 / 3, 1 / 3])
    assert at_most_one_right(np.array([0.999999999, 1.0])).sum() == pytest.approx(1, abs=1e-6)
    assert at_most_one_right(np.array([np.nan] * 3)).tolist() == [1 / 3] * 3
    # One unknown of two counts as 1/2: odds 1 beside odds 4.
    assert at_most_one_right(np.array([np.nan, 0.8])) == pytest.approx([1 / 6, 4 / 6])


def test_conflicts_are_clusters_with_several_labels():
    label, cluster = np.array([0, 0, 1, 1, 2, 0]), np.array([0, 0, 1, 2, 2, 2])
    assert in_conflict(label, cluster).tolist() == [False, False, False, True, True, True]
    assert in_conflict(label[:0], cluster[:0]).tolist() == []


def judged(label, score, suggested, confidence):
    return Judged(np.array(label), np.array(score, float), np.array(suggested), np.array(confidence, float))


def test_evidence_of_exact_copies_by_hand():
    # Samples 0, 1, 3 are one image, labelled wren, wren, robin; sample 2 is another image.
    about = judged([0, 0, 1, 1], [0.8, 1.0, 0.9, 0.2], [1, 1, 0, 2], [0.7, 0.7, 0.5, 0.6])
    score, evidence = exact_evidence(about, np.array([0, 0, 1, 0]), ROWS[:4], NAMES, CALLED[:4])
    # Wren: mean 0.9, odds 9; robin 0.2, odds 1/4; sum with 1: 10.25.
    assert score == pytest.approx([9 / 10.25, 9 / 10.25, 0.9, 0.25 / 10.25]) and sorted(evidence) == [0, 1, 3]
    assert evidence[0].reason == "same image as row 13, labelled robin" and evidence[0].suggested == "robin"
    assert evidence[3].reason == "same image as row 10, labelled wren" and evidence[3].suggested == "wren"
    assert evidence[3].confidence == pytest.approx(9 / 10) and evidence[3].exact
    # Neither is right with 1 / 10.25, and then tit (confidence 0.6).
    assert evidence[3].margin == pytest.approx((9 - 0.6) / 10)


def test_a_label_of_no_copy_may_be_likelier():
    about = judged([0, 1], [0.01, 0.01], [2, 2], [0.9, 0.9])
    score, evidence = exact_evidence(about, np.array([0, 0]), ROWS[:2], NAMES, CALLED[:2])
    assert score == pytest.approx([1 / 101, 1 / 101]) and evidence[0].suggested == evidence[1].suggested == "tit"
    assert evidence[0].confidence == pytest.approx(0.9 * 99 / 100)


def test_reasons_name_one_row_of_every_label():
    assert (
        copy_reason([("row 3", "wren"), ("row 5", "tit"), ("row 7", "wren")])
        == "same image as row 3, labelled wren and row 5, labelled tit"
    )


def test_evidence_of_near_copies_by_hand():
    about = judged([0, 1, 0, 1], [0.8, 0.5, 0.9, np.nan], [1, 0, 1, 0], [0.5, 1.0, 0.5, 0.5])
    near = NearCopies(np.array([[0, 1], [0, 2], [2, 3]]), np.array([0.6, 0.9, 0.5]))
    score, evidence = near_evidence(about, near, NAMES, CALLED[:4])
    # Odds 4 and 1: P(own right | same image) = 4/6 for sample 0 and 1/6 for sample 1. Samples 0 and 2 have one label.
    assert score[0] == pytest.approx(0.4 * 0.8 + 0.6 * 4 / 6) and score[1] == pytest.approx(0.4 * 0.5 + 0.6 / 6)
    assert score[2] == pytest.approx(0.5 * 0.9 + 0.5 * 9 / 11) and np.isnan(score[3])
    assert sorted(evidence) == [0, 1, 2, 3] and not evidence[1].exact and evidence[1].suggested == "wren"
    assert evidence[1].reason == "probably the same image (probability 0.60) as row 10, labelled wren"
    # Wren is right with 0.6 * 4/6 if they are one image, else (0.4) with 0.5 * confidence 1; neither: 0.6 * 1/6.
    assert evidence[1].confidence == pytest.approx(min(1, (0.6 * 4 / 6 + 0.6 / 6 + 0.4 * 0.5) / (1 - score[1])))


def scene(seed):
    noise = np.random.default_rng(seed).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    blurred = np.asarray(Image.fromarray(noise).filter(ImageFilter.GaussianBlur(4)), float)
    return Image.fromarray(((blurred - blurred.mean()) / blurred.std() * 50 + 128).clip(0, 255).astype(np.uint8))


def audit_of(folder, lines, z=None, head=("path", "label")):
    """An audit of clear embeddings with images: `lines` are the cells of each row."""
    label = [line[1] for line in lines]
    number = {name: c for c, name in enumerate(dict.fromkeys(label))}
    rng = np.random.default_rng(0)
    z = (
        np.eye(len(number), 8)[[number[one] for one in label]] + rng.normal(size=(len(label), 8)) * 0.1
        if z is None
        else z
    )
    np.save(folder / "z.npy", z.astype(np.float32))
    with open(folder / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([head, *lines])
    config = Audit(
        targets=(str(folder / "z.npy"),),
        labels=str(folder / "labels.csv"),
        out=str(folder / "audit"),
        device="cpu",
        quiet=True,
    )
    return stage.audit(config, say=lambda text: None)


@pytest.fixture
def planted(tmp_path):
    """60 images of three classes; rows 57-59 are copies of rows 0-2 under another label, one of them in another format."""
    lines = []
    for row in range(57):
        scene(row).save(tmp_path / f"{row}.png")
        lines.append((f"{row}.png", NAMES[row % 3]))
    for row, of in ((57, 0), (58, 1)):
        (tmp_path / f"{row}.png").write_bytes((tmp_path / f"{of}.png").read_bytes())
        lines.append((f"{row}.png", NAMES[(of + 1) % 3]))
    lines.append(("3.png", NAMES[0]))  # the same label: a copy, no conflict
    return tmp_path, lines


def test_planted_conflicts_come_first(planted):
    folder, lines = planted
    lines += [(f"{row}.png", NAMES[row % 3]) for row in range(60, 90)]
    for row in range(60, 90):
        scene(row).save(folder / f"{row}.png")
    found = audit_of(folder, lines)
    read = read_findings(found.folder)
    assert found.about["conflicts"] == {"rows": 4, "counted": True}
    first = read.suspects[:4]
    assert {one.state for one in first} == {"conflict"} and {one.row for one in first} == {0, 57, 1, 58}
    assert read.sample[0].reason == "same image as 57.png, labelled robin" and read.sample[0].same_as == 0
    assert read.sample[58].reason == "same image as 1.png, labelled robin" and read.sample[58].same_as == 1
    assert read.sample[59].state == "ok" and read.sample[59].same_as == 3 and read.sample[3].same_as == 3
    for one, other in ((0, 57), (1, 58)):  # each embedding agrees with its own label: both lose
        assert read.sample[one].score + read.sample[other].score <= 1 + 1e-4
    page = (found.folder / "audit.html").read_text("utf-8")
    assert "2 images exist under several labels" in page and page.index('id="conflicts"') < page.index('id="suspects"')


def test_copies_in_the_review_and_its_table(planted):
    folder, lines = planted
    lines += [(f"{row}.png", NAMES[row % 3]) for row in range(3, 57)]  # more rows: conflicts stay below 5 %
    read = read_findings(audit_of(folder, lines).folder)
    store = Store(folder / "decisions.sqlite", read)
    store.decide("ann", "57", "keep")  # row 57 is a robin, so row 0, the same image, is one too
    store.decide("ann", "1", "remove")  # removes row 1 alone
    made = store.current_decisions()
    label = {row: label for _, label, *_, row in corrected(read, made)[1:]}
    assert label[0] == label[57] == "robin" and 1 not in label and label[58] == NAMES[2]
    assert [line[:5] for line in changes(read, made)[1:]] == [
        (0, "0.png", "wren", "relabel", "robin"),
        (1, "1.png", "robin", "remove", ""),
    ]
    assert changes(read, made)[1][5] == "ann: keep (row 57, the same image)"
    store.decide("bob", "0", "keep")  # people label the image in two ways: nothing is decided for its copies
    label = {row: label for _, label, *_, row in corrected(read, store.current_decisions())[1:]}
    assert label[0] == "wren" and label[57] == "robin"
    store.close()


def test_many_conflicts_are_a_question_not_errors(planted):
    folder, lines = planted
    found = audit_of(folder, lines)  # 4 of 60 rows: 6.7 %
    read = read_findings(found.folder)
    assert found.about["conflicts"] == {"rows": 4, "counted": False}
    assert any("4 of 60 rows (6.7%)" in note and "several labels?" in note for note in found.about["notes"])
    assert {one.state for one in read.sample.values()} <= {"ok", "flagged"} and read.sample[57].same_as == 0


def test_boxes_of_one_file_are_no_copies(tmp_path):
    big = Image.new("RGB", (128, 96))
    for place in range(4):
        big.paste(scene(place), (64 * (place % 2), 48 * (place // 2)))
    big.save(tmp_path / "big.png")
    big.save(tmp_path / "again.png")
    lines = [(f"{row}.png", NAMES[row % 2], "", "", "", "") for row in range(100, 180)]
    for path, *_ in lines:
        scene(int(path.split(".")[0])).save(tmp_path / path)
    lines += [
        ("big.png", "wren", 0, 0, 64, 48),
        ("big.png", "robin", 2, 2, 64, 48),  # nearly the same pixels, another box
        ("again.png", "robin", 0, 0, 62, 46),
        ("again.png", "robin", 0.4, 0.4, 63.6, 47.2),  # the pixels of the first, in a copy of the file
    ]
    head = ("path", "label", "left", "top", "right", "bottom")
    read = read_findings(audit_of(tmp_path, lines, head=head).folder)
    assert {row: read.sample[row].state for row in range(80, 84)} == {
        80: "conflict",
        81: "ok",
        82: "ok",
        83: "conflict",
    }
    assert [(one.row, one.other, one.kind) for one in read.duplicates] == [(80, 83, "same")]


def test_unknown_scores_of_copies_are_shared(tmp_path):
    """Every class has one sample, so nothing is known but the copies."""
    lines = [(f"{row}.png", f"c{row}") for row in range(60)]
    for path, _ in lines:
        scene(int(path.split(".")[0])).save(tmp_path / path)
    (tmp_path / "7.png").write_bytes((tmp_path / "4.png").read_bytes())
    read = read_findings(audit_of(tmp_path, lines, np.random.default_rng(1).normal(size=(60, 6))).folder)
    assert [(one.row, one.score, one.state, one.decision) for one in read.suspects] == [
        (4, 0.5, "conflict", "remove"), (7, 0.5, "conflict", "remove"),
    ]  # fmt: skip
    assert {one.state for one in read.sample.values() if one.row not in (4, 7)} == {"unknown"}


def quality(score, suggested, confidence, names, off_topic=None, copies=None):
    tensor = [torch.tensor(one, dtype=torch.float64) for one in (score, confidence)]
    scored = LabelQuality(tensor[0], {}, torch.tensor(suggested), tensor[1], tensor[1], 0.1, 0.0, off_topic=off_topic)
    y = torch.zeros(len(score), dtype=torch.int64)
    return SplitQuality(
        scored, {}, np.full((len(score), 1), -1), class_findings(y, y), np.zeros(len(score), bool), copies or {}
    )


def subject_of(label, split):
    """Two splits of one data set; labels are classes of `NAMES`."""
    items = Items("toy", np.array(label), NAMES)
    rows = {name: np.flatnonzero(np.array(split) == name) for name in ("train", "test")}
    splits = {
        name: AuditSplit(Embedded(torch.zeros(len(own), 2), torch.as_tensor(items.y[own]), torch.as_tensor(own)), NAMES)
        for name, own in rows.items()
    }
    return Subject("toy", items, splits, splits["test"], [], torch.device("cpu"))


def copies_of(cluster, split, pair=(), probability=()):
    none, no = np.zeros(0), np.zeros(0, np.int64)
    near = NearCopies(np.array(pair, np.int64).reshape(-1, 2), np.array(probability, float))
    found = Duplicates(no, no, none, no, no.astype(str), none, np.array(cluster), near)
    return Copies(np.arange(len(cluster)), np.array(split), found)


def test_a_retraining_takes_the_suggested_decisions_and_nothing_from_other_splits():
    label = [0, 1, 0, 1, 0, 2, *[2] * 94]
    split = ["train"] * 90 + ["test"] * 10
    subject = subject_of(label, split)
    score = np.full(100, 0.9)
    score[[0, 2, 3, 5]] = 0.8, 0.1, 0.4, 0.95
    sure = np.full(100, 0.6)
    off = torch.zeros(90, dtype=torch.float64)
    off[5] = 0.9
    judged = {
        "train": quality(score[:90], [1] * 90, sure[:90], NAMES, off),
        "test": quality(score[90:], [1] * 10, sure[90:], NAMES),
    }
    cluster = np.arange(100)
    cluster[1], cluster[99] = 0, 4  # rows 0 and 1 are one image; rows 4 (train, wren) and 99 (test, tit) are one
    copies = copies_of(cluster, [0] * 90 + [1] * 10)
    whole, inside = (add_copies(subject, judged, copies, across) for across in (True, False))
    assert [np.flatnonzero(one["train"].state == "conflict").tolist() for one in (whole, inside)] == [[0, 1, 4], [0, 1]]
    assert whole["test"].state[9] == "conflict" and inside["test"].state[9] == "ok"
    # Odds 4 and 9: the robin of row 1 is right with 9 / 14, more than one half.
    assert whole["train"].quality.score[[0, 1]].tolist() == pytest.approx([4 / 14, 9 / 14])
    taken = suggested_labels(subject.splits["train"], inside["train"], NAMES)
    # Row 2: 0.9 * 0.6 = 0.54, relabelled; row 3: 0.6 * 0.6 = 0.36, dropped; row 5: of no class, dropped.
    assert taken == {0: 1, 2: 1, 3: None, 5: None}


def test_near_copies_lower_a_score_by_their_probability():
    subject = subject_of([0, 1, *[2] * 98], ["train"] * 99 + ["test"])
    judged = {
        "train": quality(np.full(99, 0.5), [2] * 99, np.full(99, 0.1), NAMES),
        "test": quality([0.9], [1], [0.5], NAMES),
    }
    found = add_copies(subject, judged, copies_of(np.arange(100), [0] * 99 + [1], [(0, 1)], [0.5]))
    assert found["train"].quality.score[:3].tolist() == pytest.approx([0.25 + 0.5 / 3, 0.25 + 0.5 / 3, 0.5])
    assert found["train"].state[:3].tolist() == ["flagged", "flagged", "ok"]


def test_exact_copies_with_other_label_sets_are_noted():
    names = {"class_name": ("dress|red", "red"), "label_name": ("dress", "red"), "label_sets": ((0, 1), (1,))}
    items = Items("shop", np.array([0, 1, 0, 1]), **names)
    no, none = np.zeros(0, int), np.zeros(0)
    near = NearCopies(no.reshape(0, 2), none)
    found = Duplicates(no, no, none, no, no.astype(str), none, np.array([0, 0, 1, 1]), near)
    copies = Copies(np.arange(4), np.zeros(4, int), found)
    e = Embedded(torch.eye(4), torch.as_tensor(items.y), torch.arange(4))
    split = AuditSplit(e, items.class_name)
    subject = Subject("t", items, {"": split}, split, [], torch.device("cpu"))
    assert note_conflicts(subject, copies) == {"rows": 4, "counted": False}
    assert subject.notes[0].startswith("4 of 4 rows are exact copies of a row with other labels")


def test_lowest_rows_of_exact_copies():
    none, no_rows = np.zeros(0), np.arange(0)
    pairs = Duplicates(none.astype(int), none.astype(int), none, none.astype(int), none.astype(str), none,
                       np.array([0, 1, 0, 2]), NearCopies(np.zeros((0, 2), int), none))  # fmt: skip
    copies = Copies(np.array([9, 4, 3, 5]), np.zeros(4, int), pairs)
    assert copies.first_row() == {9: 3, 3: 3}
    assert Copies(no_rows, no_rows, replace(pairs, cluster=no_rows)).first_row() == {}
