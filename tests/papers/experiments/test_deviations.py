"""What differs from the paper: changed settings, values that are ours, and the texts of the table; what is only assumed."""

from dataclasses import replace

import pytest

from likewise.papers.benchmark_table import RowNote
from likewise.papers.grid import Cell, as_train, cells, read_grid
from likewise.papers.grid_plan import (
    Difference,
    assumed,
    by_source,
    counterpart,
    differences,
    notes_on_differences,
)

DATA = "cars196"


def cell(published=None, differs=(), **settings):
    return Cell({"method": "x"}, {"data": DATA, **settings}, published or {"method": "HPL"}, differs)


def texts(one, paper=None):
    there = as_train(paper.settings) if paper else None
    return [found.text for found in differences(one, as_train(one.settings), paper, there)]


def test_a_value_that_is_ours_differs_unless_the_table_gives_it():
    """The loss of hpl-nca is ours; its learning rate of proxies is assumed; its optimizer is the paper's."""
    (text,) = texts(cell(recipe="hpl-nca"))
    assert text.startswith("loss: Proxy-NCA with scale 3")
    assert texts(cell(recipe="hpl-nca", loss="Triplet()")) == []
    assert len(texts(cell(recipe="hpl-nca", **{"loss.every": 40}))) == 1  # an argument does not make it the paper's
    assert "loss_lr 0.01" in assumed(cell(recipe="hpl-nca"))
    assert not any(one.startswith(("optimizer", "loss ")) for one in assumed(cell(recipe="hpl-nca")))
    assert not any(one.startswith("loss_lr") for one in assumed(cell(recipe="hpl-nca", loss_lr=0.1)))
    assert assumed(cell(loss="Triplet()")) == () and texts(cell(loss="Triplet()")) == []


def test_a_value_of_a_recipe_that_another_setting_replaces_is_not_named():
    assert "steps" in by_source(cell(recipe="reality-check"), "code")
    assert "steps" not in by_source(cell(recipe="reality-check", epochs=3), "code")


def test_changes_by_the_user_are_named_once_with_both_values():
    paper, mine = cell(recipe="hpl-nca"), cell(recipe="hpl-nca", loss="Triplet(margin=0.4)", dim=64)
    found = texts(mine, paper)
    assert found[0].startswith("loss Triplet(margin=0.4), not Hierarchical(") and found[1] == "dim 64, not 512"
    assert len(found) == 2


def test_two_ways_to_write_a_spec_are_no_difference():
    paper = cell(loss="Margin(beta=0.6, miner=Switch(share=0.4, miner=DistanceWeighted()))")
    assert texts(cell(loss="Margin(beta=0.6, miner=Switch())", **{"loss.miner.share": 0.4}), paper) == []
    assert len(texts(cell(loss="Margin(beta=0.6, miner=Switch())", **{"loss.miner.share": 0.3}), paper)) == 1
    mine = replace(paper, settings=paper.settings | {"data": "x/my birds (new)"})  # a path is no spec
    assert texts(mine, paper) == ["data my birds (new), not cars196"]


def test_the_texts_of_the_table_and_of_its_counterpart_are_named_once():
    paper = cell(differs=("14 groups, not 48",), loss="Triplet()")
    assert texts(cell(differs=("14 groups, not 48", "one fold"), loss="Triplet()"), paper) == [
        "14 groups, not 48",
        "one fold",
    ]


def test_the_counterpart_is_found_by_keys():
    paper = [cell({"method": "A", "share": "0.1"}), cell({"method": "A", "share": "0.2"})]
    assert counterpart(cell({"method": "A", "share": "0.2"}), paper) is paper[1]
    assert counterpart(cell({"share": "0.2"}), paper) is None and counterpart(cell({"method": "B"}), paper) is None


def test_a_setting_of_all_rows_is_one_text_with_two_of_its_values():
    rows = {f"r{n}": [Difference("dim", "8", "512"), Difference("epochs", f"{n}", "60")] for n in (1, 2, 3)}
    rows["r1"].append(Difference("", "14 groups, not 48"))
    assert notes_on_differences(rows) == (
        RowNote("dim 8, not 512; epochs 1 or 2 or others, not 60"),
        RowNote("14 groups, not 48", ("r1",)),
    )
    assert notes_on_differences(rows | {"own": []})[0].rows == ("r1", "r2", "r3")


@pytest.mark.parametrize("columns", ["", 'columns = ["noise"]\n'])
def test_keys_of_a_grid_reach_its_cells(tmp_path, columns):
    file = tmp_path / "mine.toml"
    file.write_text(
        f'base = "procsim-table5"\ndiffers = "one epoch"\n{columns}[settings]\ndata = "glyphs"\n[axes]\nseed = [0]\n'
        'noise = [{name = "half", noise = "Uniform(share=0.5)", differs = "drawn again"}]\n'
        'method = [{name = "ours", loss = "Triplet()", differs = "no mining"}, {name = "plain", loss = "Triplet(margin=1)"}]\n'
        '[published]\nonly = {LSD = "no text"}\n',
        "utf-8",
    )
    grid = read_grid(file)
    assert grid.published_only == {"LSD": "no text"}
    column = "half: drawn again"  # procsim-table5 has the noise in columns, also where the file does not repeat it
    assert [set(one.differs) for one in cells(grid)] == [{"one epoch", column, "no mining"}, {"one epoch", column}]
