"""Tables of papers: they lay out on every data set they are for, and every printed number has a cell or is known to have none."""

from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from likewise import tables
from likewise.config.overrides import has_argument
from likewise.config.spec import build
from likewise.contracts import BatchSampler, Confidence, Loss, NoiseModel, Protocol, Term
from likewise.errors import LikewiseError
from likewise.experiments.grid import adapted, as_train, cells, read_grid, table_names
from likewise.experiments.jobs import Planner
from likewise.published import numbers
from likewise.runs.defaults import fold_specs

OURS = {
    "CUB200": "cub200", "Cars196": "cars196", "SOP": "sop", "InShop": "inshop", "iNaturalist": "inaturalist",
    "ImageNet": "imagenet",
}  # fmt: skip
QUOTED = {
    "procsim-table3": {"Triplet + adaptive hierarchical similarity", "LiftedStruct + adaptive hierarchical similarity"},
    "procsim-table7": {"Co-teaching"},
    "procsim-table8": {"EPSHN", "DiVA", "DCML-MDW", "IB-DML"},
    "relational-table1": {"Pretrained", "SNR"},
    "relational-table2": {"Pretrained", "SNR"},
    "relational-table3": {"Softmax Baseline"},
    "hierarchical-table2": {"HTL*", "D&C*", "MIC*", "DiVA*"},
}
"""Printed rows that nothing here trains: methods of others, or features brought down by another way than ours."""
PRINTED = [name for name in table_names() if read_grid(name).published]
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
    assert {(n.paper, n.table) for n in numbers()} - have == {("training-strategies", "3")}  # quoted from other papers
    assert set(table_names()) - set(PRINTED) == {"influence-detection"}  # curves, no numbers
    assert all(tables.names()) and not any(name.startswith("_") for name in tables.names())


@pytest.mark.parametrize("name", PRINTED)
def test_every_point_is_a_printed_row_and_every_printed_number_has_a_cell(name):
    grid = read_grid(name)
    there = printed(grid)
    for along in grid.axes.values():
        for point in along:
            assert any(is_that(n, point.published) for n in there), (
                f"{point.name}: nothing printed is {point.published}"
            )
    found = [c for c in cells(grid) if c.names["seed"] == "0"]
    measured = metrics_of(grid, as_train(found[0].settings))
    quoted = QUOTED.get(name, set())
    assert quoted <= {n.method for n in there}
    for n in there:
        of = [c for c in found if is_that(n, c.published)]
        assert n.metric in measured or n.noise == "all"  # the mean over all columns
        assert len(of) == (0 if n.method in quoted or n.noise == "all" else 1), f"{n} has the cells {of}"


@pytest.mark.parametrize("name", table_names())
def test_every_table_lays_out_on_every_data_set_it_is_for_and_its_parts_build(name):
    grid = read_grid(name)
    assert grid.title and grid.name == name and len(grid.axes["seed"]) >= 3
    classes = 1000
    names = tuple(f"c{i}" for i in range(classes))
    facts = {
        "classes": classes, "dim": 8, "features": 16, "labels": np.repeat(np.arange(classes), 8), "seed": 0, "per_pass": 10,
        "steps": 10**6, "class_names": names, "taxonomy": {c: (f"kind {i % 7}",) for i, c in enumerate(names)},
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
                    ("S2SD", "Ensemble", "SelfDistillation")
                ):  # which want a network; recipes are tested with one
                    build(text, kind, **facts)
        for head, dim in {(c.head, c.dim) for c in configs}:
            build(head, nn.Module, features=2048, dim=2048 if head == "Identity()" else dim)


def test_points_that_change_an_argument_do_so_where_the_recipe_has_it():
    """A dotted name that no part has is passed over, so each is looked for here."""
    for name in table_names():
        grid = read_grid(name)
        plain = {"data": data_sets(grid)[0]}
        for point in (p for along in grid.axes.values() for p in along):
            config = as_train({k: v for k, v in (grid.settings | plain | point.settings).items() if "." not in k})
            for key in point.settings:
                assert "." not in key or has_argument(config, key), f"{name}: {point.name}: {key}"


def test_methods_are_told_the_share_of_wrong_labels_that_there_is():
    for name in ("procsim-table4", "procsim-table5", "procsim-table7"):
        for cell in cells(read_grid(name)):
            config, share = as_train(cell.settings), f"share={cell.published['share']}"
            told = [t for t in (config.confidence, config.loss) if t and "share=" in t]
            assert share in config.noise and all(share in text for text in told)
            known = ("PRISM", "Co-teaching+", "Co-teaching, T", "F-correction")
            assert bool(told) == (cell.names["method"] in known)


@pytest.mark.slow
def test_quick_tables_are_small_and_lay_out_on_the_glyphs(tmp_path):
    planner = Planner(tmp_path, print)
    for name in table_names():
        there = cells(adapted(read_grid(name), quick=True))
        assert len(there) <= 100 and {cell.names["seed"] for cell in there} == {"0", "1"}
        configs = [as_train(cell.settings, device="cpu") for cell in there if cell.names["seed"] == "0"]
        assert len(set(configs)) == len(configs)
        assert {(c.data, c.root, c.backbone, c.weights, c.epochs) for c in configs} == {
            ("glyphs(classes=48, per_class=12)", None, None, None, 8)
        }
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('base = "top.toml"', "is its own base"),
        ('base = "procsim-tabel5"', "there is no table 'procsim-tabel5'; did you mean 'procsim-table"),
        (
            'base = "procsim-table5"\naxes.method.without = ["LDS"]',
            "there is no method called 'LDS'; did you mean 'LSD'?",
        ),
        ("[published]\npage = 3", "there is no [published] key 'page'"),
        pytest.param(f"[settings]\ndim = {'9' * 5000}", "is not TOML", id="5000 digits"),
        pytest.param(f"[axes]\ndim = {'[' * 5000}{']' * 5000}", "is not TOML", id="5000 lists"),
    ],
)
def test_what_a_file_gets_wrong_is_named(tmp_path, text, words):
    file = tmp_path / "top.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(LikewiseError) as error:
        read_grid(file)
    assert words in str(error.value)
