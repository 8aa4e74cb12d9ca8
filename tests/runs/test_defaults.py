"""Settings that are left open are chosen from the data."""

import re

import numpy as np
import pytest
from likewise.config import Train
from likewise.protocols import ClassFolds
from likewise.types import Items, LikewiseError

from likewise.core.settings.spec import build
from likewise.learn.recipes import apply
from likewise.learn.training.fit import train
from likewise.models.backbones import width_of
from likewise.runs.defaults import check_loss, fold_specs, resolve
from likewise.runs.identity import find_run


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
    run = train(Train(data=str(pictures), out=str(tmp_path / "run"), head="Identity()", **small | {"steps": 1}))
    assert run.about["config"]["dim"] == run.scores["dim"] == width_of("conv_small") != small["dim"]


def test_what_is_given_stays():
    config = Train(data="x", backbone="googlenet", pretrained=False, augment="none", sampler="Shuffled(batch=8)")
    found = resolve(config, items(path=("a",) * 30))
    assert (found.backbone, found.pretrained, found.augment, found.sampler) == (
        "googlenet",
        False,
        "none",
        "Shuffled(batch=8)",
    )


@pytest.mark.parametrize("recipe", [None, "demo", "explicit"])
def test_the_batch_size_is_the_batch_of_any_sampler(recipe):
    data = items(path=("a",) * 30)
    settings = {
        None: {},
        "demo": {"sampler": apply("demo", "x").sampler},
        "explicit": {"sampler": "Shuffled(batch=8)"},
    }[recipe]
    found = resolve(Train(data="x", batch_size=64, **settings), data)
    assert "batch=64" in found.sampler and found.batch_size is None
    plain = resolve(Train(data="x", **settings), data)
    assert found.sampler.replace("batch=64", "") == re.sub(r"batch=\d+", "", plain.sampler)
    written_out = resolve(Train(data="x", sampler=found.sampler), data)
    assert found == written_out
    key, same, other = (find_run(config, data, "data").about["identity"] for config in (found, written_out, plain))
    assert key == same != other


def test_folds_that_a_spec_stands_for():
    assert fold_specs("ClassFolds()") == [f"ClassFolds(folds=4, fold={fold}, own_split=False)" for fold in range(4)]
    assert fold_specs(" ClassFolds") == fold_specs("ClassFolds(folds=4)")
    three = fold_specs("ClassFolds(own_split=True, folds=3)")
    assert [build(text).__dict__ for text in three] == [ClassFolds(3, fold, True).__dict__ for fold in range(3)]
    for itself in ("ClassFolds(fold=0)", three[1], "UnseenClasses(val=0.2)", "my_lab.ClassFolds()"):
        assert fold_specs(itself) is None
    with pytest.raises(LikewiseError, match="has no argument 'fods'; did you mean 'folds'"):
        fold_specs("ClassFolds(fods=3)")


def test_a_loss_that_cannot_be_built_for_the_classes_is_refused():
    check_loss(Train(data="x", protocol="UnseenClasses()", loss="ForwardCorrection(share=0.7)"), items())
    with pytest.raises(LikewiseError, match="share must be 0 or more and below 0.8 for 5 classes"):
        check_loss(Train(data="x", protocol="UnseenClasses()", loss="ForwardCorrection(share=0.85)"), items())


def test_files_of_a_relevance_are_found_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "pairs.csv").write_text("a,b,same\n0,1,1\n")
    monkeypatch.chdir(tmp_path)
    of = items(x=np.zeros((30, 4), np.float32))
    chosen = resolve(Train(data="x", relevance="JudgedPairs(file='pairs.csv')"), of).relevance
    assert chosen == f"JudgedPairs(file={str(tmp_path / 'pairs.csv')!r}, threshold=0.5)"
    assert resolve(Train(data="x", relevance="TreeDepth(tree='cub200')"), of).relevance.endswith("tree='cub200')")
