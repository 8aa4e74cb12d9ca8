"""Labels of all splits, scored: scores, neighbours, what is counted as wrong, and how well it works where that is known."""

import csv
import io
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from likewise.config import Audit
from likewise.errors import LikewiseError
from likewise.types import Embedded, Items
from made_label_sets import clothes, label_matrix, noisy_matrix
from PIL import Image, ImageFile

from likewise.curate.audit import label_quality
from likewise.curate.audit.audit import audit, check_label_set_settings
from likewise.curate.audit.error_causes import explain
from likewise.curate.audit.label_probability import UNINFORMATIVE_REASON, LabelQuality, StateBlocks, listed
from likewise.curate.audit.label_quality import (
    ScoredSets,
    blank_images,
    blank_reason,
    blank_rows,
    class_findings,
    find_classes,
    given_labels,
    measure,
    no_classes,
    score_splits,
    unscored,
    with_overlap,
    with_suggested_sets,
)
from likewise.curate.audit.read import read_findings
from likewise.curate.audit.records import SplitQuality, Subject
from likewise.curate.audit.single_scores import STORED_NEIGHBOURS, neighbours
from likewise.curate.audit.source import UNSPLIT_NAME, open_subject, renumber_labels
from likewise.curate.audit.summary import show_findings
from likewise.curate.audit.write import near_rows
from likewise.labels.class_overlap import ClassOverlap


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


def test_findings_by_hand():
    y = torch.tensor([0] * 20 + [3] * 20 + [5] * 20 + [6] * 20 + [8] * 5)
    suggested = y.clone()
    suggested[:4] = 3  # 4 of 20, all to one class: merge
    suggested[20:24] = torch.tensor([0, 5, 5, 6])  # 4 of 20, to three classes: diffuse
    suggested[40:41] = 3  # 1 of 20
    suggested[80:81] = 0  # 1 of 5: a fifth of the class, but one sample is no pattern
    found = class_findings(y, suggested)
    assert found.kind == ("merge", "diffuse", "individual", "clean", "individual")
    assert found.label.tolist() == [0, 3, 5, 6, 8] and found.size.tolist() == [20, 20, 20, 20, 5]
    assert found.moved.tolist() == [4, 4, 1, 0, 1]
    assert found.target.tolist() == [3, 5, 3, -1, 0]
    entropy = -(0.25 * math.log(0.25) * 2 + 0.5 * math.log(0.5))
    np.testing.assert_allclose(found.entropy, [0, entropy, 0, 0, 0], atol=1e-12)
    assert found.of_all == pytest.approx(10 / 85) and found.of_touched == pytest.approx(10 / 65)


def test_merges_come_from_the_overlap_by_hand():
    y = torch.tensor([0] * 20 + [3] * 20 + [5] * 20 + [6] * 20 + [8] * 5)
    suggested = y.clone()
    suggested[:4] = 3  # a merge by the suggested labels, but not by the overlap
    pairs = torch.tensor([[0, 1, 0.01], [0, 2, 0.2], [2, 3, 0.98], [2, 1, torch.nan]]).T
    state = ("distinct", "distinct", "merge", "unknown")
    overlap = ClassOverlap(*pairs[:2].long(), *pairs[2].expand(4, -1), state)
    found = with_overlap(class_findings(y, suggested), overlap, np.array([0, 3, 5, 6, 8]))
    assert found.partner is not None and found.overlap is not None
    assert found.kind == ("mixed", "clean", "merge", "merge", "clean")
    assert found.partner.tolist() == [5, 5, 6, 5, -1]  # labels
    assert found.state == ("distinct", "unknown", "merge", "merge", "unknown")
    np.testing.assert_allclose(found.overlap, [0.2, np.nan, 0.98, 0.98, np.nan], rtol=1e-6)
    nothing = ClassOverlap(*pairs[:2, :0].long(), *pairs[2, :0].expand(4, -1), ())
    assert with_overlap(class_findings(y, suggested), nothing, found.label).state == ("unknown",) * 5
    part = with_overlap(
        class_findings(y[20:60], suggested[20:60]), overlap, found.label
    )  # of a split with two of the classes
    assert part.partner is not None and part.partner.tolist() == [5, 6] and part.kind == ("clean", "merge")


@pytest.mark.parity
def test_the_entropy_is_scipys():
    from scipy.stats import entropy

    g = torch.Generator().manual_seed(0)
    y, suggested = torch.randint(0, 4, (2, 300), generator=g)
    found = class_findings(y, suggested)
    for label, value in zip(found.label, found.entropy):
        goal = suggested[(y == label) & (suggested != label)]
        assert value == pytest.approx(entropy(torch.bincount(goal).numpy()))


def test_of_equal_targets_the_lowest_is_named_and_thresholds_count():
    y, suggested = torch.zeros(10, dtype=torch.int64), torch.tensor([7, 4, 7, 4, 9, 0, 0, 0, 0, 0])
    found = class_findings(y, suggested)
    assert found.target.tolist() == [4] and found.kind == ("diffuse",)
    assert class_findings(y, suggested, spread=2.0).kind == ("merge",)
    assert class_findings(y, suggested, many=0.6).kind == ("individual",)
    calm = class_findings(y, y)
    assert (calm.kind, calm.of_all, calm.of_touched) == (("clean",), 0.0, 0.0)


def test_images_of_no_class_have_a_state_of_their_own(spoiled, monkeypatch):
    subject, before, config = spoiled
    off = torch.zeros(100, dtype=torch.float64)
    off[[1, 10]], off[2] = 0.9, 0.4  # row 10 has a wrong label
    plain = label_quality.class_label_quality
    monkeypatch.setattr(label_quality, "class_label_quality", lambda *a: replace(plain(*a), off_topic=off))
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


DATA = "made_label_sets.clothes(images=True, count=150)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("clothes")
    config = Audit(
        targets=(DATA,), root=str(root), out=str(root / "audit"), backbone="efficientnet_lite0", allow_imports=True, quiet=True,
        device="cpu", workers=0,
    )  # fmt: skip
    return audit(config, lambda text: None).folder


def lines_of(file):
    with open(file, newline="") as text:
        return list(csv.DictReader(text))


def test_tables(folder):
    true = label_matrix(150)
    noisy, names = noisy_matrix(true), ["blue", "dress", "green", "red", "shirt", "striped"]
    lines = lines_of(folder / "labels.csv")
    assert list(lines[0]) == [
        "row",
        "path",
        "label",
        "kind",
        "chance",
        "state",
        "reason",
        "nearest_with",
        "nearest_without",
    ]
    flagged = [one for one in lines if one["state"] == "flagged"]
    chances = [float(one["chance"]) for one in flagged]
    assert flagged and chances == sorted(chances, reverse=True) and chances[-1] > 0.5 and chances[0] < 1
    for one in flagged:
        row, label = int(one["row"]), names.index(one["label"])
        assert one["kind"] == ("superfluous" if noisy[row, label] else "missing")
        assert all(noisy[int(other), label] for other in one["nearest_with"].split())
        assert not any(noisy[int(other), label] for other in one["nearest_without"].split())
    samples = {int(one["row"]): one for one in lines_of(folder / "audit.csv")}
    first = samples[int(flagged[0]["row"])]
    assert first["state"] == "flagged" and first["label"] != first["suggested"]
    assert flagged[0]["label"] in set(first["label"].split("|")) ^ set(first["suggested"].split("|"))
    about = json.loads((folder / "audit.json").read_text())
    assert [one["label"] for one in about["labels"]] == names and about["errors"] == {}
    assert any("samples have several labels" in note for note in about["notes"])


def test_readers(folder, capsys):
    found = read_findings(folder)
    assert found.questions and not found.pair and not found.classes
    item, one = next(iter(found.questions.items()))
    assert item == f"{one.row}:{one.label}" and one.advice == ("add" if one.kind == "missing" else "remove")
    show_findings(type("Audited", (), {"folder": folder}))
    said = capsys.readouterr().out
    assert "Missing and superfluous labels" in said and one.label in said
    assert (folder / "audit.html").exists()


@pytest.mark.parametrize("name", ["retrain", "verify", "forecast"])
def test_what_does_not_apply(name):
    with pytest.raises(LikewiseError, match=f"--{name} does not apply"):
        check_label_set_settings(Audit(targets=("x",), **{name: True}))


def test_suggested_sets_become_classes():
    """The second sample loses one of two labels, the third all: it keeps its set, because no set can be suggested."""
    items = clothes("", count=6)
    assert items.label_sets is not None and items.label_name is not None
    y, has = torch.as_tensor(items.y), given_labels(items, torch.arange(6))
    wrong = torch.zeros(6, 6)
    wrong[1, int(has[1].nonzero()[0, 0])] = 0.9
    wrong[2][has[2]] = 0.9
    states = listed(StateBlocks(iter([(torch.arange(6), has, wrong)]), torch.zeros(6), torch.zeros(6), ("",) * 6))
    quality = LabelQuality(states.score, {}, y, states.score, states.score, 0.0, 0.0, states=states)
    split = SplitQuality(quality, {}, np.zeros((6, 0), int), no_classes(), np.zeros(6, bool))
    e = renumber_labels(Embedded(torch.zeros(6, 2), y, torch.arange(6)), items)
    subject = Subject("", items, {"all": e}, e, [], torch.device("cpu"))
    extended, found = with_suggested_sets(subject, {"all": split})
    suggested, sets = found["all"].quality.suggested, extended.items.label_sets
    assert suggested[2] == items.y[2] and suggested[0] == items.y[0]
    left = has[1].clone()
    left[int(has[1].nonzero()[0, 0])] = False
    assert sets is not None and sets[int(suggested[1])] == tuple(left.nonzero()[:, 0].tolist())
    name = "|".join(items.label_name[n] for n in left.nonzero()[:, 0])
    assert extended.items.class_name[int(suggested[1])] == name
    plain = replace(subject, items=replace(items, label_sets=None, label_name=None))
    assert with_suggested_sets(plain, {"all": split})[0] is plain


def test_nearest_samples_with_a_label_are_sure_ones():
    z = torch.nn.functional.normalize(torch.tensor([[1.0, 0], [1, 0.1], [1, 0.2], [1, 0.5], [0, 1]]), dim=1)
    has = torch.tensor([[False], [True], [True], [True], [False]])
    wrong = torch.tensor([[0.9], [0.9], [0.1], [0.1], [0.1]])
    states = listed(StateBlocks(iter([(torch.arange(5), has, wrong)]), torch.zeros(1), torch.zeros(1), ("",)))
    found = ScoredSets(torch.tensor([10, 11, 12, 13, 14]), z, states)
    place = label = torch.tensor([0])
    assert near_rows(found, place, label, has=True) == ["12 13"] and near_rows(found, place, label, has=False) == ["14"]


def photograph() -> Image.Image:
    rows, columns = np.indices((90, 120))
    levels = np.stack([120 + 90 * np.sin(rows / 9), 120 + 90 * np.cos(columns / 7), rows + columns], 2)
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8))


def test_reasons(monkeypatch):
    rng = np.random.default_rng(0)
    grey = np.full((150, 160, 3), 128.0)
    assert blank_reason(Image.fromarray(grey.astype(np.uint8))) == "blank image"
    assert blank_reason(Image.fromarray((grey + rng.normal(0, 3, grey.shape)).astype(np.uint8))) == "blank image"
    assert blank_reason(Image.new("L", (5, 5), 255)) == "blank image"
    assert blank_reason(photograph()) is None
    assert blank_reason(None) == "unreadable image"
    black_below = np.asarray(photograph()).copy()
    black_below[40:] = 0
    assert blank_reason(Image.fromarray(black_below)) == "half blank image"
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    whole = io.BytesIO()
    photograph().save(whole, "jpeg")
    assert blank_reason(Image.open(io.BytesIO(whole.getvalue()[: len(whole.getvalue()) // 3]))) == "half blank image"


def test_rows():
    images = [photograph(), None, Image.new("RGB", (8, 8))]
    seen = []
    assert blank_images(images.__getitem__, 3, lambda: seen.append(1)) == {1: "unreadable image", 2: "blank image"}
    assert seen == [1, 1, 1]


def test_rows_of_items(tmp_path):
    photograph().save(tmp_path / "a.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "b.png")
    (tmp_path / "c.png").write_bytes(b"no image")
    half = np.asarray(photograph()).copy()
    half[40:] = 0
    Image.fromarray(half).save(tmp_path / "e.png")
    path = tuple(f"{name}.png" for name in "abcde")  # d is missing
    items = Items("toy", np.zeros(5, np.int64), ("wren",), path=path, root=str(tmp_path))
    assert blank_rows(items, np.arange(5), quiet=True) == {1: "blank image", 2: "unreadable image"}
    assert blank_rows(items, np.array([0, 2]), quiet=True) == {2: "unreadable image"}
    assert blank_rows(replace(items, path=None), np.arange(5), quiet=True) == {}
