"""What evaluate and compare give back: dicts as before, and a table in a notebook."""

import json
import re

import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter

import likewise
from likewise.score.compare import Compared
from likewise.score.score_table import Scored

SCORES = {
    "metrics": {"R@1": 0.5, "NMI": 0.25}, "interval": {"R@1": [0.4, 0.6]}, "interval_over": "classes",
    "class_mean": {"R@1": 0.45}, "queries": 10, "unscored": 1, "rows": 11, "dim": 8, "similarity": "cosine", "split": "test",
    "leaks": "train and test share no class",
}  # fmt: skip


def shown(thing) -> str:
    return DisplayFormatter().format(thing)[0]["text/html"]


def cells(html: str) -> list[str]:
    return re.findall(r"<t[dh] [^>]*>(.*?)</t[dh]>", html)


def test_scores_are_the_dict_they_were():
    scored = Scored(SCORES)
    assert scored == SCORES and json.loads(json.dumps(scored)) == SCORES
    html = shown(scored)
    assert cells(html)[4:] == ["R@1", "50.0 %", "40.0 % to 60.0 %", "45.0 %", "NMI", "25.0 %", "", ""]
    assert "10 queries scored, 1 not" in html and "over classes" in html and "scores, test split" in html


def test_numbers_of_a_set_alone_have_no_queries():
    assert cells(shown(Scored(metrics={"NMI": 0.25}))) == ["metric", "mean", "NMI", "25.0 %"]


def test_a_damaged_dict_is_still_shown():
    assert "cannot be shown" in shown(Scored()) and "cannot be shown" in shown(Compared())


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
