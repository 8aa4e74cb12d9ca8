"""Indices of runs: all images by default, embedded once, saved, changed, and searched only with their network."""

import shutil

import numpy as np
import pytest
from likewise.config import Search, Train
from likewise.types import LikewiseError

from likewise.deploy.index import stored_rows as kept
from likewise.deploy.index.open_index import (
    blank_image,
    count_rows,
    gallery_of_run,
    is_current,
    open_index,
    path_of,
    row_image,
    scope_of,
    write_all,
)
from likewise.deploy.index.search_index import search
from likewise.deploy.index.vector_index import Index
from likewise.learn.training.fit import train
from likewise.runs.open import OpenRun


def settings(run, **more):
    return Search(target=str(run.path), device="cpu", workers=0, quiet=True, **more)


def test_all_images_are_embedded_once(picture_run, monkeypatch):
    items, made_by = gallery_of_run(picture_run, settings(picture_run), print)
    assert len(items) == 36 and made_by["row"].tolist() == [*range(36)]
    assert items.split.tolist() == ["train"] * 18 + ["test"] * 18
    tested, _ = gallery_of_run(picture_run, settings(picture_run, split="test"), print)
    np.testing.assert_allclose(items.x[18:], tested.x, atol=1e-5)  # float32, in batches of other sizes
    monkeypatch.setattr(OpenRun, "embed", lambda *_, **__: pytest.fail("embedded twice"))
    again, _ = gallery_of_run(picture_run, settings(picture_run), print)
    assert np.array_equal(again.x, items.x)


def test_a_changed_network_embeds_again(picture_run):
    first, _ = gallery_of_run(picture_run, settings(picture_run), print)
    file = picture_run.path / "all_embeddings.npz"
    assert is_current(file, picture_run)
    tensors = picture_run.load_tensors("model.safetensors")
    picture_run.save_tensors("model.safetensors", {k: v.flip(0) for k, v in tensors.items()})
    assert not is_current(file, picture_run)
    second, _ = gallery_of_run(picture_run, settings(picture_run), print)
    assert is_current(file, picture_run) and not np.allclose(first.x, second.x)


def test_what_is_searched_in_words(picture_run, pictures, tmp_path):
    cases = ("all", "all of {}", "36 images, 6 classes"), ("test", "the test split of {} only", "18 images, 3 classes")
    for split, text, count in cases:
        config = settings(picture_run, split=split)
        index, network = open_index(config, print)
        assert scope_of(config, network) == text.format(pictures.name) and count_rows(index.rows) == count
        assert index.about["made_by"]["trained"] == (["0 färg", "1 färg", "2 färg"] if split == "all" else [])
    np.savez(tmp_path / "z.npz", x=np.eye(3), label=[0, 0, 0])
    config = Search(str(tmp_path / "z.npz"))
    index, network = open_index(config, print)
    assert scope_of(config, network) == "z.npz" and count_rows(index.rows) == "3 rows, 1 class"
    with pytest.raises(LikewiseError, match="--split test is for a run .*z.npz' is not"):
        open_index(Search(str(tmp_path / "z.npz"), split="test"), print)


def test_rows_of_no_split_are_not_searched(picture_run, monkeypatch):
    opened = OpenRun(picture_run, device="cpu", workers=0, quiet=True)
    rows = opened.protocol.rows
    monkeypatch.setattr(
        type(opened.protocol),
        "rows",
        lambda self, items, part: rows(items, part)[:-1] if part == "test" else rows(items, part),
    )
    write_all(opened, picture_run.path / "all_embeddings.npz")
    assert np.load(picture_run.path / "all_embeddings.npz")["row"].tolist() == [*range(35)]


@pytest.fixture
def told():
    return []


@pytest.fixture
def look(told):
    def look(target, **settings):
        return search(Search(target=str(target), device="cpu", workers=0, quiet=True, **settings), told.append)

    return look


@pytest.fixture
def shop(look, picture_run, tmp_path):
    look(picture_run.path, save=str(tmp_path / "shop ü.index"))
    return tmp_path / "shop ü.index"


def test_a_saved_index_answers_as_its_run_does(look, told, shop, picture_run, pictures):
    assert told == [f"index: {shop} (36 rows, exact)"]
    for query in (str(pictures / "4 färg" / "bild 3.png"), "20"):
        assert look(shop, query=query) == look(picture_run.path, query=query)
    shutil.move(picture_run.path, picture_run.path.with_name("moved"))
    assert len(look(shop, query="20")) == 5  # rows need no network
    with pytest.raises(LikewiseError, match="the target names none; give --model RUN"):
        look(shop, query=str(pictures / "4 färg" / "bild 3.png"))
    moved = str(picture_run.path.with_name("moved"))
    assert look(shop, query=str(pictures / "4 färg" / "bild 3.png"), model=moved)[0]["class"] == "4 färg"


def test_rows_are_added_and_removed_and_never_numbered_again(look, told, shop, pictures):
    look(shop, add=str(pictures), remove=(18, 19))
    assert told[-2:] == ["added: rows 36 to 71", f"index: {shop} (70 rows, exact)"]
    file = str(pictures / "0 färg" / "bild 2.png")
    found = look(shop, query=file, k=2)
    assert [one["path"] for one in found] == [file, file] and {one["class"] for one in found} == {"0 färg"}
    assert found[0]["row"] < 36 <= found[1]["row"]  # it was there before
    look(shop, remove=(71,), add=str(pictures / "0 färg"))
    assert "added: rows 72 to 77" in told
    with pytest.raises(LikewiseError, match="got 71"):
        look(shop, remove=(71,))
    with pytest.raises(LikewiseError, match="got 18, but .* 75 rows in 0 to 77"):
        look(shop, query="18")


def test_another_network_is_refused(look, shop, picture_run, pictures, tmp_path):
    query = str(pictures / "4 färg" / "bild 3.png")
    tensors = picture_run.load_tensors("model.safetensors")
    picture_run.save_tensors("model.safetensors", {k: v.flip(0) for k, v in tensors.items()})
    for settings in ({"query": query}, {"add": str(pictures)}, {"query": query, "model": str(picture_run.path)}):
        with pytest.raises(LikewiseError, match="network that embedded it .*got another"):
            look(shop, **settings)
    assert len(look(shop, query="20")) == 5
    assert len(Index.open(shop).rows) == 36


def test_an_approximate_index_is_built_kept_and_measured(look, told, picture_run, tmp_path):
    pytest.importorskip("faiss")
    look(picture_run.path, save=str(tmp_path / "i"), index="hnsw", k=3)
    assert told[0].startswith("hnsw: finds ") and told[0].endswith(" % of the true 3 nearest neighbours (36 queries)")
    assert told[1] == f"index: {tmp_path / 'i'} (36 rows, hnsw)"
    assert look(tmp_path / "i", query="20") == look(picture_run.path, query="20")
    assert Index.open(tmp_path / "i").kind == "hnsw"
    look(tmp_path / "i", index="exact")
    assert Index.open(tmp_path / "i").kind == "exact"


def test_a_query_writes_nothing(look, told, picture_run, tmp_path, monkeypatch):
    """Not even where the approximate index lags behind its rows: the folder may be read-only, or others may search in it."""
    pytest.importorskip("faiss")
    look(picture_run.path, save=str(tmp_path / "i"), index="hnsw", k=3)
    index = Index.open(tmp_path / "i")
    index.add(np.ones((12, 8), np.float32), ["new"] * 12, [""] * 12)  # as on the page, which leaves the graph alone
    before = {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in (tmp_path / "i").iterdir()}
    told.clear()
    monkeypatch.setattr(kept, "changing", lambda *_: pytest.fail("a query changed the index"))
    assert len(look(tmp_path / "i", query="20", k=47)) == 47
    assert before == {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in (tmp_path / "i").iterdir()}
    assert told == ["the hnsw index does not cover the current rows, so queries are slow; update it: --index hnsw"]
    monkeypatch.undo()
    look(tmp_path / "i", index="hnsw")
    assert Index.open(tmp_path / "i").graph.upto == 48


def test_what_cannot_work_is_told(look, shop, picture_run, run, tmp_path):
    for target, settings, says in [
        (shop, {}, "one action must be given, got none; give --query, --serve, --save"),
        (shop, {"out": str(tmp_path / "x.png"), "save": "y"}, "--out is a figure of the results of a --query"),
        (picture_run.path, {"add": "x"}, "must have a saved index as target; save it first"),
        (picture_run.path, {"save": str(shop)}, "--save must be a new or empty folder"),
        (shop, {"save": str(tmp_path / "two")}, "to duplicate it, copy the folder"),
        (shop, {"add": str(tmp_path / "nothing")}, "nothing"),
        (picture_run.path, {"index": "ivfpq"}, "must have at least 1000 rows, got 36"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            look(target, **settings)
    (shop / "index.json").unlink()
    with pytest.raises(LikewiseError, match="is damaged or incomplete"):
        look(shop, query="20")


def test_files_of_others_may_mean_something_else_by_row(look, tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 3))
    np.savez(tmp_path / "z.npz", x=x, label=[0, 0, 1, 1], row=list("abcd"))
    assert sorted(one["row"] for one in look(tmp_path / "z.npz", query="1")) == [0, 2, 3]
    np.savez(tmp_path / "z.npz", x=x * [[1], [1], [0], [1]], label=[0, 0, 1, 1])
    with pytest.raises(LikewiseError, match=r"must not be all zeros .*\(first: place 2\)"):
        look(tmp_path / "z.npz", query="1")


def test_pictures_of_rows_lie_where_they_were_or_beside_the_index(look, shop, pictures):
    index = Index.open(shop)
    assert path_of(index, 18) == str(pictures / "3 färg" / "bild 0.png") and row_image(index, 0).size == (24, 20)
    (shop / "pictures").mkdir()
    blank_image().save(shop / "pictures" / "new.png")
    index.add(np.ones((2, 8), np.float32), ["a", "b"], ["pictures/new.png", ""])
    assert path_of(index, 36) == str(shop / "pictures" / "new.png") and row_image(index, 36).size == (64, 64)
    assert path_of(index, 37) == "" and row_image(index, 37).size == (64, 64)


def test_a_run_that_trained_on_everything_is_searched_among_everything(look, told, pictures, small, tmp_path):
    everything = {"data": str(pictures), "out": str(tmp_path / "final"), "protocol": "UnseenClasses(train=1)"}
    run = train(Train(**small | everything | {"steps": 1}), told.append)
    file = str(pictures / "0 färg" / "bild 2.png")
    assert look(run.path, query=file)[0]["path"] == file
    with pytest.raises(LikewiseError, match="must have a test split for --split test"):
        look(run.path, query="0", split="test")
    assert len(look(run.path, query="0", k=99)) == 35
