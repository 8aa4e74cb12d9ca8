"""`likewise audit` of samples with several labels: the tables, the page, and what does not apply."""

import csv
import json

import numpy as np
import pytest
import torch
from likewise.config import Audit
from likewise.errors import LikewiseError
from made_label_sets import clothes, label_matrix, noisy_matrix

from likewise.curate.audit.audit import audit
from likewise.curate.audit.label_set_probability import LabelSetQuality, as_matrix
from likewise.curate.audit.label_set_quality import near_rows, with_suggested_sets
from likewise.curate.audit.read import read_findings
from likewise.curate.audit.summary import show_findings

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
def test_what_does_not_apply(name, tmp_path, monkeypatch):
    from likewise.curate.audit import label_set_quality

    with pytest.raises(LikewiseError, match=f"--{name} does not apply to samples with several labels"):
        label_set_quality.check_label_set_settings(Audit(targets=("x",), **{name: True}))


def test_suggested_sets_become_classes():
    """The second sample loses one of two labels, the third all: it keeps its set, because no set can be suggested."""
    items = clothes("", count=6)
    assert items.label_sets is not None and items.label_name is not None
    has = as_matrix(items.label_sets, items.y, 6)
    wrong = torch.zeros(6, 6)
    wrong[1, int(has[1].nonzero()[0, 0])] = 0.9
    wrong[2][has[2]] = 0.9
    scored = LabelSetQuality(has, wrong, torch.zeros(6), torch.zeros(6), ("",) * 6)
    extended, suggested = with_suggested_sets(items, has, [(torch.arange(6), scored)])
    assert suggested[2] == items.y[2] and suggested[0] == items.y[0]
    left = has[1].clone()
    left[int(has[1].nonzero()[0, 0])] = False
    assert extended.label_sets is not None
    assert extended.label_sets[int(suggested[1])] == tuple(left.nonzero()[:, 0].tolist())
    assert extended.class_name[int(suggested[1])] == "|".join(items.label_name[n] for n in left.nonzero()[:, 0])


def test_nearest_samples_with_a_label_are_sure_ones():
    z = torch.nn.functional.normalize(torch.tensor([[1.0, 0], [1, 0.1], [1, 0.2], [1, 0.5], [0, 1]]), dim=1)
    has = torch.tensor([[False], [True], [True], [True], [False]])
    wrong = torch.tensor([[0.9], [0.9], [0.1], [0.1], [0.1]])
    scored = LabelSetQuality(has, wrong, torch.zeros(1), torch.zeros(1), ("",))
    place, label, rows = torch.tensor([0]), torch.tensor([0]), torch.tensor([10, 11, 12, 13, 14])
    assert near_rows(z, scored, place, label, rows, has=True) == ["12 13"]
    assert near_rows(z, scored, place, label, rows, has=False) == ["14"]
    assert np.isfinite(z).all()
