"""Trainings with a term resume exactly."""

import pytest
from learn.training.small_training import GLYPHS, assert_resumes_exactly
from likewise.config import Train
from likewise.types import LikewiseError

from likewise.learn.training.fit import train

BY_CLASS = {"sampler": "SamplesPerClass(batch=6, per_class=2)", "loss": "Margin()", "loss_weight": 0.0}
TRAININGS = [
    BY_CLASS | {"head": "Compositional(k=2)", "terms": ("DCML()",)},
    BY_CLASS | {"head": "Slices(k=4)", "terms": ("DiVA(views=2, memory=20)",), "views": 2},
    BY_CLASS | {"loss": "MultiSimilarity()", "terms": ("IntraBatch()",)},
    BY_CLASS | {"loss_weight": 1.0, "terms": ("MIC(clusters=6, every=2)",)},
    {
        "loss": "Margin(per_class=False, learn=False)", "loss_weight": 0.0, "head": "Slices(k=2)",
        "terms": ("DivideConquer()",), "sampler": "Clustered(batch=6, clusters=2, every=1, until=1)",
    },
]  # fmt: skip


@pytest.mark.parametrize("settings", TRAININGS, ids=lambda settings: settings["terms"][0].split("(")[0])
def test_resumes_exactly(settings, tmp_path, stop_at):
    assert_resumes_exactly(GLYPHS | settings, tmp_path, stop_at)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (TRAININGS[1] | {"views": 1}, "has views=2, but a batch has 1 views of every image; use --views 2"),
        (TRAININGS[-1] | {"sampler": BY_CLASS["sampler"]}, "a sampler without clusters"),
    ],
)
def test_settings_that_a_term_needs(settings, says, tmp_path):
    with pytest.raises(LikewiseError, match=says):
        train(Train(**GLYPHS | settings, out=str(tmp_path / "run")))
