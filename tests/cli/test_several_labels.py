"""A real table with a column `labels`, end to end: train and audit the run; clean the data, and train on the corrected table."""

import csv
import json
import shutil

import numpy as np
import pytest
from likewise.config import Audit, Clean, Train
from likewise.types import LikewiseError
from made_label_sets import NAMES, draw, label_matrix, noisy_matrix

from likewise.cli.main import main
from likewise.curate.audit.audit import audit
from likewise.curate.clean import clean
from likewise.data import load
from likewise.learn.training.fit import train

COUNT = 60


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """60 images with noisy labels, and a copy of the first one with other labels."""
    root, true = tmp_path_factory.mktemp("clothes"), label_matrix(COUNT)
    noisy = noisy_matrix(true)
    for row in range(COUNT):
        draw(true[row], row).resize((48, 48)).save(root / f"{row}.png")
    shutil.copy(root / "0.png", root / "copy.png")
    cells = ["|".join(NAMES[n] for n in np.flatnonzero(one)) for one in noisy]
    other = "dress|red" if cells[0] != "dress|red" else "shirt"
    lines = [*((f"{row}.png", cell) for row, cell in enumerate(cells)), ("copy.png", other)]
    with open(root / "table.csv", "w", newline="") as file:
        csv.writer(file).writerows([("path", "labels"), *lines])
    return root / "table.csv"


def check_audit(folder, items):
    about = json.loads((folder / "audit.json").read_text())
    assert about["conflicts"] == {"rows": 2, "counted": False} and about["errors"] == {}
    assert any("2 of 61 rows are exact copies of a row with other labels" in note for note in about["notes"])
    assert any(
        "retrieval errors, their causes, and classes to merge are not computed, because" in n for n in about["notes"]
    )
    with open(folder / "audit.csv", newline="") as file:
        lines = {int(one["row"]): one for one in csv.DictReader(file)}
    assert sorted(lines) == list(range(61)) and all(
        one["label"] == items.class_name[items.y[r]] for r, one in lines.items()
    )
    assert lines[0]["same_as"] == lines[60]["same_as"] == "0"
    for one in lines.values():
        assert (one["suggested"] != "") == ("missing: " in one["reason"] or "superfluous: " in one["reason"])
    with open(folder / "pairs.csv", newline="") as file:
        assert list(csv.DictReader(file)) == []


def test_a_run_on_a_table_of_labels_is_audited(table, tmp_path, capsys):
    settings = {
        "backbone": "conv_small",
        "size": 32,
        "dim": 8,
        "steps": 2,
        "quiet": True,
        "device": "cpu",
        "workers": 0,
    }
    run = train(Train(data=str(table), **settings, out=str(tmp_path / "run")))
    assert json.loads((run.path / "scores.json").read_text())["relevance"]["relevant"] == "any label shared"
    found = audit(Audit((str(run.path),), device="cpu", quiet=True, workers=0))
    check_audit(found.folder, load(str(table)))
    with pytest.raises(SystemExit):
        main(["calibrate", str(run.path), "--device", "cpu", "--quiet"])
    assert "those of 'table' have several labels" in capsys.readouterr().err


def test_labels_make_no_folders(table, tmp_path, monkeypatch):
    from likewise.curate import clean as stage

    monkeypatch.setattr(stage, "audit", lambda config, say: stage.Audited(tmp_path, {"labels": []}))
    with pytest.raises(LikewiseError, match="images of .* have several labels each"):
        clean(Clean(str(table), out=str(tmp_path / "audit"), to=str(tmp_path / "new")), lambda line: None)


@pytest.mark.slow
def test_a_table_of_labels_is_cleaned(table, tmp_path, monkeypatch):
    serve = pytest.importorskip("likewise.curate.review.review_page", reason="the review page needs FastAPI")
    from likewise.curate.audit.read import read_findings
    from likewise.curate.review.consensus import write_corrected_table
    from likewise.curate.review.store import Store

    def review(config, say, to):
        """The page, on which a reviewer follows the first advice."""
        folder = serve.find_audit(config.audit, "review")
        store = Store(folder / "decisions.sqlite", read_findings(folder))
        item, one = next(iter(store.findings.questions.items()))
        store.decide("ann", item, one.advice)
        decided.append(one)
        file = write_corrected_table(store, folder / "corrected.csv", store.findings.about["root"])
        store.close()
        return serve.Reviewed(folder / "decisions.sqlite", 1, 1, file)

    decided = []
    monkeypatch.setattr("likewise.curate.clean.serve_review", review)
    config = Clean(
        str(table), out=str(tmp_path / "audit"), backbone="efficientnet_lite0", device="cpu", workers=0, quiet=True
    )
    made = clean(config, lambda line: None)
    items = load(str(table))
    check_audit(made.audited.folder, items)
    corrected, one = load(str(made.reviewed.corrected)), decided[0]
    assert corrected.label_sets is not None and len(corrected) == 61
    before, after = (set(d.class_name[d.y[one.row]].split("|")) for d in (items, corrected))
    assert before ^ after == {one.label} and (one.label in after) == (one.kind == "missing")
    others = [row for row in range(61) if row != one.row]
    assert [items.class_name[items.y[r]] for r in others] == [corrected.class_name[corrected.y[r]] for r in others]
