"""The picture of trust shows the numbers of the log where they belong, and the table names the labels most suspected."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

from likewise.report.comparison import BETTER, WORSE, save_figure
from likewise.report.trust import FOUND, WINDOW, Suspect, Told, draw_trust, moving_mean, show_told


def histogram(wrong=True, low=0.0, threshold=1.5):
    right = [8, 4, 2, 0]
    return {
        "edges": [low, low + 4], "right": right, "wrong": [0, 1, 3, 2] if wrong else None, "threshold": threshold,
        "weight": [1.0, 0.9, 0.4, None],
    }  # fmt: skip


def batchwise(wrong=True, steps=40, every=10):
    """The log of a confidence that looks at batches: a line every ten steps, a histogram every hundred."""
    lines = [{"step": 5, "val MAP@R": 0.3}]
    for number in range(1, steps + 1):
        trust = {"weight": 0.8, "suspected share": 0.4}
        known = {"recall": number / steps, "precision": 0.5, "AUROC": 0.9} if wrong and number % 4 else {}
        lines.append({"step": number * every, "loss": 1.0, "trust": trust | known})
        if number % 10 == 0:
            lines.append({"step": number * every, "suspicion": histogram(wrong, low=float(number))})
    return lines


def looks(known=True):
    """The log of one that looks at the whole set."""
    lines = []
    for step in (0, 50, 100):
        facts = {"labels used": 0.9, "labels repaired": 0.2, "wrong labels, any": 0.2, "wrong labels, similar": 0.05}
        truth = {"right before": 0.7, "right among used": 0.95, "recall": 0.8, "precision": 0.9, "AUROC": 0.97}
        lines.append({"step": step, "verdict": facts | (truth if known else {})})
        lines.append({"step": step + 50, "loss": 1.0, "trust": {"weight": 1.0}})
        lines.append({"step": step + 50, "suspicion": histogram(known, threshold=0.5)})
    return lines


def texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_moving_average_is_that_of_the_last_steps_by_hand():
    rng = np.random.default_rng(0)
    step = np.cumsum(rng.integers(1, 40, 60)).astype(float)
    value = rng.random(60)
    by_hand = []
    for now in step:
        near = [v for s, v in zip(step, value, strict=True) if now - WINDOW < s <= now]
        by_hand.append(sum(near) / len(near))
    assert np.allclose(moving_mean(step, value), by_hand)


def test_lines_of_the_log_become_curves_with_their_average_and_last_value():
    lines = batchwise()
    found, shares, *_ = draw_trust(lines, "title").axes
    recall = [(line["step"], line["trust"]["recall"]) for line in lines if "recall" in line.get("trust", {})]
    thin, thick = found.lines[:2]
    assert np.array_equal(thin.get_xydata(), recall)  # steps without a wrong label are left out, not taken as 0
    step, value = np.array(recall).T
    assert np.array_equal(thick.get_ydata(), moving_mean(step, value)) and thick.get_linewidth() > thin.get_linewidth()
    assert texts(found) == [f"recall {thick.get_ydata()[-1]:.0%}", "precision 50%", "AUROC 90%"]
    assert texts(shares) == ["mean weight 80%", "suspected 40%"]
    assert [text.get_text() for text in shares.texts] == ["really wrong: 30%"]  # 6 of the 20 in the histogram
    assert shares.lines[-1].get_ydata() == pytest.approx([0.3, 0.3])


def test_verdicts_are_points_and_their_estimate_stands_beside_the_truth():
    found, shares, *_ = draw_trust(looks(), "title").axes
    assert len(found.lines) == len(FOUND) and found.lines[0].get_xdata().tolist() == [0, 50, 100]
    assert texts(shares) == ["thought wrong 25%", "used 90%", "repaired 20%", "right among used 95%"]
    assert [text.get_text() for text in shares.texts] == ["really wrong: 30%"]


@pytest.mark.parametrize("lines", [batchwise(wrong=False), looks(known=False)], ids=["batches", "looks"])
def test_nothing_is_said_of_a_truth_that_nobody_knows(lines):
    figure = draw_trust(lines, "title")
    shares, *histograms = figure.axes
    assert not shares.texts and not any("right" in text or "recall" in text for text in texts(shares))
    assert len(histograms) == 6  # three, each with its second axis
    legend = [text.get_text() for text in figure.subfigs[1].legends[0].get_texts()]
    assert legend == ["labels", "threshold", "mean weight"]


def test_histograms_of_the_first_the_middle_and_the_last_pass():
    figure = draw_trust(batchwise(), "title")
    panels = figure.subfigs[1].axes[:3]
    heads = [axes.get_title("left") for axes in panels]
    assert heads == ["After the first pass, step 100", "Half-way, step 200", "At the end, step 400"]
    for axes, low in zip(panels, (10, 20, 40), strict=True):
        right, _, wrong, _ = axes.patches
        assert right.get_data().values.tolist() == [8, 4, 2, 0] and to_rgb(right.get_facecolor()) == to_rgb(BETTER)
        assert wrong.get_data().values.tolist() == [0, 1, 3, 2] and to_rgb(wrong.get_facecolor()) == to_rgb(WORSE)
        assert right.get_data().edges.tolist() == [low, low + 1, low + 2, low + 3, low + 4]
        assert axes.lines[0].get_xdata() == [1.5, 1.5]
    weight = figure.subfigs[1].axes[3].lines[0].get_xydata()
    assert weight.tolist() == [[10.5, 1], [11.5, 0.9], [12.5, 0.4]]  # an empty bin has none


def test_what_is_not_there_takes_no_room():
    assert draw_trust([{"step": 1, "loss": 0.5}], "title") is None
    bare = draw_trust([{"step": 1, "trust": {"weight": 0.5}}], "title")
    assert len(bare.axes) == 1 and texts(bare.axes[0]) == ["mean weight 50%"]
    one = [line for line in looks() if "suspicion" not in line] + [
        {"step": 150, "suspicion": histogram(threshold=None)}
    ]
    figure = draw_trust(one, "title")
    assert [a.get_title("left") for a in figure.subfigs[1].axes] == ["At the end, step 150", ""]
    assert not figure.subfigs[1].axes[0].lines


def test_weights_above_one_and_single_high_bins_are_seen(tmp_path):
    lines = [{"step": 9, "trust": {"weight": 1.4}}, {"step": 9, "suspicion": histogram()}]
    lines[1]["suspicion"] |= {"weight": [2.5, 1.0, 0.5, 0.1], "right": [9000, 3, 0, 1]}
    figure = draw_trust(lines, "a title of $some_words$, " * 12)
    left, right = figure.subfigs[1].axes
    assert right.get_ylim()[1] > 2.5 and figure.axes[0].get_ylim()[1] > 1.4 and left.get_yscale() == "symlog"
    save_figure(figure, tmp_path / "trust.png")
    canvas = FigureCanvasAgg(figure).get_renderer()
    parts = [figure._suptitle, *(a.title for a in figure.axes), *(a.xaxis.label for a in figure.axes)]
    for part in parts:
        box = part.get_window_extent(canvas)
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0 and box.y1 <= figure.bbox.y1


def test_the_table_lists_suspects_with_what_is_known(capsys, tmp_path):
    suspects = [Suspect(7, "[b]gull", "tern", 0.98, 0.0, "a/7.png"), Suspect(3, "tern", None, float("nan"), 1.0)]
    show_told([Told(tmp_path / "trust.png", suspects, "12 of 99"), Told(tmp_path / "b.png", [], "none yet")])
    out = capsys.readouterr().out
    first = next(line for line in out.splitlines() if "[b]gull" in line)
    assert [cell.strip() for cell in first.strip("│").split("│")] == ["7", "[b]gull", "tern", "0.98", "0", "a/7.png"]
    second = next(line for line in out.splitlines() if line.startswith("│ 3"))
    assert [cell.strip() for cell in second.strip("│").split("│")] == ["3", "tern", "", "", "1", ""]
    assert out.count("suspicion") == 1 and "12 of 99" in out and "none yet" in out and str(tmp_path / "b.png") in out
