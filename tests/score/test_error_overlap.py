"""Overlap of errors: classes counted by hand, published class numbers, the figure, and the command on several runs."""

import csv
import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from likewise.types import LikewiseError
from matplotlib.colors import to_rgba
from PIL import Image

from likewise.core.render.figures import COLOURS
from likewise.core.settings.label_settings import Audit
from likewise.score.error_overlap import (
    EMPTY_COLOUR,
    MAX_DRAWN_CLASSES,
    ErrorOverlap,
    Named,
    describe_overlap,
    draw_overlap,
    error_overlap,
    most_wrong,
    overlap,
    show_overlap,
)

# The ten test classes of Cars196 with most errors: 3 losses x 5 seeds, as released with the paper on influence functions.
CARS = {
    "ProxyNCA++": [
        [103, 163, 183, 187, 186, 111, 178, 137, 179, 182],
        [163, 103, 182, 183, 137, 179, 148, 139, 172, 189],
        [183, 103, 166, 139, 179, 163, 128, 172, 176, 186],
        [103, 163, 183, 179, 187, 139, 166, 176, 186, 177],
        [103, 183, 178, 182, 102, 147, 186, 163, 187, 135],
    ],
    "ProxyAnchor": [
        [103, 163, 182, 183, 139, 111, 102, 176, 179, 166],
        [103, 163, 166, 176, 182, 139, 183, 124, 102, 172],
        [103, 183, 163, 179, 182, 166, 186, 102, 124, 176],
        [103, 186, 176, 182, 150, 180, 124, 128, 187, 163],
        [182, 163, 103, 102, 186, 178, 176, 183, 187, 124],
    ],
    "SoftTriple": [
        [163, 103, 179, 186, 183, 176, 187, 143, 102, 182],
        [163, 103, 183, 187, 139, 128, 176, 106, 175, 178],
        [166, 163, 103, 147, 183, 111, 139, 176, 123, 186],
        [103, 139, 147, 163, 179, 166, 183, 186, 178, 187],
        [183, 139, 187, 163, 103, 143, 182, 176, 147, 179],
    ],
}


def test_the_overlap_of_published_runs():
    worst = [torch.tensor(run) for runs in CARS.values() for run in runs]
    found = error_overlap(worst, [name for name, runs in CARS.items() for _ in runs], classes=98)
    assert (round(found.within, 3), round(found.between, 3), round(found.chance, 3)) == (0.613, 0.585, 0.102)
    assert len(found.label) == 28 and int(found.heat.all(0).sum()) == 2
    assert found.heat.sum(1).tolist() == [10] * 15


def test_overlaps_of_unequal_lists_by_hand():
    worst, methods = [[1, 2, 3], [3], [3, 4], [9, 1, 2, 3]], ["a", "b", "a", "b"]
    found = error_overlap([torch.tensor(some) for some in worst], methods, classes=20)
    within, between, chance = [], [], []
    for i, j in itertools.combinations(range(4), 2):
        a, b = set(worst[i]), set(worst[j])
        share = 2 * len(a & b) / (len(a) + len(b))
        assert found.matrix[i, j] == found.matrix[j, i] == pytest.approx(share)
        (within if methods[i] == methods[j] else between).append(share)
        chance.append(2 * len(a) * len(b) / 20 / (len(a) + len(b)))
    mean = [sum(part) / len(part) for part in (within, between, chance)]
    assert [found.within, found.between, found.chance] == pytest.approx(mean)
    assert found.label.tolist() == [1, 2, 3, 4, 9]
    assert found.heat[2].tolist() == [False, False, True, True, False]


def test_the_most_wrong_by_count_and_by_rate():
    counts = {7: (3, 6), 2: (2, 2), 5: (3, 4), 1: (0, 2), 9: (1, 1)}  # class: wrong, of so many
    y = torch.tensor([label for label, (_, size) in counts.items() for _ in range(size)])
    wrong = torch.tensor([i < bad for bad, size in counts.values() for i in range(size)])
    assert most_wrong(wrong, y).tolist() == [5, 7, 2, 9]
    assert most_wrong(wrong, y, k=2).tolist() == [5, 7]
    assert most_wrong(wrong, y, by="rate").tolist() == [2, 5, 7]
    assert most_wrong(wrong, y, by="rate", least=1).tolist() == [2, 9, 5, 7]
    assert most_wrong(wrong, y, by="rate", least=5).tolist() == [7]
    assert most_wrong(torch.ones(6).bool(), torch.tensor([3, 3, 1, 1, 2, 2]), k=2).tolist() == [1, 2]


HEAT = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [1, 0, 0, 1]], bool)


def made(heat=HEAT, methods=("A()", "A()", "B(x=1)", "B(x=1)"), within=0.5, between=0.625, ways=("count", "rate")):
    classes = tuple(f"bird [b] ${c}$" for c in range(heat.shape[1]))
    named = Named(classes, heat, within, between, 0.2)
    runs = tuple(f"all/runs/{m[0]}/{i}" for i, m in enumerate(methods))
    return ErrorOverlap(runs, tuple(methods), 2, 10, dict.fromkeys(ways, named))


def test_cells_are_filled_in_the_colour_of_the_method():
    figure = draw_overlap(made())
    assert len(figure.axes) == 2
    for axes in figure.axes:
        colours = [bar.get_facecolor() for bar in axes.patches]
        rows = [bar.get_y() for bar in axes.patches]
        assert rows == sorted(rows) and len(colours) == 16
        for place, colour in enumerate(colours):
            row, column = divmod(place, 4)
            assert colour == to_rgba(COLOURS[row // 2] if HEAT[row, column] else EMPTY_COLOUR)
        assert [t.get_text() for t in axes.get_yticklabels()] == ["A/0", "A/1", "B/2", "B/3"]
        assert [t.get_text() for t in axes.get_xticklabels()] == [f"bird [b] ${c}$" for c in range(4)]
        texts = [t.get_text() for t in axes.texts]
        assert texts == ["A()", "B(x=1)", "4", "2", "1", "1"]


def test_runs_of_one_method_stand_together_whatever_their_order():
    axes = draw_overlap(made(methods=("A()", "B()", "A()", "B()"))).axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["A/0", "A/2", "B/1", "B/3"]
    filled = [bar.get_facecolor() != to_rgba(EMPTY_COLOUR) for bar in axes.patches]
    assert filled == HEAT[[0, 2, 1, 3]].ravel().tolist()


def test_of_many_classes_the_most_named_are_drawn_and_the_rest_is_counted():
    found = made(np.ones((2, MAX_DRAWN_CLASSES + 7), bool), ("A()", "B()"), ways=("count",))
    axes = draw_overlap(found).axes[0]
    assert len(axes.get_xticklabels()) == MAX_DRAWN_CLASSES and "7 more classes" in " ".join(
        axes.get_title("left").split()
    )


@pytest.mark.parametrize(
    ("within", "between", "words"),
    [
        (0.5, 0.625, "two runs of one method share 50 % of their 2 most wrong classes by rate, two of different methods 62 %"),
        (0.5, np.nan, "two runs of one method share 50 % of their 2 most wrong classes by rate"),
        (np.nan, 0.4, "two runs of different methods share 40 % of their 2 most wrong classes by rate"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_there_is(within, between, words):
    assert describe_overlap(made(within=within, between=between), "rate") == f"{words}; by chance 20 %"


def test_the_terminal_shows_who_names_what(capsys):
    show_overlap(made())
    said = " ".join(capsys.readouterr().out.split())
    assert "bird [b] $0$ │ 4 of 4 │ 2 │ 2" in said and "bird [b] $3$ │ 1 of 4 │ 0 │ 1" in said
    assert "Two runs of one method share 50 %" in said


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
    with pytest.raises(LikewiseError, match='"same class".*"any label shared"'):
        look([a, c], tmp_path)
