"""Targets of a report: runs and files, their names, splits, queries, scores and relevance."""

import dataclasses

import numpy as np
import pytest
from likewise.config import Report, Search, Train
from likewise.relevance import SharedLabels
from likewise.types import Items, LikewiseError
from report.made_facts import SETS

from likewise.data.features import read_embeddings
from likewise.deploy.index.search_index import search
from likewise.learn.training.fit import train
from likewise.report.report_target import (
    NO_TEST_SPLIT_NOTE,
    by_class,
    is_tested,
    open_target,
    relevance_of,
    score_now,
    shown_split,
    trained_relevance,
    unique_names,
    vectors_of,
)
from likewise.report.section import ReportTarget
from likewise.report.sections.scores import scales
from likewise.report.write_report import collect_facts

WAY = {"quiet": True, "device": "cpu", "workers": 0}


def test_names_are_as_long_as_it_takes(tmp_path):
    for name in ("a/run", "b/run", "c/other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run.npz").write_bytes(b"")
    targets = [str(tmp_path / name) for name in ("a/run", "b/run", "c/other")]
    assert unique_names(tuple(targets)) == ["a/run", "b/run", "other"]
    assert unique_names((targets[0], targets[2])) == ["run", "other"]
    assert unique_names((targets[0], str(tmp_path / "run.npz")))[0] == "a/run"
    with pytest.raises(LikewiseError, match="given once"):
        unique_names((targets[0], f"{targets[0]}/../run"))
    with pytest.raises(LikewiseError, match="there is no"):
        unique_names(("nowhere",))


def test_a_run_comes_with_its_data_which_is_opened_once(finished):
    known = {}
    one = open_target(str(finished.path), "me", Report(**WAY), known, print)
    again = open_target(str(finished.path), "me", Report(**WAY), known, print)
    assert len(known) == 1 and again.data is one.data and one.notes == ()
    saved = read_embeddings(str(finished.path / "embeddings.npz"))
    assert (
        (one.items.x == saved.x).all()
        and one.scores == finished.scores
        and one.queries.row.tolist() == one.row.tolist()
    )
    assert [side.all() for side in one.query_gallery] == [True, True]


def test_queries_and_gallery_apart_are_asked_as_marked(tmp_path):
    rng, y = np.random.default_rng(0), np.arange(40) % 4
    asks = np.arange(40) < 10
    x = (np.eye(4)[y] + 0.4 * rng.normal(size=(40, 4))).astype(np.float32)
    np.savez(tmp_path / "two.npz", x=x, label=y, query=asks, gallery=~asks)
    one = open_target(str(tmp_path / "two.npz"), "two", Report(**WAY), {}, print)
    assert one.queries.row.tolist() == list(range(10)) and (one.queries.nearest >= 10).all()
    assert [side.sum() for side in one.query_gallery] == [10, 30]
    assert one.notes == ("its columns query and gallery are used: of 40 samples, 10 are queries and 30 gallery",)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    first = 10 + (unit[:10] @ unit[10:].T).argmax(1)
    assert one.queries.nearest[:, 0].tolist() == first.tolist()
    assert one.scores["metrics"]["R@1"] == (y[first] == y[:10]).mean()


@pytest.fixture(scope="module")
def marked_runs(tmp_path_factory):
    """Two runs on data with queries and a gallery; the first is scored without looking at them."""
    folder, y = tmp_path_factory.mktemp("marked"), np.repeat(np.arange(8), 10)
    x = (np.eye(8)[y] + 0.5 * np.random.default_rng(0).normal(size=(80, 8))).astype(np.float32)
    asks, answers = (np.arange(80) % 5 == i for i in (0, 1))
    np.savez(folder / "marked.npz", x=x, label=y, query=asks, gallery=answers)
    return [
        train(Train(
            data=str(folder / "marked.npz"), out=str(folder / name), protocol=f"{name}()", steps=2, dim=4, quiet=True,
            sampler="SamplesPerClass(batch=8, per_class=2)", metrics=("R@1", "MAP@R"), device="cpu",
        ), lambda line: None)
        for name in ("UnseenClasses", "QueryGallery")
    ]  # fmt: skip


@pytest.mark.parametrize("there", [True, False])
def test_a_run_is_shown_as_its_protocol_asked(marked_runs, there):
    moved = {} if there else {"data": "nowhere.npz"}
    plain, apart = (open_target(str(run.path), "me", Report(**WAY, **moved), {}, print) for run in marked_runs)
    assert (plain.data is None) != there
    assert [side.sum() for side in plain.query_gallery] == [40, 40] and [
        side.sum() for side in apart.query_gallery
    ] == [8, 8]
    assert [len(one.queries.row) for one in (plain, apart)] == [40, 8]


def test_runs_that_were_asked_different_things_have_no_best(marked_runs):
    config = Report(tuple(str(run.path) for run in marked_runs), map="none", **WAY)
    found = collect_facts(config, print)
    assert [seen.pool for seen in found.runs] == [0, 1] and "compared" not in found.found
    assert found.notes[0].startswith(
        "UnseenClasses, QueryGallery: the same samples with different queries, galleries or relevance"
    )
    assert not any(line.best for one in scales(found) for line in one.lines)


def test_a_run_that_trained_on_everything_has_nothing_to_score(settings):
    run = train(Train(**settings | {"protocol": "UnseenClasses(train=1)", "steps": 2}), lambda line: None)
    for items in (None, 288):  # embeddings come with the first search
        one = open_target(str(run.path), "all", Report(**WAY), {}, print)
        assert one.notes == (NO_TEST_SPLIT_NOTE,) and one.scores == {} and (one.items and len(one.items)) == items
        search(Search(target=str(run.path), query="0", **WAY), lambda line: None)


def test_sides_are_those_that_the_samples_mark():
    asks = np.arange(6) < 2
    plain = Items("toy", np.arange(6) // 2, ("a", "b", "c"))
    marked = Items("toy", np.arange(6) // 2, ("a", "b", "c"), query=asks, gallery=~asks)
    assert [side.sum() for side in ReportTarget("me", items=plain).query_gallery] == [6, 6]
    assert [side.tolist() for side in ReportTarget("me", items=marked).query_gallery] == [
        asks.tolist(),
        (~asks).tolist(),
    ]


def test_the_test_part_is_shown_where_there_are_several():
    items = Items(
        "some", np.array([0, 1, 0, 1]), ("a", "b"), ("0", "1", "2", "3"), x=np.eye(4, dtype=np.float32),
        split=np.array(["train", "test", "test", "val"]), group=np.arange(4),
    )  # fmt: skip
    shown, row, part = shown_split(items, np.array([10, 11, 12, 13]))
    assert part == "test" and row.tolist() == [11, 12] and shown.path == ("1", "2") and shown.y.tolist() == [1, 0]
    third = dataclasses.replace(items, y=np.array([0, 2, 1, 1]), class_name=("a", "b", "c"))
    shown = shown_split(third, np.arange(4))[0]  # classes that only train are gone
    assert shown.class_name == ("b", "c") and shown.y.tolist() == [1, 0] and shown.classes == 2
    assert shown.group.tolist() == [1, 2] and (shown.x == np.eye(4)[1:3]).all()
    same = dataclasses.replace(items, split=np.full(4, "train"))
    assert shown_split(same, np.arange(4))[2] == "train" and len(shown_split(same, np.arange(4))[0]) == 4
    assert shown_split(dataclasses.replace(items, split=None), np.arange(4))[2] == "all"


def test_junk_is_not_shown():
    items = Items(
        "some", np.array([0, 1, 2, 1]), ("a", "b", "junk"), x=np.eye(4, dtype=np.float32),
        junk=np.array([False, False, True, False]), camera=np.array(["c1", "c1", "c2", "c2"]),
    )  # fmt: skip
    shown, row, part = shown_split(items, np.arange(4))
    assert part == "all" and row.tolist() == [0, 1, 3] and shown.class_name == ("a", "b")
    assert shown.camera.tolist() == ["c1", "c1", "c2"]


def test_vectors_of_a_file_are_those_of_its_test_part(tmp_path):
    x = np.arange(8, dtype=np.float32).reshape(4, 2) + 1
    split = np.array(["train", "test", "train", "test"])
    np.savez(tmp_path / "some.npz", x=x, label=np.arange(4) % 2, split=split, similarity="euclidean")
    found, similarity = vectors_of(str(tmp_path / "some.npz"), Report())
    assert (found == x[1::2]).all() and similarity == "euclidean"


QUIET = Report(quiet=True, device="cpu")


def target(y, **known):
    x = np.eye(3, dtype=np.float32)[y]
    return ReportTarget("me", items=Items("toy", y, ("a", "b", "c"), x=x), row=np.arange(len(y)) + 10, **known)


def test_neighbours_are_rows_of_the_data():
    found = score_now(target(np.array([0, 0, 1, 1, 2])), QUIET)
    assert found.scores["metrics"]["R@1"] == 1 and found.scores["unscored"] == 1
    assert found.queries.row.tolist() == [10, 11, 12, 13, 14] and found.queries.nearest[0, 0] == 11


def test_of_many_queries_a_sample_is_ranked_against_all_rows(monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(np.arange(3), [20, 12, 8]))
    x = (np.eye(3)[y] + 0.8 * rng.normal(size=(40, 3))).astype(np.float32)
    one = ReportTarget("me", items=Items("toy", y, ("a", "b", "c"), x=x), row=np.arange(40) + 10)
    whole = score_now(one, QUIET)
    assert whole.queries.sample is None and len(whole.queries.row) == 40
    monkeypatch.setattr("likewise.report.report_target.USUAL_QUERY_COUNT", 40)
    assert score_now(one, QUIET).scores == whole.scores, "as many queries as the sample: all are ranked"
    monkeypatch.setattr("likewise.report.report_target.USUAL_QUERY_COUNT", 10)
    some = score_now(one, QUIET)
    assert some.scores["sample"] == some.queries.sample == {"queries": 10, "of": 40, "seed": 0}
    assert np.bincount(some.queries.label).tolist() == [5, 3, 2], "a quarter of each class"
    place = some.queries.row - 10
    assert (some.queries.nearest == whole.queries.nearest[place]).all()
    assert (some.queries.relevant == whole.queries.relevant[place]).all()
    for name, value in some.queries.each.items():
        assert value.tolist() == whole.queries.each[name][place].tolist()


def test_what_cannot_be_scored_is_noted():
    assert score_now(target(np.array([0, 1, 2])), QUIET).notes[-1].startswith("no query has a relevant")
    trained = Train(data="x", protocol="UnseenClasses(train=1)")
    assert not is_tested(trained) and is_tested(Train(data="x", protocol="my_lab.Mine()"))  # which may not be imported
    assert score_now(target(np.array([0, 0, 1, 1]), settings=trained), QUIET).notes == (NO_TEST_SPLIT_NOTE,)


NAMES = ("blue", "dress", "hat", "red", "shirt")
TREE = {"wren": ("bird",), "robin": ("bird",), "cat": ("mammal",)}


def shop():
    names = tuple("|".join(NAMES[one] for one in own) for own in SETS)
    return Items("shop", np.arange(5), names, label_name=NAMES, label_sets=SETS)


def test_sets_of_labels_are_compared_by_the_labels_in_common():
    found = relevance_of(ReportTarget("z", items=shop()))
    for a, ours in enumerate(SETS):
        by_hand = [len(set(ours) & set(theirs)) / len(set(ours) | set(theirs)) for theirs in SETS]
        assert found(a, np.arange(5)).tolist() == pytest.approx(by_hand, abs=1e-6)  # float32


def test_single_labels_have_none():
    items = Items("birds", np.arange(3), tuple(TREE), taxonomy=TREE)
    assert relevance_of(ReportTarget("z")) is None and relevance_of(ReportTarget("z", items=items)) is None
    assert relevance_of(ReportTarget("z", items=items, settings=Train("birds"))) is None


def test_a_run_is_shown_with_the_relevance_that_trained_it():
    items = Items("birds", np.arange(3), tuple(TREE), taxonomy=TREE)
    one = ReportTarget("z", items=items, settings=Train("birds", relevance="TreeDepth()"))
    found = relevance_of(one)
    assert found(0, np.arange(3)).tolist() == [1, 0.5, 0]
    overlap = Train("shop", relevance='SharedLabels(measure="any")')
    assert relevance_of(ReportTarget("z", items=shop(), settings=overlap))(0, np.array([4, 3])).tolist() == [1, 0]
    other = ReportTarget("z", items=items, settings=Train("birds", relevance="SharedLabels()"))
    assert trained_relevance(other, items) is None  # made for other data


def test_classes_in_classes_out():
    assert by_class(SharedLabels(SETS))(0, np.array([0])).dtype == np.float64
