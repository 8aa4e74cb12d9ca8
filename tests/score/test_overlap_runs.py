"""Overlap of several runs: the named classes by hand, what is written, and runs that cannot be compared."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from likewise.types import LikewiseError
from PIL import Image

from likewise.core.settings.label_settings import Audit
from likewise.score.error_overlap import overlap

SIZES = {"crow": 6, "finch": 4, "gull": 3, "owl": 2, "lark": 1}


USUAL_LOSS = "ProxyAnchor(alpha=32.0, margin=0.1)"


def make_run(folder, wrong, loss=USUAL_LOSS, sizes=SIZES, metric="R@1", confidence=None, relevance=None):
    """A run folder with so many wrong queries in each class; `lark` has nothing to find."""
    folder.mkdir()
    config = {"loss": loss, "seed": 0, "terms": [], "confidence": confidence}
    (folder / "config.json").write_text(json.dumps({"format": 1, "identity": str(folder), "config": config}))
    names = [name for name, size in sizes.items() for _ in range(size)]
    value = [float(i >= wrong.get(name, 0)) for name, size in sizes.items() for i in range(size)]
    value = [np.nan if name == "lark" else v for name, v in zip(names, value)]
    order = np.random.default_rng(0).permutation(len(names))
    columns = {
        "row": np.arange(len(names)), "label": np.zeros(len(names), int), "class_name": [names[i] for i in order],
        "relevant": np.ones(len(names), int), metric: np.array(value)[order], "nearest": [np.array([1])] * len(names),
        "nearest_similarity": [np.ones(1, np.float32)] * len(names),
    }  # fmt: skip
    facts = None if relevance is None else {b"likewise.relevance": json.dumps(relevance)}
    pq.write_table(pa.table(columns).replace_schema_metadata(facts), folder / "per_query.parquet")
    return str(folder)


@pytest.fixture
def runs(tmp_path):
    """Two methods; the runs of the first are not given side by side."""
    other = "ProxyAnchor(alpha=16.0, margin=0.1)"
    return [
        make_run(tmp_path / "a", {"crow": 3, "finch": 2, "owl": 2}),
        make_run(tmp_path / "b", {"crow": 2, "gull": 1, "owl": 2}, other),
        make_run(tmp_path / "c", {"crow": 4, "finch": 3, "gull": 3}),
    ]


def look(runs, tmp_path, said=None, **settings):
    settings = {"k": 2, "out": str(tmp_path / "out ü"), "overlap": True} | settings
    return overlap(Audit(targets=tuple(runs), **settings), say=(said if said is not None else []).append)


def test_everything_by_hand(runs, tmp_path):
    said = []
    found = look(runs, tmp_path, said)
    assert found.runs == (runs[0], runs[2], runs[1])
    assert found.methods == ("ProxyAnchor()", "ProxyAnchor()", "ProxyAnchor(alpha=16.0)") and found.of == 4
    # by count a: crow 3, owl 2 of 2 (before finch 2 of 4); c: crow 4, gull 3 of 3 (before finch 3 of 4); b: owl, crow
    count, rate = found.by["count"], found.by["rate"]
    assert count.classes == ("crow", "owl", "gull")
    assert count.heat.tolist() == [[True, True, False], [True, False, True], [True, True, False]]
    assert (count.within, count.between, count.chance) == (0.5, 0.75, 0.5)
    # by rate a: owl 2/2, crow 3/6 (before finch 2/4); c: gull 3/3, finch 3/4; b: owl 2/2, crow 2/6 (before gull 1/3)
    assert rate.classes == ("crow", "owl", "finch", "gull")  # 9 and 4 wrong; 5 and 4
    assert rate.heat.tolist() == [[True, True, False, False], [False, False, True, True], [True, True, False, False]]
    assert (rate.within, rate.between) == (0, 0.5)
    assert said == [f"overlap.json, overlap.csv and overlap.png: {tmp_path / 'out ü'}"]


def test_the_files(runs, tmp_path):
    found = look(runs, tmp_path)
    about = json.loads((found.folder / "overlap.json").read_text("utf-8"))
    assert about["runs"][1] == {"run": runs[2], "method": "ProxyAnchor()"}
    assert about["count"] == {"within": 0.5, "between": 0.75, "chance": 0.5, "named": {"crow": 3, "owl": 2, "gull": 1}}
    lines = list(csv.DictReader((found.folder / "overlap.csv").open(encoding="utf-8")))
    assert len(lines) == 12 and list(lines[0]) == ["run", "method", "class", "wrong", "size", "rate", "named"]
    crow = next(line for line in lines if line["run"] == runs[0] and line["class"] == "crow")
    assert (crow["wrong"], crow["size"], crow["rate"], crow["named"]) == ("3", "6", "0.5000", "count rate")
    gull = next(line for line in lines if line["run"] == runs[1] and line["class"] == "gull")
    assert (gull["wrong"], gull["rate"], gull["named"]) == ("1", "0.3333", "")
    assert Image.open(found.folder / "overlap.png").width > 800


def test_one_method_leaves_nothing_between(runs, tmp_path):
    found = look([runs[0], runs[2]], tmp_path)
    assert np.isnan(found.by["count"].between)
    assert json.loads((found.folder / "overlap.json").read_text())["count"]["between"] is None


def test_a_confidence_makes_another_method(runs, tmp_path):
    trusted = make_run(tmp_path / "d", {"crow": 1}, confidence="SuperLoss()")
    assert look([runs[0], trusted], tmp_path, k=1).methods == ("ProxyAnchor()", "ProxyAnchor() + SuperLoss()")


def test_what_cannot_be_compared_is_named(runs, tmp_path):
    bare = make_run(tmp_path / "bare", {"crow": 1})
    (tmp_path / "bare" / "per_query.parquet").unlink()
    others = {
        "two runs or more must be given.*got 1": runs[:1],
        "'.*bare' has no per_query.parquet; run `likewise evaluate": [runs[0], bare],
        "not a run folder": [runs[0], str(tmp_path / "nowhere")],
        "every run must be given once": [runs[0], runs[0] + "/"],
        "evaluated with R@1, got MAP@R": [runs[0], make_run(tmp_path / "map", {}, metric="MAP@R")],
        "'.*few' and '.*a' differ in 1 .first: 'owl'": [
            *runs, make_run(tmp_path / "few", {"crow": 1}, sizes={"crow": 6, "finch": 4, "gull": 3}),
        ],
        "'.*more' has 7 of class 'crow' where '.*a' has 6": [
            *runs, make_run(tmp_path / "more", {"crow": 1}, sizes=SIZES | {"crow": 7}),
        ],
        "every run must have errors, but '.*perfect' has none": [*runs, make_run(tmp_path / "perfect", {})],
    }  # fmt: skip
    for message, some in others.items():
        with pytest.raises(LikewiseError, match=message):
            look(some, tmp_path)
    with pytest.raises(LikewiseError, match="between 1 and the 4 test classes, got k=5"):
        look(runs, tmp_path, k=5)
    (tmp_path / "file").write_text("")
    with pytest.raises(LikewiseError, match="--out must be a folder, got '.*file'"):
        look(runs, tmp_path, out=str(tmp_path / "file"))


def test_errors_of_samples_with_several_labels_are_counted_by_label(tmp_path):
    facts = {"relevant": "any label shared", "units": "label sets", "spec": "SharedLabels()"}
    sizes = {"crow|old": 4, "crow|young": 2, "gull|old": 2}
    a = make_run(tmp_path / "a", {"crow|old": 1, "gull|old": 2}, sizes=sizes, relevance=facts)
    b = make_run(tmp_path / "b", {"crow|young": 1}, sizes=sizes, relevance=facts)
    found = look([a, b], tmp_path)
    lines = list(csv.DictReader((found.folder / "overlap.csv").open(encoding="utf-8")))
    assert [(line["class"], line["wrong"], line["size"]) for line in lines if line["run"] == a] == [
        ("crow", "1", "6"), ("gull", "2", "2"), ("old", "3", "6"), ("young", "0", "2"),
    ]  # fmt: skip
    c = make_run(tmp_path / "c", {"crow|young": 1}, sizes=sizes)
    with pytest.raises(
        LikewiseError, match='same rows must be right in all runs, but .*"same class".*"any label shared"'
    ):
        look([a, c], tmp_path)
