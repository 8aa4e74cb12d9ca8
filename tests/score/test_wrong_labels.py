"""Wrong test labels: a report where there are many, the form for reviewers, and scores that are corrected by it."""

import csv
import math
from itertools import combinations

import numpy as np
import pytest
import torch
from likewise.config import Evaluate
from likewise.types import Embedded, Items, LikewiseError, Retrieval
from sklearn.datasets import load_digits

from likewise.labels.label_noise import Noise
from likewise.score import wrong_labels as module
from likewise.score.evaluate import evaluate
from likewise.score.score_table import Scored, corrected_notes, score_heads, score_lines, show_scores
from likewise.score.wrong_labels import (
    find_wrong_labels,
    prediction_powered_mean,
    read_review,
    with_labels,
    write_form,
    wrong_share,
)


def clusters(classes, size, dim, separation, seed=0):
    rng, y = np.random.default_rng(seed), np.repeat(np.arange(classes), size)
    return rng.normal(size=(classes, dim))[y] * separation + rng.normal(size=(len(y), dim)), y


def with_wrong(y, share, seed=1):
    """The labels, some of them exchanged with any other, and how many."""
    rng, classes = np.random.default_rng(seed), y.max() + 1
    wrong = rng.random(len(y)) < share
    return np.where(wrong, (y + rng.integers(1, classes, len(y))) % classes, y), int(wrong.sum())


def find(x, y, **columns):
    z = torch.nn.functional.normalize(torch.as_tensor(np.asarray(x)).float(), dim=1)
    items = Items("toy", y, tuple(map(str, range(y.max() + 1))), **columns)
    return find_wrong_labels(Embedded(z, torch.as_tensor(y), torch.arange(len(y))), items)


@pytest.mark.slow
def test_right_labels_raise_no_alarm_and_wrong_ones_are_counted(subtests):
    digits = load_digits()
    for name, x, y in (
        ("digits", digits.data[:600] - digits.data.mean(0), digits.target[:600]),
        ("well separated", *clusters(20, 30, 32, 0.8)),
        ("overlapping", *clusters(20, 30, 64, 0.5)),
    ):
        with subtests.test(name):
            assert find(x, y) is None
            given, planted = with_wrong(y, 0.08)
            found = find(x, given)
            assert found["of"] == len(y)
            assert 0.6 * planted < found["count"] < 1.9 * planted


def test_a_poor_network_with_right_labels_raises_no_alarm():
    """Classes that the network confuses look like labels that people exchange."""
    for seed in range(3):
        assert find(*clusters(20, 30, 16, 0.5, seed)) is None


@pytest.mark.parametrize(
    ("explained", "uniform", "similar", "reported"),
    [
        (0.24, 0.5, 0.0, 0.0),
        (0.26, 0.5, 0.0, 0.5),
        (0.26, 0.04, 0.2, 0.0),
        (0.71, 0.01, 0.03, 0.04),
        (0.71, 0.01, 0.0, 0.0),
    ],
)
def test_shares_are_reported_if_the_embeddings_explain_the_labels(explained, uniform, similar, reported):
    y = torch.arange(400) % 8
    noise = Noise((1.0,), uniform, similar, None, torch.zeros(8), explained * math.log(8), 400)
    assert wrong_share(noise, y) == pytest.approx(reported)


def test_of_many_rows_some_are_drawn_and_the_count_is_for_all(monkeypatch):
    x, y = clusters(10, 100, 32, 0.8)
    given, planted = with_wrong(y, 0.1)
    monkeypatch.setattr(module, "MAX_CHECKED_ROWS", 400)
    found = find(x, given)
    assert found["of"] == 1000 and 0.6 * planted < found["count"] < 1.5 * planted


def test_too_few_rows_or_too_small_classes_are_not_checked(monkeypatch):
    def fail(*_, **__):
        raise AssertionError("it must not be computed")

    monkeypatch.setattr(module, "discriminate", fail)
    x, y = clusters(10, 15, 8, 1.0)
    assert find(x, with_wrong(y, 0.2)[0]) is None
    x, y = clusters(100, 4, 8, 1.0)
    assert find(x, with_wrong(y, 0.2)[0]) is None
    x, y = clusters(1, 300, 8, 1.0)
    assert find(x, y) is None


def test_labels_that_the_embeddings_do_not_explain_are_no_alarm():
    x, y = clusters(10, 40, 8, 0.0)
    assert find(x, y, group=np.arange(400) // 4) is None


TRUE = np.array([1.0, 0, 1, 1, 0, 1, 0])
PREDICTED = np.array([1.0, 0, 0, 1, 1, 1, 0])


def estimate(drawn, weight):
    drawn = np.array(drawn)
    return prediction_powered_mean(TRUE[drawn], PREDICTED[drawn], np.delete(PREDICTED, drawn), weight)


def test_the_prediction_powered_mean_by_hand():
    found = prediction_powered_mean(np.array([1.0, 0, 1]), np.array([1.0, 0, 0]), np.array([1.0, 0, 1]), 0.5)
    # true - 0.5 predicted: 0.5, 0, 1; predictions of all: mean 3 / 6
    assert found.mean == pytest.approx(0.5 + 0.5 * 0.5)
    assert found.variance == pytest.approx((1 - 3 / 6) * 0.25 / 3)


@pytest.mark.parametrize("weight", [0.0, 0.6, 1.0])
def test_mean_and_variance_are_unbiased_over_all_samples(weight):
    every = [estimate(drawn, weight) for drawn in combinations(range(len(TRUE)), 4)]
    means = np.array([one.mean for one in every])
    assert means.mean() == pytest.approx(TRUE.mean(), abs=1e-12)
    assert np.mean([one.variance for one in every]) == pytest.approx(means.var(), abs=1e-12)


def test_the_estimate_is_that_of_ppi_plus_plus():
    rng = np.random.default_rng(0)
    f = rng.normal(size=200)
    true = 0.7 * f[:40] + rng.normal(size=40)
    n, m = 40, 160
    found = prediction_powered_mean(true, f[:n], f[n:])
    weight = np.cov(true, f[:n])[0, 1] / ((1 + n / m) * f[:n].var(ddof=1))  # equation for means of the paper
    assert found.mean == pytest.approx(true.mean() - weight * f[:n].mean() + weight * f[n:].mean(), rel=1e-12)
    # its variance is that of a sample of a population: larger, by the spread of the whole set of units
    theirs = np.var(true - weight * f[:n], ddof=1) / n + weight**2 * f[n:].var(ddof=1) / m
    assert found.variance < theirs


def test_useless_predictions_are_not_used():
    true = np.array([1.0, 0, 1, 0])
    assert prediction_powered_mean(true, 1 - true, np.ones(5)).weight == 0
    assert prediction_powered_mean(true, np.ones(4), np.ones(5)) == pytest.approx((0.5, (1 - 4 / 9) * (1 / 3) / 4, 0))


def test_a_form_and_its_labels(tmp_path):
    n = 12
    items = Items("toy", np.arange(n) % 3, ("a", "b", "c"), path=tuple(f"{i}.jpg" for i in range(n)))
    y = torch.as_tensor(items.y)
    e = Embedded(torch.zeros(n, 1), y, torch.arange(n))
    row = torch.stack([(torch.arange(n) + 1) % n, (torch.arange(n) + 2) % n], 1)
    none = torch.arange(n)
    ranking = with_labels(Retrieval(none, row, row > 0, row.double(), none, none, none, none), y)
    file = tmp_path / "forms" / "review.csv"
    write_form(file, e, items, ranking, 2)
    with open(file, newline="") as text:
        lines = list(csv.DictReader(text))
    assert sorted(int(line["row"]) for line in lines) == list(range(n))
    first = int(lines[0]["query"])
    assert [int(line["row"]) for line in lines[:3]] == [first, (first + 1) % n, (first + 2) % n]
    assert lines[0]["path"] == f"{first}.jpg" and lines[0]["given"] == items.class_name[items.y[first]]
    lines[0]["label"], lines[1]["label"] = "b", "a new class"
    with open(file, "w", newline="") as text:
        writer = csv.DictWriter(text, lines[0].keys())
        writer.writeheader()
        writer.writerows(lines)
    label, drawn = read_review(str(file), e, items, ranking, y)
    assert label[first] == 1 and label[(first + 1) % n] == 3 and (label >= 0).sum() == 2 and drawn[0] == first


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
