"""A messy folder through the commands: what is broken or odd is named, and everything else works."""

import csv
import dataclasses
import os

import numpy as np
import pytest
from likewise.config import Audit, Embed, Evaluate, Noise, Search, Train
from likewise.errors import LikewiseError
from messy_folder import make_messy_folder

from likewise.cli.main import main
from likewise.curate.audit.audit import audit
from likewise.curate.audit.read import read_findings
from likewise.curate.audit.summary import show_findings
from likewise.data.class_folders import read_folder
from likewise.data.dataset import is_strict
from likewise.data.noisy_table import noise
from likewise.data.table import read_table
from likewise.deploy.index.search_index import search
from likewise.learn.training.fit import train
from likewise.papers.grid_plan import Planner
from likewise.score.embed_data import embed
from likewise.score.evaluate import evaluate

CPU = {"device": "cpu", "quiet": True, "workers": 0}
TINY = CPU | {"backbone": "conv_small", "size": 24, "dim": 8, "steps": 3, "batch_size": 8, "metrics": ("R@1",)}


@pytest.fixture(scope="module")
def messy(tmp_path_factory):
    return make_messy_folder(tmp_path_factory.mktemp("messy") / "my data")


@pytest.fixture(scope="module")
def trained(messy, tmp_path_factory):
    said = []
    out = tmp_path_factory.mktemp("runs") / "run"
    return train(Train(data=str(messy.root), out=str(out), **TINY), said.append), said


@pytest.fixture(scope="module")
def embedded(trained, messy, tmp_path_factory):
    file = tmp_path_factory.mktemp("embedded") / "z.npz"
    embed(Embed(run=str(trained[0].path), data=str(messy.root), out=str(file), layer="feature", **CPU), list)
    return file


def test_a_training_says_what_it_ignores_and_skips(trained, messy):
    run, said = trained
    assert run.done and [path for _, path in run.skipped] == messy.broken
    assert said[0] == f"ignored class folders without an image (1): '{messy.empty}'"
    assert said[1] == "ignored files that are not images (2): 2 .txt"
    assert said[2].startswith("skipped 3 of 53 images") and all(path in said[2] for path in messy.broken)


def test_the_class_of_one_is_named(messy, tmp_path):
    said = []
    settings = TINY | {"protocol": "UnseenClasses(train=1)", "steps": 1}
    train(Train(data=str(messy.root), out=str(tmp_path / "run"), **settings), said.append)
    assert f"training skips 1 of 7 classes, because they have one sample only: '{messy.lonely}'" in said


def test_the_run_is_scored_again_without_decoding_all(trained, monkeypatch):
    monkeypatch.setattr("likewise.data.broken_images.find_broken", lambda *_, **__: pytest.fail("images were checked"))
    run, _ = trained
    assert evaluate(Evaluate(target=str(run.path), metrics=("R@1",), **CPU)) == run.scores


def test_embeddings_have_the_right_paths_labels_and_rows(embedded, messy):
    with np.load(embedded) as z:
        assert z["path"].tolist() == [str(messy.root / path) for path in messy.good]
        assert z["class_name"].tolist() == [path.split("/")[0] for path in messy.good]
        assert z["row"].tolist() == list(range(50)) and str(z["root"]) == str(messy.root)
        alike = z["x"] @ z["x"].T
        a, b = (messy.good.index(path) for path in messy.copy)
        assert alike[a, b] == pytest.approx(alike[a, a], rel=1e-5)  # two float32 sums of the same image


def test_an_audit_of_the_embeddings_names_files(embedded, messy, tmp_path, capsys):
    folder = audit(Audit((str(embedded),), out=str(tmp_path / "audit"), **CPU), list).folder
    found = read_findings(folder)
    assert [one.path for one in found.sample.values()] == messy.good and found.about["root"] == str(messy.root)
    conflicts = [one for one in found.suspects if one.state == "conflict"]
    assert {one.path for one in conflicts} == set(messy.copy) and found.suspects[:2] == conflicts
    assert {one.reason for one in conflicts} == {
        f"same image as {path}, labelled {path.split('/')[0]}" for path in messy.copy
    }
    assert messy.lonely not in {one.suggested for one in found.sample.values()}
    with (folder / "duplicates.csv").open(encoding="utf-8") as lines:
        (pair,) = [line for line in csv.DictReader(lines) if line["same_label"] == "0"]
    assert (pair["path"], pair["other_path"]) == messy.copy
    with (folder / "pairs.csv").open(encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            assert line["query_path"] == messy.good[int(line["query"])]
            assert line["other_path"] == messy.good[int(line["other"])]
    show_findings(dataclasses.make_dataclass("Audited", ["folder"])(folder))
    told = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert told[0].startswith("Copies with different labels: 1 image in 2 files")


def test_a_search_finds_and_adds(embedded, trained, messy, tmp_path):
    run, _ = trained
    embed(Embed(run=str(run.path), data=str(messy.root), out=str(tmp_path / "z.npz"), **CPU), list)
    query = {"query": str(messy.root / messy.copy[0]), "k": 2}
    found = search(Search(target=str(tmp_path / "z.npz"), **query, **CPU))
    assert {one["path"] for one in found} == {str(messy.root / path) for path in messy.copy}
    folder, said = str(tmp_path / "index"), []
    search(Search(target=str(tmp_path / "z.npz"), save=folder, **CPU), list)
    search(Search(target=folder, add=str(messy.root), **CPU), said.append)
    assert any("skipped 3 of 53 images" in line for line in said)
    found = search(Search(target=folder, query=query["query"], k=4, **CPU))
    assert sorted(one["path"] for one in found) == sorted(2 * [str(messy.root / path) for path in messy.copy])
    with pytest.raises(LikewiseError, match="strict: no image is skipped"):
        search(Search(target=folder, add=str(messy.root), strict=True, **CPU), said.append)


def test_noise_writes_a_table_of_the_readable_images(messy, tmp_path):
    out = tmp_path / "noisy.csv"
    noise(Noise(data=str(messy.root), model="Uniform(share=0.2)", out=str(out), quiet=True), list)
    items = read_table(str(out))
    assert [os.path.relpath(path, messy.root) for path in items.path] == messy.good


def test_experiments_and_recipes_on_named_data_are_strict(messy, tmp_path):
    for settings, strict in (
        ({"data": "cub200", "recipe": "margin"}, True),
        ({"data": "glyphs(size=20)", "recipe": "margin"}, True),
        ({"data": "cub200"}, False),
        ({"data": str(messy.root), "recipe": "margin"}, False),
        ({"data": str(messy.root), "strict": True}, True),
    ):
        assert is_strict(Train(**settings)) == strict
    job = Planner(tmp_path, list).job(Train(data=str(messy.root), **TINY))
    assert job.config.strict
    with pytest.raises(LikewiseError, match="zero bytes.png.*strict: no image is skipped"):
        train(dataclasses.replace(job.config, out=str(tmp_path / "run")), list)


def test_the_old_flag_says_what_replaces_it(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "photos", "--skip-bad"])
    assert (
        "there is no flag '--skip-bad'; broken images are skipped by default, and --strict" in capsys.readouterr().err
    )


def test_what_a_folder_ignores_is_counted(messy, tmp_path):
    for name in ("train/a/1.png", "train/b/1.png", "test/c/1.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((messy.root / messy.good[0]).read_bytes())
    assert read_folder(str(tmp_path)).notes == ()
    for name in ("train/loose.jpg", "README", "test/c/a.json", "test/c/.hidden", "train/a/b.JSON"):
        (tmp_path / name).touch()
    assert read_folder(str(tmp_path)).notes == (
        "ignored images that are in no class folder (1): 'loose.jpg'",
        "ignored files that are not images (3): 2 .json, 1 no suffix",
    )
