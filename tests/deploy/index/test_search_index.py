"""Searching: the right neighbours, under the network that made the gallery; how they are shown."""

import json
import shutil

import numpy as np
import pytest
import torch
from likewise.config import Embed, Evaluate, Search, Train
from likewise.types import LikewiseError
from made_calibration import make_calibration, threshold
from PIL import Image

from likewise.core.render.gallery import EDGE_PIXELS, GAP_PIXELS, TILE_PIXELS
from likewise.data import load
from likewise.deploy.index.known_unknown import decide
from likewise.deploy.index.search_index import Neighbours, describe_decision, percent, search, show_neighbours
from likewise.learn.training.fit import train
from likewise.score.embed_data import embed
from likewise.score.evaluate import evaluate


def look(target, query, **settings):
    return search(Search(target=str(target), query=str(query), device="cpu", workers=0, quiet=True, **settings))


def test_a_row_finds_the_others(picture_run):
    items = load(str(picture_run.path / "embeddings.npz"))
    sims = items.x.astype(np.float64) @ items.x[2]
    order = [r for r in np.argsort(-sims, kind="stable") if r != 2]
    found = look(picture_run.path, 20, k=4, split="test")  # the test split begins at row 18 of the data
    assert [f["row"] for f in found] == [18 + r for r in order[:4]]
    assert [f["similarity"] for f in found] == pytest.approx([sims[r] for r in order[:4]], abs=1e-6)
    assert [f["path"] for f in found] == [items.path[r] for r in order[:4]]
    assert len(look(picture_run.path, 20, k=1000, split="test")) == 17  # all of the split


def test_a_row_is_found_without_the_pictures(picture_run, pictures, tmp_path):
    """Embeddings travel; pictures need not come along unless one wants to see them."""
    moved = shutil.copytree(pictures, tmp_path / "data")
    out = tmp_path / "z.npz"
    embed(Embed(run=str(picture_run.path), data=str(moved), out=str(out), quiet=True, device="cpu", workers=0))
    shutil.rmtree(moved)
    assert len(look(out, 3)) == 5
    with pytest.raises(LikewiseError, match="there is no such file"):
        look(out, 3, out=str(tmp_path / "page.png"))


def test_the_gallery_is_drawn(picture_run, pictures, tmp_path):
    for query in (str(pictures / "3 färg" / "bild 0.png"), "18"):
        look(picture_run.path, query, k=3, out=str(tmp_path / "found ü.png"))
        with Image.open(tmp_path / "found ü.png") as page:
            page.load()
            assert page.format == "PNG"
            assert page.width == 2 * EDGE_PIXELS + 4 * (TILE_PIXELS + GAP_PIXELS) + GAP_PIXELS
            seen = np.asarray(page.convert("RGB"))
        # the first answer to the first query is the picture itself: its colours are on the page twice
        assert (np.abs(seen.astype(int) - (200, 200, 40)).max(2) < 45).any()


def test_a_picture_of_the_gallery_finds_itself_first_and_is_marked(picture_run, pictures, tmp_path):
    file = pictures / "4 färg" / "bild 3.png"
    found = look(picture_run.path, file, k=6)
    assert (found[0]["path"], found[0]["class"]) == (str(file), "4 färg")
    sims = [f["similarity"] for f in found]
    assert sims[0] == pytest.approx(1, abs=1e-5) and sims == sorted(sims, reverse=True)
    assert [f["same"] for f in found] == [True, *[False] * 5]
    assert not any(f["same"] for f in look(picture_run.path, 20))
    with Image.open(file) as image:
        image.rotate(90).save(tmp_path / "turned.png")
    assert not any(f["same"] for f in look(picture_run.path, tmp_path / "turned.png"))


def test_queries_that_cannot_be_read_are_named(picture_run, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 and then nothing")
    (tmp_path / "empty.png").touch()
    for query, says in [
        (tmp_path / "missing.jpg", "missing.jpg: there is no such file"),
        (tmp_path / "broken.jpg", "broken.jpg: .*(not a picture|cannot be decoded)"),
        (tmp_path / "empty.png", "empty.png: the file is empty"),
        (tmp_path, "--query must be one image or a row, got the folder"),
        ("36", "got 36, but the target has 36 rows in 0 to 35"),
        ("-1", "-1: there is no such file"),
        ("²", "²: there is no such file"),
    ]:
        with pytest.raises(LikewiseError, match=says):
            look(picture_run.path, query)


def test_features_are_searched_by_row_only(run, pictures):
    assert len(look(run.path, 150)) == 5
    with pytest.raises(LikewiseError, match="cannot embed images; query by row number"):
        look(run.path, pictures / "0 färg" / "bild 0.png")


def test_embeddings_of_somebody_elses_model(picture_run, pictures, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "z.npz", x=rng.normal(size=(10, 8)).astype(np.float32), label=np.arange(10) % 2)
    file = pictures / "0 färg" / "bild 0.png"
    assert len(look(tmp_path / "z.npz", 4)) == 5
    with pytest.raises(LikewiseError, match="the target names none; give --model RUN"):
        look(tmp_path / "z.npz", file)
    assert len(look(tmp_path / "z.npz", file, model=str(picture_run.path))) == 5
    np.savez(tmp_path / "wide.npz", x=rng.normal(size=(10, 9)).astype(np.float32), label=np.arange(10) % 2)
    with pytest.raises(LikewiseError, match="the query has 8 dimensions and the target 9"):
        look(tmp_path / "wide.npz", file, model=str(picture_run.path))
    np.savez(tmp_path / "one.npz", x=np.ones((1, 4), np.float32), label=[0])
    with pytest.raises(LikewiseError, match="holds row 0 alone"):
        look(tmp_path / "one.npz", 0)


@pytest.mark.parametrize("checkpoint", ["last", "untrained"])
def test_the_query_passes_through_the_network_that_made_the_gallery(picture_run, pictures, tmp_path, checkpoint):
    """Else two spaces would be compared, and nobody would notice."""
    embed(Embed(
        run=str(picture_run.path), data=str(pictures), out=str(tmp_path / "z.npz"), checkpoint=checkpoint, quiet=True,
        device="cpu", workers=0,
    ))  # fmt: skip
    changed = {k: v.flip(0) for k, v in picture_run.load_tensors("model.safetensors").items()}
    picture_run.save_tensors("best.safetensors", changed)  # a best network unlike the others
    found = look(tmp_path / "z.npz", pictures / "2 färg" / "bild 1.png", k=1)
    assert found[0]["path"].endswith("2 färg/bild 1.png")
    assert found[0]["similarity"] == pytest.approx(1, abs=1e-5)


def test_a_run_that_was_not_evaluated_is_evaluated_first(picture_run, pictures):
    for name in ("scores.json", "embeddings.npz", "per_query.parquet"):
        (picture_run.path / name).unlink()
    assert len(look(picture_run.path, pictures / "3 färg" / "bild 1.png", split="test")) == 5
    assert (picture_run.path / "scores.json").exists()


def test_boxes_are_cut_in_the_picture_too(tmp_path, small):
    """Left half of every picture is its class colour, the right half black: no answer shows black."""
    lines = ["path,label,box"]
    for c in range(4):
        for i in range(3):
            image = Image.new("RGB", (40, 20), "black")
            image.paste((60 + 45 * c, 90 + 20 * i, 80), (0, 0, 20, 20))
            image.save(tmp_path / f"{c}{i}.png")
            lines.append(f"{c}{i}.png,{c},0 0 20 20")
    (tmp_path / "t.csv").write_text("\n".join(lines))
    settings = small | {"steps": 1, "sampler": "SamplesPerClass(batch=4, per_class=2)", "metrics": ("R@1",)}
    run = train(Train(data=str(tmp_path / "t.csv"), out=str(tmp_path / "run"), **settings))
    look(run.path, 6, k=3, out=str(tmp_path / "page.png"))
    page = np.asarray(Image.open(tmp_path / "page.png"))[74 : 74 + TILE_PIXELS]
    assert not (page.max(2) < 20).any()


def test_pictures_that_a_strangers_file_names_elsewhere_are_told(picture_run, pictures, tmp_path):
    told, page = [], str(tmp_path / "page.png")
    settings = {"query": "0", "k": 2, "out": page, "device": "cpu", "workers": 0, "quiet": True}
    search(Search(target=str(picture_run.path), **settings | {"query": "18"}), told.append)
    assert told == []  # those of its own data
    (tmp_path / "theirs").mkdir()
    own, other = tmp_path / "theirs" / "a.png", pictures / "0 färg" / "bild 0.png"
    shutil.copy(other, own)
    np.savez(tmp_path / "theirs" / "z.npz", x=np.eye(3), label=[0, 0, 1], path=[str(own), "a.png", str(other)])
    search(Search(target=str(tmp_path / "theirs" / "z.npz"), **settings), told.append)
    assert len(told) == 1 and told[0].startswith(
        f"1 of 3 images that the embeddings file names are outside of the data folders (first: {other})"
    )


def test_a_loss_on_raw_embeddings_is_searched_by_distance(settings, tmp_path):
    x = np.array([[1, 0], [10, 0], [1, 1], [0, 1]], np.float32)
    meta = {"run": str(tmp_path), "checkpoint": "best", "similarity": "euclidean"}
    np.savez(tmp_path / "z.npz", x=x, label=[0, 0, 1, 1], **{k: np.asarray(v) for k, v in meta.items()})
    found = look(tmp_path / "z.npz", 0, k=3)
    assert [f["row"] for f in found] == [2, 3, 1]  # by cosine row 1 would be first
    assert [f["similarity"] for f in found] == pytest.approx([-1, -(2**0.5), -9], abs=1e-5)


def test_home_and_relative_paths(picture_run, pictures, monkeypatch):
    monkeypatch.setenv("HOME", str(picture_run.path.parent))
    shutil.copy(pictures / "3 färg" / "bild 1.png", picture_run.path.parent / "q.png")
    assert look(f"~/{picture_run.path.name}", "~/q.png", k=1)[0]["class"] == "3 färg"
    monkeypatch.chdir(picture_run.path.parent)
    assert look(picture_run.path.name, "q.png", k=1)[0]["class"] == "3 färg"


def test_searching_leaves_the_random_numbers_of_the_caller_alone(picture_run, pictures):
    before = torch.get_rng_state()
    look(picture_run.path, pictures / "3 färg" / "bild 1.png")
    for checkpoint in ("best", "untrained"):
        evaluate(Evaluate(target=str(picture_run.path), checkpoint=checkpoint, workers=0, quiet=True, device="cpu"))
    assert torch.equal(before, torch.get_rng_state())


def test_answers_for_programs_are_lines_with_tabs(capsys):
    found = [{"row": 3, "similarity": 0.25, "class": "a b", "path": "x y.jpg", "same": False}]
    show_neighbours(Neighbours(found, "1"))
    assert capsys.readouterr().out == "0.2500\ta b\t3\tx y.jpg\n"


def test_names_in_data_do_not_steer_the_terminal(monkeypatch, capsys):
    """Escape sequences can retitle a window, hide lines or move the cursor."""
    found = [{"row": 3, "similarity": 0.25, "class": "a\x1b[2J\tb\nc", "path": "\x9b1m\u202e\udce9ü", "same": True}]
    show_neighbours(Neighbours(found, "1"))
    assert capsys.readouterr().out == "0.2500\ta\\x1b[2J\\tb\\nc\t3\t\\x9b1m\\u202e\\udce9ü\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    show_neighbours(Neighbours(found, "1\x1b[2J"))
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out and "\\x1b[2J" in out and "\x9b" not in out and "row 3 is the same image" in out


def test_a_notebook_shows_them_escaped():
    html = Neighbours([{"row": 3, "similarity": 0.25, "class": "<b>", "path": "p", "same": True}], "q")._repr_html_()
    assert "nearest to q" in html and "&lt;b&gt;" in html and "0.2500" in html and "row 3 is the same image" in html


def test_a_decision_is_one_sentence_and_the_lines_for_programs_stay(monkeypatch, capsys):
    found = [{"row": 3, "similarity": 0.25, "class": "a b", "path": "x.jpg", "same": False}]
    unknown = decide(make_calibration(0.5), 0.25, "a b")
    show_neighbours(Neighbours(found, "1", unknown))
    out, err = capsys.readouterr()
    said = "unknown: not near enough to any known class (similarity 0.2500, threshold 0.5000); "
    said += "if it is one of them: a b, probability 25 %"
    assert out == "0.2500\ta b\t3\tx.jpg\n" and err == f"{said}\n"
    known = decide(make_calibration(0.5), 0.995, "a b")
    assert describe_decision(known) == "a b, probability above 99 % (similarity 0.9950, threshold 0.5000)"
    refused = decide(make_calibration(unknown=threshold(None)), 0.75, "a b")
    assert describe_decision(refused) == (
        "nearest is a b, probability 75 %; known or unknown cannot be decided: 30 classes promise 0.2 at best"
    )
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    show_neighbours(Neighbours(found, "1", unknown))
    show_neighbours(Neighbours(found, "1", hint="run `likewise calibrate runs/a`"))
    out = capsys.readouterr().out
    assert "unknown: not near enough to any known class" in out and "run `likewise calibrate runs/a`" in out
    assert "not near enough to any known class" in Neighbours(found, "1", unknown)._repr_html_()
    assert percent(0.004) == "below 1 %" and percent(0.5) == "50 %"


def test_json_has_the_decision_and_the_new_classes():
    found = [{"row": 3, "similarity": 0.25, "class": "ü", "path": "x.jpg", "same": False}]
    told = json.loads(Neighbours(found, "1", decide(make_calibration(0.5), 0.25, "ü"), "", [{"class": "n"}]).as_json())
    assert told["unknown"] is True and told["label"] is None and told["probability"] == 0.25 and told["nearest"] == "ü"
    assert told["found"] == found and told["new_classes"] == [{"class": "n"}] and "hint" not in told
