"""Label noise: flagged labels, detection curves, suspicion, and their pictures."""

import json
import shutil

import numpy as np
import pytest
from likewise.config import Report, Train
from PIL import Image
from sklearn.metrics import average_precision_score, roc_auc_score

from likewise.data import load
from likewise.data.dataset import inject_noise, make_protocol
from likewise.learn.training.fit import train
from likewise.report.report_target import open_target
from likewise.report.section import Facts, Packing, ReportTarget, Study
from likewise.report.sections import noise
from likewise.report.sections.noise import (
    FlaggedLabel,
    LabelNoise,
    noise_of,
    suspicion_histograms,
    transition,
)
from likewise.runs.folder import Run


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A run that looked at the whole set, of features that tell the classes apart, so that it repairs labels."""
    folder, rng, y = tmp_path_factory.mktemp("judged"), np.random.default_rng(0), np.repeat(np.arange(16), 14)
    x = 3 * rng.normal(size=(16, 8))[y] + rng.normal(size=(len(y), 8))
    np.savez(folder / "clear.npz", x=x.astype(np.float32), label=y)
    return train(Train(
        data=str(folder / "clear.npz"), out=str(folder / "posterior"), dim=8, epochs=3, quiet=True, device="cpu",
        confidence="LabelPosterior()", sampler="SamplesPerClass(batch=24, per_class=4)", log_every=2, evaluate=False,
        noise="Uniform(share=0.3)",
    ))  # fmt: skip


def look(run, top=7):
    one = open_target(str(run.path), "me", Report(quiet=True, device="cpu", workers=0), {}, print)
    return one, noise_of(one, run.read_log(), top)


def test_the_labels_most_suspected_are_those_of_the_file_the_worst_first(judged):
    one, noise = look(judged)
    with np.load(judged.path / "sample_weights.npz") as file:
        columns = {name: file[name] for name in file.files}
    by_hand = sorted(range(len(columns["row"])), key=lambda i: (-columns["suspicion"][i], columns["weight"][i]))[:7]
    truth = inject_noise(one.data, make_protocol(one.settings), one.settings.noise, one.settings.seed)
    assert [doubt.row for doubt in noise.flagged] == columns["row"][by_hand].tolist()
    for doubt, i in zip(noise.flagged, by_hand, strict=True):
        assert doubt.given == columns["given"][i] and doubt.suspicion == columns["suspicion"][i]
        assert doubt.suggested == (columns["label"][i] if columns["label"][i] != columns["given"][i] else "")
        assert doubt.wrong == (truth.y[doubt.row] != truth.y_clean[doubt.row])
    many = (columns["suspicion"] >= 0.5).sum()
    assert noise.notes == (f"{many} of {len(columns['row'])} labels have a suspicion of 0.5 or more",)
    assert any(doubt.suggested for doubt in noise.flagged) and noise.model == "Uniform(share=0.3, exact=True)"
    wrong = (truth.y != truth.y_clean)[columns["row"]]
    assert np.isclose(noise.share, wrong.mean()) and noise.confidence == "LabelPosterior()" and noise.suspicion


@pytest.mark.parity
def test_the_detection_curve_is_that_of_sklearn_and_by_hand(judged):
    one, noise = look(judged)
    truth = inject_noise(one.data, make_protocol(one.settings), one.settings.noise, one.settings.seed)
    with np.load(judged.path / "sample_weights.npz") as file:
        suspicion, row = file["suspicion"].astype(float), file["row"]
    wrong = (truth.y != truth.y_clean)[row]
    (found,) = noise.detection
    assert np.isclose(found.auroc, roc_auc_score(wrong, suspicion))
    assert np.isclose(found.ap, average_precision_score(wrong, suspicion))
    order = np.argsort(-suspicion, kind="stable")
    if len(np.unique(suspicion)) == len(suspicion):  # without equals there is one order
        for share, got in zip(found.inspected, found.found):
            assert abs(wrong[order][: round(share * len(row))].sum() / wrong.sum() - got) < 2 / wrong.sum()
    assert found.found[0] == 0 and np.isclose(found.found[-1], 1)


def test_the_transition_matrix_by_hand(judged):
    one, noise = look(judged)
    truth = inject_noise(one.data, make_protocol(one.settings), one.settings.noise, one.settings.seed)
    rows = make_protocol(one.settings).rows(truth, "train")
    for i, a in enumerate(noise.classes):
        own = [r for r in rows if truth.class_name[truth.y_clean[r]] == a]
        for j, b in enumerate(noise.classes):
            assert np.isclose(noise.transition[i, j], sum(truth.class_name[truth.y[r]] == b for r in own) / len(own))
    assert len(transition(truth, rows, most=3)[0]) == 3


def test_without_trust_or_with_a_damaged_file_the_rest_is_told(judged, tmp_path, finished):
    run = Run(shutil.copytree(judged.path, tmp_path / "run"))
    (run.path / "sample_weights.npz").write_bytes(b"no archive")
    noise = look(run)[1]
    assert "damaged" in noise.notes[0] and noise.suspicion and noise.detection == () and noise.flagged == ()
    (run.path / "sample_weights.npz").unlink()
    (run.path / "done").unlink()
    assert "when training has finished" in look(run)[1].notes[0]
    assert look(finished)[1] is None  # nothing flagged_labels, nothing spoiled


def test_an_audit_stands_beside_what_training_found(judged, tmp_path):
    run = Run(shutil.copytree(judged.path, tmp_path / "run"))
    (run.path / "audit").mkdir()
    one = {"AUROC": 0.9, "AP": 0.8, "recall": 0.7, "share": 0.3, "curve": [[0.0, 0.0], [0.5, 0.9], [1.0, 1.0]]}
    about = {"title": "t", "root": "", "rows": 224, "pictures": False, "measured": {"score": one}}
    (run.path / "audit" / "audit.json").write_text(json.dumps(about))
    found = look(run)[1].detection[-1]
    assert found.name.startswith("audit") and found.found.tolist() == [0, 0.9, 1] and found.ap == 0.8
    (run.path / "audit" / "audit.json").write_text("{")
    assert "audit could not be read" in look(run)[1].notes[-1]
    (run.path / "audit" / "audit.json").write_text(json.dumps(about))
    (run.path / "sample_weights.npz").unlink()
    lines = "row,path,label,score,suggested,confidence,margin,reason,split\n3,,0,0.2,5,0.9,0.1,why,train\n9,,1,0.9,,,,,train\n"
    (run.path / "audit" / "audit.csv").write_text(lines)
    (doubt,) = look(run)[1].flagged
    assert (doubt.row, doubt.given, doubt.suggested) == (3, "0", "5") and np.isclose(doubt.suspicion, 0.8)


def study(pictures, items=None):
    return Study(ReportTarget("me", run=pictures, data=items), Report(quiet=True), [], "", [])


def test_doubted_labels_get_their_pictures(finished_pictures, pictures, monkeypatch):
    flagged = tuple(FlaggedLabel(row, "a", "", 0.5, 1.0, None, "") for row in (3, 7))
    monkeypatch.setattr(noise, "noise_of", lambda one, log, top: LabelNoise("", "", None, flagged=flagged))
    found = noise.of_run(study(finished_pictures, load(str(pictures))))
    assert all(isinstance(doubt.image, Image.Image) for doubt in found.flagged) and len(found.flagged) == 2
    assert noise.of_run(study(finished_pictures)).flagged[0].image is None and noise.of_run(study(None)) is None


def test_a_doubt_is_packed_with_the_number_of_its_picture():
    image = Image.new("RGB", (2, 2))
    flagged = tuple(FlaggedLabel(row, "a", "b", 0.5, 1.0, None, "", image if row else None) for row in range(3))
    found = LabelNoise("", "", None, flagged=flagged, classes=("a",), transition=np.eye(1))
    packed = noise.pack(found, Packing(Facts("x", (), ()), images=[Image.new("L", (1, 1))] * 7))
    assert [doubt["slot"] for doubt in packed["flagged"]] == [None, 7, 8] and packed["classes"] == ("a",)
    assert "picture" not in packed["flagged"][1]


def passes(count, wrong):
    one = {"edges": [0.0, 1.0], "right": [3, 2, 1], "wrong": wrong, "weight": [1.0, None, 0.5], "threshold": 0.5}
    return [{"step": 10 * (n + 1), "suspicion": one} for n in range(count)]


def test_the_first_the_middle_and_the_last_pass_are_told():
    found = suspicion_histograms(passes(7, [0, 1, 2]))
    assert [one.title for one in found] == [
        "after the first epoch, step 10",
        "half-way, step 40",
        "at the end, step 70",
    ]
    assert np.allclose(found[0].edge, [0, 1 / 3, 2 / 3, 1]) and found[0].wrong.tolist() == [0, 1, 2]
    assert found[0].right.tolist() == [3, 2, 1] and found[0].weight == (1.0, None, 0.5) and found[0].threshold == 0.5
    alone = suspicion_histograms(passes(1, None))
    assert len(alone) == 1 and alone[0].wrong is None and suspicion_histograms([{"step": 1, "loss": 2.0}]) == ()
