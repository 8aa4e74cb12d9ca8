"""A sample of the queries: its drawing, its estimates by hand, and evaluations and comparisons of it."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from likewise.config import Compare, Evaluate
from likewise.types import LikewiseError, QuerySample
from score.by_hand import some

import likewise
from likewise.cli import main as cli
from likewise.score import scoring
from likewise.score.compare import compare
from likewise.score.evaluate import evaluate
from likewise.score.metrics import clustering
from likewise.score.query_sample import draw_queries, interval_of_all, mean_over_sampled_classes


def classes_of(rng, sizes):
    """Embeddings of classes of these sizes, of which some queries find their class and others do not."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    return (rng.normal(size=(len(sizes), 6))[y] + 0.8 * rng.normal(size=(len(y), 6))).astype(np.float32), y


@pytest.fixture
def uneven():
    rng = np.random.default_rng(3)
    return classes_of(rng, rng.integers(1, 15, 120))


def sample_of(order, of, chance=None):
    n = len(order)
    chance = np.ones(n) if chance is None else np.asarray(chance, float)
    return QuerySample(np.ones(n, bool), np.asarray(order), chance, of, 0, 0)


@pytest.mark.parametrize("count", [1, 17, 60, 333, 999])
def test_every_class_has_its_share_rounded_down_or_up(count):
    rng = np.random.default_rng(0)
    label = rng.permutation(np.repeat(np.arange(40), rng.integers(1, 60, 40)))[:1000]
    drawn = draw_queries(label, count)
    assert len(np.unique(drawn)) == count
    size, own = (np.bincount(y, minlength=40) for y in (label, label[drawn]))
    share = size * count / len(label)
    assert (own >= np.floor(share - 1e-9)).all()
    assert (own <= np.ceil(share + 1e-9)).all()
    ends = label[drawn][1:] != label[drawn][:-1]
    assert ends.sum() + 1 == len(np.unique(label[drawn]))  # a class is drawn in one piece
    assert np.array_equal(drawn, draw_queries(label, count))
    assert count == 1 or not np.array_equal(drawn, draw_queries(label, count, seed=1))


def test_every_query_has_the_same_chance():
    label = np.repeat(np.arange(12), np.arange(1, 13))
    times = np.bincount(np.concatenate([draw_queries(label, 20, seed) for seed in range(4000)]), minlength=len(label))
    expected = 4000 * 20 / len(label)
    assert np.abs(times - expected).max() < 4.5 * np.sqrt(expected * (1 - 20 / len(label)))


def test_interval_of_all_by_hand():
    """Ten of 40 queries, in the order of drawing 1 1 0 1 1 1 0 1 0 1: six changes, V = 3/4 * 10 / 18 * 6 / 100."""
    value = np.array([1.0, 1, 1, 1, 1, 1, 1, 0, 0, 0])
    order = np.array([0, 1, 7, 2, 3, 4, 8, 5, 9, 6])
    assert value[order].tolist() == [1, 1, 0, 1, 1, 1, 0, 1, 0, 1]
    found = interval_of_all(value, sample_of(order, 40))
    variance = 0.75 * 10 / 18 * 6 / 100
    reach = 2.446912 * variance**0.5 / (0.7 * 0.3)  # t of 6 degrees of freedom
    middle = np.log(0.7 / 0.3)
    assert found == pytest.approx([1 / (1 + np.exp(-middle + s * reach)) for s in (1, -1)], abs=1e-6)
    plain = interval_of_all(value * 3 - 1, sample_of(order, 40))  # no share: symmetric
    assert plain == pytest.approx([1.1 - s * 3 * 2.446912 * variance**0.5 for s in (1, -1)], abs=1e-6)
    near = interval_of_all(value, sample_of(order, 11))
    assert near is not None
    assert found is not None
    assert near[1] - near[0] < found[1] - found[0]


def test_no_interval_of_all_without_spread_or_with_few_values():
    assert interval_of_all(np.ones(30), sample_of(np.arange(30), 100)) is None
    few = np.where(np.arange(30) < 9, np.arange(30) % 2, np.nan)
    assert interval_of_all(few, sample_of(np.arange(30), 100)) is None


def test_mean_over_sampled_classes_by_hand():
    """A large class (chance 1) of mean 0.5, and two of the four small ones (chance 1/2) of means 1 and 0."""
    value, label = np.array([1.0, 0.0, 1.0, 0.0, np.nan]), np.array([7, 7, 3, 4, 4])
    sample = sample_of(np.arange(5), 10, chance=[1, 1, 0.5, 0.5, 0.5])
    assert mean_over_sampled_classes(value, label, sample) == pytest.approx((0.5 + 2 * 1 + 2 * 0) / 5)


def test_a_sample_is_ranked_exactly_against_the_whole_gallery(uneven, tmp_path):
    z, y = uneven
    files = [tmp_path / "all.parquet", tmp_path / "some.parquet"]
    full = likewise.evaluate(z, y, quiet=True, per_query=files[0], metrics=("R@1", "MAP@R", "mAP"))
    some_of = likewise.evaluate(z, y, quiet=True, per_query=files[1], metrics=("R@1", "MAP@R", "mAP"), queries=200)
    every, part = (pq.read_table(file).to_pandas().set_index("row") for file in files)
    assert len(part) == 200
    for column in ("label", "relevant", "R@1", "MAP@R", "mAP"):
        assert np.array_equal(part[column], every.loc[part.index, column])
    assert all(np.array_equal(a, b) for a, b in zip(part["nearest"], every.loc[part.index, "nearest"]))
    assert some_of["metrics"]["MAP@R"] == pytest.approx(part["MAP@R"].mean())
    alone = int((np.bincount(y) == 1).sum())
    assert some_of["sample"] == {"queries": 200, "of": len(y) - alone, "seed": 0}
    assert (some_of["queries"], some_of["unscored"], full["unscored"]) == (200, alone, alone)
    for name in ("R@1", "MAP@R", "mAP"):
        low, high = some_of["interval"][name]
        least, most = some_of["sample_interval"][name]
        assert low < some_of["metrics"][name] < high
        assert low < full["metrics"][name] < high
        assert most - least < high - low  # other classes vary, these rows do not


@pytest.mark.parametrize("extra", [0, 1000])
def test_all_queries_or_more_are_scored_as_without_the_setting(uneven, extra):
    z, y = uneven
    scored = len(y) - int((np.bincount(y) == 1).sum())
    assert likewise.evaluate(z, y, quiet=True, queries=scored + extra) == likewise.evaluate(z, y, quiet=True)


def test_marked_queries_groups_and_cameras_are_sampled(tmp_path):
    rng = np.random.default_rng(0)
    z, y = classes_of(rng, np.full(30, 12))
    camera = np.array(["left", "right"])[np.arange(len(y)) % 2]
    query = rng.random(len(y)) < 0.5
    np.savez(tmp_path / "z.npz", x=z, label=y, camera=camera, query=query, gallery=~query)
    found = likewise.evaluate(tmp_path / "z.npz", quiet=True, queries=60)
    assert found["queries"] == 60
    assert found["sample"]["of"] <= query.sum()
    assert sum(one["queries"] for one in found["cameras"].values()) == 60
    assert found["other_cameras"]["sample"] == found["sample"]


@pytest.mark.parametrize("queries", [0, -3])
def test_numbers_of_queries_below_one_are_refused(uneven, queries):
    with pytest.raises(LikewiseError, match=f"queries must be 1 or more, got {queries}"):
        likewise.evaluate(*uneven, quiet=True, queries=queries)


def test_bad_rows_and_classes_of_one(uneven):
    z, y = uneven
    broken = z.copy()
    broken[5] = np.nan
    with pytest.raises(LikewiseError, match="finite"):
        likewise.evaluate(broken, y, quiet=True, queries=20)
    with pytest.raises(LikewiseError, match="none of the 50 queries has a relevant gallery row"):
        likewise.evaluate(z[:50], np.arange(50), quiet=True, queries=20)
    one = likewise.evaluate(z, y, quiet=True, queries=1, metrics=("R@1",))
    assert one["queries"] == 1
    assert one["interval"] == one["sample_interval"] == {}


def test_a_review_needs_all_queries(uneven, tmp_path):
    with pytest.raises(LikewiseError, match="drop one of the two"):
        likewise.evaluate(*uneven, quiet=True, queries=20, correct_test_labels=str(tmp_path / "review.csv"))


def test_several_labels_per_sample_are_sampled():
    rng = np.random.default_rng(1)
    z, y = classes_of(rng, np.full(20, 9))
    labels = [[f"a{one % 5}", f"b{one}"] for one in y]
    found = likewise.evaluate(z, labels, quiet=True, queries=45)
    assert found["sample"] == {"queries": 45, "of": 180, "seed": 0}
    assert found["relevance"]["relevant"] == "any label shared"


def test_terminal_names_the_sample(uneven, tmp_path, capsys):
    np.savez(tmp_path / "z.npz", x=uneven[0], label=uneven[1])
    cli.main(["evaluate", str(tmp_path / "z.npz"), "--queries", "150"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "estimates from a random sample of 150 of " in printed
    assert "95 % intervals of the values without sampling, on the same rows" in printed


def test_a_long_ranking_names_the_setting(uneven, capsys, monkeypatch):
    for name, value in (("LONG_RANKING_SECONDS", 0.0), ("MIN_TIMED_SECONDS", 0.0), ("USUAL_QUERY_COUNT", 100)):
        monkeypatch.setattr(scoring, name, value)
    likewise.evaluate(*uneven)
    assert capsys.readouterr().err.count("--queries 100` ranks a random sample") == 1
    likewise.evaluate(*uneven, queries=150)
    assert "--queries" not in capsys.readouterr().err
    likewise.evaluate(*uneven, quiet=True)
    assert "--queries" not in capsys.readouterr().err


def test_scores_of_a_run_are_kept_and_a_first_sample_is_stored(finished, tmp_path, capsys):
    import shutil

    run = tmp_path / "run"
    shutil.copytree(finished.path, run)
    evaluate(Evaluate(str(run), quiet=True, device="cpu"))
    before = (run / "scores.json").read_bytes()
    said = []
    found = evaluate(Evaluate(str(run), queries=30, quiet=True, device="cpu"), said.append)
    assert found["sample"]["queries"] == 30
    assert (run / "scores.json").read_bytes() == before
    assert any("has the scores of all queries" in line for line in said)
    (run / "scores.json").unlink()
    (run / "per_query.parquet").unlink()
    evaluate(Evaluate(str(run), queries=30, quiet=True, device="cpu"))
    assert json.loads((run / "scores.json").read_text())["sample"] == found["sample"]
    with np.load(run / "embeddings.npz") as saved:
        assert "query" not in saved  # of the sample: all rows stay queries
    assert "random sample" in likewise.write_report(run, out=str(tmp_path / "r.html")).path.read_text()
    evaluate(Evaluate(str(run), quiet=True, device="cpu"))
    assert "sample" not in json.loads((run / "scores.json").read_text())


def test_compared_samples_are_the_same_queries(tmp_path):
    x, y = some(rows=400, classes=20)
    other = x + 0.5 * np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
    files = {name: str(tmp_path / f"{name}.parquet") for name in ("a", "b", "all", "other")}
    for name, z, n in (("a", x, 120), ("b", other, 120), ("all", other, None), ("other", other, 90)):
        likewise.evaluate(z, y, quiet=True, per_query=files[name], queries=n)
    both = compare(Compare(files["a"], files["b"]))
    assert both["queries"] == 120
    assert both["sample"] == {"queries": 120, "of": 400, "seed": 0}
    joined = compare(Compare(files["a"], files["all"]))  # all queries of B, of which A has a sample
    assert joined["metrics"] == both["metrics"]
    assert compare(Compare(files["all"], files["a"]))["sample"] == both["sample"]
    assert "random sample of 120 of 400 queries" in both._repr_html_()
    with pytest.raises(LikewiseError, match="score both with the same --queries"):
        compare(Compare(files["a"], files["other"]))
    with pytest.raises(LikewiseError, match="--queries is for the data of --on"):
        compare(Compare(files["a"], files["b"], queries=50))


def test_pair_metrics_of_a_sample_cover_those_of_all_pairs():
    rng = np.random.default_rng(5)
    z, y = classes_of(rng, rng.integers(1, 9, 600))
    names = ("AUROC", "EER", "TAR@FAR=0.01")
    full = likewise.evaluate(z, y, quiet=True, metrics=names)["metrics"]
    found = likewise.evaluate(z, y, quiet=True, metrics=names, queries=len(y) // 3)
    assert found["pairs_sample"] == {"rows": len(y) // 3, "of": len(y)}
    for name in names:
        low, high = found["sample_interval"][name]
        assert low < full[name] < high
        assert high - low < 0.1
    every = likewise.evaluate(z, y, quiet=True, metrics=names, queries=len(y))
    assert every["metrics"] == full


def test_clustering_of_a_large_set_is_refused_before_the_ranking(uneven, monkeypatch):
    monkeypatch.setattr(clustering, "MAX_CPU_PRODUCTS", 1e6)
    with pytest.raises(LikewiseError, match="into 120 clusters, which is limited to 1e.06"):
        likewise.evaluate(*uneven, metrics=("R@1", "NMI"), quiet=True)
    assert "R@1" in likewise.evaluate(*uneven, metrics=("R@1",), quiet=True)["metrics"]
