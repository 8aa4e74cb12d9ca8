"""Every TOML file of examples/ and benchmarks/tables: bench lays out all of its cells, and trains some at toy size."""

import json
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from likewise.config import Bench, Tune
from likewise.contracts import BatchSampler
from PIL import Image

from likewise.cli import main as cli
from likewise.core.settings.overrides import has_argument
from likewise.core.settings.spec import build
from likewise.data.taxonomies import taxonomy
from likewise.papers import tune as tune_module
from likewise.papers.executors import attempt
from likewise.papers.grid import adapted, as_train, cells, read_grid, toml
from likewise.papers.grid_plan import Planner, check_published, lay_out
from likewise.papers.tune import read_entries
from likewise.runs.folder import Run

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
GRIDS = [file for file in EXAMPLES if not read_grid(file).ranges]
TABLES = sorted((ROOT / "benchmarks" / "tables").glob("*.toml"))
SETS = [file for file in TABLES if not read_grid(file).axes]
COMMAND = re.compile(r"^(?:# (?:.*: )?)?(likewise (?:bench|tune|noise) .*\.(?:toml|csv).*)$", re.M)
SAMPLER = "SamplesPerClass(batch=16, per_class=2, lonely='skip')"
TOY = ("steps=2", "dim=16", f"sampler={SAMPLER}", "precision=fp32", "workers=0", "warmup=0")
SMALL = ("backbone=conv_small", "size=16", "pretrained=false", "weights=none")


@pytest.fixture(scope="session")
def birds(tmp_path_factory):
    """Made data under names of CUB200: a table of pictures and a file of features, 24 classes of 4, half of them to test."""
    folder, rng = tmp_path_factory.mktemp("birds"), np.random.default_rng(0)
    names = sorted(taxonomy("cub200"))[::8][:24]
    lines = ["path,label,class_name,split"]
    for c, name in enumerate(names):
        for i in range(4):
            Image.fromarray(rng.integers(0, 256, (16, 20, 3), dtype=np.uint8)).save(folder / f"{c}-{i}.png")
            lines.append(f"{c}-{i}.png,{name},{name},{'train' if c % 2 else 'test'}")
    (folder / "cub.csv").write_text("\n".join(lines) + "\n", "utf-8")
    label = np.repeat(names, 4)
    split = np.where(np.arange(96) // 4 % 2, "train", "test")
    np.savez(folder / "cub224.npz", x=rng.normal(size=(96, 16)).astype(np.float32), label=label, split=split)
    return folder


@pytest.fixture
def data(birds):
    """The made data that stands for what a grid names."""

    def data(name):
        return "glyphs(classes=48, per_class=8)" if name.startswith("glyphs") else str(birds / Path(name).name)

    return data


def one_seed(name):
    """The grid of this name or file with the first of its seeds."""
    grid = read_grid(name)
    assert len(grid.axes["seed"]) > 1
    return replace(grid, axes=grid.axes | {"seed": grid.axes["seed"][:1]})


def cover(found):
    """Numbers of cells, as few as it takes for every point of every axis to be in one of them."""
    axes = {axis: list(dict.fromkeys(c.names[axis] for c in found)) for axis in found[0].names}
    wanted = [
        {axis: names[place % len(names)] for axis, names in axes.items()}
        for place in range(max(map(len, axes.values())))
    ]
    return [next(n for n, c in enumerate(found, 1) if c.names.items() >= names.items()) for names in wanted]


def must_lay_out(grid, config, folder):
    """The trainings of a grid, the settings of each checked as bench does before it trains anything."""
    check_published(grid)
    plan = lay_out(grid, config, Planner(folder, print))
    assert {t.number for t in plan} == set(range(1, len(cells(grid)) + 1))
    for text in {t.job.config.sampler for t in plan}:
        build(text, BatchSampler, labels=np.repeat(np.arange(200), 10), seed=0)
    return plan


def must_train(grid, chosen, folder):
    """Train these cells of a grid, by their numbers, as bench does; each must end with a score."""
    found = cells(grid)
    for number in chosen:
        config = as_train(found[number - 1].settings, device="cpu", metrics=("R@1",), quiet=True)
        error, *_ = attempt(replace(config, out=str(folder / str(number))))
        assert error is None, f"{grid.name}, {found[number - 1].names}: {error}"
        assert 0 <= Run(folder / str(number)).scores["metrics"]["R@1"] <= 1


FEW = ("bench", "robust-features")
"""Grids of the fast suite; `./test --all` starts every one."""


@pytest.mark.parametrize(
    "file", [pytest.param(f, id=f.stem, marks=() if f.stem in FEW else pytest.mark.slow) for f in GRIDS]
)
def test_an_example_grid_is_laid_out_whole_and_trained_in_part(file, data, tmp_path):
    grid = one_seed(file)
    source = data(grid.settings["data"])
    plan = must_lay_out(adapted(grid, source), Bench(str(file), device="cpu"), tmp_path)
    if "robust" in file.stem:  # "none" on this axis means that no label is doubted
        assert {t.job.config.confidence for t in plan} >= {None}
    changes = [
        *TOY,
        *(SMALL if source.endswith(".csv") else ()),
        *(["loss.start=1"] if "structure" in file.stem else []),
    ]
    toy = adapted(grid, source, changes=changes)
    must_train(toy, cover(cells(toy)), tmp_path)


SEARCHES = [file for file in EXAMPLES if read_grid(file).ranges]


@pytest.mark.parametrize("file", SEARCHES, ids=lambda file: file.stem)
def test_an_example_search_is_searched(file, tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    monkeypatch.setattr("likewise.papers.optuna_study.draw_search", lambda file, *_: file.touch())
    grid = read_grid(file)
    base = as_train(grid.settings)
    ((_, _, _, *words),) = commands(file)
    ranges = cli.parse("tune", ["x.toml", *words]).ranges
    wanted = read_entries(ranges, base.loss, grid.ranges)
    toy = {"data": "glyphs(classes=48, per_class=8)", "steps": 2, "validate_every": "1", "sampler": SAMPLER}
    toy |= {"loss.start": 1} if has_argument(base, "loss.start") else {}
    (tmp_path / "toy.toml").write_text(toml(replace(grid, settings=grid.settings | toy)), "utf-8")
    out = str(tmp_path / "out")
    config = Tune(str(tmp_path / "toy.toml"), ranges=ranges, trials=1, out=out, device="cpu", quiet=True)
    found = tune_module.tune(config)
    assert found.about["count"]["complete"] == 1 and found.about["best"]["values"].keys() == wanted.keys()
    assert math.isfinite(json.loads((found.folder / "tune.json").read_text("utf-8"))["best"]["value"])


def commands(*files):
    """The commands with files in comments and code blocks, as words."""
    for file in files:
        for one in COMMAND.finditer(file.read_text("utf-8")):
            yield shlex.split(one[1], comments=True)


@pytest.mark.slow
def test_settings_for_tables_are_laid_out_by_the_commands_that_name_them(data, tmp_path):
    named, known = set(), {}
    weights = tmp_path / "weights.safetensors"  # only its content counts until a network is built
    weights.write_bytes(b"weights of the reader")
    for _, command, *words in commands(*SETS, ROOT / "docs" / "results" / "README.md", ROOT / "docs" / "tables.md"):
        config = cli.parse(command, words)
        sets = [ROOT / word for word in config.set if word.endswith(".toml")]
        if not sets or config.set == known.get(config.grid):
            continue
        known[config.grid] = config.set
        assert all(file in SETS for file in sets), f"{words}: there is no such file"
        named |= set(sets)
        changes = [str(ROOT / word) if word.endswith(".toml") else word for word in config.set]
        changes = [f"weights={weights}" if word.startswith("weights=") else word for word in changes]
        features = "features" in sets[0].stem
        source = data("cub224.npz" if features else "cub.csv")
        toy = adapted(one_seed(config.grid), source, changes=changes)
        tree = {} if features else {"noise.tree": "cub200"}  # which the original download brings
        toy = replace(toy, settings=toy.settings | tree)
        must_lay_out(toy, replace(config, device="cpu", metrics=("R@1",)), tmp_path)
    assert named == set(SETS)


def test_grids_beside_the_settings_are_laid_out(data, tmp_path):
    grids = [file for file in TABLES if file not in SETS]
    assert grids
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"weights of the reader")
    for file in grids:
        noise = ["noise.tree=cub200"] if "Semantic" in str(read_grid(file).axes.get("noise")) else []
        toy = adapted(one_seed(file), data("cub.csv"), changes=[f"weights={weights}", *noise, f"sampler={SAMPLER}"])
        config = replace(cli.parse("bench", [str(file)]), device="cpu", metrics=("R@1",))
        must_lay_out(toy, config, tmp_path)


@pytest.mark.slow
def test_relations_and_hierarchies_beside_their_baselines_are_trained(data, tmp_path):
    grid = one_seed(ROOT / "benchmarks/tables/structure-cub224.toml")
    toy = adapted(grid, data("cub.csv"), changes=[*TOY, *SMALL, "loss.start=1"])
    must_train(toy, [1, 2, 3, 4], tmp_path)


def test_settings_for_tables_are_trained(data, tmp_path):
    for file in SETS:
        features = "features" in file.stem
        changes = [str(file), *TOY, *(() if features else SMALL)]
        toy = adapted(
            one_seed("training-strategies-table4"), data(f"cub{'224.npz' if features else '.csv'}"), changes=changes
        )
        must_train(toy, [1, 2], tmp_path / file.stem)


def test_commands_in_the_examples_parse():
    found = list(commands(*EXAMPLES))
    assert {words[2] for words in found} >= {f"examples/{file.name}" for file in EXAMPLES}
    for _, command, *words in found:
        assert cli.parse(command, words)
