"""Odd tables, folders and files of embeddings through the commands: an error before any work, or the right result."""

import os
import re
import shutil

import numpy as np
import pytest
from likewise.config import Audit, Clean, Embed, Evaluate, Noise, Report, Search, Train
from likewise.errors import LikewiseError
from odd_data import BAD_TABLES, GOOD_TABLES, TABLE, bad_embeddings, bad_folders, bad_labels, make_photos, special_files

from likewise.curate.audit.audit import audit
from likewise.curate.clean import clean
from likewise.data.noisy_table import noise
from likewise.deploy.index.search_index import search
from likewise.learn.train import train
from likewise.report.write_report import report
from likewise.score.embed_data import embed
from likewise.score.evaluate import evaluate

CPU = {"device": "cpu", "quiet": True, "workers": 0}
TINY = CPU | {"backbone": "conv_small", "size": 24, "dim": 8, "steps": 1, "batch_size": 4, "metrics": ("R@1",)}
FEATURES = {"backbone": "efficientnet_lite0"}

READERS = {
    "noise": lambda data: noise(Noise(data=data, model="Uniform(share=0.2)", out="noisy.csv", quiet=True), list),
    "train": lambda data: train(Train(data=data, out="new run", **TINY), list),
    "audit": lambda data: audit(Audit((data,), out="audited", **FEATURES, **CPU), list),
    "clean": lambda data: clean(Clean(data, out="cleaned", port=0, browser=False, **FEATURES, **CPU), list),
    "embed": lambda data: embed(Embed(run="run", data=data, out="new.npz", **CPU), list),
    "evaluate": lambda data: evaluate(Evaluate(target="run", data=data, metrics=("R@1",), **CPU), list),
}
"""Command -> a call that reads images."""

SCORERS = {
    "audit": lambda file, labels: audit(Audit((file,), out="audited", labels=labels, **CPU), list),
    "evaluate": lambda file, labels: evaluate(Evaluate(target=file, labels=labels, metrics=("R@1",), **CPU), list),
    "report": lambda file, labels: labels or report(Report(runs=(file,), out="page.html", **CPU), list),
    "train": lambda file, labels: labels or train(Train(data=file, out="new run", dim=4, steps=1, **CPU), list),
    "noise": lambda file, labels: labels or READERS["noise"](file),
    "search": lambda file, labels: labels or search(Search(target=file, query="0", **CPU), list),
}
"""Command -> a call that reads a file of embeddings; without labels, some do nothing if there is a file of labels."""


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Return a folder with images in p and a run of them in run."""
    root = make_photos(tmp_path_factory.mktemp("odd"))
    train(Train(data=str(root / "p"), out=str(root / "run"), **TINY), list)
    return root


@pytest.fixture
def here(photos, monkeypatch):
    """Change into the folder; computing features fails the test, because every problem can be found before."""
    pytest.importorskip("fastapi", reason="clean serves a page")
    monkeypatch.chdir(photos)
    monkeypatch.setattr("likewise.curate.audit.source.write_features", heavy)
    monkeypatch.setattr("likewise.score.embed_data.embed_rows", heavy)
    return photos


def heavy(*_, **__):
    raise AssertionError("features were computed")


def refused(call, message: str) -> None:
    """Check that a call raises a LikewiseError that matches, in one line without control characters."""
    with pytest.raises(LikewiseError) as caught:
        call()
    assert type(caught.value).__module__.startswith("likewise")
    text = str(caught.value)
    assert re.search(message, text), text
    assert len(text) < 1500 and text.count("\n") < 8


def test_bad_tables_are_refused_by_every_command_before_any_work(here, subtests):
    for name, (content, message) in BAD_TABLES.items():
        (here / "t.csv").write_bytes(content)
        for command, call in READERS.items():
            if name == "one class" and command in ("audit", "clean", "embed"):
                continue  # they have a result: nothing is flagged
            with subtests.test(table=name, command=command):
                refused(lambda call=call: call("t.csv"), message)


def test_bad_folders_are_refused_by_every_command_before_any_work(here, subtests):
    for name in bad_folders(here / "f"):
        shutil.rmtree(here / "f", ignore_errors=True)
        (here / "f").unlink(missing_ok=True)
        make, message = bad_folders(here / "f")[name]
        make()
        for command, call in READERS.items():
            if (name, command) == ("only loose images", "embed"):
                continue  # it embeds them without labels
            is_file = name == "a file" and command in ("audit", "clean")
            with subtests.test(folder=name, command=command):
                refused(lambda call=call: call("./f"), "got the file of embeddings './f'" if is_file else message)


def test_tables_in_other_forms_are_the_same_data(here, subtests):
    for name, content in GOOD_TABLES.items():
        with subtests.test(table=name):
            (here / "t.csv").write_bytes(content)
            items = READERS["noise"]("t.csv").items
            assert items.class_name == ("cat", "dog", "elk", "fox") and items.y_clean.tolist() == sorted(
                [0, 1, 2, 3] * 4
            )
            assert [os.path.normpath(path) for path in items.path] == [line.split(",")[0] for line in TABLE.split()[1:]]


def test_bad_embeddings_and_labels_are_refused_by_every_command(here, subtests):
    for name, (file, message) in bad_embeddings(here).items():
        for command, call in SCORERS.items():
            if command == "report" and name == "one row":
                continue  # the page says that nothing can be scored
            with subtests.test(embeddings=name, command=command):
                refused(lambda call=call, file=file: call(file, None), message)
    np.save(here / "v.npy", np.eye(6, dtype=np.float32)[np.arange(24) % 6])
    for name, (file, message) in bad_labels(here).items():
        for command in ("audit", "evaluate"):
            with subtests.test(labels=name, command=command):
                refused(lambda command=command, file=file: SCORERS[command]("v.npy", file), message)


def test_special_files_and_links_are_left_out_with_a_reason(here, tmp_path, subtests):
    root = make_photos(tmp_path) / "p"
    with special_files(root / "cat") as names:
        said = []
        items = noise(Noise(data=str(root), model="Uniform(share=0.2)", out=str(tmp_path / "n.csv")), said.append).items
        assert len(items) == 16 and sorted(path for path, _ in items.left_out) == [f"cat/{name}" for name in names]
        assert any(line.startswith(f"left out {len(names)} links or folders") for line in said)
        for command, strict in (
            ("train", Train(data=str(root), strict=True, **TINY)),
            ("audit", Audit((str(root),), strict=True, **CPU, **FEATURES)),
        ):
            with subtests.test(command=command):
                refused(
                    lambda c=command, s=strict: {"train": train, "audit": audit}[c](s, list),
                    "cat/[a-z.]*: .* strict: no image is skipped",
                )


def test_settings_of_an_audit_are_checked_before_its_features(here, monkeypatch, subtests):
    rows = TABLE.split()[1:]
    (here / "votes.csv").write_text("sample,worker,label\np/cat/0.png,ann,horse\n")
    (here / "taken").write_text("a file")
    head = "path,label,{}\n"
    for name, table, settings, message in (
        ("votes for an unknown class", TABLE, {"votes": "votes.csv"}, "a label must be a class of 't', got 'horse'"),
        ("votes that are missing", TABLE, {"votes": "nothing.csv"}, "nothing.csv cannot be read"),
        ("a folder that is a file", TABLE, {"out": "taken"}, "--out must be a folder, got 'taken'"),
        ("a folder below a file", TABLE, {"out": "taken/audit"}, "--out must be a folder, got 'taken/audit'"),
        ("a name that is too long", TABLE, {"out": "x" * 300}, "names have at most 255 characters"),
        ("one image", "path,label\n" + rows[0], {}, "two samples or more, got 1"),
        (
            "one image in the test split",
            head.format("split") + "\n".join(f"{row},{'train' if at else 'test'}" for at, row in enumerate(rows)),
            {},
            "two samples or more, got 1",
        ),
        ("junk alone", head.format("junk") + "\n".join(f"{row},1" for row in rows), {}, "all 16 rows of 't' are junk"),
    ):
        (here / "t.csv").write_text(table)
        config = {"out": "audited", **settings}
        with subtests.test(name):
            refused(lambda c=config: audit(Audit(("t.csv",), **c, **FEATURES, **CPU), list), message)
    monkeypatch.setenv("LIKEWISE_TOKEN", "short")
    (here / "t.csv").write_text(TABLE)
    refused(lambda: READERS["clean"]("t.csv"), "LIKEWISE_TOKEN must have at least")
