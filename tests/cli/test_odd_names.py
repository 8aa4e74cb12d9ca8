"""Names in any bytes: from the folder through every command and back, without loss and without a terminal command."""

import csv
import json
import os
import re
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from likewise.errors import CONTROL_CHARACTERS
from odd_names import make_odd_names

from likewise.cli.main import main
from likewise.curate.audit.read import read_findings
from likewise.curate.review.consensus import as_csv, corrected
from likewise.curate.review.store import Decision
from likewise.data.class_folders import read_folder
from likewise.data.table import read_table
from likewise.runs.scores import read_per_query

CPU = ["--device", "cpu", "--workers", "0"]
TINY = [
    *CPU,
    *[
        "--backbone",
        "conv_small",
        "--size",
        "24",
        "--dim",
        "8",
        "--steps",
        "1",
        "--batch-size",
        "8",
        "--metrics",
        "R@1",
    ],
]


def run(*words, out=None):
    """Run a command; it must print neither undecodable bytes nor control characters. `out`: capsys."""
    main([str(word) for word in words])
    if out is not None:
        printed = "".join(out.readouterr())
        assert not CONTROL_CHARACTERS.search(re.sub(r"[\n\t]", "", printed)), printed
        assert printed.encode("utf-8")
        return printed
    return ""


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Return a folder with class folders in p, a run of them and their embeddings in z.npz, and change into it."""
    folder, before = tmp_path_factory.mktemp("names"), os.getcwd()
    os.chdir(folder)
    try:
        make_odd_names(folder / "p", classes=8, per_class=4)
    except OSError as error:
        pytest.skip(f"this file system refuses such names: {error}")
    run("train", "p", "--out", "run", "--quiet", *TINY)
    run("embed", "run", "p", "--out", "z.npz", *CPU)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def paths(here):
    """Return the paths of the images below p, as the folder reader sorts them."""
    found = [os.path.relpath(os.path.join(top, name), "p") for top, _, names in os.walk("p") for name in names]
    return sorted(found, key=lambda path: path.split("/"))


def labels(items):
    return [items.class_name[label] for label in items.y]


def of_path(path):
    return path.split("/")[-2]


def trimmed(path):
    """Return the class of a path as tables and files of embeddings have it: they trim the blanks around labels."""
    return of_path(path).strip()


def test_the_folder_and_the_files_of_the_run_have_the_names_of_the_system(here, paths):
    items = read_folder("p")
    assert list(items.path) == paths and labels(items) == list(map(of_path, paths))
    assert len(items.class_name) == 8 and "caf\udce9" in items.class_name
    assert "separate classes" in items.notes[-1] and "\\u" not in items.notes[-1]  # the two forms of été
    with np.load("z.npz") as z:
        assert z["path"].tolist() == [str(here / "p" / path) for path in paths]
        assert z["class_name"].tolist() == list(map(of_path, paths))
    found = read_per_query(here / "run/per_query.parquet", "test")
    assert len(found.path) and set(found.path) <= set(paths)
    assert found.class_name.tolist() == list(map(of_path, found.path))


def test_noise_writes_tables_that_train_reads(here, paths, capsys):
    for table in ("noisy.csv", "noisy.parquet"):
        run("noise", "p", "--model", "Uniform(share=0.3)", "--out", table, out=capsys)
        items = read_table(table)
        assert list(items.path) == [f"p/{path}" for path in paths]
        assert [items.class_name[label] for label in items.y_clean] == list(map(trimmed, paths))
        run("train", table, "--out", f"run of {table}", *TINY, out=capsys)
    assert b"caf\xe9" in (here / "noisy.csv").read_bytes()
    assert pq.read_schema("noisy.parquet").field("path").type == "binary"


def test_an_audit_and_its_correction_keep_the_bytes(here, paths, capsys):
    run("audit", "z.npz", "--out", "audit", *CPU, out=capsys)
    found = read_findings(here / "audit")
    samples = list(found.sample.values())
    assert [one.path for one in samples] == paths and [one.label for one in samples] == list(map(trimmed, paths))
    raw = (here / "audit/audit.csv").read_bytes()
    assert all(os.fsencode(path.split("/")[0]).replace(b'"', b'""') in raw for path in paths)
    assert pq.read_table("audit/audit.parquet")["path"].to_pylist() == [os.fsencode(path) for path in paths]
    page = (here / "audit/audit.html").read_text("utf-8")
    assert "\x1b" not in page and "\u202e" not in page
    decisions = [
        Decision(1, "", "ann", "sample", str(samples[0].row), "relabel", "\udcff\udcfe\udc80", ""),
        Decision(2, "", "ann", "sample", str(samples[9].row), "remove", "", ""),
    ]
    table = here / "audit/corrected.csv"
    table.write_bytes(as_csv(corrected(found, decisions, str(here / "p"))).encode("utf-8", "surrogateescape"))
    items = read_table(str(table))
    kept = [path for at, path in enumerate(paths) if at != 9]
    assert [os.path.relpath(path, here / "p") for path in items.path] == kept
    assert labels(items) == ["\udcff\udcfe\udc80", *map(trimmed, kept[1:])]
    run("train", table, "--out", "corrected", *TINY, out=capsys)


def test_a_search_prints_names_and_json_that_can_be_read(here, paths, capsys):
    query = ["search", "z.npz", "--query", f"p/{paths[0]}", "--k", "3", *CPU]
    run(*query, out=capsys)
    found = json.loads(run(*query, "--json", out=capsys).split("\n", 0)[0])
    assert found["found"][0]["path"] == str(here / "p" / paths[0]) and found["query"] == f"p/{paths[0]}"


def test_a_comparison_and_a_report_show_names(here, capsys):
    run("train", "p", "--out", "other", "--seed", "1", *TINY, out=capsys)
    run("compare", "other", "run", "--csv", "changed.csv", "--out", "changed.png", out=capsys)
    with open("changed.csv", newline="", encoding="utf-8", errors="surrogateescape") as file:
        assert {line["class"] for line in csv.DictReader(file)} <= {os.fsdecode(name) for name in os.listdir("p")}
    run("report", "run", "--out", "page.html", *CPU, out=capsys)
    page = (here / "page.html").read_text("utf-8")
    assert "\x1b" not in page and re.search(r"udce9|udcff", page)


@pytest.mark.process
def test_a_terminal_in_ascii_and_a_closed_locale(here):
    settings = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
    }
    words = ["noise", "p", "--model", "Uniform(share=0.3)", "--out", "ascii.csv"]
    done = subprocess.run([sys.executable, "-P", "-m", "likewise", *words], capture_output=True, env=settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and b"\x1b" not in done.stdout and b"caf\\udce9" in done.stdout
    assert (here / "ascii.csv").read_bytes().count(b"caf\xe9") >= 4


@pytest.mark.slow
def test_every_other_command(here, paths, capsys):
    for words in (
        ["audit", "p", "--backbone", "efficientnet_lite0", "--out", "of data", "--forecast", *CPU],
        ["audit", "run", *CPU],
        ["audit", "noisy of all.csv", "--backbone", "efficientnet_lite0", "--out", "of noise", *CPU],
        ["evaluate", "run", "--data", "p", "--out", "scores.json", *CPU],
        ["evaluate", "z.npz", *CPU],
        ["report", "z.npz", "--out", "of file.html", *CPU],
        ["hierarchy", "run", *CPU],
        ["search", "run", "--save", "index", *CPU],
        ["search", "index", "--query", f"p/{paths[-1]}", *CPU],
        ["search", "index", "--add", "p", *CPU],
        ["export", "run", "--to", "safetensors", "--out", "exported"],
        ["export", "run", "--to", "onnx", "--out", "exported to onnx"],
        ["train", "p", "--robust", "--out", "robust", *TINY],
    ):
        if words[1] == "noisy of all.csv":
            run("noise", "p", "--model", "Uniform(share=0.3)", "--out", words[1], out=capsys)
        run(*words, out=capsys)
    assert "caf\\udce9" in (here / "of data/audit.html").read_text("utf-8")
    assert [one.path for one in read_findings(here / "of data").sample.values()] == paths
