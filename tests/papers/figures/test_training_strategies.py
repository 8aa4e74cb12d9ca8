"""Figures of the training strategies: spectral decay, mixup, regularisation and the sweep of p_switch."""

import json
import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from likewise.config import Evaluate
from likewise.errors import LikewiseError
from matplotlib.colors import to_hex

from likewise.core.render.figures import WITH_COLOUR, WITHOUT_COLOUR, Estimate
from likewise.papers.bench import bench
from likewise.papers.figures import decay_recall, mixup, regularised_bars, spectra, switch_sweep
from likewise.papers.figures.spectra import SPECTRA_FILE
from likewise.runs.folder import RESULT_FILES
from likewise.score.evaluate import evaluate
from likewise.score.significance import Coefficient, Correlation, correlate

DECAY_ROWS = {
    "A (D)": [(0.40, 0.9), (0.42, 0.9)],
    "R-A": [(0.50, 0.6), (0.52, 0.6)],
    "B (D)": [(0.45, 0.5), (0.45, 0.5)],
    "R-B": [(0.43, 0.4), (0.43, 0.4)],
    "C": [(0.60, 0.3), (0.60, 0.3)],
}


def test_one_point_per_method_with_its_correlation(made):
    drawn = decay_recall.draw(made(DECAY_ROWS))
    notes = drawn.notes
    columns, lines = drawn.values["decay_recall"]
    rows = [dict(zip(columns, line)) for line in lines]
    assert drawn.figure and [(row["method"], row["regularised"]) for row in rows] == [
        ("A (D)", "no"), ("R-A", "yes"), ("B (D)", "no"), ("R-B", "yes"), ("C", "no"),
    ]  # fmt: skip
    assert rows[1]["rho"] == pytest.approx(0.6) and rows[4]["seeds"] == 2
    # ranks of rho 5 4 3 2 1, of R@1 1 4 3 2 5: squares 16 + 0 + 0 + 0 + 16 = 32, 1 - 6 * 32 / 120 = -0.6
    assert "Spearman −0.60 (" in notes[0] and notes[0].endswith("5 methods.")
    assert notes[1] == (
        "With rho-regularisation rho is lower for 2 of 2 methods, and at the same time R@1 higher for 1 (the paper: for each)."
    )
    assert "too narrow" in notes[2]


POINTS = [
    decay_recall.DecayPoint("A (D)", Estimate(0.9, 0.01, 2), Estimate(40.0, 1.0, 2)),
    decay_recall.DecayPoint("R-A", Estimate(0.6, 0.01, 2), Estimate(50.0, 1.0, 2), "A (D)"),
    decay_recall.DecayPoint("B", Estimate(0.5, 0.01, 2), Estimate(40.1, 1.0, 2)),
]


def test_points_are_at_their_values_and_named_beside_the_plot():
    figure = decay_recall.draw_decay(POINTS, "R@1", "cub200", correlate([0.9, 0.6, 0.5], [40, 50, 40.1]))
    (axes,) = figure.axes
    without, regularised = (scatter.get_offsets().tolist() for scatter in axes.collections[-2:])
    assert sorted(without) == [pytest.approx([0.5, 40.1]), pytest.approx([0.9, 40.0])]
    assert regularised == [pytest.approx([0.6, 50.0])]
    assert axes.get_ylabel() == "R@1 of the test split (%)" and axes.get_xlabel().startswith("spectral decay ρ")
    names = [text for text in axes.texts if text.get_text()]
    assert [text.get_text() for text in names] == ["A (D)", "B", "R-A"]
    assert len(axes.texts) - len(names) == 1  # the arrow from A to R-A
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in names]
    assert all(below.y1 <= above.y0 for below, above in pairwise(boxes))
    assert figure.texts[1].get_text() == "Pearson −0.29, Spearman −0.50, 3 methods"


def test_the_correlation_in_words():
    found = Correlation(Coefficient(-0.854, -0.94, -0.7), Coefficient(0.5, 0.1, 0.75), 23)
    assert (
        decay_recall.describe_correlation(found)
        == "Pearson −0.85 (−0.94 to −0.70), Spearman 0.50 (0.10 to 0.75), 23 methods"
    )
    unknown = Coefficient(math.nan, math.nan, math.nan)
    assert decay_recall.describe_correlation(Correlation(unknown, unknown, 1)).startswith("no correlation: 1 methods")


MIXUP_ROWS = {
    "A": [(0.60, 0.3), (0.62, 0.3)],
    "A + mixup": [(0.55, 0.4), (0.57, 0.4)],
    "B": [(0.50, 0.5), (0.50, 0.5)],
    "B + mixup": [(0.52, 0.6), (0.52, 0.6)],
}


def test_every_method_is_beside_itself_with_mixup(made):
    given = made(MIXUP_ROWS, **{name: {"mixup": 2.0} for name in MIXUP_ROWS if "mixup" in name})
    drawn = mixup.draw(given)
    notes = drawn.notes
    columns, lines = drawn.values["mixup"]
    rows = [dict(zip(columns, line)) for line in lines]
    scores = [row for row in rows if row["value"] == "R@1"]
    assert drawn.figure and [(row["method"], row["mixup"]) for row in scores] == [
        ("A", "no"), ("A", "yes"), ("B", "no"), ("B", "yes"),
    ]  # fmt: skip
    assert [row["mean"] for row in scores] == pytest.approx([61, 56, 50, 52])
    assert "A: R@1 61.0 ± 1.4 and 56.0 ± 1.4, rho 0.300 ± 0.000 and 0.400 ± 0.000; B: " in notes[0]
    assert "R@1 is lower for 1 of 2 methods (the paper: for all), and rho is higher" in notes[1]
    assert "the spectrum decays more, for 2." in notes[1]
    assert len(rows) == 4 * (2 + 3 + 3)
    assert {row["value"] for row in rows} == {"R@1", "rho", "singular value", "class singular value"}


WHOLE, CLASSES = np.array([0.6, 0.3, 0.1]), np.array([0.8, 0.2])


def test_a_column_per_method_with_bars_and_spectra():
    records = [
        mixup.MixupRecord(
            method, mixed, Estimate(60.0 - mixed, 0.5, 2), Estimate(0.3 + 0.1 * mixed, 0.01, 2), WHOLE, CLASSES
        )
        for method in ("A", "B")
        for mixed in (False, True)
    ]
    figure = mixup.draw_mixup(records, "R@1", "cub200")
    score, rho, whole, classes, *second = figure.axes
    assert len(second) == 4 and score.get_title(loc="left") == "A" and second[0].get_title(loc="left") == "B"
    assert [bar.get_width() for bar in score.patches] == [60, 59]
    assert [text.get_text() for text in rho.texts] == ["0.300 ± 0.010", "0.400 ± 0.010"]
    assert [axes.get_xlabel() for axes in (score, rho, whole, classes)] == [
        "R@1 (%)",
        "spectral decay ρ",
        "rank",
        "rank",
    ]
    assert [len(axes.lines) for axes in (whole, classes)] == [2, 2]
    assert list(whole.lines[1].get_ydata()) == [0.6, 0.3, 0.1]
    assert [text.get_text() for text in score.get_yticklabels()] == ["without", "with mixup"]
    assert [text.get_text() for text in second[0].get_yticklabels()] == ["", ""]
    figure.canvas.draw()
    right = max(text.get_window_extent().x1 for text in score.texts)
    assert right <= min(label.get_window_extent().x0 for label in second[2].get_yticklabels())


BAR_ROWS = {
    "Plain": [(0.5, 0.0), (0.5, 0.0)],
    "Triplet (D)": [(0.60, 0.0), (0.62, 0.0)],
    "R-Triplet": [(0.57, 0.0), (0.58, 0.0)],
    "R-Alone": [(0.4, 0.0), (0.4, 0.0)],
}


def test_the_best_method_is_first_and_its_regularised_partner_follows(made):
    printed = {"R-Triplet": SimpleNamespace(mean=60.1, spread=0.3), "Plain": SimpleNamespace(mean=51.0, spread=None)}
    drawn = regularised_bars.draw(made(BAR_ROWS, printed=printed))
    columns, lines = drawn.values["regularised_bars"]
    assert columns == ["method", "regularised", "R@1", "std", "seeds", "printed", "printed_std"] and drawn.figure
    assert [(line[0], line[1], *line[5:]) for line in lines] == [
        ("Triplet (D)", "no", "", ""), ("R-Triplet", "yes", 60.1, 0.3), ("Plain", "no", 51.0, None), ("R-Alone", "no", "", ""),
    ]  # fmt: skip
    assert lines[0][2] == pytest.approx(61)
    assert drawn.notes == [
        "R@1 with rho-regularisation minus without, in points: Triplet (D) −3.5. The table has the tests of the differences."
    ]


BARS = [
    regularised_bars.Bar("Triplet (D)", "Triplet (D)", Estimate(61.0, 1.4, 2), False, (60.2, 0.35)),
    regularised_bars.Bar("R-Triplet", "Triplet (D)", Estimate(63.0, 0.5, 2), True, (62.5, None)),
    regularised_bars.Bar("Histogram", "Histogram", Estimate(50.0, np.nan, 1), False),
]


def test_bars_start_at_0_and_their_numbers_are_beside_them():
    figure = regularised_bars.draw_bars(BARS, "R@1", "cub200")
    (axes,) = figure.axes
    bars = sorted(axes.patches, key=lambda bar: bar.get_y())
    assert [bar.get_x() for bar in bars] == [0, 0, 0] and [bar.get_width() for bar in bars] == [61, 63, 50]
    assert [to_hex(bar.get_facecolor()) for bar in bars] == [WITHOUT_COLOUR, WITH_COLOUR, WITHOUT_COLOUR]
    assert [text.get_text() for text in axes.texts] == [
        "61.0 ± 1.4  (printed 60.20 ± 0.35)", "63.0 ± 0.5  (printed 62.5)", "50.0",
    ]  # fmt: skip
    assert [text.get_text() for text in axes.get_yticklabels()] == ["Triplet (D)", "R-Triplet", "Histogram"]
    assert axes.get_xlabel() == "R@1 (%)" and axes.get_xlim()[0] == 0
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["without", "with rho-regularisation", "printed in the paper"]
    diamonds = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D" and len(line.get_xdata())]
    assert diamonds == pytest.approx([60.2, 62.5])


def test_without_printed_values_there_is_no_diamond():
    figure = regularised_bars.draw_bars([bar._replace(printed=None) for bar in BARS], "R@1", "cub200")
    assert len(figure.legends[0].get_texts()) == 2 and figure.axes[0].texts[0].get_text() == "61.0 ± 1.4"


def test_bars_of_one_method_touch():
    assert regularised_bars.places_of(BARS) == [0, 1, 2.5]


def test_numbers_are_inside_of_the_figure():
    figure = regularised_bars.draw_bars(BARS, "R@1", "cub200")
    figure.canvas.draw()
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in figure.axes[0].texts)


def test_points_are_those_of_the_table_and_the_note_names_the_best(made):
    rows = {"0.4": [(0.62, 0.2), (0.64, 0.3)], "0": [(0.60, 0.5), (0.60, 0.7)], "0.8": [(0.50, 0.1), (0.54, 0.1)]}
    drawn = switch_sweep.draw(made(rows, axis="p_switch"))
    columns, lines = drawn.values["switch_sweep"]
    assert columns == ["line", "p_switch", "R@1", "std", "rho", "rho_std", "seeds"]
    assert [(at, round(mean, 9), round(rho, 9)) for _, at, mean, _, rho, _, _ in lines] == [
        (0, 60, 0.6), (0.4, 63, 0.25), (0.8, 52, 0.1),
    ]  # fmt: skip
    assert drawn.figure.texts[0].get_text() == "R@1 and spectral decay against p_switch on glyphs"
    assert drawn.notes == [
        "R@1 without regularisation 60.0 ± 0.0, best 63.0 ± 1.4 at p_switch 0.4, rho 0.600 ± 0.141 and 0.250 ± 0.071 (mean ± "
        "standard deviation over seeds). 1 of 2 probabilities have a higher mean than without; the best of several is biased "
        "upwards."
    ]


def point(line, probability, score, rho, std=1.0):
    return switch_sweep.SweepPoint(line, probability, Estimate(score, std, 2), Estimate(rho, 0.01, 2))


def test_score_and_rho_have_a_panel_each_and_0_is_dashed():
    points = [point(name, p, 60 + p, 0.5 - p) for name in ("A", "B") for p in (0.0, 0.1, 0.4)]
    figure = switch_sweep.draw_sweep(points, "R@1", "cub200")
    score, rho = figure.axes
    assert score.get_ylabel() == "R@1 (%)" and rho.get_ylabel() == "spectral decay ρ, training samples"
    assert score.get_xlabel() == rho.get_xlabel() == "probability of a switch, p_switch"
    solid = [line for line in score.lines if line.get_linestyle() == "-" and line.get_marker() == "o"]
    dashed = [line for line in score.lines if line.get_linestyle() == "--"]
    assert len(solid) == len(dashed) == 2
    assert solid[0].get_xdata() == pytest.approx([0.1, 0.4]) and solid[0].get_ydata() == pytest.approx([60.1, 60.4])
    assert list(dashed[0].get_ydata()) == [60, 60]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["A", "A, without", "B", "B, without"]
    assert "mean over 2 seeds" in figure.texts[1].get_text()


def test_a_single_seed_has_no_whisker_and_a_sweep_may_lack_its_baseline():
    figure = switch_sweep.draw_sweep([point("", 0.2, 60, 0.5, np.nan)], "R@1", "cub200")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["with regularisation"]
    assert not figure.axes[0].patches


def test_the_figure_of_a_bench_has_the_rho_of_evaluate_and_is_computed_once(config, monkeypatch):
    settings = config(["decay_recall"], "[axes]\ndim = [4, 8]\nseed = [0, 1]", steps=2)
    sheet = bench(settings)
    lines = (sheet.folder / "decay_recall.csv").read_text("utf-8").splitlines()
    runs = [Path(line["run"]) for line in sheet.trainings]
    stored = [json.loads((run / SPECTRA_FILE).read_text("utf-8")) for run in runs]
    found = evaluate(Evaluate(str(runs[0]), split="train", metrics=("rho",), quiet=True, device="cpu"))
    assert stored[0]["rho"] == pytest.approx(found["metrics"]["rho"], abs=1e-9)
    assert sheet.figures == ("decay_recall.png",) and (sheet.folder / "decay_recall.png").exists()
    assert len(stored[0]["spectrum"]) == 4 and sum(stored[0]["spectrum"]) == pytest.approx(1)
    assert len(stored[0]["class_spectrum"]) == 35 and sum(stored[0]["class_spectrum"]) == pytest.approx(1)
    rho = float(lines[1].split(",")[2])
    assert rho == pytest.approx((stored[0]["rho"] + stored[1]["rho"]) / 2)
    assert (sheet.folder / "table.md").read_text("utf-8").splitlines()[2].endswith("(decay_recall.png)")
    monkeypatch.setattr(spectra, "compute_spectra", None)  # a second computation would fail
    assert bench(settings).notes == sheet.notes


def test_a_run_that_cannot_be_embedded_leaves_a_note(made, monkeypatch):
    table = made({"a": [(0.5, 0.1), (0.6, 0.2)], "b": [(0.5, 0.4)]})
    (table.done[2].job.run.path / SPECTRA_FILE).unlink()

    def broken(*_):
        raise LikewiseError("run: no network")

    monkeypatch.setattr(spectra, "compute_spectra", broken)
    (a, b), notes = spectra.measure_spectra(table.seed_groups(), table.config)
    assert notes == ["b: the training samples could not be embedded: run: no network"] and b == []
    assert spectra.rho_of(a).mean == pytest.approx(0.15) and math.isnan(spectra.rho_of(b).mean)
    assert np.array_equal(a[0].whole, [0.5, 0.3, 0.2])


def test_a_run_that_is_trained_again_loses_its_spectra():
    assert SPECTRA_FILE in RESULT_FILES


def test_pairs_are_drawn_and_other_rows_are_not(made):
    rows = {name: [(0.5, 0.1), (0.5, 0.1)] for name in ("A (D)", "R-A", "Other")}
    drawn = spectra.draw(made(rows, spectra={"A (D)": [0.7, 0.2, 0.1], "R-A": [0.4, 0.35, 0.25]}))
    columns, lines = drawn.values["class_spectra"]
    assert columns == ["method", "regularised", "rank", "share"] and drawn.figure
    assert [line[:3] for line in lines] == [["A (D)", with_it, rank] for with_it in ("no", "yes") for rank in (1, 2, 3)]
    assert [line[3] for line in lines] == pytest.approx([0.7, 0.2, 0.1, 0.4, 0.35, 0.25])
    assert "A (D) 70.0 and 40.0. It is smaller with regularisation for 1 of 1 methods" in drawn.notes[0]


def test_every_panel_has_its_lines_on_the_same_range():
    values = np.array([0.5, 0.3, 0.2, 0.0])
    lines = [spectra.SpectrumLine(p, n, values, "#000000") for p in ("A", "B", "C", "D") for n in ("without", "with")]
    figure = spectra.draw_spectra(lines, "cub200")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["A", "B", "C", "D"]
    assert {len(axes.lines) for axes in figure.axes} == {2} and {axes.get_yscale() for axes in figure.axes} == {"log"}
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert list(figure.axes[0].lines[0].get_xdata()) == [1, 2, 3]  # the value of rank 4 is 0
    title = "singular value, share of the sum"
    assert figure.texts[0].get_text() == "Singular values of the classes on cub200"
    assert [axes.get_ylabel() for axes in figure.axes] == [title, "", "", title]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["without", "with"]


def test_the_range_holds_all_positive_values():
    assert spectra.common_range([np.array([0.5, 0.0]), np.array([0.25, 0.1])]) == pytest.approx((0.08, 0.625))
