"""export: what is written gives the run's embeddings and decisions by its own example, or is not there."""

import dataclasses
import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from likewise.config import Export, Search, Train
from likewise.types import LikewiseError
from made_calibration import make_calibration, threshold
from PIL import Image
from safetensors.numpy import load_file
from small_runs import draw

import likewise
from likewise.cli.commands import run as run_command
from likewise.data import load as read
from likewise.data.augment import Plain
from likewise.deploy.export import check_onnx_packages, compare, export, preprocessing, write_onnx
from likewise.deploy.index.search_index import search
from likewise.deploy.model import Model, load, open_gallery
from likewise.deploy.model_card import DECISION_FILES, GALLERY_FILE, fill
from likewise.learn.training.fit import train
from likewise.models.embedder import Embedder
from likewise.models.heads import Relational
from likewise.runs.calibration import read_calibration, write_calibration
from likewise.runs.folder import Run


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Pictures of many shapes and modes, some turned, some transparent."""
    folder = tmp_path_factory.mktemp("odd") / "pictures"
    rng = np.random.default_rng(0)
    for c in range(4):
        (folder / f"class {c}").mkdir(parents=True)
        for i in range(4):
            image = draw((60 * c, 200 - 50 * c, 40 * i), 10 * c + i, tuple(rng.integers(20, 90, 2).tolist()))
            file = folder / f"class {c}" / f"{i}"
            if i == 0:
                turned = Image.Exif()
                turned[0x0112] = 6
                image.save(f"{file}.jpg", exif=turned)
            elif i == 1:
                image.putalpha(Image.linear_gradient("L").resize(image.size))
                image.save(f"{file}.png")
            elif i == 2:
                Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 200).save(f"{file}.png")
            else:
                image.convert("P").save(f"{file}.png")
    return folder


@pytest.fixture(scope="module")
def photographs(odd, small, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "photographs"
    settings = small | {"augment": "crop", "short_side": 40, "steps": 1, "evaluate": False}
    return train(Train(data=str(odd), out=str(out), sampler="SamplesPerClass(batch=4, per_class=2)", **{
        name: value for name, value in settings.items() if name != "sampler"
    }))  # fmt: skip


@pytest.fixture(scope="module")
def exported(photographs):
    return export(Export(run=str(photographs.path), quiet=True))


def names(folder) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.slow
def test_the_example_gives_the_runs_embeddings_without_torch(exported, photographs, odd):
    assert (
        names(exported.folder) == sorted(exported.files) == ["README.md", "example.py", "model.onnx", "preprocess.json"]
    )
    assert exported.parity.difference < 1e-5 and exported.parity.cosine > 0.99999 and exported.parity.neighbours == 1
    assert exported.parity.samples == 8 and exported.parity.of == "images of the test split"
    files = sorted(map(str, odd.rglob("*.*g")))
    code = (
        "import sys, json; sys.modules['torch'] = sys.modules['likewise'] = None\n"
        "from example import embed; print(json.dumps(embed(sys.argv[1:]).tolist()))"
    )
    here = {
        **os.environ,
        "PYTHONPATH": str(exported.folder),
    }  # the current folder alone is not enough if PYTHONSAFEPATH is set
    words = [sys.executable, "-c", code, *files]
    done = subprocess.run(words, env=here, cwd=exported.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert np.allclose(json.loads(done.stdout), load(photographs.path, device="cpu")(files), atol=1e-5)


def test_the_card_says_what_was_measured(exported, photographs):
    text = (exported.folder / "README.md").read_text("utf-8")
    assert "8 images of the test split: embeddings differ by" in text and "This network was not scored." in text
    assert "16 (8 train, 8 test)" in text and photographs.about["data"] in text and "short side has 18 pixels" in text
    assert str(photographs.path.parent) not in text  # no path of this machine


def test_weights_alone_are_opened_by_load(photographs, odd, monkeypatch, capsys):
    made = export(Export(run=str(photographs.path), to="safetensors", quiet=True))
    assert names(made.folder) == ["README.md", "config.json", "example.py", "model.safetensors"]
    assert made.parity.difference == 0
    files = sorted(map(str, odd.rglob("*.*g")))
    model = load(made.folder, device="cpu")
    assert np.array_equal(model(files), load(photographs.path, device="cpu")(files))
    assert (model.transform.size, model.transform.kind, model.transform.side) == (16, "crop", 40)
    assert not [name for name in load_file(made.folder / "model.safetensors") if name.startswith(("loss", "embedder"))]
    monkeypatch.setattr(sys, "argv", ["example.py", *files[:2]])
    runpy.run_path(str(made.folder / "example.py"))
    assert capsys.readouterr().out == "(2, 8)\n"


def test_features_and_what_the_terminal_says(run, capsys):
    run_command("export", Export(run=str(run.path), to="onnx", parity_samples=10, quiet=True))
    said = capsys.readouterr().out
    assert said.startswith(f"export: {run.path / 'export-onnx'} (model.onnx, preprocess.json, README.md, example.py)\n")
    assert "checked on 10 vectors of the test split: embeddings " in said and said.count("\n") == 2
    text = (run.path / "export-onnx" / "README.md").read_text("utf-8")
    assert "| R@1 | " in text and "jpg" not in text


def test_boxes_are_cut_first(pictures, small, tmp_path):
    table = tmp_path / "boxed.csv"
    lines = [f"{path},{path.parent.name},2,3,18,17" for path in sorted(pictures.rglob("*.png"))]
    table.write_text("path,label,left,top,right,bottom\n" + "\n".join(lines), "utf-8")
    run = train(Train(data=str(table), out=str(tmp_path / "run"), **small | {"steps": 1, "evaluate": False}))
    made = export(Export(run=str(run.path), to="safetensors", quiet=True))
    assert made.parity.difference == 0 and "cropped to the boxes" in (made.folder / "README.md").read_text("utf-8")


def test_what_differs_leaves_nothing_and_spares_what_was_there(run, monkeypatch):
    out = run.path / "export-safetensors"
    monkeypatch.setattr("likewise.deploy.export.PARITY_TOLERANCE", -1.0)
    config = Export(run=str(run.path), to="safetensors", quiet=True)
    with pytest.raises(LikewiseError, match="difference of 0 .*nothing was written"):
        export(config)
    assert not [name for name in names(run.path) if "export" in name]
    monkeypatch.undo()
    export(config)
    before = (out / "README.md").read_text("utf-8")
    monkeypatch.setattr("likewise.deploy.export.PARITY_TOLERANCE", -1.0)
    with pytest.raises(LikewiseError, match="nothing was written"):
        export(config)
    assert (out / "README.md").read_text("utf-8") == before and len([n for n in names(run.path) if "export" in n]) == 1


def test_a_second_export_takes_the_place_of_the_first_and_of_nothing_else(run, tmp_path):
    config = Export(run=str(run.path), to="safetensors", out=str(tmp_path / "a" / "b"), quiet=True)
    assert names(export(config).folder) == names(export(config).folder)
    (tmp_path / "a" / "b" / "thesis.tex").touch()
    with pytest.raises(LikewiseError, match="an earlier export, got .*thesis.tex"):
        export(config)
    for name in ("README.md", "config.json", "example.py", "model.onnx", "model.safetensors"):  # somebody else's
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / "mine" / name).write_text("{}", "utf-8")
        with pytest.raises(LikewiseError, match="earlier export, got .*mine"):
            export(dataclasses.replace(config, out=str(tmp_path / "mine")))
    (tmp_path / "mine" / "model.onnx").unlink()  # the names alone are those of an export
    with pytest.raises(LikewiseError, match="earlier export, got .*mine"):
        export(dataclasses.replace(config, out=str(tmp_path / "mine")))
    with pytest.raises(LikewiseError, match="new folder or an earlier export"):
        export(dataclasses.replace(config, out=str(run.path)))
    with pytest.raises(LikewiseError, match="new folder or an earlier export"):
        export(dataclasses.replace(config, out=str(run.path / "config.json")))


def test_the_folder_one_stands_in(run, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    config = Export(run=str(run.path.absolute()), to="safetensors", out=".", quiet=True)
    for _ in range(2):
        assert export(config).folder == tmp_path / "here"
        assert sorted(os.listdir(".")) == ["README.md", "config.json", "example.py", "model.safetensors"]


def test_data_that_is_gone(photographs, odd, tmp_path):
    config = Export(run=str(photographs.path), to="safetensors", data=str(tmp_path / "gone"), out=str(tmp_path / "out"))
    with pytest.raises(LikewiseError, match="--parity-samples 0"):
        export(config)
    other = tmp_path / "other"
    (other / "x").mkdir(parents=True)
    (other / "y").mkdir(parents=True)
    for name in ("x/1.png", "x/2.png", "y/1.png", "y/2.png"):
        draw((1, 2, 3), 0).save(other / name)
    with pytest.raises(LikewiseError, match="was trained with.*--parity-samples 0"):
        export(dataclasses.replace(config, data=str(other)))
    made = export(dataclasses.replace(config, data=None, parity_samples=0))
    assert made.parity.samples == 16 and "synthetic images (no data)" in str(made.parity)
    text = (made.folder / "README.md").read_text("utf-8")
    assert "16 synthetic images" in text and "| samples |" not in text
    with pytest.raises(LikewiseError, match="samples must be 0 or more, got -1"):
        export(dataclasses.replace(config, parity_samples=-1))


def test_no_run_and_a_place_that_cannot_be(run, tmp_path):
    with pytest.raises(LikewiseError, match="is not a run folder"):
        export(Export(run=str(tmp_path / "none")))
    (tmp_path / "file").touch()
    with pytest.raises(LikewiseError, match="cannot be written .*--out"):
        export(Export(run=str(run.path), to="safetensors", out=str(tmp_path / "file" / "x"), quiet=True))


def test_scores_of_another_network_are_not_claimed(run):
    assert (run.path / "best.safetensors").exists()
    for checkpoint, told in (("best", True), ("last", False), ("untrained", False)):
        made = export(Export(run=str(run.path), to="safetensors", checkpoint=checkpoint, quiet=True))
        text = (made.folder / "README.md").read_text("utf-8")
        assert ("| R@1 |" in text) == told and ("was not scored" in text) != told
        assert ("best on validation" in text) == (checkpoint != "untrained") and ("untrained" in text) == (
            checkpoint == "untrained"
        )
        assert (
            ("| training |" in text)
            == ("## Training" in text)
            == ("labels were used" in text)
            == (checkpoint != "untrained")
        )
    (run.path / "done").unlink()
    text = (export(Export(run=str(run.path), to="safetensors", quiet=True)).folder / "README.md").read_text("utf-8")
    assert "| R@1 |" not in text and "was not finished" in text


def test_a_training_of_no_steps_is_untrained(settings):
    run = train(Train(**settings | {"steps": 0})).path
    text = (export(Export(run=str(run), to="safetensors", quiet=True)).folder / "README.md").read_text("utf-8")
    assert "It is untrained: `features` as it was before the first step" in text and "| R@1 |" in text
    assert "## Training" not in text


def test_confidence_and_noise_are_told(settings):
    noisy = settings | {"noise": "Uniform(share=0.25)", "confidence": "SuperLoss()", "evaluate": False}
    run = train(Train(**noisy))
    made = export(Export(run=str(run.path), to="safetensors", quiet=True))
    text = (made.folder / "README.md").read_text("utf-8")
    assert "Label noise injected: `Uniform(share=0.25" in text and "computed during training by `SuperLoss(" in text
    with np.load(Run(run.path).path / "sample_weights.npz") as trust:
        weight = trust["weight"]
    assert "At the end, 0 of 144 training samples were dropped (0.0%) and 0 relabelled." in text
    assert f"had weights from {weight.min():.3g} to {weight.max():.3g}." in text and weight.min() > 0
    assert re.search(r"2[45]\.\d% of 144 training labels are wrong", text)


def test_wrong_labels_of_a_table_are_told(settings, features, tmp_path):
    with np.load(features) as toy:
        x, clean = toy["x"], toy["label"]
    label = np.where(np.arange(288) % 12 == 0, (clean + 1) % 12 + 12 * (clean // 12), clean)  # one of twelve
    np.savez(tmp_path / "noisy.npz", x=x, label=label, label_clean=clean)
    run = train(Train(**settings | {"data": str(tmp_path / "noisy.npz"), "steps": 2, "evaluate": False}))
    for samples, told in ((8, True), (0, False)):
        made = export(Export(run=str(run.path), to="safetensors", parity_samples=samples, quiet=True))
        text = (made.folder / "README.md").read_text("utf-8")
        assert "No label noise was injected." in text and ("8.3% of 144 training labels are wrong" in text) == told


CPU, CONFIG = torch.device("cpu"), Train(data="d", backbone="conv_small", head="Relational()")


@pytest.fixture
def bare_run(tmp_path):
    run = Run(tmp_path)
    run.write_json("config.json", {"format": 1, "identity": "me", "config": {}})
    return run


@pytest.mark.slow
@pytest.mark.onnx
def test_several_outputs_and_any_batch(bare_run, tmp_path):
    torch.manual_seed(0)
    embedder = Embedder("conv_small", 8, Relational, pool="avg+max", pretrained=False, size=16)
    model = Model(embedder, Plain(16, "crop"), "euclidean", CPU)
    write_onnx(tmp_path, model, bare_run, CONFIG)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    for count in (1, 3):
        x = torch.rand(count, 3, 16, 16)
        z, e = session.run(["z", "e"], {"pixels": x.numpy()})
        with torch.no_grad():
            own = embedder(x)
        assert np.allclose(z, own.z, atol=1e-5) and np.allclose(e, own.e, atol=1e-5)
    with pytest.raises(Exception, match="Got invalid dimensions|got: 20|Expected: 16"):
        session.run(None, {"pixels": np.zeros((1, 3, 20, 20), np.float32)})
    file = onnx.load(tmp_path / "model.onnx")
    about = {entry.key: entry.value for entry in file.metadata_props}
    assert about["run"] == "me" and about["similarity"] == "euclidean" and about["size"] == "16" and about["dim"] == "8"
    assert b"likewise/stages" not in file.SerializeToString() and str(tmp_path).encode() not in file.SerializeToString()
    assert json.loads((tmp_path / "preprocess.json").read_text())["output"] == "e"


@pytest.mark.onnx
def test_what_the_exporter_cannot_do_is_one_sentence(bare_run, tmp_path):
    class Odd(torch.nn.Module):
        def __init__(self, features, dim):
            super().__init__()

        def forward(self, f):
            return f[:, :8] * float(f.sum().item() > 0)

    model = Model(Embedder("features", 8, Odd, features=16), None, "cosine", CPU)
    with pytest.raises(LikewiseError, match="as ONNX .*--to safetensors"):
        write_onnx(tmp_path, model, bare_run, CONFIG)


def test_packages_that_are_not_there(monkeypatch):
    check_onnx_packages()
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else real(name))
    with pytest.raises(LikewiseError, match=r"needs onnxscript.*likewise\[onnx\]"):
        check_onnx_packages()


@pytest.mark.parametrize(("kind", "short"), [("crop", 256), ("affine", None), ("none", None)])
def test_preprocessing_in_numbers(kind, short):
    found = preprocessing(Plain(224, kind, 300))
    assert (found["size"], found["short_side"], found["shrink_first"]) == (224, short, 300)
    assert preprocessing(None) == {}


class Fake(Model):
    similarity = "cosine"

    def __init__(self):
        pass

    def __call__(self, x):
        return x


def test_parity_by_hand():
    own = np.array([[1, 0], [0.8, 0.6], [0, 1]], np.float32)
    found = compare(Fake(), lambda x: x + np.float32(2**-14), own, "lines")
    assert found.difference == pytest.approx(2**-14, rel=1e-3) and found.samples == 3
    other = (own + np.float32(2**-14)).astype(float)
    cosines = [float(a @ b / np.sqrt(a @ a) / np.sqrt(b @ b)) for a, b in zip(own.astype(float), other, strict=True)]
    assert found.cosine == pytest.approx(min(cosines), abs=1e-9) and found.neighbours == 1
    assert str(found).startswith(
        "3 lines: embeddings differ by 6.1e-05 at most (up to 0.0001 is allowed), cosine 1.000000"
    )
    alone = compare(Fake(), lambda x: x, own[:1], "line")
    assert alone.neighbours is None and "are equal to the bit" in str(alone) and "neighbour" not in str(alone)
    for wrong in (lambda x: x * np.nan, lambda x: x + 1, lambda x: x[:, :1]):
        with pytest.raises(LikewiseError, match="nothing was written"):
            compare(Fake(), wrong, own, "lines")


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
