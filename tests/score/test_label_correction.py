"""`evaluate --correct-test-labels`: every source stands beside the plain score, and what cannot be corrected says why."""

import csv

import numpy as np
import pytest
from likewise.config import Evaluate
from likewise.types import LikewiseError

from likewise.score.evaluate import evaluate
from likewise.score.score_table import Scored, corrected_notes, score_heads, score_lines, show_scores

NAMES = ("R@1", "P@3", "RP", "MAP@R", "mAP", "NMI")
SHARE = 0.2


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory):
    """Embeddings of 15 classes with a fifth of the labels wrong, the true labels, and the scores under these."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("spoiled")
    y = np.repeat(np.arange(15), 20)
    x = (1.5 * rng.normal(size=(15, 8))[y] + rng.normal(size=(300, 8))).astype(np.float32)
    given = np.where(rng.random(300) < SHARE, (y + rng.integers(1, 15, 300)) % 15, y)
    files = {name: folder / f"{name}.npz" for name in ("given", "true")}
    for name, labels in (("given", given), ("true", y)):
        np.savez(files[name], x=x, label=np.array([f"c{c:02d}" for c in labels]))
    return files["given"], y, score(files["true"])["metrics"]


def score(file, source=None, names=NAMES, **settings):
    settings = {"metrics": names, "quiet": True, "device": "cpu", "correct_test_labels": source} | settings
    return evaluate(Evaluate(target=str(file), **settings))


def test_a_form_is_written_filled_and_read(spoiled, tmp_path, capsys):
    file, true, clean = spoiled
    form = tmp_path / "review.csv"
    assert score(file, str(form), ("R@1", "P@3", "RP"))["corrected"] is None
    assert "300 random queries and their first 3 neighbours" in capsys.readouterr().out
    with open(form, newline="") as text:
        lines = list(csv.DictReader(text))
    assert lines[0]["query"] == lines[0]["row"] and len({line["row"] for line in lines}) == len(lines)
    finish(form, lines, true, 5)
    found = score(file, str(form), ("R@1", "P@3", "RP"))["corrected"]
    assert found["metrics"] == {} and "30 reviewed queries" in found["unknown"]["R@1"]
    queries = list(dict.fromkeys(line["query"] for line in lines))
    finish(form, lines, true, max(i for i, line in enumerate(lines) if line["query"] == queries[99]) + 1)
    whole, plain = (score(file, source, ("R@1", "P@3", "RP", "mAP", "NMI")) for source in (str(form), None))
    found = whole["corrected"]
    assert {k: v for k, v in whole.items() if k != "corrected"} == plain
    assert "number of relevant rows" in found["unknown"]["RP"] and found["unknown"].keys() == {"RP", "mAP", "NMI"}
    show_scores({"embeddings": whole})
    text = capsys.readouterr().out
    assert "under true labels" in text and "unknown" in text and "not other classes" in text
    assert score_heads(whole)[-1] == "under true labels" and len(score_lines(whole)[0]) == 5
    assert "under true labels" in Scored(whole)._repr_html_() and corrected_notes(plain) == []
    for name in ("R@1", "P@3"):
        _, low, high = found["metrics"][name]
        assert low <= clean[name] <= high and high - low < 0.2


def finish(form, lines, true, count):
    with open(form, "w", newline="") as text:
        writer = csv.DictWriter(text, lines[0].keys())
        writer.writeheader()
        for number, line in enumerate(lines):
            writer.writerow(line | {"label": f"c{true[int(line['row'])]:02d}" if number < count else ""})


@pytest.mark.parametrize("source", ["audit", "Uniform(share=0.2)", "posterior"])
def test_other_sources_name_their_replacement(spoiled, source):
    with pytest.raises(LikewiseError, match="give review.csv, which is written as a form"):
        score(spoiled[0], source, ("R@1",))


def test_reviews_that_cannot_be_read(spoiled, tmp_path):
    file, form = spoiled[0], tmp_path / "review.csv"
    with pytest.raises(LikewiseError, match="needs a metric per query"):
        score(file, str(form), ("NMI",))
    for text, words in {
        "query,row\n0,0\n": "the column 'label' is missing",
        "query,row,label\n999,0,c01\n": "must name a query of this evaluation, got row 999",
        "query,row,label\n0,999,c01\n": "must name an evaluated row, got row 999",
        "query,row,label\n0,a,c01\n": "must be whole numbers",
        "query,row,label\n0,0,c01\n1,0,c02\n": "must have one label",
    }.items():
        form.write_text(text)
        with pytest.raises(LikewiseError, match=words):
            score(file, str(form))


def test_a_gallery_that_depends_on_labels_is_an_error(spoiled, tmp_path):
    with np.load(spoiled[0]) as data:
        np.savez(tmp_path / "z.npz", **data, camera=(np.arange(300) % 3).astype(str))
    with pytest.raises(LikewiseError, match="does not depend on labels"):
        score(tmp_path / "z.npz", "review.csv", ("R@1",))
