"""Where the networks of a table fail together: a heat map, and sentences beside the study."""

import json
from itertools import combinations

import pytest
from PIL import Image

from likewise.papers.bench import bench
from likewise.papers.published import wrong_classes

BIRDS = '[published]\npaper = "influence"\ntable = "1"\ndataset = "CUB200"'


@pytest.mark.slow
def test_where_networks_fail_together_is_said_beside_the_study(config):
    sheet = bench(config(["overlap"], "[axes]\ndim = [2, 4]\nseed = [0, 1]", BIRDS, steps=2))
    about = json.loads((sheet.folder / "overlap.json").read_text("utf-8"))
    said = [note for note in sheet.notes if note.startswith("Most wrong classes: two runs of one method share ")]
    assert len(said) == 2 and f"share {100 * about['count']['within']:.0f} % of their 10" in said[0]
    assert len(about["runs"]) == 4
    named = wrong_classes("CUB200")
    shares = {True: [], False: []}
    for (a, one), (b, other) in combinations(named.items(), 2):
        shares[a[0] == b[0]].append(len(set(one) & set(other)) / 10)
    within, between = (100 * sum(shares[same]) / len(shares[same]) for same in (True, False))
    (study,) = [note for note in sheet.notes if note.startswith("In the study")]
    assert f"one method share {within:.0f} %, two of different methods {between:.0f} %; by chance 10 %" in study
    assert Image.open(sheet.folder / "overlap.png").width > 500
    assert "Test classes at which networks fail" in (sheet.folder / "table.html").read_text("utf-8")
    assert study in (sheet.folder / "table.md").read_text("utf-8")


def test_runs_that_cannot_be_compared_leave_a_note_and_the_table(config):
    sheet = bench(
        config(["overlap"], '[axes]\nprotocol = ["UnseenClasses()", "UnseenClasses(train=0.25)"]\nseed = [0]')
    )
    (note,) = [note for note in sheet.notes if note.startswith("the error overlap could not be computed: ")]
    assert "same test classes" in note and note in (sheet.folder / "table.md").read_text("utf-8")
    assert not (sheet.folder / "overlap.png").exists()
