"""The file that bench and tune read: what it says, what it refuses, and that it comes back as it was written."""

import itertools

import pytest
from likewise.config import Train
from likewise.errors import LikewiseError

from likewise.core.settings.overrides import settings_of
from likewise.papers.grid import (
    Grid,
    Point,
    adapted,
    as_train,
    cells,
    chosen,
    place_of,
    read_grid,
    rows_of,
    shipped,
    table_names,
    toml,
)

TEXT = """
title = "a study"
[settings]
data = "glyphs"
steps = 40
crop_scale = [0.2, 1.0]
augment = "none"
lr = 1e-3
[axes]
loss = ["MultiSimilarity()", "Triplet(margin=0.2)"]
noise = ["none", "Uniform(share=0.3)"]
seed = [0, 1, 2]
[[axes.method]]
name = "ours"
lr = 0.01
dim = 64
[[axes.method]]
name = "theirs"
[ranges]
lr = "1e-5..1e-2 log"
loss.miner.eps = "0..0.5"
"loss.base" = "0..1"
"""


@pytest.fixture
def read(tmp_path):
    def read(text):
        file = tmp_path / "my grid.toml"
        file.write_text(text, "utf-8")
        return read_grid(file)

    return read


def test_every_combination_is_a_cell_by_hand(read):
    grid = read(TEXT)
    assert grid.title == "a study"
    assert grid.ranges == {"lr": "1e-5..1e-2 log", "loss.miner.eps": "0..0.5", "loss.base": "0..1"}
    expected = []
    axes = (["MultiSimilarity()", "Triplet(margin=0.2)"], ["none", "Uniform(share=0.3)"], [0, 1, 2], ["ours", "theirs"])
    for loss, noise, seed, method in itertools.product(*axes):
        settings = {"data": "glyphs", "steps": 40, "crop_scale": (0.2, 1.0), "augment": "none", "lr": 1e-3}
        settings |= {"loss": loss, "noise": None if noise == "none" else noise, "seed": seed}
        settings |= {"lr": 0.01, "dim": 64} if method == "ours" else {}
        expected.append(({"loss": loss, "noise": noise, "seed": str(seed), "method": method}, settings))
    assert [(c.names, c.settings) for c in cells(grid)] == expected


PRINT = """
title = "a study"
note = "as coded"
[settings]
data = "cub200"
test_every = "2e"
[axes]
seed = [0]
[[axes.method]]
name = "triplet"
recipe = "triplet"
loss.miner = "Random()"
print = {loss.miner = "SoftHard()", dim = 32}
[[axes.method]]
name = "both"
recipe = "norm-softmax+margin"
[[axes.method]]
name = "no print"
recipe = "arcface"
[print]
test_every = "1e"
note = "as printed"
"""


def test_a_grid_as_printed_by_hand(tmp_path):
    file, top = tmp_path / "mine.toml", tmp_path / "top.toml"
    file.write_text(PRINT, "utf-8")
    top.write_text('base = "mine.toml:print"\ntitle = "top"', "utf-8")
    code, grid, above = read_grid(file), read_grid(f"{file}:print"), read_grid(top)
    assert (code.name, code.title, code.note, code.is_print) == ("mine", "a study", "as coded", False)
    assert (grid.name, grid.title, grid.note, grid.is_print) == (
        "mine-print",
        "a study, as printed",
        "as printed",
        True,
    )
    assert (above.name, above.title, above.is_print) == ("top", "top", True) and cells(above) == cells(grid)
    assert [c.settings["recipe"] for c in cells(grid)] == [
        "triplet:print",
        "norm-softmax:print+margin:print",
        "arcface",
    ]
    triplet = {"data": "cub200", "test_every": "1e", "recipe": "triplet:print", "loss.miner": "SoftHard()", "dim": 32}
    assert cells(grid)[0].settings == triplet | {"seed": 0}
    triplet |= {"test_every": "2e", "recipe": "triplet", "loss.miner": "Random()", "seed": 0}
    del triplet["dim"]
    assert cells(code)[0].settings == triplet


@pytest.mark.parametrize(
    "text", ['[settings]\ndata = "glyphs"', '[settings]\ndata = "glyphs"\n[axes]\nrecipe = ["arcface"]']
)
def test_a_grid_without_printed_values_is_not_read_as_printed(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text, "utf-8")
    with pytest.raises(LikewiseError, match="needs values as printed .* There are: .*procsim-table1:print, "):
        read_grid(f"{tmp_path / 'mine.toml'}:print")


def test_a_file_without_axes_is_one_cell(read):
    (cell,) = cells(read('[settings]\ndata = "glyphs"'))
    assert cell.names == {}
    assert as_train(cell.settings) == Train(data="glyphs")


def test_axis_wins_over_settings_and_both_over_the_recipe(read):
    grid = read('[settings]\ndata = "cub200"\nlr = 0.5\n[axes]\nrecipe = ["margin", "triplet"]\ndim = [32]')
    first, second = (as_train(c.settings, device="cpu") for c in cells(grid))
    assert (first.recipe, second.recipe) == ("margin", "triplet")
    assert first.loss.startswith("Margin(") and second.loss.startswith("Triplet(")
    assert first.lr == second.lr == 0.5  # the recipes say 1e-5
    assert first.dim == 32
    assert first.weight_decay == 4e-4  # the recipe's own
    assert first.device == "cpu"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[setings]\ndata = "x"', "'setings'; did you mean 'settings'?"),
        ('data = "x"', "'data'; write it below the line [settings]"),
        ('settings = "x"', "settings must be a table"),
        ("[settings]\nlos = 1", "no setting 'los'; did you mean 'loss'?"),
        ("[settings]\nout = 'x'", "'out' cannot be set in a file"),
        ("[settings]\nallow_imports = true", "'allow_imports' cannot be set in a file"),
        ("[axes]\nseed = 3", "axis 'seed' must be a list"),
        ("[axes]\nseed = []", "axis 'seed' must be a list"),
        ("[axes]\nseeds = [1]", "no setting 'seeds'; did you mean 'seed'?"),
        ("[axes]\nseed = [1, 1]", "axis 'seed' has '1' twice"),
        ("[[axes.method]]\nlr = 1.0", "every table of axis 'method' needs a name"),
        ('[[axes.method]]\nname = "a"\nlearn = 1.0', "no setting 'learn'"),
        ('[axes]\nlr = [1.0]\n[[axes.method]]\nname = "a"\nlr = 2.0', "'lr' and 'method' both give 'lr'"),
        ("[ranges]\nlr = 3", 'range lr must be text such as "0..1"'),
        ("[ranges]\nloss.margin = 3", "range loss.margin must be text"),
        ("[settings", "is not TOML"),
        (
            '[[axes.method]]\nname = "a"\npublished = {metod = "b"}',
            "axis 'method' 'metod'; did you mean 'method'?",
        ),
        ('columns = ["noise"]\n[axes]\nseed = [0]', "no columns entry 'noise'. There are: seed"),
        ('columns = "seed"\n[axes]\nseed = [0]', "columns must be a list, got 'seed'"),
        ('then = ["overlapp"]', "no then entry 'overlapp'; did you mean 'overlap'?"),
        ("[settings]\nlr.x = 3", "have arguments, got 'lr.x'"),
        ("[quick]\naxes = {sead = 2}\n[axes]\nseed = [0]", "no axis 'sead'; did you mean 'seed'?"),
        ("[quick]\naxes = {seed = [3]}\n[axes]\nseed = [0]", "no seed called '3'"),
        ('base = "my grid.toml"', "is its own base"),
        ('base = "procsim-tabel5"', "there is no table 'procsim-tabel5'; did you mean 'procsim-table"),
        ('base = "procsim-table5"\naxes.method.without = ["LDS"]', "no method called 'LDS'; did you mean 'LSD'?"),
        ("[published]\npage = 3", "there is no [published] key 'page'"),
        pytest.param(f"[settings]\ndim = {'9' * 5000}", "is not TOML", id="5000 digits"),
        pytest.param(f"[axes]\ndim = {'[' * 5000}{']' * 5000}", "is not TOML", id="5000 lists"),
    ],
)
def test_what_a_file_gets_wrong_is_named(read, text, words):
    with pytest.raises(LikewiseError) as error:
        read(text)
    assert words in str(error.value)


ROWS = """
note = "n"
columns = ["noise"]
then = ["overlap"]
[published]
paper = "procsim"
table = 5
metrics = {"R@1" = "P@1"}
scores = {separated = "sep/"}
[settings]
data = "cub200"
recipe = "procsim"
[[axes.method]]
name = "PRISM"
recipe = "prism"
confidence.share = "{share}"
published = "MCL + PRISM"
[[axes.method]]
name = "ours"
confidence.lam = 0.5
published = {method = "ProcSim", miner = ""}
[[axes.noise]]
name = "none"
noise = "none"
let = {share = 0.0}
published = {noise = "none", share = 0.0}
[[axes.noise]]
name = "uniform"
noise = "Uniform(share={share})"
let = {share = "0.1"}
published = {noise = "uniform", share = 0.1}
[axes]
seed = [0, 1, 2]
[quick]
lr = 0.5
noise = "none"
axes = {noise = ["uniform"], method = {without = ["PRISM"]}}
"""


def test_points_carry_what_is_printed_and_what_others_take_from_them(read):
    grid = read(ROWS)
    assert (grid.name, grid.note, grid.columns, grid.then) == ("my grid", "n", ("noise",), ("overlap",))
    assert grid.published == {"paper": "procsim", "table": "5"}
    assert (grid.published_metrics, grid.published_scores) == ({"R@1": "P@1"}, {"separated": "sep/"})
    found = [c for c in cells(grid) if c.names["seed"] == "0"]
    assert [c.published for c in found] == [
        {"method": "MCL + PRISM", "noise": "none", "share": "0.0"},
        {"method": "MCL + PRISM", "noise": "uniform", "share": "0.1"},
        {"method": "ProcSim", "miner": "", "noise": "none", "share": "0.0"},
        {"method": "ProcSim", "miner": "", "noise": "uniform", "share": "0.1"},
    ]
    first, second, third, fourth = (as_train(c.settings) for c in found)
    assert "share=0.0" in first.confidence and "share=0.1" in second.confidence
    assert (first.noise, second.noise, third.noise, fourth.noise) == (
        None,
        "Uniform(share=0.1)",
        None,
        "Uniform(share=0.1)",
    )
    assert "lam=0.5" in third.confidence and third.confidence == fourth.confidence
    assert "window=30" in first.confidence  # the recipe's own


def test_other_data_brings_the_recipes_values_for_it_and_changes_lie_between_axis_and_file(read):
    grid = read(ROWS)
    there = adapted(grid, "cars196", "pictures", ["dim=64", "lr=0.25", "terms.encoder=models/x", "confidence.lam=9"])
    prism, _, ours, _ = (as_train(c.settings) for c in cells(there) if c.names["seed"] == "0")
    assert {(c.data, c.root, c.dim, c.lr) for c in (prism, ours)} == {("cars196", "pictures", 64, 0.25)}
    assert ours.epochs == 250 and "weight=5.5" in ours.terms[0]  # of Cars196
    assert "encoder='models/x'" in ours.terms[0] and prism.terms == ()
    assert "lam=0.5" in ours.confidence  # a point wins
    assert as_train(cells(grid)[0].settings).data == "cub200"


def test_other_data_does_not_keep_the_old_root_and_a_root_alone_keeps_the_data(read):
    grid = read('[settings]\ndata = "cub200"\nroot = "here"\n[axes]\nseed = [0]')
    assert adapted(grid, "cars196").settings == {"data": "cars196", "root": None}
    assert adapted(grid, root="there").settings == {"data": "cub200", "root": "there"}
    assert adapted(grid) == grid


def test_changes_may_come_from_a_file_and_the_last_wins(read, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text("[settings]\nsize = 160\nlr = 0.5\nloss.alpha = 3", "utf-8")
    grid = adapted(read(ROWS), changes=[str(file), "lr=0.1"])
    assert (grid.settings["size"], grid.settings["lr"]) == (160, 0.1)
    ours = as_train(next(c for c in cells(grid) if c.names["method"] == "ours").settings)
    assert "alpha=3" in ours.loss
    with pytest.raises(LikewiseError, match="loss.alhpa: no training"):
        adapted(grid, changes=["loss.alhpa=3"])


def test_a_file_of_changes_may_name_the_data_set_and_serve_several_tables(read, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[published]\ndataset = "CUB200"\n[settings]\ndata = "birds"\nloss.alhpa = 3\nsize = 96', "utf-8")
    grid = adapted(read(ROWS), changes=[str(file)])
    assert grid.published == {"paper": "procsim", "table": "5", "dataset": "CUB200"}
    assert {(c.settings["data"], c.settings["size"]) for c in cells(grid)} == {("birds", 96)}
    assert "alhpa" not in as_train(cells(grid)[0].settings).loss  # what no cell has is passed over in a file
    with pytest.raises(LikewiseError, match="loss.alhpa: no training"):
        adapted(read(ROWS), changes=[str(file), "loss.alhpa=3"])
    bare = read('[settings]\ndata = "glyphs"\n[axes]\nseed = [0]')
    assert adapted(bare, changes=[str(file)]).published == {}  # no table, so no data set of one


def test_the_shipped_table_is_the_papers_on_the_same_data(read):
    grid = read(ROWS)
    table = shipped(grid)
    assert (table.name, table.settings["data"], len(cells(table))) == ("procsim-table5", "cub200", 54)
    assert shipped(adapted(grid, "cars196")).settings["data"] == "cars196"
    assert shipped(adapted(grid, "my-birds.csv")).settings["data"] == "cub200"
    named = read(ROWS.replace("table = 5\n", 'table = 5\ndataset = "Cars196"\n').replace('"cub200"', '"my-cars.csv"'))
    assert shipped(named).settings["data"] == "cars196"
    assert shipped(adapted(grid, changes=["dim=7"])).settings == table.settings
    assert shipped(read('[settings]\ndata = "glyphs"')) is None


def test_quick_wins_over_points_and_cuts_axes_and_is_not_there_unless_asked_for(read, tmp_path):
    grid = read(ROWS)
    quick = adapted(grid, "cars196", "pictures", quick=True)
    assert {axis: [p.name for p in along] for axis, along in quick.axes.items()} == {
        "method": ["ours"], "noise": ["uniform"], "seed": ["0", "1"],
    }  # fmt: skip
    config = as_train(cells(quick)[0].settings)
    assert config.data.startswith("glyphs(") and (config.lr, config.noise) == (0.5, None)
    assert config.epochs == 8 and "batch=48" in config.sampler and config.root is None
    assert "lam=0.5" in config.confidence
    assert grid.published and quick.published == {}  # nobody printed that
    assert quick.name == f"{grid.name}-cars196-quick" and quick.title.endswith(
        "quick: small glyphs, not the paper's data"
    )
    (tmp_path / "small.toml").write_text("[settings]\nepochs = 2\ndim = 16", "utf-8")
    words = adapted(grid, changes=[str(tmp_path / "small.toml"), "lr=0.1", "sampler.batch=24"], quick=True)
    config = as_train(cells(words)[0].settings)
    assert (config.epochs, config.dim) == (8, 16)
    assert config.lr == 0.1 and "batch=24" in config.sampler  # what is typed wins
    assert all("glyphs" not in str(c.settings) for c in cells(adapted(grid)))


def test_quick_does_not_train_the_row_of_a_network_before_training(read):
    grid = read(
        '[settings]\ndata = "glyphs"\n[[axes.method]]\nname = "before"\nepochs = 0\n[[axes.method]]\nname = "after"\n'
    )
    before, after = (as_train(cell.settings) for cell in cells(adapted(grid, quick=True)))
    assert (before.epochs, after.epochs) == (0, 8)


def test_chosen_cells_by_hand(read):
    there = cells(read(ROWS))
    by_hand = [
        i for i, c in enumerate(there) if c.names["method"] == "ours" and c.names["seed"] in ("0", "2")
    ]  # fmt: skip
    assert chosen(there, ["method=ours", "seed=0", "seed = 2"]) == by_hand and len(by_hand) == 4
    assert chosen(there, []) == list(range(12))
    assert chosen(there, ["3", "1"]) == [0, 2]
    assert chosen(there, ["12", "method=PRISM", "noise=none"]) == [0, 1, 2, 11]


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("metod=ours", "there is no axis 'metod'; did you mean 'method'?"),
        ("method=PRSM", "there is no method called 'PRSM'; did you mean 'PRISM'?"),
        ("13", "a number from 1 to 12, got '13'"),
        ("0", "a number from 1 to 12, got '0'"),
        ("ours", "a cell must be axis=name"),
    ],
)
def test_unknown_cells_are_named(read, word, words):
    with pytest.raises(LikewiseError) as error:
        chosen(cells(read(ROWS)), [word])
    assert words in str(error.value)


def test_a_name_that_no_point_fills_is_refused(read):
    with pytest.raises(LikewiseError, match=r"loss has \{x\}, which no point defines"):
        cells(read('[settings]\ndata = "glyphs"\nloss = "Triplet(margin={x})"'))


def test_a_missing_file_and_missing_or_wrong_settings_are_named(tmp_path, unchecked):
    with pytest.raises(LikewiseError, match="cannot be read"):
        read_grid(tmp_path / "none.toml")
    with pytest.raises(LikewiseError, match="'procsim-5'; did you mean 'procsim-table5'"):
        read_grid("procsim-5")
    assert "procsim-table5" in table_names()
    with pytest.raises(LikewiseError, match="data must be text, got None"):
        as_train({})
    with pytest.raises(LikewiseError, match="dim must be 1 or more, got 0"):
        as_train({"data": "x", "dim": 0})
    with pytest.raises(LikewiseError, match="loss must be text, got 3"):
        as_train({"data": "x", "loss": 3})
    with pytest.raises(LikewiseError, match="no 'margn'; did you mean 'margin'"):
        as_train({"data": "x", "recipe": "margn"})


def test_settings_come_back_from_a_config_and_from_a_file(tmp_path):
    config = Train(
        data='my "data" ü', loss="Triplet(miner=SemiHard())", crop_scale=(0.2, 1.0), lr=1e-5, freeze_bn=True, steps=40,
        out="x", quiet=True, recipe="margin", device="cpu",
    )  # fmt: skip
    settings = settings_of(config)
    assert settings.keys() == {"data", "loss", "crop_scale", "lr", "freeze_bn", "steps"}
    grid = Grid(
        "a title",
        settings | {"noise": None},
        {"seed": [Point("1", {"seed": 1}), Point("2", {"seed": 2})]},
        {"loss.margin": "0..1"},
        "grid",
    )
    file = tmp_path / "grid.toml"
    file.write_text(toml(grid), "utf-8")
    assert read_grid(file) == grid


def test_other_data_has_a_name_and_a_title_of_its_own():
    table = read_grid("procsim-table5")
    assert (adapted(table, "cub200").name, adapted(table, "cub200").title) == (table.name, table.title)
    other = adapted(table, "pictures/birds.csv", changes=["size=64"])
    assert (other.name, other.title) == ("procsim-table5-birds", f"{table.title}, on birds")


def test_data_that_says_what_it_is_by_its_name_needs_no_other(tmp_path):
    (tmp_path / "set.toml").write_text('[published]\ndataset = "CUB200"\n[settings]\nlr = 0.1\n', "utf-8")
    table = read_grid("procsim-table5")
    assert adapted(table, "z.npz", changes=[str(tmp_path / "set.toml")]).published["dataset"] == "CUB200"
    assert "dataset" not in adapted(table, "cars196", changes=[str(tmp_path / "set.toml")]).published


def test_axes_are_rows_unless_they_are_columns_or_seeds():
    axes = {name: [Point("a", {}), Point("b", {})] for name in ("method", "noise", "seed")}
    grid = Grid("", {}, axes, {}, columns=("noise",))
    assert rows_of(grid) == ["method"]
    assert place_of(grid, {"method": "a", "noise": "b", "seed": "a"}) == (("a",), ("b",))


def test_a_grid_of_seeds_has_one_row():
    grid = Grid("", {}, {"seed": [Point("0", {})]}, {})
    assert rows_of(grid) == ["setting"]
    assert place_of(grid, {"seed": "0"}) == (("all the same",), ())
