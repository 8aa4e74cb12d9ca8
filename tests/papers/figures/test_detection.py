"""Wrong labels found by the networks of a table: worked out once, the mean over seeds, and no reason to lose the table."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from likewise.config import Audit, Bench
from likewise.errors import LikewiseError
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from likewise.curate.audit import label_quality, source
from likewise.curate.audit.audit import audit
from likewise.papers.bench import bench
from likewise.papers.figures import detection as module
from likewise.papers.figures.detection import DETECTION_FILE, Curve, by_class, csv_lines, draw_detection, mean_curves


def read_csv(file):
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


NOISE = """
[axes]
seed = [0, 1]
[[axes.noise]]
name = "none"
noise = "none"
[[axes.noise]]
name = "shift"
noise = "ClassShift(share=0.1, shift=5)"
[[axes.method]]
name = "plain"
[[axes.method]]
name = "triplet"
loss = "Triplet()"
"""


@pytest.mark.slow
def test_wrong_labels_are_looked_for_once_and_the_curve_is_the_mean_over_seeds(config, monkeypatch):
    settings = config(["detection"], NOISE, 'columns = ["noise"]', steps=4)
    drawn = []
    real = module.draw_detection
    monkeypatch.setattr(module, "draw_detection", lambda curves: drawn.append(curves) or real(curves))
    sheet = bench(settings)
    lines = read_csv(sheet.folder / "detection.csv")
    assert {(r["method"], r["noise"], r["seed"]) for r in lines} == {
        (method, "shift", seed) for method in ("plain", "triplet") for seed in "01"
    }
    assert {"score", "vote", "loss", "self_gradient", "EIF", "EIF signed", "IF", "IF signed"} <= {
        r["score"] for r in lines
    }
    results = read_csv(sheet.folder / "results.csv")
    shown = {(curve.row, curve.column, curve.name): curve for curve in drawn[0]}
    names = ["label score (ours)", "training loss", "|EIF|", "EIF", "|IF|", "IF"]
    assert list(shown) == [(method, "shift", name) for method in ("plain", "triplet") for name in names]
    for (method, _, name), score in zip(shown, ["score", "loss", "EIF", "EIF signed", "IF", "IF signed"] * 2):
        curve = shown[method, "shift", name]
        runs = [r["run"] for r in results if (r["method"], r["noise"]) == (method, "shift")]
        kept = [json.loads((Path(run) / DETECTION_FILE).read_text("utf-8"))[score] for run in runs]
        own = [r for r in lines if (r["method"], r["score"], r["class"]) == (method, score, "")]
        assert [float(r["AP"]) for r in own] == [one["AP"] for one in kept]
        assert curve.about == f"AP {100 * sum(one['AP'] for one in kept) / 2:.0f}"
        assert list(curve.found) == pytest.approx([(a[1] + b[1]) / 2 for a, b in zip(*(one["curve"] for one in kept))])
        assert (curve.at[0], curve.found[0], curve.at[-1], curve.found[-1]) == (0, 0, 1, 1)
    (said,) = [note for note in sheet.notes if note.startswith("label score (ours), AP: ")]
    plain, triplet = (shown[method, "shift", "label score (ours)"].about[3:] for method in ("plain", "triplet"))
    assert f"plain, shift {plain}; triplet, shift {triplet}." in said
    thin = shown["plain", "shift", "|EIF|"].classes
    assert len(thin) and shown["plain", "shift", "|EIF|"].found == pytest.approx(np.mean(thin, 0))
    assert not shown["plain", "shift", "EIF"].classes and shown["plain", "shift", "EIF"].dashed_of == "|EIF|"
    drawn_points = read_csv(sheet.folder / "detection_curves.csv")
    assert len(drawn_points) == 101 * len(shown)
    assert Image.open(sheet.folder / "detection.png").width > 300
    monkeypatch.setattr(label_quality, "score_splits", None)  # nobody is there to judge
    assert bench(settings).notes == sheet.notes
    assert read_csv(sheet.folder / "detection.csv") == lines


def test_labels_that_cannot_be_judged_leave_a_note_and_without_noise_there_is_nothing_to_find(config, monkeypatch):
    settings = config(["detection"], "[axes]\nseed = [0, 1]", steps=2)

    def broken(*_, **__):
        raise LikewiseError("audit: no")

    with monkeypatch.context() as change:
        change.setattr(source, "open_subject", broken)
        notes = bench(settings).notes
        assert {f"the labels of {seed} could not be scored: audit: no" for seed in "01"} <= set(notes)
    sheet = bench(settings)
    assert "no training of this table has injected label noise, so there is nothing to detect" in sheet.notes
    assert not (sheet.folder / "detection.csv").exists()


def test_the_influence_on_each_class_by_hand_and_their_mean():
    wrong = torch.tensor([True, False, False, True])
    effect = torch.tensor([[9.0, 1.0, 2.0, 8.0], [1.0, 9.0, 8.0, 2.0]]).double()
    found = by_class(effect, wrong, ["a", "b"])
    assert [found["classes"][name]["AUROC"] for name in "ab"] == [1, 0]  # first class: both wrong labels are first
    assert found["classes"]["a"]["AP"] == 1 and found["classes"]["b"]["AP"] == pytest.approx((1 / 3 + 2 / 4) / 2)
    assert (found["AUROC"], found["AP"], found["share"]) == (0.5, pytest.approx((1 + 5 / 12) / 2), 0.5)
    assert dict(map(tuple, found["curve"]))[0.5] == pytest.approx(0.5)  # half of the samples: all, and none
    lines = csv_lines({"EIF": found})
    assert [line[:2] for line in lines] == [["EIF", ""], ["EIF", "a"], ["EIF", "b"]]
    assert [line[3] for line in lines] == [found["AP"], 1, pytest.approx(5 / 12)]


def test_thin_curves_are_means_over_runs_by_rank_of_the_class():
    def run(*finds):
        classes = {f"c{n}": {"curve": [[0, f], [1, 1]]} for n, f in finds}
        return {"EIF": {"AP": 0.5, "curve": [[0, 0], [1, 1]], "classes": classes}}

    (curve,) = mean_curves("r", "c", [run((1, 0.2), (2, 0.4)), run((7, 0.6), (1, 0.0))])
    assert [list(thin) for thin in curve.classes] == [pytest.approx([0.4, 1]), pytest.approx([0.2, 1])]
    assert (curve.name, curve.about) == ("|EIF|", "AP 50")


def test_a_file_of_an_earlier_format_is_computed_again(tmp_path, monkeypatch):
    (tmp_path / DETECTION_FILE).write_text('{"score": {"AP": 1}}', "utf-8")
    monkeypatch.setattr(module, "detect", lambda run, config: {"score": {"AP": 0.5}})
    assert module.detected(tmp_path, Bench("x")) == {"score": {"AP": 0.5}}
    monkeypatch.setattr(module, "detect", None)
    assert module.detected(tmp_path, Bench("x")) == {"score": {"AP": 0.5}}


@pytest.mark.parity
@pytest.mark.slow
def test_the_kept_numbers_are_scikit_learns_of_an_audit(config, features):
    from sklearn.metrics import average_precision_score, roc_auc_score

    sheet = bench(config(["detection"], '[axes]\nnoise = ["Uniform(share=0.2)"]\nseed = [0, 1]'))
    run = Path(read_csv(sheet.folder / "results.csv")[0]["run"])
    audit(Audit((str(run),), max_errors=0, quiet=True, device="cpu"), say=lambda line: None)
    lines = [r for r in read_csv(run / "audit" / "audit.csv") if r["split"] == "train"]
    truth = np.load(features)["label"]
    wrong = [r["label"] != str(truth[int(r["row"])]) for r in lines]
    kept = json.loads((run / DETECTION_FILE).read_text("utf-8"))
    assert kept["score"]["share"] == pytest.approx(sum(wrong) / len(wrong)) and 0.1 < kept["score"]["share"] < 0.3
    assert "vote" in kept and "self_gradient" in kept
    kept.pop("format")
    for score in (score for score in kept if not score.startswith(("EIF", "IF"))):
        suspect = [-float(r[score]) for r in lines]
        assert kept[score]["AUROC"] == pytest.approx(roc_auc_score(wrong, suspect), abs=1e-3)
        assert kept[score]["AP"] == pytest.approx(average_precision_score(wrong, suspect), abs=1e-2)


AT = np.linspace(0, 1, 11)


def curves(rows, columns, names):
    return [
        Curve(row, column, name, AT, 1 - (1 - AT) ** (2 + p + n), f"AP {10 * p + n}")
        for p, (row, column) in enumerate(itertools.product(rows, columns))
        for n, name in enumerate(names)
    ]


def test_every_curve_is_drawn_in_per_cent_in_its_panel_and_a_score_keeps_its_colour():
    made = curves(["plain $"], ["shift $1", "shift 5"], ["a", "b_$c"])
    figure = draw_detection([*made[:2], made[3]])  # the first score is missing in the second panel
    first, second = figure.axes
    assert [axes.get_title("left") for axes in figure.axes] == ["plain $, shift $1", "plain $, shift 5"]
    chance, *drawn = first.get_lines()
    assert list(chance.get_xdata()) == list(chance.get_ydata()) == [0, 100]
    for line, curve in zip(drawn, made):
        assert list(line.get_xdata()) == pytest.approx(100 * curve.at)
        assert list(line.get_ydata()) == pytest.approx(100 * curve.found)
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["a AP 0", "b_$c AP 1", "random order"]
    (alone,) = second.get_lines()[1:]
    assert alone.get_color() == drawn[1].get_color() != drawn[0].get_color()
    assert second.get_ylabel() == "" and first.get_ylabel() == "wrong labels found (%)"


def test_classes_are_thin_lines_and_the_signed_order_is_dashed_in_the_same_colour():
    thin = [AT**2, AT**0.5]
    made = [
        Curve("m", "n", "|EIF|", AT, (AT**2 + AT**0.5) / 2, classes=thin),
        Curve("m", "n", "EIF", AT, AT, dashed_of="|EIF|"),
    ]
    (axes,) = draw_detection(made).axes
    _, one, other, mean, signed = axes.get_lines()
    assert [list(line.get_ydata()) for line in (one, other)] == [list(100 * found) for found in thin]
    assert one.get_linewidth() < signed.get_linewidth() < mean.get_linewidth()
    assert one.get_color() == mean.get_color() == signed.get_color()
    assert (mean.get_linestyle(), signed.get_linestyle()) == ("-", "--")
    assert len(axes.get_legend().get_texts()) == 3  # thin lines have no entry


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 3)])
def test_panels_do_not_touch_and_nothing_leaves_the_picture(rows, columns):
    names = [f"order {n} with a long name" for n in range(6)]
    methods = [f"MultiSimilarity(alpha=2.0, beta=40.0, number={n})" for n in range(rows)]
    figure = draw_detection(curves(methods, [f"noise {p}" for p in range(columns)], names))
    FigureCanvasAgg(figure).draw()
    assert len(figure.axes) == rows * columns
    whole = [axes.get_tightbbox() for axes in figure.axes]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(whole, 2))
    edge = figure.bbox
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= edge.x1 + 1 and box.y1 <= edge.y1 + 1 for box in whole)
    legends = [axes.get_legend().get_window_extent() for axes in figure.axes]
    assert all(axes.bbox.x0 <= box.x0 and box.y1 < axes.bbox.y1 for axes, box in zip(figure.axes, legends))
