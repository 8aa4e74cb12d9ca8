"""The settings of commands that look at what is there: evaluate, embed, search, compare, report, hierarchy, list, recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from likewise.config.cli_types import Positional, called


@dataclass(frozen=True)
class Evaluate:
    """Score an embedding by retrieval: every test sample asks, all others may answer."""

    target: Annotated[Positional[str], called("TARGET")]
    """A run folder; or embeddings: .npz, .parquet, .safetensors with x,label[,split,query,gallery,group], .npy with --labels."""
    labels: str | None = None
    """Labels for embeddings that bring none: .csv with a column `label`, .npy, or .txt with one a line."""
    data: str | None = None
    """Where the run's data stands now, if it has moved."""
    root: str | None = None
    """Where the pictures of a table or a named data set stand now, if they have moved."""
    metrics: tuple[str, ...] = ("R@1", "R@10", "RP", "MAP@R")
    """What to measure; see `likewise list metrics`."""
    split: Literal["train", "val", "test"] = "test"
    """Which part of the data to score. Labels are the data's own, without noise that training added on purpose."""
    checkpoint: Literal["best", "last", "untrained"] = "best"
    """Which network of a run: best on validation (the last where there was none), last, or untrained: as it was at the start."""
    similarity: Literal["cosine", "euclidean"] | None = None
    """How to compare. By default what the run's loss was written for, also for embeddings of a run; cosine for others."""
    exclude: str | None = None
    """Pairs that are no answers to each other (near duplicates): a .csv with row_a,row_b (from 0) or path_a,path_b, or the
    duplicates.csv of an audit."""
    per_query: str | None = None
    """For embeddings: write one line a query here (.parquet), which `likewise compare` takes. A run keeps its own."""
    memory: str = "512MB"
    """Working memory of the ranking, beyond the embeddings. Less means slower, never other numbers."""
    device: str | None = None
    """cpu, cuda, mps. By default the GPU if there is one."""
    workers: int = -1
    """Processes that read pictures; -1 chooses."""
    skip_bad: bool = False
    """Decode every picture first and go on without the broken ones, counting them."""
    allow_imports: bool = False
    """Let the run's specs, its data and --metrics import components by dotted name, which runs their code."""
    quiet: bool = False
    """No progress bar, no table."""


@dataclass(frozen=True)
class Embed:
    """Turn data into embeddings with a trained network, as a file every other command reads."""

    run: Annotated[Positional[str], called("RUN")]
    """A run folder; or the name of a backbone, as its published weights are: then nothing need be trained first."""
    data: Annotated[Positional[str], called("DATA")]
    """Anything `likewise train` takes, or a folder of pictures without classes."""
    out: str
    """File to write: .npz with x, label, class_name, path, split."""
    root: str | None = None
    """Where the data's paths start, as in train."""
    layer: Literal["embedding", "feature"] = "embedding"
    """What to write: the embedding, or the pooled feature before the head, which `likewise train` trains a new head on. A
    backbone has no head: its embedding is the feature at unit length."""
    checkpoint: Literal["best", "last", "untrained"] = "best"
    """Which network of the run."""
    device: str | None = None
    """cpu, cuda, mps. By default the GPU if there is one."""
    workers: int = -1
    """Processes that read pictures; -1 chooses."""
    skip_bad: bool = False
    """Decode every picture first and go on without the broken ones, counting them."""
    allow_imports: bool = False
    """Let the run's specs import parts by dotted name, which runs their code."""
    quiet: bool = False
    """No progress bar."""


@dataclass(frozen=True)
class Compare:
    """Tell whether run B retrieves better than run A: differences with intervals, and the classes and queries that changed."""

    run_a: Annotated[Positional[str], called("RUN_A")]
    """A run folder that was evaluated, or its per_query.parquet."""
    run_b: Annotated[Positional[str], called("RUN_B")]
    """Another, asked the same queries of the same data."""
    metrics: tuple[str, ...] | None = None
    """Which metrics, the one that decides first. By default all that both have; MAP@R decides where it is among them."""
    out: str | None = None
    """Save a picture of the differences here (.png)."""
    csv: str | None = None
    """Save every query that changed here (.csv)."""
    resamples: int = 2000
    """How many times queries and classes are redrawn for an interval."""
    seed: int = 0
    """Seed of the draws."""


@dataclass(frozen=True)
class Hierarchy:
    """Show which training classes a run sees as relatives: their tree as a picture, and how far the known tree agrees."""

    run: Annotated[Positional[str], called("RUN")]
    """A run folder. Trained with Hierarchical(...), its own clusters are shown; else k-means of its class means."""
    clusters: int | None = None
    """So many clusters by k-means of the class means, whatever the loss. By default its own, or a tenth of the classes."""
    taxonomy: str | None = None
    """The tree, if not the data's own: cub200, cars196-type, a .json or .csv (another run's hierarchy.csv), wordnet:ROOT."""
    out: str | None = None
    """Folder for hierarchy.png, hierarchy.csv and hierarchy.json. By default the run's."""
    data: str | None = None
    """Where the run's data stands now, if it has moved."""
    root: str | None = None
    """Where the pictures of a table or a named data set stand now, if they have moved."""
    checkpoint: Literal["best", "last", "untrained"] = "best"
    """Which network of the run: best on validation (the last where there was none), last, or untrained, by k-means."""
    device: str | None = None
    """cpu, cuda, mps. By default the GPU if there is one."""
    workers: int = -1
    """Processes that read pictures; -1 chooses."""
    allow_imports: bool = False
    """Let the run's specs import parts by dotted name, which runs their code."""
    quiet: bool = False
    """No progress bar."""


@dataclass(frozen=True)
class List:
    """Show a registry: losses, miners, samplers, confidence, terms, noise, protocols, heads, metrics, data, recipes, tables,
    backbones."""

    registry: Annotated[Positional[str], called("REGISTRY")] = "all"
    """Which registry."""


@dataclass(frozen=True)
class RecipeShow:
    """Print a recipe: every value, where it comes from, and the command it stands for."""

    name: Annotated[Positional[str], called("NAME")]
    """The recipe; see `likewise list recipes`."""
    data: str | None = None
    """Show the values for this data set."""


@dataclass(frozen=True)
class RecipeDiff:
    """Print the settings in which two recipes differ, with both values and where they come from."""

    a: Annotated[Positional[str], called("A")]
    """A recipe, or the folder of a run; see `likewise list recipes`."""
    b: Annotated[Positional[str | None], called("B")] = None
    """Another recipe or run. By default what `likewise train` does without a recipe."""
    data: str | None = None
    """Compare the values for this data set. By default that of a run, where one is compared."""
