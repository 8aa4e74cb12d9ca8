"""The settings of commands that train for you: demo, and those that train many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from likewise.configs.words import Positional, called


@dataclass(frozen=True)
class Demo:
    """Train on the built-in glyphs with wrong labels, once believing them and once not, and show what was learned."""

    out: str | None = None
    """Folder of the two runs, plain and robust."""
    share: float = 0.3
    """Share of the training labels that are spoiled."""
    length: str = "9e"
    """How long to train each time, in passes ("9e") or steps ("410")."""
    data: str = "glyphs"
    """The glyphs to use, with arguments if wanted: "glyphs(classes=60)"."""
    seed: int = 0
    """Seed of everything random."""
    again: bool = False
    """Train anew although the demo has been run before."""


@dataclass(frozen=True)
class Bench:
    """Train every combination of a grid, and show means with their 95 % intervals over seeds."""

    grid: Annotated[Positional[str], called("GRID")]
    """A TOML file with [settings] of a training and [axes] to vary them along, seed = [0, 1, 2] among them."""
    out: str | None = None
    """Folder of runs, results.csv and table.md. By default bench/GRID."""
    jobs: int = 1
    """How many trainings at once, each in a process of its own."""
    metrics: tuple[str, ...] | None = None
    """What to measure; see `likewise list metrics`. By default what the grid says."""
    list: bool = False
    """Only show what would be trained."""
    device: str | None = None
    """cpu, cuda, cuda:1, mps. By default the GPU if there is one."""
    allow_imports: bool = False
    """Let specs import parts by dotted name (my_lab.losses.Mine()), which runs their code."""
    quiet: bool = False
    """No progress bar, no table."""


@dataclass(frozen=True)
class Tune:
    """Search for the best settings on validation classes. The test part is not looked at before the end."""

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
    final: int = 0
    """Train the best setting so many times more, with fresh seeds, and score it on the test part."""
    device: str | None = None
    """cpu, cuda, cuda:1, mps. By default the GPU if there is one."""
    allow_imports: bool = False
    """Let specs import parts by dotted name (my_lab.losses.Mine()), which runs their code."""
    quiet: bool = False
    """No progress bar, no table."""
