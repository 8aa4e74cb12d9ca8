"""The demo, made tiny: two runs, three honest columns of numbers, what became of the wrong labels, and a picture."""

import json

import numpy as np
import pytest
from likewise.config import Demo
from PIL import Image

from likewise.cli.demo import demo
from likewise.core.render.gallery import (
    CAPTION_PIXELS,
    EDGE_PIXELS,
    GAP_PIXELS,
    RIGHT_COLOUR,
    TILE_PIXELS,
    WRONG_COLOUR,
)

pytestmark = pytest.mark.slow  # it trains twice

TINY = {"data": "glyphs(classes=20, per_class=8)", "epochs": 12.5}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    lines = []
    result = demo(Demo(out=str(tmp_path_factory.mktemp("demo") / "run"), **TINY), lines.append)
    return result, lines


def colour_of(text):
    return np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)])


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


def test_asked_again_it_shows_the_same_without_training(shown):
    result, _ = shown
    lines = []
    before = (result["run"].path / "model.safetensors").stat().st_mtime_ns
    again = demo(Demo(out=str(result["run"].path.parent), **TINY), lines.append)
    for name in ("before", "plain", "robust", "flagged"):
        assert again[name] == result[name]
    assert (result["run"].path / "model.safetensors").stat().st_mtime_ns == before
    assert sum("finished already" in line for line in lines) == 2


def test_without_noise(tmp_path):
    result = demo(Demo(out=str(tmp_path / "run"), noise_rate=0.0, data=TINY["data"], epochs=0.5), lambda line: None)
    assert result["run"].about["config"]["noise"] is None
