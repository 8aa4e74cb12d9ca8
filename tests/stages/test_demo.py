"""The demo, made tiny: a run, two honest columns of numbers, and a picture."""

import json

import numpy as np
import pytest
from PIL import Image

from likewise.configs import Demo
from likewise.report.gallery import CAPTION, EDGE, GAP, RIGHT, TILE, WRONG
from likewise.stages.demo import demo

TINY = {"data": "glyphs(classes=20, per_class=8)", "length": "25"}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    lines = []
    result = demo(Demo(out=str(tmp_path_factory.mktemp("demo") / "run"), **TINY), lines.append)
    return result, lines


def colour_of(text):
    return np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)])


def test_the_numbers_are_those_of_the_run(shown):
    result, lines = shown
    run = result["run"]
    assert result["after"] == json.loads((run.path / "scores.json").read_text())
    assert result["after"]["which"] == "best"
    assert result["before"]["which"] == "untrained"
    assert result["before"]["queries"] == result["after"]["queries"] == 80
    assert result["before"]["metrics"] != result["after"]["metrics"]
    assert "30% of the training labels wrong" in lines[0]
    assert run.about["config"]["noise"] == "Uniform(share=0.3, exact=True)"
    assert run.done


def test_the_picture_shows_eight_queries_with_five_answers(shown):
    result, _ = shown
    assert result["picture"] == result["run"].path / "gallery.png"
    page = np.asarray(Image.open(result["picture"]))
    assert page.shape[1] == 2 * EDGE + 6 * (TILE + GAP) + GAP
    assert page.shape[0] == 74 + 8 * (TILE + CAPTION + GAP) + EDGE
    judged = 0
    for line in range(8):
        for place in range(5):
            x = EDGE + (TILE + GAP) * (place + 1) + GAP + TILE // 2
            pixel = page[74 + line * (TILE + CAPTION + GAP) + 2, x]
            assert any((pixel == colour_of(c)).all() for c in (RIGHT, WRONG))
            judged += (pixel == colour_of(RIGHT)).all()
    assert 0 < judged < 40


def test_asked_again_it_shows_the_same_without_training(shown):
    result, _ = shown
    lines = []
    before = (result["run"].path / "model.safetensors").stat().st_mtime_ns
    again = demo(Demo(out=str(result["run"].path), **TINY), lines.append)
    assert again["after"] == result["after"]
    assert again["before"] == result["before"]
    assert (result["run"].path / "model.safetensors").stat().st_mtime_ns == before
    assert any("finished already" in line for line in lines)


def test_without_noise(tmp_path):
    result = demo(Demo(out=str(tmp_path / "run"), share=0.0, data=TINY["data"], length="1"), lambda line: None)
    assert result["run"].about["config"]["noise"] is None
