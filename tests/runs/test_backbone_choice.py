"""A training whose user named no backbone gets one whose weights can be had, and says which."""

import json

import pytest
import torch
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.models.pretrained.available import Available
from likewise.report.run_analysis import notes_of
from likewise.report.section import ReportTarget
from likewise.runs import backbone_choice
from likewise.runs.backbone_choice import claim_run, find_backbone, leaves_backbone_open, resolve_with
from likewise.runs.dataset import load_items
from likewise.runs.identity import prepare_folder

LITE = Available(
    "efficientnet_lite0", "backbone efficientnet_lite0: the hub is not reachable, and its weights are installed"
)
RESNET = Available("resnet50", "backbone resnet50: the default, and its weights are on this disk")


@pytest.fixture
def finds(monkeypatch, tmp_path):
    """`finds(LITE)`: what `available_backbone` returns. The current folder is empty, and a list has the printed lines."""
    monkeypatch.chdir(tmp_path)
    return lambda found: monkeypatch.setattr(backbone_choice, "available_backbone", lambda: found)


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
    with pytest.raises(LikewiseError, match="add --backbone efficientnet_lite0 for that run, choose another --out"):
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
