"""The report of runs: its facts beside what the folders hold, and a page whatever is missing."""

import dataclasses
import shutil
from collections import Counter

import numpy as np
import pytest
from likewise.config import Report
from likewise.types import Items, LikewiseError

from likewise.report import write_report as stage
from likewise.report.section import Facts, ReportTarget, RunView
from likewise.report.write_report import (
    choose_image_places,
    key_of,
    make_pool,
    note_different_queries,
    report,
)
from likewise.runs.folder import Run
from likewise.runs.scores import read_per_query


@pytest.fixture
def facts(monkeypatch):
    """`facts(*targets, **settings)`: what would be shown."""
    seen = []

    def write_page(facts, file, quiet):
        seen.append(facts)
        return file

    monkeypatch.setattr(stage, "write_page", write_page)

    def find(*targets, **settings) -> Facts:
        report(Report(tuple(map(str, targets)), quiet=True, device="cpu", **({"map": "pca", "workers": 0} | settings)))
        return seen[-1]

    return find


def test_the_page_is_there_before_the_map_that_takes_its_time(finished, monkeypatch):
    pytest.importorskip("openTSNE")
    pages, said = [], []
    monkeypatch.setattr(stage, "write_page", lambda facts, file, quiet: pages.append(facts) or file)
    monkeypatch.setattr(stage, "draw_slow_map", lambda z, name, similarity, way, config: z[:, :2].numpy())
    report(Report((str(finished.path),), quiet=True, device="cpu", map="tsne"), said.append)
    assert [list(page.runs[0].found["map"]) for page in pages] == [["PCA"], ["PCA", "t-SNE"]] and "until t-SNE" in said[
        0
    ]
    assert pages[1].runs[0].found["map"]["t-SNE"].shape == (len(pages[1].pools[0].row), 2)


def test_two_runs_of_one_data_set_share_a_pool_and_are_compared(finished, run, facts):
    for name in ("embeddings.npz", "per_query.parquet", "scores.json"):
        (run.path / name).unlink()  # it will be evaluated
    found = facts(finished.path, run.path, k=3, top=4)
    (pool,), (a, b) = found.pools, found.runs
    assert a.pool == b.pool == 0 and (a.name, b.name) == ("finished", "my run ü") and pool.split == "test"
    queries = read_per_query(finished.path / "per_query.parquet", "test")
    assert pool.row.tolist() == queries.row.tolist() and a.main_metric == "MAP@R"
    assert [pool.class_name[c] for c in pool.label] == queries.class_name.tolist()
    row = {r: place for place, r in enumerate(queries.row)}
    assert a.near.tolist() == [[row[r] for r in near[:3]] for near in queries.nearest]
    worst = a.found["galleries"]["worst"][0]
    assert (
        worst.value == queries.each["MAP@R"].min()
        and [x.place for x in worst.neighbours] == a.near[worst.place].tolist()
    )
    assert len(a.found["galleries"]["worst"]) == 4 and a.found["map"]["PCA"].shape == (len(pool.row), 2)
    text = f"{100 * finished.scores['metrics']['R@1']:.1f} %"
    assert a.scores["R@1"].text.startswith(text) and b.scores["R@1"] == a.scores["R@1"]
    (compared,) = found.found["compared"]
    assert (compared.a, compared.b) == (0, 1) and not compared.queries
    assert compared.conclusion.startswith("finished and my run ü hold the same embeddings")
    assert found.found["overlap"].runs == ("finished", "my run ü")
    assert {c.panel for c in a.found["curves"]} >= {"loss", "validation"}
    assert "noise" not in a.found and a.found.keys() >= {"distances", "spectrum", "tree"}
    assert pool.caption is None and not pool.images


def test_pictures_are_small_and_go_first_to_what_is_shown(picture_run, facts):
    found = facts(picture_run.path, top=1, k=2, max_images=5)
    (pool,), (one,) = found.pools, found.runs
    worst = one.found["galleries"]["worst"][0]
    assert len(pool.images) == 5 and {worst.place, *(a.place for a in worst.neighbours)} <= pool.images.keys()
    assert all(max(image.size) <= 128 for image in pool.images.values())
    assert pool.caption[0] == "bild 0.png" and one.headline.startswith("MultiSimilarity() on ")


def test_a_page_without_pictures_where_the_data_is_gone(pictures, finished_pictures, tmp_path, facts):
    data = shutil.copytree(pictures, tmp_path / "moved")
    found = facts(finished_pictures.path, data=str(data))
    assert found.pools[0].images and not found.notes
    first = sorted(data.rglob("*.png"))[-1]
    first.write_bytes(b"broken")
    found = facts(finished_pictures.path, data=str(data))  # another size: not the data it was trained with
    assert "have changed" in found.runs[0].notes[0] and found.runs[0].found["galleries"]
    copy = Run(shutil.copytree(finished_pictures.path, tmp_path / "copy"))
    about = copy.read_json("config.json")
    about["config"]["data"] = str(tmp_path / "nowhere")
    copy.write_json("config.json", about)
    with np.load(copy.path / "embeddings.npz") as file:
        columns = {name: file[name] for name in file.files}
    np.savez(copy.path / "embeddings.npz", **columns | {"path": np.char.add("/nowhere/", columns["path"])})
    found = facts(copy.path)
    assert "could not be opened" in found.runs[0].notes[0] and "--data" in found.runs[0].notes[0]
    assert not found.pools[0].images and found.pools[0].caption and "cannot be read" in found.notes[0]
    assert found.title == "copy"  # the run, not its data


def test_a_run_that_left_only_its_queries_or_only_its_log(run, facts):
    (run.path / "embeddings.npz").write_bytes(b"no archive")
    (one,) = facts(run.path).runs
    assert "map" not in one.found and one.found["galleries"]
    assert "could not be used" in one.notes[0] and "evaluate" in one.notes[0]
    (run.path / "embeddings.npz").unlink()
    for file in run.path.glob("*.safetensors"):
        file.unlink()
    (one,) = facts(run.path).runs
    assert "map" not in one.found and one.found["galleries"] and one.near is not None and "no map" in one.notes[0]
    (run.path / "per_query.parquet").unlink()
    (one,) = facts(run.path).runs
    assert one.pool == -1 and one.found["curves"] and "no scores yet" in one.notes[0]
    (run.path / "done").unlink()
    found = facts(run.path)
    assert "not finished" in found.runs[0].notes[0] and found.pools == () and found.title == "my run ü"


def test_a_file_of_embeddings_is_scored_where_nobody_did(tmp_path, facts):
    rng, y = np.random.default_rng(0), np.repeat(np.arange(6), 8)
    x = np.eye(6)[y] + 0.3 * rng.normal(size=(48, 6))
    np.savez(tmp_path / "mine.npz", x=x.astype(np.float32), label=y)
    (one,) = facts(tmp_path / "mine.npz", k=20).runs
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    sim = unit @ unit.T - 2 * np.eye(48)
    assert one.scores["R@1"].mean == np.mean(y[sim.argmax(1)] == y) and one.headline.startswith("48 embeddings of 6")
    assert (one.near == np.argsort(-sim, axis=1)[:, :20]).all() and one.found["confusion"].matrix.shape[0] >= 2
    split = np.where(np.arange(48) % 2, "test", "train")
    np.savez(tmp_path / "parts.npz", x=x.astype(np.float32), label=y, split=split, row=np.arange(48))
    found = facts(tmp_path / "parts.npz")
    assert found.pools[0].row.tolist() == list(range(1, 48, 2)) and "the test split" in found.runs[0].notes[0]
    np.savez(tmp_path / "alone.npz", x=x[::8].astype(np.float32), label=y[::8])
    (one,) = facts(tmp_path / "alone.npz").runs
    assert one.scores == {} and "no query has a relevant" in one.notes[0] and one.found["map"]


def test_pictures_that_a_strangers_file_names_elsewhere_are_told(pictures, tmp_path, facts, capsys):
    other = [str(pictures / f"{c} färg" / "bild 0.png") for c in (0, 1)]
    (tmp_path / "theirs").mkdir()
    shutil.copytree(pictures, tmp_path / "theirs" / "own")
    own = [f"own/{c} färg/bild {i}.png" for c in (0, 1) for i in range(2)]
    np.savez(
        tmp_path / "theirs" / "z.npz", x=np.random.default_rng(0).normal(size=(4, 3)), label=[0, 0, 1, 1], path=own
    )
    facts(tmp_path / "theirs" / "z.npz")
    assert "outside" not in capsys.readouterr().out
    np.savez(tmp_path / "theirs" / "z.npz", x=np.eye(4), label=[0, 0, 1, 1], path=own[:2] + other)
    facts(tmp_path / "theirs" / "z.npz")
    assert (
        f"z: 2 of 4 images that the embeddings file names are outside of the data folders (first: {other[0]})"
        in capsys.readouterr().out
    )


def test_tiny_files_and_odd_columns_are_shown_too(tmp_path, facts):
    for n in (1, 2, 3):
        x, row = np.eye(3, dtype=np.float32)[:n], np.zeros(n)
        np.savez(tmp_path / "tiny.npz", x=x, label=np.arange(n) % 2, row=row)
        found = facts(tmp_path / "tiny.npz", map="pca")
        assert found.pools[0].row.tolist() == list(range(n)) and found.runs[0].near.shape == (n, 8)


def test_runs_that_cannot_be_compared_are_shown_all_the_same(finished, run, facts, monkeypatch):
    def refuse(*parts):
        raise LikewiseError("compare: no")

    monkeypatch.setattr("likewise.report.sections.compared.compare_runs", refuse)
    found = facts(finished.path, run.path)
    assert "compared" not in found.found and found.notes[0] == "finished and my run ü are not compared (compare: no)"


def test_learned_clusters_colour_the_map(run, facts):
    names = facts(run.path).pools[0].class_name
    trees = {name: [f"level 1 cluster {i % 3}"] for i, name in enumerate(names)}
    run.write_json("hierarchy.json", {"classes": trees})
    (grouping,) = facts(run.path).pools[0].groupings
    assert grouping.name == "learned level 1" and grouping.of_class.tolist() == [i % 3 for i in range(len(names))]


def test_the_page_is_written_where_it_is_wanted(picture_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    way = {"map": "none", "quiet": True, "device": "cpu", "workers": 0}
    assert report(Report((str(picture_run.path),), **way)).path == picture_run.path / "report.html"
    assert "<html" in (picture_run.path / "report.html").read_text("utf-8")
    file = shutil.copy(picture_run.path / "embeddings.npz", tmp_path / "some.npz")
    assert stage.page_path(Report((str(file),))).absolute() == tmp_path / "report.html"
    assert stage.page_path(Report((str(file),), out="x.html")).name == "x.html"


def test_what_cannot_be_shown_is_said(run, tmp_path):
    (tmp_path / "empty").mkdir()
    np.save(tmp_path / "bare.npy", np.ones((3, 2)))
    cases = {
        "at least one": {"runs": ()}, "there is no 'nowhere'": {"runs": ("nowhere",)},
        "not a run folder": {"runs": (str(tmp_path / "empty"),)}, "labels": {"runs": (str(tmp_path / "bare.npy"),)},
        "given once": {"runs": (str(run.path), f"{run.path}/.")}, "top must be 0 or more": {"top": -1},
    }  # fmt: skip
    for words, settings in cases.items():
        with pytest.raises(LikewiseError, match=words):
            report(Report(**{"runs": (str(run.path),), "quiet": True, "map": "pca"} | settings))


def test_a_page_that_cannot_be_written_is_found_before_the_analysis(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "collect_facts", lambda *_: pytest.fail("the runs were analysed"))
    for out, message in (("nowhere/r.html", "does not exist; create it first"), ("r.pdf", "--out must end in .html")):
        with pytest.raises(LikewiseError, match=message):
            report(Report((str(tmp_path),), out=str(tmp_path / out)))


def test_the_missing_map_is_added_to_those_that_are_there(tmp_path, monkeypatch):
    x = np.arange(8, dtype=np.float32).reshape(4, 2) + 1
    np.savez(tmp_path / "some.npz", x=x, label=np.arange(4) % 2, similarity="euclidean")
    seen = RunView("me", 0, "", {}, {}, "", {"map": {"PCA": x}, "tree": 1})
    monkeypatch.setattr(stage, "draw_slow_map", lambda z, name, similarity, way, config: -z.numpy())
    found = stage.add_slow_map(str(tmp_path / "some.npz"), seen, Report(map="umap")).found
    assert list(found["map"]) == ["PCA", "UMAP"] and (found["map"]["UMAP"] == -x).all() and found["tree"] == 1
    assert stage.add_slow_map("nowhere", seen, Report(map="pca")) is seen
    assert stage.slow_map(RunView("me", -1, "", {}, {}, ""), Report(map="tsne")) == ""


ITEMS = Items("toy", np.arange(6) // 2, ("a", "b", "c"), ("x/0.png", "x\\1.png", "2.png", "3.png", "4.png", "5.png"))
ONE = ReportTarget("me", items=ITEMS, row=np.arange(6))


def test_the_same_samples_with_other_queries_are_another_pool():
    asks = np.arange(6) < 2
    other = dataclasses.replace(ONE, items=dataclasses.replace(ITEMS, query=asks, gallery=~asks))
    keys = [key_of(ONE), key_of(other)]
    assert key_of(ONE) == keys[0] != keys[1] and keys[0][0] == keys[1][0]
    viewed = [RunView(name, number, "", {}, {}, "") for number, name in enumerate("ab")]
    (note,) = note_different_queries(keys, viewed)
    assert (
        note.startswith("a, b: the same samples with different queries")
        and list(note_different_queries(keys[:1], viewed[:1])) == []
    )


def test_captions_are_file_names():
    pool = make_pool(ONE)
    assert pool.name == "toy" and pool.caption == ("0.png", "1.png", "2.png", "3.png", "4.png", "5.png")
    assert make_pool(dataclasses.replace(ONE, items=dataclasses.replace(ITEMS, path=None))).caption is None


def test_pictures_go_to_what_is_shown_and_then_round_the_classes():
    label = np.repeat([0, 1, 2], [20, 10, 2])
    places = choose_image_places(label, [7, 3, 7], 11)
    assert places[:2].tolist() == [7, 3] and len(set(places.tolist())) == 11
    assert min(Counter(label[choose_image_places(label, [], 6)].tolist()).values()) == 2
    assert sorted(choose_image_places(label, [1], 99)) == list(range(32))
