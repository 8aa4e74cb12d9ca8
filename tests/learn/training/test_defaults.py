"""Settings are checked before data is read."""

import json
import re

import numpy as np
import pytest
import torch
from likewise.config import Train
from likewise.protocols import ClassFolds
from likewise.types import Items, LikewiseError

from likewise.core.settings.spec import build
from likewise.data.dataset import load_items
from likewise.learn.recipes import apply
from likewise.learn.training import defaults
from likewise.learn.training.defaults import (
    check_loss,
    claim_run,
    describe_folds,
    find_backbone,
    fold_specs,
    leaves_backbone_open,
    resolve,
    resolve_with,
    with_possible_batch,
)
from likewise.learn.training.fit import train
from likewise.models.backbones import width_of
from likewise.models.pretrained.available import Available
from likewise.report.run_analysis import notes_of
from likewise.report.section import ReportTarget
from likewise.runs.identity import find_run, prepare_folder


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"metrics": ("R@1", "MAPR")}, "did you mean 'MAP@R'"),
        ({"select": "severity"}, "--select needs a metric of which high is good"),
        ({"loss": "ProxyAncor"}, "did you mean 'ProxyAnchor'"),
        ({"confidence": "labelposterior"}, "did you mean 'LabelPosterior'"),
        ({"backbone": "resnt50"}, "did you mean resnet50"),
    ],
)
def test_names_are_checked_before_data_is_read(wrong, says):
    with pytest.raises(LikewiseError, match=says):
        train(Train(data="no such folder", **wrong))


def test_folds_that_are_left_out_are_named():
    assert describe_folds(Train("x", protocol="ClassFolds(folds=4)")).startswith("this trains the first of 4 folds")
    assert describe_folds(Train("x")) == describe_folds(Train("x", protocol="ClassFolds(folds=4, fold=1)")) == ""


def make_items(**columns):
    y = np.repeat(np.arange(10), 3)
    return Items(columns.pop("name", "toy"), y, tuple(map(str, range(10))), **columns)


def test_what_settings_leave_open_is_filled_from_the_data():
    pictures = resolve(Train(data="x"), make_items(path=("a",) * 30))
    assert (pictures.backbone, pictures.pretrained, pictures.augment) == ("resnet50", True, "crop")
    assert pictures.sampler.startswith("SamplesPerClass(batch=20, per_class=4") and pictures.protocol.startswith(
        "Unseen"
    )
    glyphs = resolve(Train(data="glyphs"), make_items(name="glyphs", path=("a",) * 30))
    assert (glyphs.backbone, glyphs.pretrained, glyphs.augment) == ("conv_small", False, "affine")
    features = resolve(Train(data="x"), make_items(x=np.zeros((30, 4), np.float32)))
    assert (features.backbone, features.pretrained) == ("features", False)
    query = np.arange(30) % 3 == 0
    assert resolve(Train(data="x"), make_items(path=("a",) * 30, query=query, gallery=~query)).protocol.startswith(
        "QueryGallery"
    )
    assert resolve(Train(data="x", weights="w.pt"), make_items(path=("a",) * 30)).pretrained is False


def test_a_head_that_does_nothing_gives_the_embedding_the_width_of_the_feature(pictures, small, tmp_path):
    config = resolve(Train(data="x", backbone="resnet18", head="Identity", dim=7), make_items(path=("a",) * 30))
    assert (config.head, config.dim) == ("Identity()", 512)
    assert resolve(Train(data="x", head="Identity()"), make_items(x=np.zeros((30, 5), np.float32))).dim == 5
    assert resolve(Train(data="x", dim=7), make_items(x=np.zeros((30, 5), np.float32))).dim == 7
    run = train(Train(data=str(pictures), out=str(tmp_path / "run"), head="Identity()", **small | {"steps": 1}))
    assert run.about["config"]["dim"] == run.scores["dim"] == width_of("conv_small") != small["dim"]


def test_what_is_given_stays():
    config = Train(data="x", backbone="googlenet", pretrained=False, augment="none", sampler="Shuffled(batch=8)")
    found = resolve(config, make_items(path=("a",) * 30))
    assert (found.backbone, found.pretrained, found.augment, found.sampler) == (
        "googlenet",
        False,
        "none",
        "Shuffled(batch=8)",
    )


@pytest.mark.parametrize("recipe", [None, "demo", "explicit"])
def test_the_batch_size_is_the_batch_of_any_sampler(recipe):
    data = make_items(path=("a",) * 30)
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


FIVE = "of each class, and 5 classes are in training"


@pytest.mark.parametrize(
    ("settings", "batch", "says"),
    [
        ({"batch_size": 112}, 20, f"--batch-size 112 is lowered to 20: a batch has 4 samples {FIVE}"),
        ({"batch_size": 18}, 16, "--batch-size 18 is lowered to 16: a batch has 4 samples of each class"),
        ({"batch_size": 16}, 16, ""),
        ({}, 20, ""),
        ({"recipe": "procsim"}, 10, f"the batch of the recipe 112 is lowered to 10: a batch has 2 samples {FIVE}"),
        ({"recipe": "procsim", "strict": True}, 112, ""),
        ({"sampler": "SamplesPerClass(batch=112, per_class=4)"}, 112, ""),
        ({"sampler": "SamplesPerClass(batch=8, with_replacement=True)", "batch_size": 112}, 112, ""),
    ],
)  # fmt: skip
def test_a_batch_that_the_classes_cannot_fill_is_lowered(settings, batch, says):
    data = make_items(path=("a",) * 30)
    if "recipe" in settings:
        settings = {"sampler": "SamplesPerClass(batch=112, per_class=2)"} | settings
    given = Train(data="x", **settings)
    found, sentence = with_possible_batch(resolve(given, data), given, data)
    assert (re.search(r"batch=(\d+)", found.sampler)[1], sentence) == (str(batch), says)
    if batch == 20:
        usual = resolve(Train(data="x"), data)
        assert usual == found  # the same run as without --batch-size


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
    check_loss(Train(data="x", protocol="UnseenClasses()", loss="ForwardCorrection(share=0.7)"), make_items())
    with pytest.raises(LikewiseError, match="share must be below 0.8 for 5 classes"):
        check_loss(Train(data="x", protocol="UnseenClasses()", loss="ForwardCorrection(share=0.85)"), make_items())


def test_files_of_a_relevance_are_found_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "pairs.csv").write_text("a,b,same\n0,1,1\n")
    monkeypatch.chdir(tmp_path)
    of = make_items(x=np.zeros((30, 4), np.float32))
    chosen = resolve(Train(data="x", relevance="JudgedPairs(file='pairs.csv')"), of).relevance
    assert chosen == f"JudgedPairs(file={str(tmp_path / 'pairs.csv')!r}, threshold=0.5)"
    assert resolve(Train(data="x", relevance="TreeDepth(tree='cub200')"), of).relevance.endswith("tree='cub200')")


LITE = Available(
    "efficientnet_lite0", "backbone efficientnet_lite0: its weights are installed, and a hub is not reachable"
)
RESNET = Available("resnet50", "backbone resnet50: the default, and its weights are on this disk")


@pytest.fixture
def finds(monkeypatch, tmp_path):
    """`finds(LITE)`: what `available_backbone` returns. The current folder is empty, and a list has the printed lines."""
    monkeypatch.chdir(tmp_path)
    return lambda found: monkeypatch.setattr(defaults, "available_backbone", lambda: found)


@pytest.fixture
def items(pictures):
    return load_items(str(pictures), None, workers=0, quiet=True, say=print)


def claim(config, items, lines):
    config, choice = resolve_with(config, items, find_backbone(config))
    return claim_run(config, items, choice, lines.append), config


@pytest.mark.parametrize(
    "given", [{"backbone": "resnet18"}, {"weights": "w.pt"}, {"pretrained": False}, {"recipe": "proxy-anchor"}]
)
def test_what_the_user_named_is_never_replaced(finds, items, given):
    finds(LITE)
    config = Train(data="photos", **given)
    assert not leaves_backbone_open(config) and find_backbone(config) is None
    resolved, choice = resolve_with(config, items, None)
    assert (resolved.backbone, choice) == (given.get("backbone", "resnet50"), "")


def test_the_choice_is_printed_and_stored_and_shown(finds, items, pictures):
    finds(LITE)
    lines = []
    found, config = claim(Train(data=str(pictures), recipe="robust"), items, lines)
    assert config.backbone == "efficientnet_lite0" and config.pretrained and lines == [LITE.reason]
    with found.run.owned():
        prepare_folder(found, config, torch.device("cpu"))
    assert json.loads((found.run.path / "config.json").read_text())["backbone_chosen"] == LITE.reason
    note = f"No backbone was named, so one was chosen: {LITE.reason.removeprefix('backbone ')}."
    assert found.run.backbone_note == note
    assert note in notes_of(ReportTarget("photos", run=found.run))


def test_the_choice_is_no_part_of_the_identity(finds, items, pictures):
    finds(LITE)
    by_choice, _ = claim(Train(data=str(pictures)), items, [])
    by_name, _ = claim(Train(data=str(pictures), backbone="efficientnet_lite0"), items, [])
    assert by_choice.about["identity"] == by_name.about["identity"] and "backbone_chosen" not in by_name.about


def test_another_choice_for_the_same_data_is_said(finds, items, pictures):
    finds(LITE)
    first, config = claim(Train(data=str(pictures)), items, [])
    with first.run.owned():
        prepare_folder(first, config, torch.device("cpu"))
    finds(RESNET)
    lines = []
    second, _ = claim(Train(data=str(pictures)), items, lines)
    assert second.run.path != first.run.path
    assert lines == [
        RESNET.reason,
        f"this is another run than {first.run.path}, which has efficientnet_lite0; --backbone efficientnet_lite0 continues "
        "or shows that one",
    ]
    with second.run.owned():
        prepare_folder(second, config, torch.device("cpu"))
    assert second.run.about["backbone_chosen"] == RESNET.reason and second.run.backbone_note == ""


def test_a_folder_with_a_run_of_the_other_choice_names_the_flag(finds, items, pictures):
    finds(LITE)
    first, config = claim(Train(data=str(pictures), out="mine"), items, [])
    with first.run.owned():
        prepare_folder(first, config, torch.device("cpu"))
    (first.run.path / "state.pt").touch()
    finds(RESNET)
    with pytest.raises(LikewiseError, match="add --backbone efficientnet_lite0 for that run"):
        claim(Train(data=str(pictures), out="mine"), items, [])


@pytest.mark.parametrize("data", ["glyphs", "features.npz", "my_lab.readers.boats()"])
def test_data_that_may_not_need_weights_is_read_first(finds, data):
    finds(LITE)
    assert find_backbone(Train(data=data)) is None
    assert find_backbone(Train(data="photos/")) == LITE


def test_features_need_no_weights(finds, features):
    finds(LITE)
    items = load_items(features, None, workers=0, quiet=True, say=print)
    config, choice = resolve_with(Train(data=features), items, None)
    assert (config.backbone, choice) == ("features", "")
