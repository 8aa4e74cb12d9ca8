"""The demo, made tiny: two runs, three honest columns of numbers, what became of the wrong labels, and a picture."""

import json

import numpy as np
import pytest
from likewise.config import Demo
from likewise.types import Items
from PIL import Image

from likewise.cli.demo import demo, describe_detection, draw_random_gallery, is_right
from likewise.core.render.gallery import (
    CAPTION_PIXELS,
    EDGE_PIXELS,
    GAP_PIXELS,
    RIGHT_COLOUR,
    TILE_PIXELS,
    WRONG_COLOUR,
)
from likewise.runs.folder import Run

TINY = {"data": "glyphs(classes=20, per_class=8)", "epochs": 12.5}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    lines = []
    result = demo(Demo(out=str(tmp_path_factory.mktemp("demo") / "run"), **TINY), lines.append)
    return result, lines


def colour_of(text):
    return np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)])


@pytest.mark.slow  # it trains twice
def test_the_numbers_are_those_of_the_runs(shown):
    result, lines = shown
    run = result["run"]
    for way in ("plain", "robust"):
        other = run.path.parent / way
        assert result[way] == json.loads((other / "scores.json").read_text()) and (other / "done").exists()
        config = json.loads((other / "config.json").read_text())["config"]
        assert config["noise"] == "Uniform(share=0.3, exact=True)"
        assert (config["confidence"] is None) == (way == "plain")
        assert result[way]["checkpoint"] == "best"
        assert result["before"]["queries"] == result[way]["queries"] == 80
        assert result["before"]["metrics"] != result[way]["metrics"]
    assert run.path.name == "robust" and result["before"]["checkpoint"] == "untrained"
    weights = [(run.path.parent / way / "sample_weights.npz").exists() for way in ("plain", "robust")]
    assert weights == [False, True]  # so few steps teach no features, and the robust run may keep every label
    assert "30% wrong training labels" in lines[0]


@pytest.mark.slow  # it trains twice
def test_the_picture_shows_eight_queries_with_five_answers(shown):
    result, _ = shown
    assert result["figure"] == result["run"].path / "gallery.png"
    page = np.asarray(Image.open(result["figure"]))
    assert page.shape[1] == 2 * EDGE_PIXELS + 6 * (TILE_PIXELS + GAP_PIXELS) + GAP_PIXELS
    assert page.shape[0] == 74 + 8 * (TILE_PIXELS + CAPTION_PIXELS + GAP_PIXELS) + EDGE_PIXELS
    judged = 0
    for line in range(8):
        for place in range(5):
            x = EDGE_PIXELS + (TILE_PIXELS + GAP_PIXELS) * (place + 1) + GAP_PIXELS + TILE_PIXELS // 2
            pixel = page[74 + line * (TILE_PIXELS + CAPTION_PIXELS + GAP_PIXELS) + 2, x]
            assert any((pixel == colour_of(c)).all() for c in (RIGHT_COLOUR, WRONG_COLOUR))
            judged += (pixel == colour_of(RIGHT_COLOUR)).all()
    assert 0 < judged < 40


@pytest.mark.slow  # it trains twice
def test_asked_again_it_shows_the_same_without_training(shown):
    result, _ = shown
    lines = []
    before = (result["run"].path / "model.safetensors").stat().st_mtime_ns
    again = demo(Demo(out=str(result["run"].path.parent), **TINY), lines.append)
    for name in ("before", "plain", "robust", "flagged"):
        assert again[name] == result[name]
    assert (result["run"].path / "model.safetensors").stat().st_mtime_ns == before
    assert sum("finished already" in line for line in lines) == 2


@pytest.mark.slow  # it trains twice
def test_without_noise(tmp_path):
    result = demo(Demo(out=str(tmp_path / "run"), noise_rate=0.0, data=TINY["data"], epochs=0.5), lambda line: None)
    assert result["run"].about["config"]["noise"] is None


def test_the_picture_has_a_line_for_every_query_and_is_the_same_again(finished_pictures, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        draw_random_gallery(
            finished_pictures.path / "embeddings.npz", tmp_path / f"{name}.png", "title", seed=seed, queries=3, k=2
        )
    page = Image.open(tmp_path / "a.png")
    assert page.size == (
        2 * EDGE_PIXELS + 3 * (TILE_PIXELS + GAP_PIXELS) + GAP_PIXELS,
        74 + 3 * (TILE_PIXELS + CAPTION_PIXELS + GAP_PIXELS) + EDGE_PIXELS,
    )
    a, b, c = ((tmp_path / f"{name}.png").read_bytes() for name in "abc")
    assert a == b != c


def test_a_shared_label_is_right():
    plain = Items("t", np.array([0, 1, 0]), ("a|b", "b|c"))
    assert [is_right(plain, 0, row) for row in (1, 2)] == [False, True]
    assert is_right(
        Items("t", plain.y, plain.class_name, label_name=("a", "b", "c"), label_sets=((0, 1), (1, 2))), 0, 1
    )


def test_what_is_said_of_doubted_labels_is_counted_by_the_truth(tmp_path):
    true = ["a", "a", "b", "b", "c", "c"]
    given = ["a", "b", "b", "a", "c", "a"]  # three are wrong
    label = ["a", "a", "c", "a", "c", "b"]  # the second is repaired, the third and the last changed for worse
    weight = np.array([1.0, 1, 1, 0, 0, 1])  # the fourth, wrong, and the fifth, right, are left out
    suspicion = np.full(6, np.nan)
    np.savez(
        tmp_path / "sample_weights.npz",
        row=np.arange(2, 8),
        given=given,
        label=label,
        weight=weight,
        suspicion=suspicion,
    )
    items = Items("x", np.array([0, 0, *("abc".index(c) for c in true)]), ("a", "b", "c"))
    assert describe_detection(Run(tmp_path), items) == [
        "robust flagged 5 of 6 labels: 3 of the 3 wrong ones, and 2 right ones",
        "it relabelled 3 samples, 1 of them with the true class, and dropped 2",
    ]
