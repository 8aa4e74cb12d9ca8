"""Tables of papers: they lay out on every data set they are for, and every printed number has a cell or is known to have none."""

from dataclasses import replace

import numpy as np
import pytest
from likewise.contracts import BatchSampler, Confidence, Loss, NoiseModel, Protocol, Term
from torch import nn

from likewise.core.settings.overrides import has_argument
from likewise.core.settings.spec import build, canonical
from likewise.learn.recipes import with_print
from likewise.learn.training.defaults import fold_specs
from likewise.papers.grid import adapted, as_train, cells, names_with_print, read_grid, shipped, table_names
from likewise.papers.grid_plan import Planner
from likewise.papers.published import numbers

OURS = {
    "CUB200": "cub200", "Cars196": "cars196", "SOP": "sop", "InShop": "inshop", "iNaturalist": "inaturalist",
    "ImageNet": "imagenet",
}  # fmt: skip
TRAINED = [name for name in table_names() if read_grid(name).axes]
"""Tables and figures with trainings; the others are drawn from published numbers or from formulas."""
PRINTED = [name for name in TRAINED if read_grid(name).published]
FIGURES = [name for name in PRINTED if "-figure" in name and name != "hierarchical-figure2"]
"""Figures of the trainings of a table; figure 2 of HPL has printed numbers of its own."""
AS_PRINTED = [f"{name}:print" for name in names_with_print()]
"""Tables with the settings of the print."""
KINDS = {
    "loss": Loss, "sampler": BatchSampler, "protocol": Protocol, "noise": NoiseModel, "confidence": Confidence, "terms": Term,
}  # fmt: skip


def printed(grid):
    return numbers(paper=grid.published["paper"], table=grid.published["table"])


def is_that(number, published):
    """Whether a printed number is what these keys say."""
    return all(
        number.share == float(v) if key == "share" else getattr(number, key) == v for key, v in published.items()
    )


def metrics_of(grid, config):
    """The printed names of what a table measures."""
    names = [grid.published_metrics.get(metric, metric) for metric in config.metrics]
    return {prefix + name for name in names for prefix in (grid.published_scores.values() or [""])}


def data_sets(grid):
    return (
        [OURS[d] for d in sorted({n.dataset for n in printed(grid)})]
        if grid.published
        else ["cub200", "cars196", "inshop"]
    )


def test_every_table_of_the_papers_is_there():
    have = {(g.published["paper"], g.published["table"]) for g in map(read_grid, PRINTED)}
    assert {(n.paper, n.table) for n in numbers()} == have
    assert set(TRAINED) - set(PRINTED) == {"influence-figure3", "procsim-figure6"}  # curves, no numbers
    assert set(table_names()) - set(TRAINED) == {"influence-figure1", "procsim-figure4", "procsim-figure5"}
    assert all(table_names()) and not any(name.startswith("_") for name in table_names())


@pytest.mark.parametrize("name", AS_PRINTED)
def test_a_table_as_printed_has_the_printed_values_of_its_recipes(name):
    """Otherwise its cells are those of the table; the tables that print the best test epoch measure every epoch."""
    as_code, grid = read_grid(name.removesuffix(":print")), read_grid(name)
    best = not name.startswith("procsim")
    assert (grid.name, grid.is_print, grid.title) == (name.replace(":", "-"), True, f"{as_code.title}, as printed")
    for code, cell in zip(cells(as_code), cells(grid), strict=True):
        assert (code.names, code.published) == (cell.names, cell.published)
        assert cell.settings.get("recipe") == (code.settings.get("recipe") and with_print(code.settings["recipe"]))
        config, other = as_train(cell.settings), as_train(code.settings)
        assert config.test_every == ("1e" if best else None)
        changed = {key for key, value in vars(config).items() if value != getattr(other, key)} - {"recipe"}
        assert changed <= {"loss", "loss_lr", "terms", "confidence", "test_every"}
    if grid.published:
        assert shipped(replace(grid, name="mine")).name == f"{shipped(as_code).name}-print"


def test_the_tables_of_the_training_strategies_as_printed_limit_all_distances():
    for number in range(4, 10):
        for cell in cells(read_grid(f"training-strategies-table{number}:print")):
            loss = canonical(as_train(cell.settings).loss)
            assert ("DistanceWeighted" in loss) == ("upper=1.4" in loss), cell.names


def test_the_tables_of_the_training_strategies_draw_batches_as_its_code_does():
    for number in (3, 4, 5, 6, 7, 8, 9):
        own = [c for c in cells(read_grid(f"training-strategies-table{number}")) if c.names["seed"] == "0"]
        samplers = {as_train(c.settings).sampler for c in own if number > 3 or c.names["method"].startswith("Margin")}
        samplers = {text for text in samplers if text.startswith("Samples")}
        assert samplers and all("with_replacement=True" in text for text in samplers)


def test_the_rows_of_relations_of_parts_have_the_dimensions_and_batches_of_the_paper():
    for number in (1, 2):
        every = cells(read_grid(f"relational-table{number}"))
        assert {c.names["seed"] for c in every} == set(map(str, range(10)))
        for config in (as_train(c.settings) for c in every):
            assert config.dim == 128 and "batch=32" in canonical(config.sampler)


def test_guidance_by_images_needs_no_labels():
    for name in ("procsim-table6", "procsim-table6:print"):
        (term,) = {as_train(cell.settings).terms for cell in cells(read_grid(name))}.pop()
        assert "by='images'" in term and "mask_same_label=False" in term


@pytest.mark.parametrize("name", [name for name in PRINTED if name not in FIGURES])
def test_every_point_is_a_printed_row_and_every_printed_number_has_a_cell(name):
    """A figure may have some rows of a table only, and rows that no table has."""
    grid = read_grid(name)
    there = printed(grid)
    for along in grid.axes.values():
        for point in along:
            assert any(is_that(n, point.published) for n in there), (
                f"{point.name}: nothing printed is {point.published}"
            )
    if grid.is_figure:
        return
    found = [c for c in cells(grid) if c.names["seed"] == "0"]
    measured = metrics_of(grid, as_train(found[0].settings))
    quoted = grid.published_only.keys()
    assert quoted <= {n.method for n in there} and all(map(str.strip, grid.published_only.values()))
    for n in there:
        of = [c for c in found if "method" in c.published and is_that(n, c.published)]  # rows without a key are extra
        assert n.metric in measured or n.noise == "all"  # the mean over all columns
        assert len(of) == (0 if n.method in quoted or n.noise == "all" else 1), f"{n} has the cells {of}"


@pytest.mark.parametrize("name", FIGURES)
def test_every_row_of_a_figure_that_names_a_printed_row_has_one(name):
    grid = read_grid(name)
    for point in (p for along in grid.axes.values() for p in along if p.published):
        assert any(is_that(n, point.published) for n in printed(grid)), (
            f"{point.name}: nothing printed is {point.published}"
        )


@pytest.mark.parametrize("name", TRAINED)
def test_every_table_lays_out_on_every_data_set_it_is_for_and_its_parts_build(name):
    grid = read_grid(name)
    assert grid.title and grid.name == name and len(grid.axes["seed"]) >= 3
    classes = 1000
    names = tuple(f"c{i}" for i in range(classes))
    tree = {c: tuple(f"{rank} {i % 7}" for rank in ("kind", "phylum", "class")) for i, c in enumerate(names)}
    facts = {
        "classes": classes, "dim": 8, "features": 16, "labels": np.repeat(np.arange(classes), 8), "seed": 0, "per_pass": 10,
        "steps": 10**6, "class_names": names, "taxonomy": tree,
        "samples": 8 * classes, "rows": np.arange(8 * classes),
    }  # fmt: skip
    for data in data_sets(grid):
        there = [c for c in cells(adapted(grid, data, "somewhere")) if c.names["seed"] == "0"]
        configs = [as_train(cell.settings) for cell in there]
        assert len(set(configs)) == len(configs)
        assert {(c.data, c.root) for c in configs} == {(data, "somewhere")}
        inside = {key for cell in there for key in cell.settings if "." in key}
        assert {key for key in inside if not any(has_argument(c, key) for c in configs)} == set(), "no part has it"
        for key, kind in KINDS.items():
            said = {getattr(c, key) for c in configs} - {None, ()}
            for text in {t for value in said for t in (value if isinstance(value, tuple) else (value,))}:
                if not text.startswith(
                    ("S2SD", "Ensemble", "SelfDistillation", "DiVA", "DCML", "DivideConquer", "MIC", "IntraBatch")
                ):  # which want a network; recipes are tested with one
                    build(text, kind, **facts)
        for head, dim in {(c.head, c.dim) for c in configs}:
            build(head, nn.Module, features=2048, dim=2048 if head == "Identity()" else dim)


def test_points_that_change_an_argument_do_so_where_the_recipe_has_it():
    """A dotted name that no part has is passed over, so each is looked for here."""
    for name in TRAINED:
        grid = read_grid(name)
        plain = {"data": data_sets(grid)[0]}
        for point in (p for along in grid.axes.values() for p in along):
            config = as_train({k: v for k, v in (grid.settings | plain | point.settings).items() if "." not in k})
            for key in point.settings:
                assert "." not in key or has_argument(config, key), f"{name}: {point.name}: {key}"


def test_the_proxy_anchor_beside_relations_of_parts_is_the_same_in_every_table():
    """alpha 32 and margin 0.1 are its authors' values; 64 and 0.2 are those of the relational form."""
    for number in (1, 2, 3):
        settings = {c.names["method"]: c.settings for c in cells(read_grid(f"relational-table{number}"))}
        config = as_train(settings["ProxyAnchor"])
        assert config.loss == "ProxyAnchor(alpha=32, margin=0.1)"
        assert (config.lr, config.backbone_lr) == (
            (1e-4, 1e-4) if number == 3 else (1e-6, None)
        )  # the protocol's, in 1 and 2
        assert (config.head, config.terms, config.loss_weight) == ("Linear()", (), 1)


def test_methods_are_told_the_share_of_wrong_labels_that_there_is():
    for name in ("procsim-table4", "procsim-table5", "procsim-table7"):
        for cell in cells(read_grid(name)):
            config, share = as_train(cell.settings), f"share={cell.published['share']}"
            told = [t for t in (config.confidence, config.loss) if t and "share=" in t]
            assert share in config.noise and all(share in text for text in told)
            known = ("PRISM", "Co-teaching", "Co-teaching+", "Co-teaching, T", "F-correction")
            assert bool(told) == (cell.names["method"] in known)


@pytest.mark.slow
def test_quick_tables_are_small_and_lay_out_on_the_glyphs(tmp_path):
    planner = Planner(tmp_path, print)
    for name in TRAINED:
        there = cells(adapted(read_grid(name), quick=True))
        assert len(there) <= 100 and {cell.names["seed"] for cell in there} == {"0", "1"}
        configs = [as_train(cell.settings, device="cpu") for cell in there if cell.names["seed"] == "0"]
        assert len(set(configs)) == len(configs)
        assert {(c.root, c.backbone, c.weights) for c in configs} == {(None, None, None)}
        is_figure = "-figure" in name  # a figure may need more images and epochs to show something
        assert all(c.data == "glyphs(classes=48, per_class=12)" or is_figure for c in configs)
        assert all(c.epochs == (0 if c.head in ("PCA()", "Identity()") else 8) or is_figure for c in configs)
        last = configs[-1]
        folds = fold_specs(last.protocol) if last.protocol else None
        planner.job(replace(last, protocol=(folds or [last.protocol])[0]))


def test_a_base_is_replaced_key_by_key(tmp_path):
    base, top = tmp_path / "base.toml", tmp_path / "top.toml"
    base.write_text(
        'note = "n"\n[settings]\ndata = "glyphs"\nloss.margin = 0.1\n[quick]\nepochs = 1\naxes = {seed = 1}\n'
        '[axes]\nloss = ["Triplet()", "Margin()"]\nseed = [0, 1]\n',
        "utf-8",
    )
    top.write_text(
        'base = "base.toml"\ntitle = "t"\nsettings.lr = 0.5\n[quick]\nlr = 0.1\naxes = {loss = 1}\n'
        '[axes]\nloss.without = ["Triplet()"]\ndim = [8]\n',
        "utf-8",
    )
    grid = read_grid(top)
    assert (grid.title, grid.note, grid.name) == ("t", "n", "top")
    assert grid.settings == {"data": "glyphs", "loss.margin": 0.1, "lr": 0.5}
    assert {axis: [p.name for p in along] for axis, along in grid.axes.items()} == {
        "loss": ["Margin()"],
        "seed": ["0", "1"],
        "dim": ["8"],
    }
    assert grid.quick == {"epochs": 1, "lr": 0.1, "axes": {"seed": 1, "loss": 1}}


def trainings(name):
    """Names of the cells of a grid by their training: what its settings are apart from metrics and recipe."""
    grid = read_grid(name)
    found = {}
    for cell in cells(grid):
        config = as_train(cell.settings)
        config = replace(config, metrics=(), recipe=None, loss=canonical(config.loss))
        found[config] = cell.names
    return found


@pytest.mark.parametrize(
    ("figure", "table", "own"),
    [
        ("figure8", "table4", {"p_switch": {"0.1", "0.15", "0.2", "0.3", "0.35", "0.5", "0.6", "0.8"}}),
        ("figure9", "table4", {}),
        ("figure9-cars196", "table5", {}),
        ("figure10-sop", "table6", {}),
        ("figure11", "table4", {}),
        ("figure13", "table4", {"method": {"Softmax + mixup", "Triplet (D) + mixup", "Margin 0.6 (D) + mixup"}}),
    ],
)
def test_figures_of_the_training_strategies_use_the_trainings_of_the_tables(figure, table, own):
    drawn, known = trainings(f"training-strategies-{figure}"), trainings(f"training-strategies-{table}")
    alone = [names for config, names in drawn.items() if config not in known]
    (axis, wanted), *_ = [*own.items(), ("method", set())]
    assert {names[axis] for names in alone} == wanted and len(alone) == 5 * len(wanted)
    assert drawn.keys() & known.keys()
