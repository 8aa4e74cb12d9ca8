"""Figure 5 of ProcSim: Otsu's threshold spares the right labels, the average does not unless half of the labels are wrong."""

from likewise.papers.figures.confidence_toys import TOY_SAMPLES


def test_otsu_spares_right_labels_and_the_average_does_not(tmp_path, drawn_alone):
    lines, notes = drawn_alone("toy_thresholds", tmp_path)
    assert len(lines) == 2 * 2 * TOY_SAMPLES
    assert notes[0].startswith("10 % wrong labels, τ = average (SuperLoss): threshold 1.20;")  # 0.9 * 1 + 0.1 * 3
    assert "25 % of the right labels are below 1" in notes[0]  # P(z > 0.2 / 0.3)
    assert all(note.endswith("; 0 % of the right labels are below 1.") for note in notes[1:])
