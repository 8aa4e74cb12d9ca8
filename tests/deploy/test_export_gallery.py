"""Exports of a calibrated run: threshold, probability and gallery travel with the network, and the example uses them."""

import json
import os
import runpy
import subprocess
import sys

import numpy as np
import pytest
from likewise.config import Export, Search
from likewise.types import LikewiseError
from made_calibration import make_calibration, threshold

import likewise
from likewise.data import load as read
from likewise.deploy.export import export
from likewise.deploy.index.search_index import search
from likewise.deploy.model import open_gallery
from likewise.deploy.model_card import DECISION_FILES, GALLERY_FILE, fill
from likewise.runs.calibration import read_calibration, write_calibration


def by_hand(z, gallery, names, calibration):
    """Label, probability, unknown and similarity of the nearest row by plain cosines, one at a time."""
    found = []
    for one in z.astype(np.float64):
        sims = [float(one @ row / np.linalg.norm(one) / np.linalg.norm(row)) for row in gallery.astype(np.float64)]
        best = max(range(len(sims)), key=sims.__getitem__)
        unknown = sims[best] < calibration.unknown.value
        chance = float(calibration.probability(np.array([sims[best]]))[0])
        found.append((None if unknown else names[best], chance, unknown, sims[best]))
    return found


def check(found, wanted):
    """Similarities of float32 embeddings differ by 1e-6; the probability curve is steep, so allow 1e-3 there."""
    assert [(one["label"], one["unknown"]) for one in found] == [(label, unknown) for label, _, unknown, _ in wanted]
    assert [one["probability"] for one in found] == pytest.approx([one[1] for one in wanted], abs=1e-3)
    assert [one["similarity"] for one in found] == pytest.approx([one[3] for one in wanted], abs=1e-5)


@pytest.fixture
def strangers(features):
    """Rows of the data, and rows that are unlike all of them."""
    x = read(features).x
    return np.concatenate([x[::40], np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32) * 6])


def export_of(run, **settings):
    return export(Export(run=str(run.path), parity_samples=4, quiet=True, **settings))


def test_safetensors_with_the_gallery(calibrated, open_run, strangers, tmp_path, monkeypatch, capsys):
    made = export_of(open_run, to="safetensors", gallery=str(open_run.path))
    assert {*DECISION_FILES} <= {*made.files} == {path.name for path in made.folder.iterdir()}
    stored = read_calibration(made.folder)
    assert stored.gallery == {"rows": 288, "classes": 24} and stored.unknown.value is not None
    search(Search(str(open_run.path), save=str(tmp_path / "index"), device="cpu"), say=lambda line: None)
    own = likewise.load(open_run.path, device="cpu").identify(strangers, index=tmp_path / "index")
    other = likewise.load(made.folder, device="cpu").identify(strangers)
    same = [(one.label, one.probability, one.is_unknown, one.neighbour.similarity) for one in own]
    assert [(one.label, one.probability, one.is_unknown, one.neighbour.similarity) for one in other] == same
    np.save(tmp_path / "x.npy", strangers)
    monkeypatch.setattr(sys, "argv", ["example.py", str(tmp_path / "x.npy")])
    runpy.run_path(str(made.folder / "example.py"))
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(strangers)
    export_of(open_run, to="safetensors", gallery=str(open_run.path))  # over an export with a gallery
    card = (made.folder / "README.md").read_text("utf-8")
    assert "## Known or unknown" in card and "model.identify(features)" in card
    assert "On new classes like the 12 validation classes, in 95 % of draws, at most 40 % of images of a class" in card
    assert "for `gallery.npz`, the gallery of 288 rows of 24 classes" in card


@pytest.mark.onnx
def test_the_onnx_example_identifies_without_likewise(calibrated, open_run, strangers, tmp_path):
    made = export_of(open_run, gallery=str(open_run.path))
    np.save(tmp_path / "x.npy", strangers)
    code = (
        "import sys, json; sys.modules['torch'] = sys.modules['likewise'] = None\n"
        "import numpy as np; from example import identify; print(json.dumps(identify(np.load(sys.argv[1]))))"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "x.npy")]
    here = {
        **os.environ,
        "PYTHONPATH": str(made.folder),
    }  # the current folder alone is not enough if PYTHONSAFEPATH is set
    done = subprocess.run(words, env=here, cwd=made.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    z, items = likewise.load(open_run.path, device="cpu")(strangers), read(str(open_run.path / "all_embeddings.npz"))
    wanted = by_hand(z, items.x, [items.class_name[y] for y in items.y], read_calibration(made.folder))
    check(json.loads(done.stdout), wanted)
    assert {unknown for _, _, unknown, _ in wanted} == {True, False}


@pytest.mark.onnx
def test_the_onnx_example_with_a_gallery_of_the_callers_own(calibrated, open_run, strangers):
    made = export_of(open_run)
    assert made.files[-1] == "calibration.json" and not (made.folder / GALLERY_FILE).exists()
    example = runpy.run_path(str(made.folder / "example.py"))
    gallery, names = example["embed"](strangers[:8]), [f"class {i}" for i in range(8)]
    found = example["identify"](strangers, gallery, names)
    check(found, by_hand(example["embed"](strangers), gallery, names, calibrated.calibration))
    assert found[3]["label"] == "class 3" and found[3]["similarity"] == pytest.approx(1, abs=1e-6)
    text = (made.folder / "example.py").read_text("utf-8")
    assert "144 rows of 12 classes" in text and "{%" not in text
    example["CALIBRATION"]["unknown"] |= {"value": None}
    assert {(one["label"], one["unknown"]) for one in example["identify"](strangers, gallery, names)} == {(None, None)}
    assert "the validation gallery of 144 rows of 12 classes" in (made.folder / "README.md").read_text("utf-8")


def test_distances_in_the_example_of_raw_embeddings():
    code = fill("example_identify.txt", {"gallery": False, "cosine": False, "rows": 3, "classes": 2})
    body = {"np": np}
    exec(code[code.index("def similarities") :], body)
    z, gallery = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[3.0, 4.0], [0.0, 1.0], [-1.0, 0.0]])
    wanted = [[-5, -1, -1], [0, -(18**0.5), -(32**0.5)]]
    assert np.allclose(body["similarities"](z, gallery), wanted, atol=1e-7)


def test_a_refused_threshold_and_a_run_without_a_calibration(open_run):
    made = export_of(open_run, to="safetensors")
    assert not {*DECISION_FILES} & {*made.files}
    with pytest.raises(LikewiseError, match="--gallery needs a calibrated run"):
        export_of(open_run, to="safetensors", gallery=str(open_run.path))
    write_calibration(open_run.path, make_calibration(unknown=threshold(None)))
    card = (export_of(open_run, to="safetensors").folder / "README.md").read_text("utf-8")
    assert "- Known class: No threshold: 30 classes promise 0.2 at best." in card
    with pytest.raises(LikewiseError, match="checkpoint untrained of the run, got best"):
        export_of(open_run, to="safetensors", checkpoint="untrained", gallery=str(open_run.path))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_bytes(b"PK"),
        lambda file: file.write_bytes(b""),
        lambda file: np.savez(file, z=np.ones((3, 8), np.float32)),
        lambda file: np.savez(file, z=np.ones((3, 8), np.float32), label=["a", "b"]),
        lambda file: np.savez(file, z=np.full((2, 8), np.nan, np.float32), label=["a", "b"]),
        lambda file: np.savez(file, z=np.ones((2, 8), np.float32), label=np.array([{}, 1], object)),
    ],
)
def test_a_damaged_gallery(tmp_path, spoil):
    write_calibration(tmp_path, make_calibration())
    spoil(tmp_path / GALLERY_FILE)
    with pytest.raises(LikewiseError, match=r"gallery.npz is damaged"):
        open_gallery(tmp_path, None)
