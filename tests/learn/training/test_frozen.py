"""Foundation backbones in a training: frozen, with LoRA or trained; with every way to run a step; resumed and exported."""

import re

import numpy as np
import pytest
import torch
from learn.training.small_training import assert_resumes_exactly
from likewise.config import Embed, Export, Train
from likewise.types import LikewiseError

import likewise
from likewise.data import load
from likewise.deploy.export import export
from likewise.learn import recipes
from likewise.learn.training import step
from likewise.learn.training.defaults import resolve
from likewise.learn.training.fit import train
from likewise.models.embedder import Embedder
from likewise.score.embed_data import embed


@pytest.fixture
def toy(toy_vit, pictures, tmp_path):
    """Settings of a training of a second on pictures, from a file with random weights."""
    torch.manual_seed(7)
    torch.save(Embedder(toy_vit, 8, pretrained=False).backbone.net.state_dict(), tmp_path / "toy.pth")
    return {
        "data": str(pictures), "backbone": toy_vit, "weights": str(tmp_path / "toy.pth"), "dim": 8, "steps": 6, "lr": 3e-3,
        "sampler": "SamplesPerClass(batch=6, per_class=2)", "workers": 0, "quiet": True, "device": "cpu", "log_every": 2,
    }  # fmt: skip


def changed(run, toy) -> set[str]:
    """Names of the tensors of the network that training changed, without the layer."""
    start = torch.load(toy["weights"])
    stored = run.load_tensors("model.safetensors")
    backbone = "embedder.backbone.net."
    moved = {
        n
        for n, t in stored.items()
        if n.startswith(backbone) and not torch.equal(t, start.get(n[len(backbone) :], t + 1))
    }
    return {name.rsplit(".", 1)[-1] for name in moved}


@pytest.mark.parametrize(
    "more",
    [
        {}, {"chunk_size": 2}, {"warmup": "3"}, {"recompute": True}, {"precision": "bf16"}, {"execution": "graph"},
        {"optimizer": "sgd", "clip_norm": 1.0}, {"mixup": 2.0, "mixup_at": "input"},
        {"loss": "ProxyAnchor()", "confidence": "LabelPosterior()"},
        {"loss": "NormSoftmax()", "confidence": "CoTeaching(share=0.2)"},
    ],
    ids=lambda more: "-".join(more) or "plain",
)  # fmt: skip
def test_a_frozen_backbone_is_the_same_after_training(toy, tmp_path, more):
    run = train(Train(**toy, out=str(tmp_path / "run"), evaluate=False, **more))
    assert changed(run, toy) == set() and run.about["config"]["freeze_backbone"] is True
    head = run.load_tensors("model.safetensors")["embedder.head.fc.weight"]
    assert not torch.equal(head, train(Train(**toy | {"steps": 0}, out=str(tmp_path / "start"), evaluate=False, **more))
                           .load_tensors("model.safetensors")["embedder.head.fc.weight"])  # fmt: skip


def test_lora_and_fine_tuning_train_the_backbone(toy, tmp_path):
    tuned = train(Train(**toy, freeze_backbone=False, evaluate=False, out=str(tmp_path / "all")))
    assert {"weight", "bias", "cls_token", "pos_embed"} <= changed(tuned, toy)
    for more in ({}, {"chunk_size": 2}, {"warmup": "2"}):
        run = train(Train(**toy, lora=2, evaluate=False, out=str(tmp_path / f"lora{len(more)}{more}"), **more))
        assert changed(run, toy) == {"lora_a", "lora_b"}


@pytest.mark.parametrize("lora", [None, 2])
def test_it_resumes_exactly(toy, tmp_path, stop_at, lora):
    assert_resumes_exactly(toy | {"lora": lora, "checkpoint_every": "1", "evaluate": False}, tmp_path, stop_at)


@pytest.mark.parametrize("lora", [None, 2])
def test_run_and_export_embed_alike(toy, tmp_path, pictures, lora):
    """Also where the sides of an image differ, and bicubic and bilinear resizing with them."""
    run = train(Train(**toy, lora=lora, out=str(tmp_path / "run")))
    files = sorted(str(file) for file in pictures.rglob("*.png"))[:5]
    z = likewise.load(run.path, device="cpu")(files)
    export(Export(run=str(run.path), out=str(tmp_path / "export"), to="safetensors", quiet=True))
    alone = likewise.load(tmp_path / "export", device="cpu")
    assert not any("lora" in name for name in alone.embedder.state_dict())
    assert alone.transform.preprocess.interpolation == "bicubic" and alone.transform.short_side == 32
    assert np.allclose(alone(files), z, atol=1e-5)
    rows = likewise.embed(run.path, str(pictures), device="cpu", quiet=True, workers=0)
    assert np.allclose(rows.z[:5].numpy(), z, atol=1e-5)


@pytest.mark.slow
@pytest.mark.onnx
@pytest.mark.parametrize("lora", [None, 2])
def test_an_onnx_file_embeds_alike(toy, tmp_path, lora):
    run = train(Train(**toy, lora=lora, out=str(tmp_path / "run")))
    done = export(Export(run=str(run.path), out=str(tmp_path / "export"), to="onnx", quiet=True))  # compares them
    assert (done.folder / "model.onnx").exists() and '"bicubic"' in (done.folder / "preprocess.json").read_text()


def test_a_backbone_embeds_with_a_file_at_any_size(toy, toy_vit, pictures):
    how = {"data": str(pictures), "out": "", "quiet": True, "device": "cpu", "workers": 0}
    at = {size: embed(Embed(run=toy_vit, weights=toy["weights"], size=size, **how)).z for size in (None, 32, 48)}
    assert torch.equal(at[None], at[32]) and at[48].shape == (36, 64) and not torch.allclose(at[48], at[32], atol=1e-3)
    for changes, says in (
        ({"run": toy_vit, "size": 40}, "size must be a multiple of 16, the patch of toy-vit, got 40; use 32 or 48"),
        ({"run": "dinov2"}, "no backbone either .*did you mean dinov2-small or"),
        ({"run": str(pictures), "size": 32}, "--size is for a backbone, but .* is a run; drop --size"),
    ):
        with pytest.raises(LikewiseError, match=says):
            embed(Embed(**how | changes))


def test_the_recipe_trains_with_and_without_robust(toy, tmp_path):
    given = {key: toy[key] for key in ("backbone", "weights", "steps", "sampler", "workers", "quiet", "device")}
    for name in ("foundation", "foundation+robust"):
        config = recipes.apply(name, toy["data"], **given, evaluate=False, out=str(tmp_path / name))
        run = train(config)
        assert changed(run, toy) == set() and run.about["config"]["dim"] == 256
        assert (run.about["config"]["confidence"] is not None) == name.endswith("robust")


def test_defaults_of_foundation_backbones(toy, toy_vit):
    items = load(toy["data"])

    def of(**changes):
        found = resolve(Train(**toy | changes), items)
        return found.pool, found.freeze_backbone, found.dim

    assert of() == ("own", True, 8) and of(freeze_backbone=False) == ("own", False, 8)
    assert of(head="Identity()") == ("own", True, 64) and of(lora=2, freeze_backbone=True)[1] is True
    assert of(backbone="conv_small", weights=None) == ("avg", False, 8)
    assert of(backbone="test_vit", lora=2)[:2] == ("avg", True)
    with pytest.raises(LikewiseError, match="--lora 2 .* excludes --no-freeze-backbone"):
        of(lora=2, freeze_backbone=False)


def test_nothing_to_train(toy, tmp_path):
    with pytest.raises(LikewiseError, match="parameters to train, .*use another --head"):
        train(Train(**toy | {"head": "Identity()"}, out=str(tmp_path / "run")))


def test_a_batch_that_does_not_fit_into_memory_runs_in_chunks_with_the_same_result(toy, tmp_path, monkeypatch, capsys):
    toy |= {"freeze_backbone": False, "evaluate": False, "quiet": False, "optimizer": "sgd"}
    whole = train(Train(**toy, out=str(tmp_path / "whole")))
    assert "memory: a batch" not in "".join(capsys.readouterr())
    monkeypatch.setattr(step, "free_memory", lambda: 1)
    parts = train(Train(**toy, out=str(tmp_path / "parts")))
    assert re.search("memory: a batch of 6 images .* takes 1 images at a time", "".join(capsys.readouterr()))
    wanted = whole.load_tensors("model.safetensors")
    for name, found in parts.load_tensors("model.safetensors").items():
        torch.testing.assert_close(found, wanted[name], rtol=1e-4, atol=1e-5)
