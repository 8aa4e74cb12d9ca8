"""`evaluate --correct-test-labels`: every source stands beside the plain score, and what cannot be corrected says why."""

import csv
from functools import partial

import numpy as np
import pytest
from likewise.config import Evaluate
from likewise.types import LikewiseError

from likewise.labels.label_imputation import impute_scores
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


@pytest.fixture
def few_draws(monkeypatch):
    """Fewer draws and replicates, which take most of the time."""
    monkeypatch.setattr("likewise.score.corrected_scores.impute_scores", partial(impute_scores, draws=6, replicates=2))


@pytest.mark.parametrize("source", ["audit", f"Uniform(share={SHARE})"])
def test_corrected_scores_stand_beside_the_plain_ones(spoiled, source, few_draws, capsys):
    file, _, clean = spoiled
    found, plain = score(file, source), score(file)
    assert {k: v for k, v in found.items() if k != "corrected"} == plain
    corrected = found["corrected"]
    for name in ("R@1", "P@3", "RP", "MAP@R"):
        value, low, high = corrected["metrics"][name]
        assert low <= clean[name] <= high and abs(value - clean[name]) < abs(plain["metrics"][name] - clean[name])
    assert corrected["unknown"].keys() == {"mAP", "NMI"}
    show_scores({"embeddings": found})
    said = capsys.readouterr().out
    assert "under true labels" in said and "unknown" in said and "not other classes" in said
    assert score_heads(found)[-1] == "under true labels" and len(score_lines(found)[0]) == 5
    assert "under true labels" in Scored(found)._repr_html_() and corrected_notes(plain) == []


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
    found = score(file, str(form), ("R@1", "P@3", "RP"))["corrected"]
    assert "number of relevant rows" in found["unknown"]["RP"]
    for name in ("R@1", "P@3"):
        _, low, high = found["metrics"][name]
        assert low <= clean[name] <= high and high - low < 0.2


def finish(form, lines, true, count):
    with open(form, "w", newline="") as text:
        writer = csv.DictWriter(text, lines[0].keys())
        writer.writeheader()
        for number, line in enumerate(lines):
            writer.writerow(line | {"label": f"c{true[int(line['row'])]:02d}" if number < count else ""})


def test_wrong_sources_are_errors(spoiled, tmp_path):
    file, _, _ = spoiled
    for source, words in {
        "posterior": "must be 'audit', a noise such as",
        "Uniform(share=1.4)": "share must be between 0 and 1, got 1.4",
        "Uniform(share=0.9)": "must leave most labels of a class right",
        "ClassShift(share=0.1)": "use Uniform or Semantic",
        "Triplet()": "NoiseModel is needed here",
    }.items():
        with pytest.raises(LikewiseError, match=words):
            score(file, source)
    with pytest.raises(LikewiseError, match="needs a metric per query"):
        score(file, "audit", ("NMI",))
    form = tmp_path / "review.csv"
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


def test_known_noise_with_groups_has_no_class_sizes(spoiled, tmp_path):
    with np.load(spoiled[0]) as data:
        np.savez(tmp_path / "z.npz", **data, group=np.arange(300) // 2)
    found = score(tmp_path / "z.npz", "Uniform(share=0.2)", ("R@1", "RP"))["corrected"]
    assert found["metrics"].keys() == {"R@1"} and "groups" in found["unknown"]["RP"]


def test_a_gallery_that_depends_on_labels_is_an_error(spoiled, tmp_path):
    with np.load(spoiled[0]) as data:
        np.savez(tmp_path / "z.npz", **data, camera=(np.arange(300) % 3).astype(str))
    with pytest.raises(LikewiseError, match="does not depend on labels"):
        score(tmp_path / "z.npz", "Uniform(share=0.2)", ("R@1",))


def test_embeddings_without_information_are_unknown(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "z.npz", x=rng.normal(size=(200, 4)).astype(np.float32), label=np.arange(200) % 5)
    found = score(tmp_path / "z.npz", "audit", ("R@1",))["corrected"]
    assert found["metrics"] == {} and "class frequencies" in found["unknown"]["R@1"]
