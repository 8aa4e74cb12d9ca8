"""compare --on: two runs of different data on the same queries and the same gallery, by one set of labels."""

import csv
import json

import numpy as np
import pytest
from likewise.config import Compare, Evaluate, Train
from likewise.types import LikewiseError
from PIL import Image

import likewise
from likewise.cli import main as cli
from likewise.data import load
from likewise.learn.training.fit import train
from likewise.score.compare import Compared, compare
from likewise.score.evaluate import evaluate


def on(a, b, data, **settings):
    return compare(Compare(str(a), str(b), on=str(data), device="cpu", quiet=True, **settings), lambda line: None)


@pytest.fixture(scope="module")
def corrected(features, tmp_path_factory):
    """The features with 40 corrected labels, which also move rows between train and test classes, and a run on them."""
    folder, items = tmp_path_factory.mktemp("corrected"), load(features)
    y, moved = items.y.copy(), np.random.default_rng(0).choice(288, 40, replace=False)
    y[moved] = (y[moved] + 11) % 24
    np.savez(folder / "corrected.npz", x=items.x, label=y)
    run = train(Train(
        data=str(folder / "corrected.npz"), out=str(folder / "after"), dim=8, steps=60, lr=3e-3, quiet=True, device="cpu",
        sampler="SamplesPerClass(batch=24, per_class=4)",
    ))  # fmt: skip
    return run, folder / "corrected.npz", y


def test_both_are_scored_by_the_labels_of_the_data_without_what_either_trained_on(run, corrected, features):
    after, data, y = corrected
    result = on(run.path, after.path, data)
    scored = (load(features).y >= 12) & (y >= 12)
    rows = np.flatnonzero(scored)
    assert result["on"]["rows"] == 288 and result["on"]["trained"] == [144, int((y < 12).sum())]
    assert result["on"]["left_out"] == 288 - len(rows) and result["queries"] == len(rows)
    for side, one in (("a", run), ("b", after)):  # each run alone, on a file of exactly these rows
        file = data.parent / f"{side}.npz"
        np.savez(file, x=load(features).x[rows], label=y[rows])
        alone = evaluate(Evaluate(target=str(one.path), data=str(file), device="cpu", quiet=True))
        assert alone["left_out"] == 0
        assert {n: m[side] for n, m in result["metrics"].items()} == pytest.approx(alone["metrics"])
    assert json.loads(json.dumps(result)) == result
    assert likewise.compare(run, after, on=data, device="cpu", quiet=True) == result


def test_the_interval_is_that_of_compare_on_the_same_queries(run, corrected, features, tmp_path):
    after, data, y = corrected
    rows = np.flatnonzero((load(features).y >= 12) & (y >= 12))
    np.savez(tmp_path / "same.npz", x=load(features).x[rows], label=y[rows])
    for name, one in (("a", run), ("b", after)):
        settings = {"data": str(tmp_path / "same.npz"), "per_query": str(tmp_path / f"{name}.parquet")}
        evaluate(Evaluate(target=str(one.path), device="cpu", quiet=True, **settings))
    plain = compare(Compare(str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")))
    found = on(run.path, after.path, data)
    for name, about in plain["metrics"].items():
        for unit in ("over_classes", "over_queries"):
            assert found["metrics"][name][unit] == pytest.approx(about[unit])
        assert found["metrics"][name]["conclusion"] == about["conclusion"]


def test_a_refused_comparison_suggests_it(run, corrected):
    with pytest.raises(LikewiseError, match=r"`likewise compare A B --on DATA` scores both on the same images"):
        compare(Compare(str(run.path), str(corrected[0].path)))


def test_the_same_run_is_recognised_and_views_have_the_sentence(run, features):
    result = on(run.path, run.path, features)
    assert result["same"].startswith("A and B are the same run")
    page = Compared(result)._repr_html_()
    assert "144 of the 288 feature vectors are left out" in page and "by the labels of toy.npz" in page


def test_what_cannot_be_compared_is_named(run, corrected, features, picture_run, pictures, tmp_path):
    after, data, _ = corrected
    items = load(features)
    np.savez(tmp_path / "few.npz", x=items.x[:152], label=items.y[:152])
    for sides, where, settings, says in [
        ((run.path / "per_query.parquet", after.path), data, {}, "A and B must be run folders, got '.*per_query.parquet'"),
        ((run.path, after.path), data, {"metrics": ("R@1", "NMI")}, "must have a value per query, got 'NMI'"),
        ((run.path, after.path), pictures, {}, "which are features of 16 numbers, but .* holds images"),
        ((run.path, after.path), tmp_path / "few.npz", {}, r"at least 10 queries are needed that neither run trained on, got "
         r"\d: of the 152 feature vectors of 'few.npz', A trained on 144 and B on \d+, \d are left"),
        ((run.path, after.path), data, {"metrics": ("R@500",)}, "the metrics need 500 results"),
    ]:  # fmt: skip
        with pytest.raises(LikewiseError, match=says):
            on(*sides, where, **settings)
    with pytest.raises(LikewiseError, match="--root is for the data of --on; drop it, or give --on DATA"):
        compare(Compare(str(run.path), str(run.path), root=str(tmp_path)))


def draw(c, seed):
    """A noisy stripe pattern: the class is its frequency and colour."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(20) * (0.4 + 0.25 * (c % 5)))[:, None, None] * np.array(
        [90, 60 - 20 * (c % 3), 20 * (c % 4)]
    )
    return Image.fromarray((128 + wave + rng.normal(0, 20, (20, 20, 3))).clip(0, 255).astype(np.uint8))


def test_a_folder_with_wrong_labels_is_corrected_trained_again_and_compared(small, tmp_path, capsys, monkeypatch):
    """Classes k0 to k9; each folder has a picture of another class, and the correction removes class k3 altogether."""
    monkeypatch.setenv("COLUMNS", "200")
    rows = []
    for c in range(10):
        for i in range(7):
            given = (c + 5) % 10 if i == 0 else c  # it crosses from train to test classes, or back
            file = tmp_path / "photos" / f"k{given}" / f"{c}-{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            draw(c, 10 * c + i).save(file)
            rows.append((f"photos/k{given}/{c}-{i}.png", f"k{4 if c == 3 else c}"))
    with (tmp_path / "corrected.csv").open("w", newline="") as text:
        csv.writer(text).writerows([("path", "label"), *sorted(rows)])
    before = train(Train(data=str(tmp_path / "photos"), out=str(tmp_path / "before"), **small))
    after = train(Train(data=str(tmp_path / "corrected.csv"), out=str(tmp_path / "after"), **small))
    words = ["--on", str(tmp_path / "corrected.csv"), "--device", "cpu", "--workers", "0", "--quiet"]
    cli.main(["compare", str(before.path), str(after.path), *words])
    out = capsys.readouterr().out
    # A trained on the folders k0 to k4, five pictures of which are of the classes 5 to 9. The corrected table has nine
    # classes (3 is 4), of which k0, k1, k2 and k4 train: 35 pictures. The other pictures of the classes 5 to 9 are left.
    assert "on the same 30 images, by the labels of corrected.csv." in out
    assert "40 of the 70 images are left out, because a run trained on them (A on 35, B on 35)" in out
    assert "R@1 " in out and " -> " in out
