"""Where a training stands in its table, by hand."""

from likewise.papers.grid import Grid, Point, place_of, rows_of


def test_axes_are_rows_unless_they_are_columns_or_seeds():
    axes = {name: [Point("a", {}), Point("b", {})] for name in ("method", "noise", "seed")}
    grid = Grid("", {}, axes, {}, columns=("noise",))
    assert rows_of(grid) == ["method"]
    assert place_of(grid, {"method": "a", "noise": "b", "seed": "a"}) == (("a",), ("b",))


def test_a_grid_of_seeds_has_one_row():
    grid = Grid("", {}, {"seed": [Point("0", {})]}, {})
    assert rows_of(grid) == ["setting"]
    assert place_of(grid, {"seed": "0"}) == (("all the same",), ())
