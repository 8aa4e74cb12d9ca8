"""Scores as a terminal and a notebook show them."""

import json
import math
import re

import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter

import likewise
from likewise.score.compare import Compared
from likewise.score.score_table import Scored, by_camera, by_gallery, show_scores, tree_lines

SCORES = {
    "metrics": {"R@1": 0.5, "rho": 0.25},
    "interval": {"R@1": (0.4, 0.61)},
    "interval_over": "queries",
    "class_mean": {"R@1": 0.45},
    "queries": 20,
    "unscored": 3,
    "similarity": "euclidean",
    "dim": 8,
}


def test_what_is_said(capsys, subtests):
    def check(*there, gone=(), **changes):
        show_scores({"test split": SCORES | changes})
        text = capsys.readouterr().out
        with subtests.test(there[0]):
            assert [part for part in there if part not in text] == [] == [part for part in gone if part in text]

    check("50.0 % (40.0 to 61.0)", "45.0 %", "0.2500", gone=["look wrong", "class tree", "RP"])
    check("RP: share of relevant rows among", gone=["MAP@R"], metrics={"RP": 0.5}, class_mean={})
    check("20 queries scored, 3 not", "unit vectors", "for other queries of these few classes, not for other classes")
    check("no interval for R@1: few", gone=["intervals over"], interval={}, no_interval={"R@1": "few"})
    check("no value for rho: no threshold", no_value={"rho": "no threshold"})
    check("about 1,200 of 15,000 test labels look wrong", wrong_labels={"count": 1200, "of": 15000})
    show_scores({"test split": {"metrics": {"EER": math.nan}, "no_value": {"EER": "one class"}, "rows": 9, "dim": 2}})
    assert "no value for EER: one class" in capsys.readouterr().out  # without queries


def test_cameras_have_a_table_of_their_own(capsys):
    alone = {"metrics": {}, "queries": 0, "unscored": 4}
    some = SCORES | {"metrics": {"R@1": 0.25}}
    show_scores({"test split": SCORES | {"cameras": {"c[1]": alone, "c2": some}, "other_cameras": some}})
    shown = capsys.readouterr().out
    assert "camera c[1]" in shown and "camera c2" in shown and shown.count("25.0 %") == 2
    assert list(by_camera(SCORES)) == []


def test_every_gallery_has_a_column():
    alone = {"metrics": {}, "unscored": 1}
    assert by_gallery("test split", SCORES) == {"test split": SCORES}
    both = by_gallery("test split", SCORES | {"galleries": {"far": alone}})
    assert list(both) == ["all galleries", "gallery far"] and both["gallery far"] is alone


def test_the_class_tree_and_the_heights_of_mistakes_are_said():
    tree = {"levels": {"level1": 1, "level2": 4}, "height": 3, "mistakes_by_height": {"1": 6, "3": 2}}
    assert tree_lines(SCORES) == []
    assert tree_lines(SCORES | {"tree": tree, "scored": {"severity": 8}}) == [
        "class tree of height 3, coarsest level first: level1 1 group, level2 4 groups",
        "queries of metrics that are not defined for all: severity 8",
        "8 first results are wrong, by height of the lowest common ancestor: 1: 75.0 %, 3: 25.0 % (mean 1.50)",
    ]


STORED = {
    "metrics": {"R@1": 0.5, "NMI": 0.25}, "interval": {"R@1": [0.4, 0.6]}, "interval_over": "classes",
    "class_mean": {"R@1": 0.45}, "queries": 10, "unscored": 1, "rows": 11, "dim": 8, "similarity": "cosine", "split": "test",
    "leaks": "train and test share no class",
}  # fmt: skip


def shown(thing) -> str:
    return DisplayFormatter().format(thing)[0]["text/html"]


def cells(html: str) -> list[str]:
    return re.findall(r"<t[dh] [^>]*>(.*?)</t[dh]>", html)


def test_scores_are_the_dict_they_were():
    scored = Scored(STORED)
    assert scored == STORED and json.loads(json.dumps(scored)) == STORED
    html = shown(scored)
    assert cells(html)[4:] == ["R@1", "50.0 %", "40.0 % to 60.0 %", "45.0 %", "NMI", "25.0 %", "", ""]
    assert "10 queries scored, 1 not" in html and "over classes" in html and "scores, test split" in html
    assert cells(shown(Scored(metrics={"NMI": 0.25}))) == ["metric", "mean", "NMI", "25.0 %"]  # without queries
    assert "cannot be shown" in shown(Scored()) and "cannot be shown" in shown(Compared())  # damaged


@pytest.fixture
def sides(tmp_path):
    """Embeddings of four classes, and the same with less noise."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 6)
    for name, noise in (("a", 2.0), ("b", 0.5)):
        x = rng.normal(size=(12, 8))[y] + noise * rng.normal(size=(72, 8))
        np.savez(tmp_path / f"{name}.npz", x=x.astype(np.float32), label=y)
    return tmp_path


def test_the_front_door_gives_dicts_that_show_themselves(sides):
    a = likewise.evaluate(sides / "a.npz", per_query=sides / "a.parquet", quiet=True, device="cpu")
    likewise.evaluate(sides / "b.npz", per_query=sides / "b.parquet", quiet=True, device="cpu")
    assert isinstance(a, Scored) and "R@1" in cells(shown(a))
    found = likewise.compare(sides / "a.parquet", sides / "b.parquet")
    about = json.loads(json.dumps(found))["metrics"]["MAP@R"]
    html = shown(found)
    assert "B is better by" in html and f"{100 * about['difference']:+.2f}" in cells(html)
    assert DisplayFormatter().format(found)[0]["text/plain"].startswith("B is better by")
