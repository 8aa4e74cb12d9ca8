"""identify: label, probability and unknown, in Python, by an export and by its example without likewise."""

import json
import runpy
import subprocess
import sys

import numpy as np
import pytest
from made_calibration import make_calibration, threshold

import likewise
from likewise.config import Export, Search
from likewise.data import load as read
from likewise.deploy import identify
from likewise.deploy.export import export
from likewise.deploy.model_card import GALLERY_FILE
from likewise.index import decision
from likewise.runs.calibration import read_calibration, write_calibration
from likewise.stages.search import search
from likewise.types import LikewiseError

FIELDS = ("label", "probability", "unknown", "similarity")


@pytest.fixture
def calibrated(run, monkeypatch):
    """A calibrated run. The threshold for a gallery is 0.9, and its rows are noted."""

    def calibrate(folder, z, names):
        assert folder == run.path and z.shape == (len(names), 8)
        return make_calibration(0.9, gallery={"rows": len(z), "classes": len(set(names))})

    monkeypatch.setattr(decision, "calibrate_gallery", calibrate)
    monkeypatch.setattr(identify, "calibrate_gallery", calibrate)
    write_calibration(run.path, make_calibration(0.6, gallery={"rows": 84, "classes": 7}))
    return run


def by_hand(z, gallery, names, least):
    """Label, probability, unknown and similarity of the nearest row by plain cosines, one at a time."""
    found = []
    for one in z.astype(np.float64):
        sims = [float(one @ row / np.linalg.norm(one) / np.linalg.norm(row)) for row in gallery.astype(np.float64)]
        best = max(range(len(sims)), key=sims.__getitem__)
        unknown = sims[best] < least
        found.append((None if unknown else names[best], sims[best], unknown, sims[best]))
    return found


def check(found, wanted):
    """The probability of the hand-made calibration is the similarity; float32 embeddings give 1e-6."""
    assert [(one["label"], one["unknown"]) for one in found] == [(label, unknown) for label, _, unknown, _ in wanted]
    for name, place in (("probability", 1), ("similarity", 3)):
        assert [one[name] for one in found] == pytest.approx([one[place] for one in wanted], abs=1e-5)


@pytest.fixture
def strangers(features):
    """Rows of the data, and rows that are unlike all of them."""
    x = read(features).x
    return np.concatenate([x[::40], np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32) * 6])


def test_in_python_against_the_runs_own_gallery_an_index_and_arrays(calibrated, strangers, tmp_path):
    model, items = likewise.load(calibrated.path, device="cpu"), read(str(calibrated.path / "embeddings.npz"))
    names = [items.class_name[label] for label in items.y]
    wanted = by_hand(model(strangers), items.x, names, 0.9)
    assert {unknown for _, _, unknown, _ in wanted} == {True, False}
    check(model.identify(strangers), wanted)
    check(model.identify(strangers, gallery=(items.x, names)), wanted)
    search(Search(str(calibrated.path), save=str(tmp_path / "i"), device="cpu", quiet=True))
    check(model.identify(strangers, gallery=tmp_path / "i"), wanted)
    assert set(model.galleries) == {"None", str(tmp_path / "i")}  # opened once
    assert model.identify(strangers[:0]) == []


def test_what_identify_needs(calibrated, strangers, tmp_path):
    model = likewise.load(calibrated.path, device="cpu")
    with pytest.raises(LikewiseError, match="embeddings .* and the class name of each, got shape .* and 2 names"):
        model.identify(strangers, gallery=(np.ones((3, 8)), ["a", "b"]))
    other = likewise.load(calibrated.path, device="cpu", checkpoint="untrained")
    with pytest.raises(LikewiseError, match="must be embedded by the checkpoint untrained of the run, got best"):
        other.identify(strangers)
    (calibrated.path / "calibration.json").unlink()
    model = likewise.load(calibrated.path, device="cpu")
    for gallery in (None, (np.ones((2, 8)), ["a", "b"])):
        with pytest.raises(LikewiseError, match="identify: .*the run is not calibrated; run `likewise calibrate "):
            model.identify(strangers, gallery=gallery)
    made = export(Export(run=str(calibrated.path), to="safetensors", parity_samples=4, quiet=True))
    assert "calibration.json" not in made.files
    with pytest.raises(LikewiseError, match="export the calibrated run with --gallery"):
        likewise.load(made.folder, device="cpu").identify(strangers)
    with pytest.raises(LikewiseError, match="export: --gallery needs a calibrated run; .*likewise calibrate"):
        export(Export(run=str(calibrated.path), to="safetensors", gallery=str(calibrated.path), quiet=True))


def test_an_export_to_safetensors_carries_gallery_and_threshold(calibrated, strangers, tmp_path, monkeypatch, capsys):
    config = Export(
        run=str(calibrated.path), to="safetensors", gallery=str(calibrated.path), parity_samples=4, quiet=True
    )
    made = export(config)
    assert {"calibration.json", GALLERY_FILE} <= {*made.files} == {path.name for path in made.folder.iterdir()}
    assert read_calibration(made.folder).gallery == {"rows": 144, "classes": 12}
    exported = likewise.load(made.folder, device="cpu")
    assert exported.identify(strangers) == likewise.load(calibrated.path, device="cpu").identify(strangers)
    with pytest.raises(LikewiseError, match="an export knows the gallery of its folder only, got 'elsewhere'"):
        exported.identify(strangers, gallery="elsewhere")
    np.save(tmp_path / "x.npy", strangers)
    monkeypatch.setattr(sys, "argv", ["example.py", str(tmp_path / "x.npy")])
    runpy.run_path(str(made.folder / "example.py"))
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(strangers)
    export(config)  # over an export with a gallery
    card = (made.folder / "README.md").read_text("utf-8")
    assert "## Known or unknown" in card and "model.identify(features)" in card
    assert (
        "Known class from similarity 0.9 on: On new classes like the 30 validation classes, in 95 % of draws, at most 1 %"
        in card
    )
    assert "for `gallery.npz`, the gallery of 144 rows of 12 classes" in card


@pytest.mark.onnx
def test_the_onnx_example_identifies_without_likewise(calibrated, strangers, tmp_path):
    made = export(Export(run=str(calibrated.path), gallery=str(calibrated.path), parity_samples=4, quiet=True))
    np.save(tmp_path / "x.npy", strangers)
    code = (
        "import sys, json; sys.modules['torch'] = sys.modules['likewise'] = None\n"
        "import numpy as np; from example import identify; print(json.dumps(identify(np.load(sys.argv[1]))))"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "x.npy")]
    done = subprocess.run(words, cwd=made.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, wanted = json.loads(done.stdout), likewise.load(calibrated.path, device="cpu").identify(strangers)
    check(found, [tuple(one[name] for name in FIELDS) for one in wanted])


@pytest.mark.onnx
def test_the_onnx_example_with_a_gallery_of_the_callers_own(calibrated, strangers):
    made = export(Export(run=str(calibrated.path), parity_samples=4, quiet=True))
    assert made.files[-1] == "calibration.json"
    example = runpy.run_path(str(made.folder / "example.py"))
    gallery, names = example["embed"](strangers[:8]), [f"class {i}" for i in range(8)]
    found = example["identify"](strangers, gallery, names)
    check(found, by_hand(example["embed"](strangers), gallery, names, 0.6))  # the threshold of the validation gallery
    assert found[3]["label"] == "class 3" and found[3]["similarity"] == pytest.approx(1, abs=1e-6)
    text = (made.folder / "example.py").read_text("utf-8")
    assert "84 rows of 7 classes" in text and "{%" not in text
    example["CALIBRATION"]["unknown"] |= {"value": None}
    assert {(one["label"], one["unknown"]) for one in example["identify"](strangers, gallery, names)} == {(None, None)}
    assert "the validation gallery of 84 rows of 7 classes" in (made.folder / "README.md").read_text("utf-8")


def test_distances_in_the_example_of_raw_embeddings():
    from likewise.deploy.model_card import fill

    code = fill("example_identify.txt", {"gallery": False, "cosine": False, "rows": 3, "classes": 2})
    body = {"np": np}
    exec(code[code.index("def similarities") :], body)
    z, gallery = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[3.0, 4.0], [0.0, 1.0], [-1.0, 0.0]])
    wanted = [[-5, -1, -1], [0, -(18**0.5), -(32**0.5)]]
    assert np.allclose(body["similarities"](z, gallery), wanted, atol=1e-7)


def test_a_refused_threshold_is_in_the_card(calibrated):
    write_calibration(calibrated.path, make_calibration(unknown=threshold(None)))
    made = export(Export(run=str(calibrated.path), to="safetensors", parity_samples=4, quiet=True))
    card = (made.folder / "README.md").read_text("utf-8")
    assert "- Known class: No threshold: 30 classes promise 0.2 at best." in card
