"""The settings of a run, its similarity and its folds."""

import numpy as np
import pytest
from likewise.config import Train
from likewise.contracts import Loss, input_of
from likewise.types import LikewiseError

from likewise.core.settings.spec import build, describe, find
from likewise.runs.folder import FORMAT, Run
from likewise.runs.settings import read_config, similarity_of


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
