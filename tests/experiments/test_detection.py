"""Wrong labels found by the networks of a table: worked out once, the mean over seeds, and no reason to lose the table."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from likewise.audit import label_quality, source
from likewise.audit.audit import audit
from likewise.config import Audit
from likewise.errors import LikewiseError
from likewise.experiments import detection as module
from likewise.experiments.bench import bench
from likewise.experiments.detection import DETECTION_FILE


def read_csv(file):
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


NOISE = """
[axes]
seed = [0, 1]
[[axes.noise]]
name = "none"
noise = "none"
[[axes.noise]]
name = "shift"
noise = "ClassShift(share=0.1, shift=5)"
[[axes.method]]
name = "plain"
[[axes.method]]
name = "triplet"
loss = "Triplet()"
"""


@pytest.mark.slow
def test_wrong_labels_are_looked_for_once_and_the_curve_is_the_mean_over_seeds(config, monkeypatch):
    settings = config(["detection"], NOISE, 'columns = ["noise"]', steps=4)
    drawn = []
    real = module.draw_detection
    monkeypatch.setattr(module, "draw_detection", lambda curves: drawn.append(curves) or real(curves))
    sheet = bench(settings)
    lines = read_csv(sheet.folder / "detection.csv")
    assert {(r["method"], r["noise"], r["seed"]) for r in lines} == {
        (method, "shift", seed) for method in ("plain", "triplet") for seed in "01"
    }
    assert {"score", "vote", "loss", "self_gradient"} <= {r["score"] for r in lines}
    results = read_csv(sheet.folder / "results.csv")
    for method, curve in zip(("plain", "triplet"), drawn[0], strict=True):
        runs = [r["run"] for r in results if (r["method"], r["noise"]) == (method, "shift")]
        kept = [json.loads((Path(run) / DETECTION_FILE).read_text("utf-8"))["score"] for run in runs]
        own = [r for r in lines if (r["method"], r["score"]) == (method, "score")]
        assert [float(r["AP"]) for r in own] == [one["AP"] for one in kept]
        assert (curve.panel, curve.name) == ("shift", method)
        assert curve.about == f"AP {100 * sum(one['AP'] for one in kept) / 2:.0f}"
        assert list(curve.found) == pytest.approx([(a[1] + b[1]) / 2 for a, b in zip(*(one["curve"] for one in kept))])
        assert (curve.at[0], curve.found[0], curve.at[-1], curve.found[-1]) == (0, 0, 1, 1)
    (said,) = [note for note in sheet.notes if note.startswith("Wrong labels found, average precision in per cent: ")]
    assert f"shift, plain {drawn[0][0].about[3:]}; shift, triplet {drawn[0][1].about[3:]}." in said
    assert Image.open(sheet.folder / "detection.png").width > 300
    monkeypatch.setattr(label_quality, "score_splits", None)  # nobody is there to judge
    assert bench(settings).notes == sheet.notes
    assert read_csv(sheet.folder / "detection.csv") == lines


def test_labels_that_cannot_be_judged_leave_a_note_and_without_noise_there_is_nothing_to_find(config, monkeypatch):
    settings = config(["detection"], "[axes]\nseed = [0, 1]", steps=2)

    def broken(*_, **__):
        raise LikewiseError("audit: no")

    with monkeypatch.context() as change:
        change.setattr(source, "open_subject", broken)
        notes = bench(settings).notes
        assert {f"the labels of {seed} could not be scored: audit: no" for seed in "01"} <= set(notes)
    sheet = bench(settings)
    assert "no training of this table has injected label noise, so there is nothing to detect" in sheet.notes
    assert not (sheet.folder / "detection.csv").exists()


@pytest.mark.parity
def test_the_kept_numbers_are_scikit_learns_of_an_audit(config, features):
    from sklearn.metrics import average_precision_score, roc_auc_score

    sheet = bench(config(["detection"], '[axes]\nnoise = ["Uniform(share=0.2)"]\nseed = [0, 1]'))
    run = Path(read_csv(sheet.folder / "results.csv")[0]["run"])
    audit(Audit((str(run),), max_errors=0, quiet=True, device="cpu"), say=lambda line: None)
    lines = [r for r in read_csv(run / "audit" / "audit.csv") if r["split"] == "train"]
    truth = np.load(features)["label"]
    wrong = [r["label"] != str(truth[int(r["row"])]) for r in lines]
    kept = json.loads((run / DETECTION_FILE).read_text("utf-8"))
    assert kept["score"]["share"] == pytest.approx(sum(wrong) / len(wrong)) and 0.1 < kept["score"]["share"] < 0.3
    assert "vote" in kept and "self_gradient" in kept
    for score in kept:
        suspect = [-float(r[score]) for r in lines]
        assert kept[score]["AUROC"] == pytest.approx(roc_auc_score(wrong, suspect), abs=1e-3)
        assert kept[score]["AP"] == pytest.approx(average_precision_score(wrong, suspect), abs=1e-2)
