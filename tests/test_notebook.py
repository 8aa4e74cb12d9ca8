"""What objects show in a notebook: escaped, in the page's own colours, and never an error."""

import base64
import io
import re

import numpy as np
import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from likewise.config import Train
from likewise.types import Embedded, Items, Scores
from PIL import Image

from likewise.core import notebook as notebook
from likewise.core.notebook import image_strip, table, thumbnail, view
from likewise.core.render.tables import Table
from likewise.papers.benchmark_table import BenchmarkTable, Entry
from likewise.papers.tune import TuneResult
from likewise.runs.folder import Run


def shown(thing) -> str:
    """What IPython would put on the page, with errors as errors."""
    return DisplayFormatter().format(thing)[0]["text/html"]


def cells(html: str) -> list[str]:
    return re.findall(r"<t[dh] [^>]*>(.*?)</t[dh]>", html)


def test_texts_are_escaped_and_numbers_stand_to_the_right():
    html = table("<b>", ("a & b", "n"), [("<script>", "+1.0"), ("x", "−2")], ['"note"'])
    assert "<script>" not in html and "<b>&lt;b&gt;</b>" in html and "&quot;note&quot;" in html
    assert cells(html) == ["a &amp; b", "n", "&lt;script&gt;", "+1.0", "x", "−2"]
    assert re.findall(r"text-align:(\w+)", html) == ["left", "right"] * 3


def test_no_colour_of_its_own_that_a_dark_page_would_swallow():
    html = table("t", ("a",), [("1",)], ["n"]) + image_strip([("", "gone")])
    assert not re.search(r"(?<![-\w])(color|background)\s*:|#[0-9a-f]{3,6}\b|<style", html)


def test_a_long_table_says_how_much_it_leaves_out():
    html = table("t", ("n",), [(n,) for n in range(notebook.MAX_TABLE_LINES + 3)])
    assert len(cells(html)) == notebook.MAX_TABLE_LINES + 1 and "and 3 more lines" in html
    assert "more lines" not in table("t", ("n",), [(n,) for n in range(notebook.MAX_TABLE_LINES)])


def test_what_cannot_be_shown_says_why():
    class Broken:
        @view
        def _repr_html_(self):
            raise OSError("no <disk>")

    assert shown(Broken()) == "<div>Broken cannot be shown: no &lt;disk&gt;</div>"


@pytest.fixture
def pictures(tmp_path):
    Image.new("RGB", (200, 100), "red").save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    y, box = np.array([0, 1, 0]), np.array([[np.nan] * 4, [np.nan] * 4, [0, 0, 10, 20.0]])
    split = np.array(["train", "test", "test"])
    return Items(
        "my <set>", y, ("x_y", "z"), path=("a.png", "b.png", "a.png"), root=str(tmp_path), split=split, box=box
    )


def test_a_data_set_shows_its_pictures_and_survives_broken_ones(pictures):
    html = shown(pictures)
    assert cells(html) == ["samples", "3", "classes", "2", "splits", "2 test, 1 train", "also", "box"]
    assert "my &lt;set&gt;: a data set" in html and html.count("<img ") == 2 and "x_<wbr>y" in html
    sizes = [Image.open(io.BytesIO(base64.b64decode(code))).size for code in re.findall(r"base64,([^\"]+)", html)]
    assert sizes == [(72, 36), (10, 20)]  # the second is its box
    assert repr(pictures) == "Items('my <set>', 3 samples of 2 classes)"


def test_a_data_set_of_many_shows_a_few_pictures_and_features_none(pictures, tmp_path):
    many = Items("m", np.zeros(1000, int), ("c",), path=("a.png",) * 1000, root=str(tmp_path))
    assert shown(many).count("<img ") == notebook.THUMBNAIL_COUNT
    html = shown(Items("f", np.array([0]), ("c",), x=np.zeros((1, 5), np.float32), y_clean=np.array([0])))
    assert "<img" not in html and "5 dimensions" in cells(html)


def test_a_picture_that_would_take_long_is_left_out(pictures, tmp_path, monkeypatch):
    assert thumbnail(str(tmp_path / "a.png")).startswith("data:image/png;base64,")
    monkeypatch.setattr(notebook, "MAX_DECODED_PIXELS", 200 * 100 - 1)
    assert thumbnail(str(tmp_path / "a.png")) == ""


def test_embeddings_show_how_they_begin():
    z = torch.arange(80.0).view(10, 8)
    html = shown(Embedded(z, torch.arange(10) // 2, torch.arange(10) + 50, e=z))
    assert "10 embeddings of 8 dimensions" in html and "and 5 more" in html and "raw embeddings" in html
    assert cells(html)[9:18] == ["50", "0", "0.000", "1.000", "2.000", "3.000", "4.000", "5.000", "…"]
    assert "0 embeddings of 8" in shown(Embedded(z[:0], torch.zeros(0, dtype=int), torch.zeros(0, dtype=int)))


def test_scores_show_means_without_what_could_not_be_scored():
    each = {"R@1": np.array([1.0, 0.0, np.nan]), "MAP@R": np.full(3, np.nan)}
    html = shown(Scores(each, np.arange(3), np.arange(3)))
    assert cells(html)[3:] == ["R@1", "0.5000", "2", "MAP@R", "undefined", "0"]


def test_a_run_shows_itself_or_what_is_wrong_with_it(tmp_path):
    assert "is not a run folder" in shown(Run(tmp_path / "none"))
    run = Run(tmp_path)
    run.write_json(
        "config.json", {"format": 1, "identity": "i", "config": {"data": "d", "loss": "L(a='<')", "noise": None}}
    )
    html = shown(run)
    assert cells(html) == ["training", "not finished", "data", "d", "loss", "L(a=&#x27;&lt;&#x27;)"]
    (tmp_path / "done").touch()
    (tmp_path / "scores.json").write_text('{"metrics": {"R@1": 0.5}}')
    assert "finished" in cells(shown(run)) and "0.5000" in cells(shown(run))
    (tmp_path / "scores.json").write_text("{")
    assert "scores.json is damaged" in shown(run)


def test_a_table_of_texts():
    html = shown(Table("Runs", ["name", "R@1"], [["<a>", "61.7 ± 0.4"]], ["one failed"]))
    assert cells(html) == ["name", "R@1", "&lt;a&gt;", "61.7 ± 0.4"] and "one failed" in html


def test_a_benchmark_and_a_search(tmp_path):
    entries = tuple(
        Entry((name,), ("CUB", "R@1"), values, 2) for name, values in (("A<", (0.5, 0.52)), ("B", (0.6, 0.62)))
    )
    sheet = BenchmarkTable("toy", "Table 1", ("method",), entries)
    html = shown(sheet)
    assert cells(html)[:3] == ["method", "CUB, R@1", "A&lt;"] and "Table 1" in html
    assert (
        cells(html)[3] == "51.0 [50.0 to 52.0]" and cells(html)[5].endswith(" *") and "*: the best of a column" in html
    )
    best = {"number": 3, "values": {"lr": 0.00123456789, "loss": "Triplet()"}, "value": 0.613}
    about = {"best": best, "count": {"complete": 4, "pruned": 0, "failed": 1}, "select": "MAP@R"}
    html = shown(TuneResult(about, Train(data="d"), None, tmp_path))
    assert cells(html) == ["lr", "0.00123457", "loss", "Triplet()", "val MAP@R", "61.3 %"]
    assert "trials: 4 complete, 1 failed" in html and "trial 3" in html
    assert "Table 1" in shown(TuneResult(about, Train(data="d"), sheet, tmp_path))
    assert "cannot be shown" in shown(TuneResult(about | {"best": None}, Train(data="d"), None, tmp_path))
