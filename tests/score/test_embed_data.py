"""Embedding files: what is written, every other command reads back as it was meant."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from likewise.config import Embed, Evaluate, Search, Train
from likewise.types import LikewiseError

from likewise.data import load
from likewise.deploy.index.search_index import search
from likewise.learn.training.fit import train
from likewise.runs.embeddings import origin
from likewise.runs.network import open_embedder
from likewise.runs.open import read_config
from likewise.score.embed_data import embed, network_of, settings_of_backbone
from likewise.score.evaluate import evaluate


def write(run, data, out, **settings):
    return embed(
        Embed(run=str(run.path), data=str(data), out=str(out), quiet=True, device="cpu", workers=0, **settings)
    )


def test_a_file_of_features_goes_round(run, features, tmp_path):
    out = tmp_path / "z ü.npz"
    e = write(run, features, out)
    items, source = load(str(out)), load(features)
    assert np.array_equal(items.x, e.z.numpy())
    assert np.array_equal(items.y, source.y)
    assert items.class_name == source.class_name
    assert e.row.tolist() == list(range(288))
    network = open_embedder(run, read_config(run), "best", torch.device("cpu"))
    with torch.no_grad():
        assert torch.allclose(network(torch.as_tensor(source.x)).z, e.z, atol=1e-6)
    test = dataclasses.replace(items, x=items.x[144:], y=items.y[144:])
    np.savez(tmp_path / "test.npz", x=test.x, label=test.y)
    scores = evaluate(Evaluate(target=str(tmp_path / "test.npz"), device="cpu"))["metrics"]
    assert scores == pytest.approx(evaluate(Evaluate(target=str(run.path), quiet=True, device="cpu"))["metrics"])
    found = search(Search(target=str(out), query="7", k=3, device="cpu"))
    order = [r for r in np.argsort(-(items.x @ items.x[7]), kind="stable") if r != 7]
    assert [f["row"] for f in found] == order[:3]


def test_pictures_keep_their_names_places_and_classes(picture_run, pictures, tmp_path):
    e = write(picture_run, pictures, tmp_path / "z.npz")
    assert e.z.shape == (36, 8)
    assert torch.allclose(e.z.norm(dim=1), torch.ones(36))
    items = load(str(tmp_path / "z.npz"))
    assert items.class_name == tuple(f"{c} färg" for c in range(6))
    assert [items.class_name[c] for c in items.y] == [p.split("/")[-2] for p in items.path]
    assert items.path[8] == str(pictures / "1 färg" / "bild 2.png")
    about = origin(tmp_path / "z.npz")
    assert about.pop("row").tolist() == list(range(36))
    assert about == {"run": str(picture_run.path.absolute()), "checkpoint": "best", "similarity": "cosine"}


def test_features_are_what_the_head_gets_and_train_a_new_one(picture_run, pictures, tmp_path):
    e = write(picture_run, pictures, tmp_path / "f.npz", layer="feature")
    network = open_embedder(picture_run, read_config(picture_run), "best", torch.device("cpu"))
    with torch.no_grad():
        assert torch.allclose(
            torch.nn.functional.normalize(network.head(e.z), dim=1), write(picture_run, pictures, "").z
        )
    assert "run" not in origin(tmp_path / "f.npz")  # a query would have to be a feature, too
    run = train(Train(
        data=str(tmp_path / "f.npz"), out=str(tmp_path / "head"), steps=2, dim=4, quiet=True, device="cpu",
        sampler="SamplesPerClass(batch=6, per_class=2)",
    ))  # fmt: skip
    assert run.about["features"] == network.feature_dim and run.scores["queries"] == 18


@pytest.mark.slow
def test_a_backbone_needs_no_run(pictures, tmp_path, monkeypatch):
    """Its features are those of the network that a training would start from."""
    monkeypatch.setattr(
        "likewise.models.pretrained.networks.download", lambda name, fetch, *_: timm.create_model(name, num_classes=0)
    )
    torch.manual_seed(5)
    how = {"data": str(pictures), "quiet": True, "device": "cpu", "workers": 0}
    f = embed(Embed(run="resnet18", out=str(tmp_path / "f.npz"), layer="feature", **how)).z
    assert f.shape == (36, 512) and load(str(tmp_path / "f.npz")).x.shape == (36, 512)
    z = embed(Embed(run="resnet18", out="", **how)).z
    assert z.shape == (36, 512) and torch.allclose(z.norm(dim=1), torch.ones(36), atol=1e-5)


def test_what_is_neither_a_run_nor_a_backbone(run, features, pictures):
    how = {"data": str(pictures), "out": "", "quiet": True, "device": "cpu"}
    for changes, says in [
        ({"run": "resnet5o"}, "is not a run folder, and no backbone either .* did you mean .*resnet50"),
        ({"run": "runs/none"}, "'runs/none' is not a run folder"),
        ({"run": "conv_small"}, "conv_small has none; use efficientnet_lite0"),
        ({"run": "resnet18", "checkpoint": "last"}, "--checkpoint needs a run folder"),
        (
            {"run": "resnet18", "data": features},
            "training data of 'resnet18', which are images, but .* features of 16 numbers",
        ),
    ]:
        with pytest.raises(LikewiseError, match=says):
            embed(Embed(**how | changes))


def test_as_many_rows_as_classes_do_not_mix_the_names(run, tmp_path):
    """Names once a row and names once a class have the same length here."""
    rng = np.random.default_rng(0)
    names = np.asarray([f"class {c}" for c in range(6)])
    np.savez(
        tmp_path / "few.npz",
        x=rng.normal(size=(6, 16)).astype(np.float32),
        label=[0, 1, 2, 3, 4, 5],
        class_name=names[::-1],
    )
    train_items = load(str(tmp_path / "few.npz"))
    write(run, tmp_path / "few.npz", tmp_path / "z.npz")
    again = load(str(tmp_path / "z.npz"))
    assert [again.class_name[c] for c in again.y] == [train_items.class_name[c] for c in train_items.y]


def test_the_test_part_keeps_its_names_where_rows_equal_classes(tmp_path):
    """Twelve classes of two: the test split has twelve rows of six classes, and all twelve names are known."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 2)
    names = np.asarray([f"name {c:02}" for c in y])
    np.savez(tmp_path / "toy.npz", x=rng.normal(size=(24, 4)).astype(np.float32), label=y, class_name=names)
    run = train(Train(
        data=str(tmp_path / "toy.npz"), out=str(tmp_path / "run"), dim=4, steps=2, quiet=True, device="cpu",
        sampler="SamplesPerClass(batch=4, per_class=2)",
    ))  # fmt: skip
    items = load(str(run.path / "embeddings.npz"))
    assert [items.class_name[c] for c in items.y] == names[12:].tolist()


def test_a_folder_without_classes_is_embedded(picture_run, pictures, tmp_path):
    flat = tmp_path / "new ones"
    flat.mkdir()
    for number, file in enumerate(sorted(pictures.rglob("*.png"))[::4]):
        shutil.copy(file, flat / f"{number}.png")
    (flat / "notes.txt").write_text("no picture")
    e = write(picture_run, flat, tmp_path / "z.npz")
    items = load(str(tmp_path / "z.npz"))
    assert len(items) == len(e.z) == 9
    assert items.class_name == ("unlabelled",)
    assert items.path[3] == str(flat / "3.png")
    labelled = write(picture_run, pictures, tmp_path / "all.npz")
    assert torch.allclose(e.z, labelled.z[::4], atol=1e-6)
    found = search(Search(target=str(tmp_path / "z.npz"), query=str(flat / "2.png"), k=1, device="cpu"))
    assert found[0]["row"] == 2
    assert found[0]["similarity"] == pytest.approx(1)
    with pytest.raises(LikewiseError, match="are of one class"):
        evaluate(Evaluate(target=str(tmp_path / "z.npz"), metrics=("R@1",), device="cpu"))
    with pytest.raises(LikewiseError, match="must hold one sub-folder per class"):
        train(Train(data=str(flat), out=str(tmp_path / "run")))


def test_the_wrong_kind_of_data_is_refused(run, picture_run, features, pictures, tmp_path):
    with pytest.raises(LikewiseError, match=r"features of 16 numbers, .* holds images"):
        write(run, pictures, tmp_path / "z.npz")
    with pytest.raises(LikewiseError, match=r"images, but .* features of 16 numbers"):
        write(picture_run, features, tmp_path / "z.npz")
    np.savez(tmp_path / "narrow.npz", x=np.ones((4, 5), np.float32), label=[0, 0, 1, 1])
    with pytest.raises(LikewiseError, match=r"of 16 numbers, but .* of 5 numbers"):
        write(run, tmp_path / "narrow.npz", tmp_path / "z.npz")
    assert not (tmp_path / "z.npz").exists()


def test_where_to_write_is_checked_before_the_work(run, tmp_path):
    with pytest.raises(LikewiseError, match=r"folder of --out '.*' does not exist"):
        write(run, "no such data", tmp_path / "nowhere" / "z.npz")
    with pytest.raises(LikewiseError, match=r"embed: --out must end in .npz, got '.*z.npy'"):
        write(run, "no such data", tmp_path / "z.npy")


def test_a_broken_picture_is_named_or_skipped(picture_run, pictures, tmp_path):
    folder = shutil.copytree(pictures, tmp_path / "data")
    broken = folder / "2 färg" / "bild 1.png"
    broken.write_bytes(broken.read_bytes()[:70])
    settings = Embed(
        run=str(picture_run.path), data=str(folder), out=str(tmp_path / "z.npz"), workers=0, quiet=True, device="cpu"
    )
    with pytest.raises(LikewiseError, match=r"bild 1.png.*cannot be decoded"):
        embed(dataclasses.replace(settings, strict=True))
    lines = []
    assert len(embed(settings, lines.append).z) == 35
    assert "skipped 1 of 36 images" in lines[0]
    with np.load(tmp_path / "z.npz") as written:
        assert str(broken) not in written["path"]
        for path, name, label in zip(written["path"], written["class_name"], written["label"], strict=True):
            assert Path(path).parent.name == name == sorted(f.name for f in folder.iterdir())[label]


def test_missing_weights_are_reported_before_the_data_is_read_with_flags_that_embed_has(monkeypatch, tmp_path):
    from likewise.models.pretrained.weights import DownloadFailed
    from likewise.score import embed_data

    def fail(*_, **__):
        raise DownloadFailed("Embedder: pretrained weights of 'resnet18' must be downloaded", "use --pretrained False")

    monkeypatch.setattr("likewise.score.embed_data.make_embedder", fail)
    monkeypatch.setattr(embed_data, "load_items", lambda *_, **__: pytest.fail("the data was read"))
    with pytest.raises(LikewiseError, match=r"downloaded; .* \(--weights FILE\)") as caught:
        embed(Embed("resnet18", "photos", out=str(tmp_path / "z.npz"), device="cpu"))
    assert "--pretrained" not in str(caught.value) and "--backbone" not in str(caught.value)


def test_a_backbone_is_a_network_without_a_head():
    settings = settings_of_backbone(Embed("efficientnet_lite0", "photos", "z.npz"))
    assert (settings.backbone, settings.head, settings.dim, settings.pretrained) == (
        "efficientnet_lite0", "Identity()", 1280, True,
    )  # fmt: skip
    network, transform = network_of(settings, torch.device("cpu"))
    assert not network.training and transform is not None and network.dim == 1280
