"""load and identify: the embeddings of images as evaluation computes them, their classes, and nothing executed."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from likewise.config import Embed, Export, Search, Train
from likewise.types import LikewiseError
from PIL import Image

import likewise
from likewise.data import load as data
from likewise.deploy.export import export
from likewise.deploy.index.search_index import search
from likewise.deploy.model import Gallery, Model, identify, load, open_gallery
from likewise.learn.training.fit import train
from likewise.score.embed_data import embed


@pytest.fixture(scope="module")
def model(finished_pictures) -> Model:
    return load(finished_pictures.path, device="cpu")


@pytest.fixture(scope="module")
def files(pictures):
    return sorted(map(str, pictures.rglob("*.png")))


def test_it_gives_what_embed_gives(model, finished_pictures, pictures, files):
    e = embed(Embed(run=str(finished_pictures.path), data=str(pictures), out="", quiet=True, device="cpu", workers=0))
    z = model(files)
    assert z.dtype == np.float32 and z.shape == (36, model.dim) == (36, 8)
    assert np.allclose(z, e.z.numpy(), atol=1e-6)
    assert model.similarity == "cosine" and np.allclose(np.linalg.norm(z, axis=1), 1, atol=1e-5)


def test_every_way_to_give_a_picture_is_the_same(model, files):
    want = model(files[:2])
    images = [Image.open(file) for file in files[:2]]
    batch = torch.stack([model.transform(image.convert("RGB")) for image in images])
    for given in (images, tuple(images), (image for image in images), batch, batch.numpy(), batch / 255):
        assert np.allclose(model(given), want, atol=1e-5)
    for one in (files[0], images[0]):
        assert np.allclose(model(one), want[:1], atol=1e-6)
    see_through = images[0].convert("RGBA")
    see_through.putalpha(0)
    assert np.allclose(model(see_through), model(Image.new("RGB", images[0].size, "white")), atol=1e-6)
    assert model([]).shape == (0, 8)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.zeros(2, 3, 20, 20), r"\(N, 3, 16, 16\), got \(2, 3, 20, 20\)"),
        (np.zeros((16, 16, 3), np.uint8), r"got \(16, 16, 3\)"),
        (torch.full((1, 3, 16, 16), 255.0), "in \\[0, 1\\]"),
        ([np.zeros((16, 16, 3))], "path or a PIL image, got ndarray"),
        (7, "path or a PIL image, got int"),
        (
            Image.new("L", (1, 60_000)),
            "the long side of an image must be at most 100 times the short side, got 1 x 60000",
        ),
        ("no such.png", "there is no such file"),
    ],
)
def test_what_is_no_picture(model, given, said, unchecked):
    with pytest.raises(LikewiseError, match=said):
        model(given)


def test_features_go_in_as_an_array(finished, features):
    model = likewise.load(finished, device="cpu")
    x = data(features).x
    e = embed(Embed(run=str(finished.path), data=features, out="", quiet=True, device="cpu"))
    assert model.transform is None and np.allclose(model(x), e.z.numpy(), atol=1e-6)
    assert "16 features -> 8 numbers" in repr(model)
    with pytest.raises(LikewiseError, match=r"shape \(N, 16\), got str"):
        model("a.jpg")
    with pytest.raises(LikewiseError, match=r"shape \(B, 16\)"):
        model(x[:, :3])


def test_a_loss_of_raw_embeddings_gives_those(settings):
    run = train(Train(**settings | {"loss": "NPair()", "steps": 1, "evaluate": False}))
    model, x = load(run.path, device="cpu"), data(settings["data"]).x[:5]
    assert model.similarity == "euclidean"
    with torch.no_grad():
        assert np.allclose(model(x), model.embedder(torch.as_tensor(x)).e.numpy(), atol=1e-6)


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(LikewiseError, match="must be a run folder.*no folder"):
        load(tmp_path / "none")
    with pytest.raises(LikewiseError, match="without a config.json"):
        load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(LikewiseError, match="damaged"):
        load(tmp_path)
    (tmp_path / "model.onnx").touch()
    with pytest.raises(LikewiseError, match="ONNX export"):
        load(tmp_path)


def test_only_networks_that_there_are(finished):
    with pytest.raises(LikewiseError, match="best, last or untrained, got 'worst'"):
        load(finished.path, checkpoint="worst")
    assert not np.allclose(
        load(finished.path, device="cpu", checkpoint="untrained")(np.ones((1, 16), np.float32)),
        load(finished.path, device="cpu")(np.ones((1, 16), np.float32)),
    )


def test_an_export_is_read_with_care(run, unchecked):
    folder = export(Export(run=str(run.path), to="safetensors", quiet=True)).folder
    about = json.loads((folder / "config.json").read_text())
    for change, said in (
        ({"export": 2}, "newer version of likewise"),
        ({"settings": {}}, "damaged"),
        ({"settings": about["settings"] | {"dim": "x"}}, "dim must be"),
        ({"settings": about["settings"] | {"dim": 9}}, "another architecture"),
        ({"settings": about["settings"] | {"head": "os.system('true')"}}, "allow-imports"),
    ):
        (folder / "config.json").write_text(json.dumps(about | change))
        with pytest.raises(LikewiseError, match=said):
            load(folder)


def test_the_gallery_of_the_run(calibrated, open_run, features):
    model = likewise.load(open_run, device="cpu")
    x = np.load(features)["x"]
    found = model.identify(x[[288 - 1, 0]])
    known, strange = found
    assert known.neighbour.row == 287 and known.neighbour.similarity == pytest.approx(1, abs=1e-6)
    assert known.label == known.neighbour.label == "23" and known.is_unknown is False and 0 < known.probability < 1
    assert strange.neighbour.label in map(str, range(18, 24)) and strange.is_unknown == (strange.label is None)
    assert model.identify(x[:0]) == [] and "23" in found._repr_html_()
    gallery = open_gallery(open_run.path, None)
    limit = gallery.calibration.unknown.value
    assert (strange.neighbour.similarity < limit) == strange.is_unknown


def test_unknown_by_hand(calibrated, open_run):
    gallery = open_gallery(open_run.path, None)
    z = gallery.index.rows.vectors[:1] * 1.0
    far = -z
    found = identify(np.concatenate([z, far]), gallery)
    assert [one.is_unknown for one in found] == [False, True] and found[1].label is None and found[1].neighbour.label
    refusal = dataclasses.replace(gallery.calibration.unknown, value=None, reason="too few classes")
    told = identify(far, Gallery(gallery.index, dataclasses.replace(gallery.calibration, unknown=refusal)))
    assert told[0].is_unknown is None and told[0].label is None and told[0].neighbour.label  # not decided


def test_an_index(calibrated, open_run, features, tmp_path):
    folder = str(tmp_path / "shelf")
    search(Search(str(open_run.path), save=folder, split="test", device="cpu"), say=lambda line: None)
    x, model = np.load(features)["x"], likewise.load(open_run, device="cpu")
    assert model.identify(x[-5:], index=folder) == model.identify(x[-5:])
    search(Search(folder, remove=(287,), device="cpu"), say=lambda line: None)
    again = likewise.load(open_run, device="cpu").identify(x[-1:], index=folder)
    assert again[0].neighbour.row != 287


def test_what_it_needs(calibrated, open_run, features, tmp_path):
    x = np.load(features)["x"][:1]
    with pytest.raises(LikewiseError, match="index must be a folder"):
        likewise.load(open_run, device="cpu").identify(x, index=tmp_path)
    with pytest.raises(LikewiseError, match="the best network of a calibrated run"):
        likewise.load(open_run, checkpoint="last", device="cpu").identify(x)
    (open_run.path / "embeddings.npz").unlink()
    with pytest.raises(LikewiseError, match="must have a gallery to look in"):
        likewise.load(open_run, device="cpu").identify(x)
