import numpy as np
import pytest
import torch
from torch import nn

from likewise.configs import Train
from likewise.run import FORMAT, Run
from likewise.stages.assemble import (
    choose_device,
    load_into,
    make_embedder,
    marked,
    read_config,
    resolve,
    similarity_of,
    transforms,
)
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
        (["x"], "are damaged"),
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
