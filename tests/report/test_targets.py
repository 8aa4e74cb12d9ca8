"""What a report is pointed at: names that tell targets apart, parts, sides, and what is left of a run."""

import numpy as np
import pytest
from likewise.config import Report, Search, Train
from likewise.types import LikewiseError

from likewise.data.features import read_embeddings
from likewise.deploy.index.search_index import search
from likewise.learn.training.fit import train
from likewise.report.score_now import NO_TEST_SPLIT_NOTE
from likewise.report.sections.scores import scales
from likewise.report.targets import open_target, unique_names
from likewise.report.write import collect_facts

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
