"""The settings of commands that train for you: demo, and those that train many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from likewise.config.cli_types import Positional, called


@dataclass(frozen=True)
class Demo:
    """Train on the built-in glyphs with wrong labels, once believing them and once not, and show what was learned."""

    out: str | None = None
    """Folder of the two runs, plain and robust."""
    noise_rate: float = 0.3
    """Share of the training labels that are wrong."""
    epochs: float = 9
    """How long to train each time, in passes over the training data."""
    data: str = "glyphs"
    """The glyphs to use, with arguments if wanted: "glyphs(classes=60)"."""
    seed: int = 0
    """Seed of everything random."""
    restart: bool = False
    """Train anew although the demo has been run before."""
    quiet: bool = False
    """Show no progress, and print only where the run and the picture are."""


@dataclass(frozen=True)
class Bench:
    """Train every cell of a table, and print it: means with 95 % intervals over seeds, beside the paper's numbers."""

    grid: Annotated[Positional[str], called("TABLE_OR_GRID")]
    """A paper's table by name (see `likewise list tables`), or a TOML file with [settings] of a training and [axes] to vary
    them along, seed = [0, 1, 2] among them."""
    data: str | None = None
    """What to train on. By default what the grid says."""
    root: str | None = None
    """Where the original download of a named data set was unpacked, or where a table's paths start."""
    set: tuple[str, ...] = ()
    """Settings of a training in place of the paper's: "size=160" "backbone=efficientnet_lite0" "terms.encoder=models/minilm",
    or a TOML file with [settings]. The table says in what it differs from the paper."""
    quick: bool = False
    """The same table on small glyphs, in minutes on a CPU: to see it work, not to compare it with the paper."""
    only: tuple[str, ...] = ()
    """Train only these cells: "method=ProcSim" "seed=0", or their numbers in --list. The table shows what is there; what follows
    it (overlap, detection) is left to a call without --only."""
    out: str | None = None
    """Folder of runs, results.csv and the tables (md, tex, csv, html). By default bench/NAME."""
    jobs: int = 1
    """How many trainings at once, each in a process of its own; they share the GPU or the cores."""
    executor: str | None = None
    """Where to train: "ray" (the Ray cluster there is, or a local one) or "ray://HOST:PORT". By default here."""
    gpus_per_run: float | None = None
    """With --executor, how much of a GPU a training gets; 0.25: four share one. By default 1 where there are GPUs."""
    slurm: str | None = None
    """Train nothing; write a Slurm script to this file, whose array trains one cell a task."""
    metrics: tuple[str, ...] | None = None
    """What to measure; see `likewise list metrics`. By default what the grid says."""
    list: bool = False
    """Only show what would be trained."""
    train: bool = True
    """Train what is missing; --no-train only sums up what is there."""
    device: str | None = None
    """cpu, cuda, cuda:1, mps. By default the GPU if there is one."""
    allow_imports: bool = False
    """Let specs import parts by dotted name (my_lab.losses.Mine()), which runs their code."""
    quiet: bool = False
    """No progress bar, no table."""


@dataclass(frozen=True)
class Published:
    """Print what the papers report, with what must be known about the numbers."""

    paper: str | None = None
    """training-strategies, procsim, influence, relational or hierarchical."""
    table: str | None = None
    """Number of the table, as printed."""
    dataset: str | None = None
    """CUB200, Cars196, SOP, InShop, iNaturalist or ImageNet."""
    metric: str | None = None
    """Such as R@1."""
    method: str | None = None
    """Part of a method's name, in any case."""
    noise: str | None = None
    """none, uniform or semantic; with a share: "uniform 0.5"."""
    csv: str | None = None
    """Write the numbers to this file, all columns."""


@dataclass(frozen=True)
class Tune:
    """Search for the best settings on validation classes. The test split is not looked at before the end."""

    config: Annotated[Positional[str], called("CONFIG")]
    """A TOML file with [settings] of a training and, if wanted, [ranges]; or a run folder, for its settings."""
    ranges: tuple[str, ...] = ()
    """What to vary: "lr=1e-5..1e-2 log" "loss.miner.eps=0..0.5" "dim=64|128"; or reality-check, that paper's ranges."""
    trials: int = 50
    """How many settings to try, over all processes that share the search."""
    sampler: Literal["tpe", "gp", "random"] = "tpe"
    """How the next setting is chosen: a tree of densities, a Gaussian process, at random."""
    pruner: Literal["median", "none"] = "median"
    """median: give a trial up when the mean of its folds so far is below the median of the others; none: never."""
    seed: int = 0
    """Seed of the search. The seed of the trainings is a setting."""
    storage: str | None = None
    """Where the search is kept: a file, sqlite:///..., postgresql+psycopg://... By default a file in the out folder."""
    out: str | None = None
    """Folder of runs, tune.json, best.toml and tune.png. By default tune/CONFIG."""
    jobs: int = 1
    """How many folds at once, each in a process of its own. To share a search, start the same command again."""
    final_runs: int = 0
    """Train the best setting so many times more, with fresh seeds, and score it on the test split."""
    device: str | None = None
    """cpu, cuda, cuda:1, mps. By default the GPU if there is one."""
    allow_imports: bool = False
    """Let specs import parts by dotted name (my_lab.losses.Mine()), which runs their code."""
    quiet: bool = False
    """No progress bar, no table."""
