"""From settings to parts: what is left open is filled, what is stored comes back, what does not fit is told."""

import numpy as np
import pytest
import torch
from torch import nn

from likewise.config import Train
from likewise.data import load
from likewise.models.backbones import width_of
from likewise.runs.folder import FORMAT, Run
from likewise.runs.open import (
    choose_device,
    facts_of,
    facts_with,
    load_into,
    make_embedder,
    make_protocol,
    marked,
    open_embedder,
    open_loss,
    read_config,
    resolve,
    similarity_of,
    transforms,
)
from likewise.samplers import SamplesPerClass
from likewise.training.fit import train
from likewise.types import Items, LikewiseError


def items(**columns):
    y = np.repeat(np.arange(10), 3)
    return Items(columns.pop("name", "toy"), y, tuple(map(str, range(10))), **columns)


def test_what_settings_leave_open_is_filled_from_the_data():
    pictures = resolve(Train(data="x"), items(path=("a",) * 30))
    assert (pictures.backbone, pictures.pretrained, pictures.augment) == ("resnet50", True, "crop")
    assert pictures.sampler.startswith("SamplesPerClass(batch=20, per_class=4") and pictures.protocol.startswith(
        "Unseen"
    )
    glyphs = resolve(Train(data="glyphs"), items(name="glyphs", path=("a",) * 30))
    assert (glyphs.backbone, glyphs.pretrained, glyphs.augment) == ("conv_small", False, "affine")
    features = resolve(Train(data="x"), items(x=np.zeros((30, 4), np.float32)))
    assert (features.backbone, features.pretrained) == ("features", False)
    query = np.arange(30) % 3 == 0
    assert resolve(Train(data="x"), items(path=("a",) * 30, query=query, gallery=~query)).protocol.startswith(
        "QueryGallery"
    )
    assert resolve(Train(data="x", weights="w.pt"), items(path=("a",) * 30)).pretrained is False


def test_a_head_that_does_nothing_gives_the_embedding_the_width_of_the_feature(pictures, small, tmp_path):
    config = resolve(Train(data="x", backbone="resnet18", head="Identity", dim=7), items(path=("a",) * 30))
    assert (config.head, config.dim) == ("Identity()", 512)
    assert resolve(Train(data="x", head="Identity()"), items(x=np.zeros((30, 5), np.float32))).dim == 5
    assert resolve(Train(data="x", dim=7), items(x=np.zeros((30, 5), np.float32))).dim == 7
    run = train(Train(data=str(pictures), out=str(tmp_path / "run"), head="Identity()", **small | {"length": "1"}))
    assert run.about["config"]["dim"] == run.scores["dim"] == width_of("conv_small") != small["dim"]


def test_a_run_is_opened_without_knowing_its_classes(tmp_path):
    np.save(tmp_path / "t.npy", np.eye(5))
    for loss in (
        "ForwardCorrection(share=0.7)",
        f"ForwardCorrection(transition='{tmp_path / 't.npy'}')",
        "SoftTriple()",
    ):
        assert similarity_of(Train(data="x", loss=loss)) == "cosine"
    assert similarity_of(Train(data="x", loss="CrossBatchMemory(loss=LiftedStructure())")) == "euclidean"


def test_what_is_given_stays():
    config = Train(data="x", backbone="googlenet", pretrained=False, augment="none", sampler="Shuffled(batch=8)")
    found = resolve(config, items(path=("a",) * 30))
    assert (found.backbone, found.pretrained, found.augment, found.sampler) == (
        "googlenet",
        False,
        "none",
        "Shuffled(batch=8)",
    )


def test_the_seed_alone_decides_a_new_network():
    config = Train(data="x", backbone="conv_small", pretrained=False, dim=4)
    first, same = make_embedder(config, None), make_embedder(config, None)
    other = make_embedder(Train(data="x", backbone="conv_small", pretrained=False, dim=4, seed=1), None)
    for name, value in first.state_dict().items():
        assert torch.equal(value, same.state_dict()[name]), name
    assert not torch.equal(first.head.fc.weight, other.head.fc.weight)


def test_evaluation_sees_the_size_that_training_sees():
    config = resolve(Train(data="glyphs", size=24), items(name="glyphs", path=("a",) * 30))
    from PIL import Image

    train, plain = transforms(config, make_embedder(config, None))
    picture = Image.new("RGB", (50, 70))
    assert train(picture).shape == plain(picture).shape == (3, 24, 24)


def test_a_checkpoint_of_another_architecture_is_told_in_full():
    with pytest.raises(
        LikewiseError, match=r"another architecture: bias is missing; odd is unknown; weight is \(2, 3\), not \(4, 3\)"
    ):
        load_into(nn.Linear(3, 4), {"weight": torch.zeros(2, 3), "odd": torch.zeros(1)}, "x")


def test_devices_that_are_not_there():
    assert choose_device("cpu").type == "cpu"
    for name in ("cuda:77", "toaster"):
        with pytest.raises(LikewiseError, match=f"device '{name}' cannot be used here"):
            choose_device(name)


def test_marks_count_only_where_some_row_has_one():
    assert not marked(items()) and not marked(items(query=np.zeros(30, bool)))
    assert marked(items(gallery=np.arange(30) == 3))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (["x"], "not a run's config"),
        ({"data": "x"}, "name no backbone"),
        ({"data": "x", "backbone": "conv_small"}, "name no protocol"),
        ({"data": "x", "backbone": "conv_small", "protocol": "UnseenClasses()"}, "name no sampler"),
        ({}, "name no data"),
        ({"data": "x", "later": 1}, "does not know: later"),
        ({"data": "x", "dim": "abc"}, "dim must be a whole number"),
        ({"data": 3}, "data must be text"),
    ],
)
def test_settings_that_somebody_tampered_with(tmp_path, config, says, unchecked):
    run = Run(tmp_path)
    run.write_json("config.json", {"format": FORMAT, "identity": "x", "data": "y", "config": config})
    with pytest.raises(LikewiseError, match=says):
        read_config(run)


def test_what_parts_are_told():
    config = Train(data="x", dim=6, seed=3, length="4e")
    labels = np.repeat(np.arange(4), 5)
    tree = {"a": ("animal",)}
    facts = facts_of(config, ("a", "b", "c", "d"), labels, tree)
    assert (facts["classes"], facts["dim"], facts["seed"], facts["class_names"]) == (4, 6, 3, ("a", "b", "c", "d"))
    assert facts["labels"] is labels and facts["taxonomy"] is tree
    sampler = SamplesPerClass(labels, batch=4, per_class=2)
    facts = facts_with(config, sampler, make_embedder(Train(data="x", backbone="conv_small", dim=4), None))
    assert facts["per_pass"] == len(sampler) and facts["steps"] == 4 * len(sampler)
    assert facts["largest_class"] == sampler.largest_class == 2 and facts["embedder"].dim == 4


@pytest.mark.parametrize("loss", ["NormSoftmax()", "CrossBatchMemory(loss=MultiSimilarity(), size=32)", "Triplet()"])
def test_the_loss_of_a_run_comes_back(settings, loss):
    """With what it has learned, for the labels that trained, and nobody's random numbers are touched."""
    run = train(Train(**settings | {"loss": loss, "length": "6", "evaluate": False}))
    config = read_config(run)
    data = load(config.data)
    rows, device = make_protocol(config).rows(data, "train"), torch.device("cpu")
    embedder, before = open_embedder(run, config, "last", device), torch.random.get_rng_state()
    found = open_loss(run, config, data, rows, embedder, "last", device)
    assert torch.equal(torch.random.get_rng_state(), before) and not found.training
    stored = {k: v for k, v in run.load_tensors(run.network("last")).items() if k.startswith("loss.")}
    assert {f"loss.{k}" for k in found.state_dict()} == set(stored)
    for name, value in found.state_dict().items():
        assert torch.equal(value, stored[f"loss.{name}"]), name
    if loss == "NormSoftmax()":  # a proxy for each of twelve classes
        with pytest.raises(LikewiseError, match="another architecture"):
            open_loss(run, config, data, rows[:96], embedder, "last", device)
