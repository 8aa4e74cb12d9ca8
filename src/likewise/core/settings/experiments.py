"""The settings of demo, bench, published and tune."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from likewise.core.argument_checks import Count, CountOrZero, NotNegative, Share
from likewise.core.settings.field_types import Data, Device, File, Folder, Positional, Processes, Seed, called


@dataclass(frozen=True)
class Demo:
    """Train on the built-in glyphs with wrong labels, without and with --robust, and compare the scores."""

    out: Folder | None = None
    """Folder of the two runs, plain and robust. By default folders in runs/."""
    noise_rate: Share = 0.3
    """Noise rate: share of the training labels that are wrong, from 0 to 1."""
    epochs: NotNegative = 9
    """Length of each training, in epochs (passes over the training data)."""
    data: Data = "glyphs"
    """The glyphs to train on, with optional arguments: "glyphs(classes=60)"."""
    seed: Seed = 0
    """Seed of all random choices."""
    restart: bool = False
    """Train again, even if the runs of an earlier demo are finished."""
    quiet: bool = False
    """Print no progress and no table, only the paths of the run and of the figure."""


@dataclass(frozen=True)
class Bench:
    """Train every cell of a table or grid, and print means with 95 % intervals over seeds beside the paper's numbers."""

    grid: Annotated[Positional[str | None], called("TABLE_OR_GRID")] = None
    """Name of a paper's table (--list without a name shows all), with :print after it as printed; or a TOML file with [settings]
    of a training and [axes] of values to vary, such as seed = [0, 1, 2]."""
    data: Data | None = None
    """Data to train on. By default the data of the grid."""
    root: Folder | None = None
    """Folder with the original download of a named data set, or the folder that the paths of a table start from. By default the
    folder of the table."""
    set: tuple[str, ...] = ()
    """Settings that override the paper's: "size=160" "backbone=efficientnet_lite0" "terms.encoder=models/minilm", or a TOML file
    with [settings]. The printed table lists the differences from the paper. By default none."""
    quick: bool = False
    """Train the same table on small glyphs, in minutes on a CPU, to check that it works; the numbers are not comparable with the
    paper."""
    only: tuple[str, ...] = ()
    """Train only these cells: "method=ProcSim" "seed=0", or their numbers in --list. By default all cells.

    The table then shows the finished cells; figures of its grid need a call without --only."""
    budget: float | None = None
    """Minutes that the whole command may take. Every row is trained once before any row twice, no training starts that would not
    end in time, and a training that is still running is saved; the same command continues. By default no limit."""
    adopt: tuple[File, ...] = ()
    """Tables of results (results.csv) of the same grid on other machines: their finished cells are not trained again. By default
    none."""
    out: Folder | None = None
    """Folder of runs, results.csv and the tables (md, tex, csv, html). By default bench/NAME."""
    jobs: Processes = 1
    """Number of trainings at the same time, each in its own process; they share the GPU or the cores."""
    executor: str | None = None
    """What runs the trainings: "ray" (the running Ray cluster, or a local one) or "ray://HOST:PORT". By default this
    machine."""
    gpus_per_run: float | None = None
    """With --executor, GPUs per training; with 0.25, four trainings share a GPU. By default 1 if there are GPUs."""
    metrics: tuple[str, ...] | None = None
    """Metrics to compute; `likewise list metrics` shows all. By default the metrics of the grid."""
    list: bool = False
    """Train nothing, and list the cells that would be trained; without TABLE_OR_GRID, list the tables of papers. A named data set
    without --root is not read: the list then has no states of trainings."""
    train: bool = True
    """Train the missing cells; --no-train only summarises the finished cells."""
    device: Device | None = None
    """Device that trains: cpu, cuda, cuda:1 or mps. By default the GPU if there is one."""
    allow_imports: bool = False
    """Allow components by dotted name (my_lab.losses.Mine()), which runs their code."""
    quiet: bool = False
    """Print no progress bar and no table."""


@dataclass(frozen=True)
class Published:
    """Print the published numbers of papers, with the conditions under which they were measured."""

    paper: str | None = None
    """Paper: training-strategies, procsim, influence, relational or hierarchical. By default all papers."""
    table: str | None = None
    """Number of the table, as printed in the paper. By default all tables."""
    dataset: str | None = None
    """Data set: CUB200, Cars196, SOP, InShop, iNaturalist or ImageNet. By default all data sets."""
    metric: str | None = None
    """Metric, such as R@1. By default all metrics."""
    method: str | None = None
    """Text that the name of the method contains, in upper or lower case. By default all methods."""
    noise: str | None = None
    """Label noise: none, uniform or semantic, with an optional noise rate: "uniform 0.5". By default all."""
    csv: File | None = None
    """File to write the numbers to, with all columns (.csv). By default no file."""


@dataclass(frozen=True)
class Tune:
    """Search for the best settings on validation classes. Only --final-runs use the test split."""

    config: Annotated[Positional[str], called("CONFIG")]
    """A TOML file with [settings] of a training and optional [ranges]; or a run folder, for its settings."""
    ranges: tuple[str, ...] = ()
    """Settings to vary and their ranges: "lr=1e-5..1e-2 log" "loss.miner.eps=0..0.5" "dim=64|128"; or reality-check, for the
    ranges of "A Metric Learning Reality Check" that are not given otherwise. By default the [ranges] of the file CONFIG."""
    trials: Count = 50
    """Number of settings to try, summed over all processes that share the search."""
    sampler: Literal["tpe", "gp", "random"] = "tpe"
    """How the next settings are chosen: by a tree-structured Parzen estimator (tpe), a Gaussian process (gp), or at random."""
    pruner: Literal["median", "none"] = "median"
    """When to stop a trial early: if the mean of its folds so far is below the median of the other trials (median), or never
    (none)."""
    seed: Seed = 0
    """Seed of the search; the seed of the trainings is one of the settings in CONFIG."""
    storage: str | None = None
    """Where the trials are stored: a file, sqlite:///... or postgresql+psycopg://... By default a file in the --out folder."""
    out: Folder | None = None
    """Folder of runs, tune.json, best.toml and tune.png. By default tune/CONFIG."""
    jobs: Processes = 1
    """Number of folds at the same time, each in its own process. To share a search between processes, start the same command
    again."""
    final_runs: CountOrZero = 0
    """Number of additional trainings with the best settings and new seeds, scored on the test split."""
    device: Device | None = None
    """Device that trains: cpu, cuda, cuda:1 or mps. By default the GPU if there is one."""
    allow_imports: bool = False
    """Allow components by dotted name (my_lab.losses.Mine()), which runs their code."""
    quiet: bool = False
    """Print no progress bar and no table."""
