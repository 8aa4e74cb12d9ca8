"""Comparing two runs: differences by hand, the same queries or an error, and --on: both on the same data."""

import csv
import dataclasses
import json
import shlex
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from likewise.config import Compare, Evaluate, Train
from likewise.types import LikewiseError
from PIL import Image

import likewise
from likewise.cli import main as cli
from likewise.data import load
from likewise.learn.training.fit import train
from likewise.runs.scores import PerQuery
from likewise.score.compare import Compared, compare
from likewise.score.evaluate import evaluate
from likewise.score.intervals import paired_interval
from likewise.score.same_queries import by_files, join


def write(file, each, label, **columns):
    """A per-query file; columns of one's own take the place of those made up."""
    n = len(label)
    usual = {
        "row": np.arange(100, 100 + n), "label": np.asarray(label), "class_name": [f"c{v}" for v in label],
        "relevant": np.full(n, 2), **each, "nearest": [np.array([1, 2])] * n,
        "nearest_similarity": list(np.random.default_rng(len(str(file))).random((n, 2)).astype(np.float32)),
    }  # fmt: skip
    pq.write_table(pa.table(usual | columns), file)
    return str(file)


@pytest.fixture
def pair(tmp_path):
    """Two sides of 48 queries in 12 classes; B gains on average, one query has nothing to find."""
    rng, label = np.random.default_rng(0), np.repeat(np.arange(12), 4)
    right = [rng.integers(0, 2, 48).astype(float), rng.integers(0, 4, 48).clip(0, 1).astype(float)]
    graded = rng.random(48) / 2
    values = [{"R@1": right[0], "MAP@R": graded}, {"R@1": right[1], "MAP@R": graded + 0.1 + 0.1 * rng.random(48)}]
    for each in values:
        for value in each.values():
            value[7] = np.nan
    path = [f"p/{i}.png" for i in range(48)]
    files = [write(tmp_path / f"{name}.parquet", each, label, path=path) for name, each in zip("ab", values)]
    return files, values, label


@pytest.fixture(scope="module")
def other(features, tmp_path_factory):
    """A run on the features like `finished`, trained less."""
    return train(Train(
        data=features, out=str(tmp_path_factory.mktemp("runs") / "other"), dim=8, steps=2, lr=3e-3, quiet=True,
        sampler="SamplesPerClass(batch=24, per_class=4)", protocol="UnseenClasses(val=0.3)", device="cpu",
    ))  # fmt: skip


def look(a, b, **settings):
    return compare(Compare(run_a=str(a), run_b=str(b), **settings))


def test_every_number_by_hand(pair):
    (a, b), values, label = pair
    result = look(a, b)
    assert (result["queries"], result["classes"], result["unscored"]) == (47, 12, 1)
    kept = [q for q in range(48) if q != 7]
    for name, found in result["metrics"].items():
        old, new = (side[name] for side in values)
        assert found["a"] == pytest.approx(sum(old[kept]) / 47) and found["b"] == pytest.approx(sum(new[kept]) / 47)
        gain = {q: new[q] - old[q] for q in kept}
        assert found["difference"] == pytest.approx(sum(gain.values()) / 47)
        by_class = {c: [gain[q] for q in kept if label[q] == c] for c in range(12)}
        means = {f"c{c}": sum(g) / len(g) for c, g in by_class.items()}
        assert found["classes"]["better"] == sum(m > 1e-9 for m in means.values())
        assert found["classes"]["worse"] == sum(m < -1e-9 for m in means.values())
        assert found["classes"]["better"] + found["classes"]["equal"] + found["classes"]["worse"] == 12
        assert {c["class"]: c["difference"] for c in found["classes"]["each"]} == pytest.approx(means)
        assert {c["class"]: c["queries"] for c in found["classes"]["each"]}["c1"] == 3
        order = [c["difference"] for c in found["classes"]["each"]]
        assert order == sorted(order, reverse=True)
        for unit, over in ((label, found["over_classes"]), (None, found["over_queries"])):
            want = paired_interval(old, new, unit)
            assert (over["low"], over["high"], over["p"]) == pytest.approx((want.low, want.high, want.p))
            assert over["n"] == want.n and over["reason"] == ""
            assert (over["low"] > 0) == (over["p"] < 0.05)
        assert found["over_queries"]["n"] == 47 and found["over_classes"]["n"] == 12


def test_classes_that_confuse_each_other_widen_the_interval(pair, tmp_path):
    """Classes 0 and 1, 2 and 3, ... are each other's nearest wrong result, and gain or lose together."""
    _, _, label = pair
    a, b = {"R@1": np.zeros(48)}, {"R@1": np.repeat([1.0, -1.0, 0.5, -0.5, 0.9, -0.8], 8)}
    rival = label + 1 - 2 * (label % 2)
    plain, both = ([write(tmp_path / f"{name}{len(more)}.parquet", side, label, **more) for name, side in (("a", a), ("b", b))]
                   for more in ({}, {"rival": rival}))  # fmt: skip
    narrow, wide = (look(*files)["metrics"]["R@1"]["over_classes"] for files in (plain, both))
    # each pair of classes is one unit: the variance of their sum is twice that of two independent classes
    assert (wide["high"] - wide["low"]) / (narrow["high"] - narrow["low"]) == pytest.approx(2**0.5, rel=0.06)


def test_queries_that_changed(pair, tmp_path):
    (a, b), values, label = pair
    result = look(a, b, csv=str(tmp_path / "changed ü.csv"))
    found = result["metrics"]["R@1"]
    old, new = (side["R@1"] for side in values)
    assert found["right_or_wrong"] and not result["metrics"]["MAP@R"]["right_or_wrong"]
    assert [q["row"] for q in found["better"]] == [100 + q for q in range(48) if (old[q], new[q]) == (0, 1)]
    assert [q["row"] for q in found["worse"]] == [100 + q for q in range(48) if (old[q], new[q]) == (1, 0)]
    first = result["metrics"]["MAP@R"]["better"][0]
    gain = values[1]["MAP@R"] - values[0]["MAP@R"]
    q = int(np.nanargmax(gain))
    assert first == {"row": 100 + q, "class": f"c{label[q]}", "a": values[0]["MAP@R"][q], "b": values[1]["MAP@R"][q],
                     "path": f"p/{q}.png"}  # fmt: skip
    assert len(result["metrics"]["MAP@R"]["better"]) == 47 and result["metrics"]["MAP@R"]["worse"] == []
    with (tmp_path / "changed ü.csv").open(encoding="utf-8", newline="") as text:
        lines = list(csv.DictReader(text))
    assert len(lines) == sum(len(m["better"]) + len(m["worse"]) for m in result["metrics"].values())
    assert [int(n["row"]) for n in lines if n["metric"] == "R@1" and n["b"] == "0.0"] == [
        q["row"] for q in found["worse"]
    ]
    assert {"metric": "MAP@R", "row": str(first["row"]), "path": first["path"]}.items() <= lines[-47].items()


def test_the_sentence_says_what_is_known(pair, tmp_path):
    (a, b), values, label = pair
    found = look(a, b)["metrics"]["MAP@R"]
    near, far, mean = (
        100 * v for v in (found["over_classes"]["low"], found["over_classes"]["high"], found["difference"])
    )
    says = f"points of MAP@R (95 % interval {near:.2f} to {far:.2f} over classes)"
    assert found["conclusion"] == f"B is better by {mean:.2f} {says}"
    assert look(b, a)["metrics"]["MAP@R"]["conclusion"].startswith(f"B is worse by {mean:.2f} points of MAP@R (95 %")
    noise = {"R@1": values[0]["R@1"][::-1].copy()}
    noise["R@1"][[7, 40]] = np.nan, 1.0
    even = look(a, write(tmp_path / "noise.parquet", noise, label))
    assert even["decides"] == "R@1"
    assert even["metrics"]["R@1"]["conclusion"].startswith("no difference in R@1 can be shown: B - A is ")
    assert " to +" in even["metrics"]["R@1"]["conclusion"]


def test_low_severity_is_better_and_only_queries_wrong_on_both_sides_count(tmp_path):
    rng, label = np.random.default_rng(0), np.repeat(np.arange(12), 8)
    right = rng.integers(0, 2, 96).astype(float)
    old = np.where(right == 1, np.nan, 0.5 + rng.random(96) / 2)
    new = np.where(np.arange(96) % 5 == 0, np.nan, 0.6 * old)
    a = write(tmp_path / "a.parquet", {"R@1": right, "severity": old}, label)
    b = write(tmp_path / "b.parquet", {"R@1": right, "severity": new}, label)
    found = look(a, b)
    assert found["queries"] == 96 and found["metrics"]["R@1"]["difference"] == 0
    about = found["metrics"]["severity"]
    less = np.nanmean(old - new)
    assert about["difference"] == pytest.approx(-less)
    assert about["conclusion"].startswith(f"B is better by {100 * less:.2f} points")
    both = int((~np.isnan(new)).sum())
    assert about["over_queries"]["n"] == both == len(about["better"]) and not about["worse"]
    assert about["classes"]["worse"] == 0 < about["classes"]["better"]


def test_few_classes_are_not_believed(pair, tmp_path):
    _, values, label = pair
    files = [write(tmp_path / f"few {i}.parquet", each, label % 4) for i, each in enumerate(values)]
    result = look(*files)
    about = result["metrics"]["MAP@R"]
    assert result["over"] == "queries" and about["over_classes"]["reason"].startswith("there are 4 classes")
    assert about["conclusion"].endswith("over queries of these 4 classes, too few to generalise to other classes)")
    one = [write(tmp_path / f"one {i}.parquet", each, label * 0) for i, each in enumerate(values)]
    assert look(*one)["metrics"]["MAP@R"]["over_classes"]["low"] is None


def test_lines_are_joined_by_row(pair, tmp_path):
    (a, b), _, _ = pair
    table = pq.read_table(b)
    pq.write_table(table.take(np.random.default_rng(0).permutation(48)), tmp_path / "turned.parquet")
    straight, turned = look(a, b), look(a, tmp_path / "turned.parquet")
    assert straight["metrics"] == turned["metrics"]


def test_other_queries_are_refused_and_counted(pair, tmp_path):
    (a, _), values, label = pair
    relevant, renamed = np.full(48, 2), [f"c{v}" for v in label]
    relevant[:5], renamed[:3] = 3, ["other"] * 3
    for columns, says in [
        ({"row": np.arange(110, 158)}, "20 queries are in one of them only; .*compare run folders with --on DATA"),
        (
            {"relevant": relevant},
            "5 of 48 queries have another class or number of relevant rows; compare",
        ),
        ({"class_name": renamed}, "3 of 48 queries have another class"),
        ({"row": np.arange(1000, 1048)}, "96 queries are in one of them only;"),
    ]:
        with pytest.raises(LikewiseError, match=f"A and B must .* same queries .*{says}"):
            look(a, write(tmp_path / "odd.parquet", values[1], label, **columns))


def test_runs_are_compared(run, other, tmp_path):
    result = look(run.path, other.path, out=str(tmp_path / "x.png"))
    assert json.loads(json.dumps(result)) == result
    for side, scores in (("a", run.scores), ("b", other.scores)):
        assert {name: m[side] for name, m in result["metrics"].items()} == pytest.approx(scores["metrics"])
    assert result["same"] is None and result["decides"] == "MAP@R"
    with Image.open(tmp_path / "x.png") as page:
        page.load()
        assert page.format == "PNG" and page.width == 1650
    assert list(look(run.path, other.path, metrics=("RP", "R@1"))["metrics"]) == ["RP", "R@1"]
    assert look(run.path, other.path, metrics=("RP", "MAP@R"))["decides"] == "RP"


def test_the_same_run_is_recognised(run, tmp_path):
    assert look(run.path, run.path)["same"].startswith("A and B are the same run: ")
    file = shutil.copy(run.path / "per_query.parquet", tmp_path)
    result = look(run.path, file)
    assert result["same"].startswith("A and B hold the same embeddings: every query finds the same neighbours")
    assert all(m["difference"] == 0 and not m["better"] and not m["worse"] for m in result["metrics"].values())


def test_runs_on_other_data_are_refused(run, other):
    about = json.loads((run.path / "config.json").read_text())
    (run.path / "config.json").write_text(json.dumps(about | {"data": "another"}))
    says = "their data differs; if you know the queries to be the same, compare the per_query.parquet of both"
    with pytest.raises(LikewiseError, match=says) as caught:
        look(run.path, other.path)
    *_, command = lines = str(caught.value).splitlines()
    words = ["likewise", "compare", str(run.path), str(other.path), "--on", about["config"]["data"]]
    assert len(lines) == 3 and shlex.split(command) == words
    assert look(run.path / "per_query.parquet", other.path / "per_query.parquet")["queries"] == 144


def test_what_cannot_be_compared_is_named(run, pair, tmp_path):
    (a, b), values, label = pair
    lone = write(tmp_path / "lone.parquet", {"P@3": values[0]["R@1"]}, label)
    for sides, settings, says in [
        ((a, tmp_path / "no"), {}, "compare: there is no file '.*no'; give a run folder"),
        ((a, tmp_path), {}, "is not a run folder"),
        ((a, lone), {}, "compare: A and B must share a metric, got R@1, MAP@R and P@3"),
        ((a, b), {"metrics": ("MAP@r",)}, r"'MAP@r' must have been measured in A .*did you mean 'MAP@R'\?"),
        ((a, b), {"out": "x.jpg"}, "compare: --out must end in .png"),
        ((a, b), {"csv": "x.txt"}, "compare: --csv must end in .csv"),
        ((a, b), {"csv": str(tmp_path / "no" / "x.csv")}, "compare: the folder of --csv '.*' does not exist"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            look(*sides, **settings)
    (run.path / "per_query.parquet").unlink()
    with pytest.raises(LikewiseError, match=r"no per_query.parquet; run `likewise evaluate"):
        look(a, run.path)


def test_the_command_speaks_plainly(pair, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    (a, b), _, _ = pair
    cli.main(["compare", a, b, "--metrics", "R@1", "MAP@R", "--csv", str(tmp_path / "c.csv")])
    out = capsys.readouterr().out
    assert "95 % over 12 classes" in out and "95 % over 47 queries" in out and "fixed" in out
    said = look(a, b, metrics=("R@1", "MAP@R"))["metrics"]["R@1"]["conclusion"]
    assert said[1:] in out
    assert "likewise bench" in out and "Queries without relevant rows, left out: 1." in out
    assert f"queries that changed: {tmp_path / 'c.csv'}" in out


def test_a_sample_of_the_data_has_the_same_queries_for_both(run, corrected, features):
    after, data, _ = corrected
    whole, few = on(run.path, after.path, data), on(run.path, after.path, data, queries=25)
    assert few["queries"] == few["sample"]["queries"] == 25
    assert few["sample"]["of"] == whole["queries"]
    assert on(run.path, after.path, data, queries=10_000) == whole


def test_a_corrected_table_is_compared_by_its_files():
    def side(row, path, label=(0, 1, 1), nearest=((1,), (2,), (1,)), rival=(1, 0, 0)):
        names = np.asarray(["a", "b"])[list(label)]
        return PerQuery(
            np.asarray(row), np.asarray(label), names, np.asarray([0, 1, 1]), {"R@1": np.asarray([0.0, 1.0, 1.0])},
            np.asarray(nearest), np.zeros((3, 1)), np.asarray(path), np.asarray(rival),
        )  # fmt: skip

    a = side([4, 5, 6], ["x/1.jpg", "y/1.jpg", "y/2.jpg"], nearest=[[5], [6], [5]])
    b = side([8, 2, 3], ["/all/y/2.jpg", "/all/x/1.jpg", "/all/y/1.jpg"], (1, 0, 1), [[3], [8], [8]])
    b = dataclasses.replace(b, relevant=np.asarray([1, 0, 1]), label=b.label + 5, rival=np.asarray([5, 6, 9]))
    _, found = join(a, b, True)
    assert found.row.tolist() == [4, 5, 6] and found.class_name.tolist() == ["a", "b", "b"]
    assert found.nearest.tolist() == [[6], [6], [5]]
    assert found.rival.tolist() == [1, -1, 0]  # in the numbers of A; class 9 has no query
    assert by_files(a, dataclasses.replace(b, path=np.asarray(["/all/y/2.jpg", "/all/x/1.jpg", "/all/z.jpg"]))) is None
    with pytest.raises(LikewiseError, match="1 of 3 queries have another class"):
        join(a, dataclasses.replace(b, class_name=np.asarray(["a", "a", "b"])), True)


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


def test_the_same_run_is_recognised_and_views_have_the_sentence(run, features):
    result = on(run.path, run.path, features)
    assert result["same"].startswith("A and B are the same run")
    page = Compared(result)._repr_html_()
    assert "144 of the 288 feature vectors are left out" in page and "by the labels of toy.npz" in page


def test_what_cannot_be_compared_on_other_data_is_named(run, corrected, features, picture_run, pictures, tmp_path):
    after, data, _ = corrected
    items = load(features)
    np.savez(tmp_path / "few.npz", x=items.x[:152], label=items.y[:152])
    for sides, where, settings, says in [
        ((run.path / "per_query.parquet", after.path), data, {}, "A and B must be run folders, got '.*per_query.parquet'"),
        ((run.path, after.path), data, {"metrics": ("R@1", "NMI")}, "must have a value per query, got 'NMI'"),
        ((run.path, after.path), pictures, {}, "features of 16 numbers, .* holds images"),
        ((run.path, after.path), tmp_path / "few.npz", {}, r"at least 10 queries are needed that neither run trained on, got "
         r"\d: of the 152 feature vectors of 'few.npz', A trained on 144 and B on \d+, \d are left"),
        ((run.path, after.path), data, {"metrics": ("R@500",)}, "the metrics need 500 results"),
    ]:  # fmt: skip
        with pytest.raises(LikewiseError, match=says):
            on(*sides, where, **settings)
    with pytest.raises(LikewiseError, match="--root is for the data of --on"):
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
