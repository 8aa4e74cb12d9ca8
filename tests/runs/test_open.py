"""One way to open a run: settings, data, protocol, network, transform, similarity and device."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from likewise.config import Train
from likewise.contracts import Loss, input_of
from likewise.protocols import UnseenClasses
from likewise.types import LikewiseError

from likewise.core.settings.spec import build, describe, find
from likewise.data import load
from likewise.data.dataset import inject_noise
from likewise.learn.training.fit import train
from likewise.runs.embeddings import EMBEDDINGS_FILE
from likewise.runs.folder import FORMAT, Run
from likewise.runs.open import OpenRun, read_config, similarity_of

CPU = {"device": "cpu", "quiet": True}


def test_an_open_run_has_what_evaluation_used(run):
    opened = OpenRun(run, **CPU)
    with np.load(run.path / EMBEDDINGS_FILE) as saved:
        x, rows = saved["x"], saved["row"]
    assert isinstance(opened.protocol, UnseenClasses) and opened.similarity == "cosine" and opened.transform is None
    assert np.array_equal(opened.protocol.rows(opened.items, "test"), rows) and opened.device == torch.device("cpu")
    assert np.allclose(opened.embed(opened.items, rows).z.numpy(), x, atol=1e-6)
    assert opened.network is opened.network and opened.items is opened.items and not opened.network.training


@pytest.mark.parametrize("checkpoint", ["best", "last", "untrained"])
def test_opening_a_network_leaves_random_numbers_alone(run, checkpoint):
    before = torch.random.get_rng_state()
    _ = OpenRun(run, checkpoint=checkpoint, **CPU).network
    assert torch.equal(torch.random.get_rng_state(), before)


def test_data_is_opened_when_it_is_used_and_must_be_the_same(settings, features, tmp_path):
    file = tmp_path / "mine.npz"
    shutil.copy(features, file)
    run = train(Train(**settings | {"data": str(file), "steps": 1, "evaluate": False}))
    moved = file.rename(tmp_path / "moved.npz")
    opened = OpenRun(run, **CPU)
    assert opened.network.dim == 8 and opened.similarity == "cosine"  # without the data
    with pytest.raises(LikewiseError, match="give its location: --data, --root"):
        _ = opened.items
    there = OpenRun(run, data=str(moved), **CPU)
    assert len(there.items) == 288
    assert opened.take(there.items) is opened.items
    other = replace(there.items, y=there.items.y[::-1].copy())
    with pytest.raises(LikewiseError, match="must be the data that .* trained"):
        OpenRun(run, **CPU).take(other)


def test_noise_is_in_the_labels_that_the_run_trained_with(settings, features):
    noise = "Uniform(share=0.3)"
    run = train(Train(**settings | {"noise": noise, "steps": 1, "evaluate": False}))
    opened, data = OpenRun(run, **CPU), load(features)
    assert np.array_equal(opened.items.y, data.y)
    expected = inject_noise(data, opened.protocol, opened.settings.noise, 0)
    assert np.array_equal(opened.noisy_items.y, expected.y) and (opened.noisy_items.y != data.y).sum() == 43


def test_pictures_come_with_what_the_network_sees_of_them(picture_run):
    opened = OpenRun(picture_run, workers=0, **CPU)
    assert opened.transform is opened.transform and opened.transform.size == 16
    rows = opened.protocol.rows(opened.items, "test")
    assert opened.embed(opened.items, rows, features=True).f.shape == (len(rows), opened.network.feature_dim)


def test_a_run_is_opened_without_knowing_its_classes(tmp_path):
    np.save(tmp_path / "t.npy", np.eye(5))
    for loss in (
        "ForwardCorrection(share=0.7)",
        f"ForwardCorrection(transition='{tmp_path / 't.npy'}')",
        "SoftTriple()",
    ):
        assert similarity_of(Train(data="x", loss=loss)) == "cosine"
    assert similarity_of(Train(data="x", loss="CrossBatchMemory(loss=LiftedStructure())")) == "euclidean"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (["x"], "must have format, identity, data and config"),
        ({"data": "x"}, "must name the backbone"),
        ({"data": "x", "backbone": "conv_small"}, "must name the protocol"),
        ({"data": "x", "backbone": "conv_small", "protocol": "UnseenClasses()"}, "must name the sampler"),
        ({}, "must name the data"),
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


INNER = ("Triplet()", "MultiSimilarity()", "LiftedStructure()", "NPair()", "Contrastive(space='hyperbolic')")
"""Losses of unit and of raw embeddings."""

MORE = (
    "Hierarchical(loss=ProxyAnchor(), coarse=2)", "Triplet(space='hyperbolic')", "Angular(alpha=0.7)",
    "ForwardCorrection(share=0.1)", *(f"CrossBatchMemory(loss={loss}, size=8)" for loss in INNER),
)  # fmt: skip


@pytest.mark.parametrize("text", [*(f"{name}()" for name in find("losses") if name != "Hierarchical"), *MORE])
def test_the_input_of_a_loss_is_known_without_building_it(text):
    facts = {"classes": 6, "dim": 4, "largest_class": 4, "seed": 0, "per_pass": 3, "steps": 9, "taxonomy": None}
    facts |= {"labels": np.arange(12) % 6, "class_names": tuple("abcdef")}
    made = build(text, Loss, **facts)
    assert input_of(describe(text, Loss)) == made.input == input_of(made)
    assert similarity_of(Train(data="x", loss=text)) == ("cosine" if made.input == "unit" else "euclidean")


class Mine(Loss):
    """Somebody's loss whose input depends on an argument."""

    def __init__(self, classes: int, raw: bool = False):
        super().__init__()
        self.classes, self.raw, self.input = classes, raw, "raw" if raw else "unit"

    @classmethod
    def input_of(cls, arguments):
        return "raw" if arguments["raw"] else "unit"

    def forward(self, z, y, ref=None):
        return z.sum(1)


def test_a_loss_that_is_imported_says_what_it_takes():
    for text, similarity in ((f"{__name__}.Mine()", "cosine"), (f"{__name__}.Mine(raw=True)", "euclidean")):
        assert similarity_of(Train(data="x", loss=text, allow_imports=True)) == similarity
        with pytest.raises(LikewiseError, match="would be imported"):
            similarity_of(Train(data="x", loss=text))
    for text, says in (
        ("HardPairs()", "describes a HardPairs, but a Loss"),
        ("CrossBatchMemory(loss=3)", "inner loss must be"),
    ):
        with pytest.raises(LikewiseError, match=says):
            similarity_of(Train(data="x", loss=text))


def test_a_loss_of_another_library_goes_by_its_distance():
    pytest.importorskip("pytorch_metric_learning")
    pml = "pytorch_metric_learning"
    raw = f"{pml}.distances.LpDistance(normalize_embeddings=False)"
    for text in (
        f"{pml}.losses.MultiSimilarityLoss(alpha=2)", f"{pml}.losses.ArcFaceLoss()", f"{pml}.losses.NPairsLoss()",
        f"{pml}.losses.TripletMarginLoss(distance={raw})", f"FromPML(loss={pml}.losses.TripletMarginLoss(distance={raw}))",
        f"CrossBatchMemory(loss={pml}.losses.ContrastiveLoss(distance={raw}))",
    ):  # fmt: skip
        made = build(text, Loss, allow_imports=True, classes=5, dim=8)
        assert input_of(describe(text, Loss, allow_imports=True)) == made.input
        assert made.input == ("raw" if raw in text else "unit")
