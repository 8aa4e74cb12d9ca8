"""The settings of evaluate, embed, calibrate, compare, hierarchy, list and recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from likewise.core.settings.cli_types import Data, File, Folder, Location, Memory, Positional, Spec, called
from likewise.core.settings.shared import Checkpoint, Computation, MovedData

DEFAULT_METRICS = ("R@1", "R@10", "RP", "MAP@R")
"""Metrics of an evaluation that names none."""


def default_metrics(metrics: Sequence[str], gives: Sequence[str] | None) -> tuple[str, ...]:
    """Return the metrics; in place of the default ones, those that a relevance decides.

    Args:
        gives: `Relevance.gives`; None: there is no relevance.
    """
    if gives is None or tuple(metrics) != DEFAULT_METRICS:
        return tuple(metrics)
    return (*metrics, "NDCG@10") if "pairs" in gives else ("triplet-agreement",)


def default_select(select: str, gives: Sequence[str] | None) -> str:
    """Return the metric that selects a checkpoint: in place of the default one, of classes, that of judged triplets only."""
    only_triplets = gives is not None and "pairs" not in gives
    return "triplet-agreement" if only_triplets and select == "MAP@R" else select


@dataclass(frozen=True)
class Evaluate(Checkpoint):
    """Score an embedding by retrieval: every test sample is a query, all other test samples are its gallery."""

    target: Annotated[Positional[str], called("TARGET")]
    """A run folder; or embeddings: .npz, .parquet or .safetensors with
    x,label[,split,query,gallery,group,camera,junk], or .npy with --labels."""
    labels: File | None = None
    """Labels for embeddings without labels: .csv with a column `label`, .npy, or .txt with one label per line. By default the
    labels in the file of embeddings."""
    metrics: tuple[str, ...] = DEFAULT_METRICS
    """Metrics to compute; `likewise list metrics` shows all. With a class tree also of its levels: R@1:level1. With a relevance,
    the default also has NDCG@10; with judged triplets only, it is triplet-agreement."""
    relevance: Spec | None = None
    """What is relevant to a query, if not the rows of its class: SharedLabels() for several labels per sample, TreeDepth() for a
    class tree; `likewise list relevance` shows all. By default that of the run, or shared labels if samples have several."""
    taxonomy: str | None = None
    """Class tree for metrics of levels, severity and tree-NDCG@k: cub200, cars196-type, a .json or .csv file, or wordnet:ROOT. By
    default the taxonomy of the data."""
    split: Literal["train", "val", "test"] = "test"
    """Split to score, with the given labels of the data, without the noise that training injected on purpose."""
    similarity: Literal["cosine", "euclidean"] | None = None
    """Similarity of two embeddings. By default that of the loss, for a run and for embeddings saved from a run; otherwise
    cosine."""
    exclude: File | None = None
    """Pairs of samples that must not be results of each other, such as near duplicates: a .csv with row_a,row_b (from 0) or
    path_a,path_b, or the duplicates.csv of an audit. By default none."""
    correct_test_labels: str | None = None
    """Also estimate the scores under the true labels, if some given labels are wrong, from a .csv file of reviewed labels. If
    the file does not exist, it is written as a form for reviewers. By default only plain scores."""
    data: Location | None = field(default=None, kw_only=True)
    """For a run: the path of its data, if that was moved; or other data to score it on, such as corrected labels or new images.
    Of other data, the test split is scored (all rows, if it has no `split` column), without samples that the run trained on. By
    default the test split of the run's own data."""
    root: Folder | None = field(default=None, kw_only=True)
    """Folder that the paths of the data start from. By default the folder in the run's settings, or for other data the folder of
    the table."""
    out: File | None = None
    """File for the scores (.json). By default only the scores of a run on its own test split are stored, in its scores.json."""
    per_query: File | None = None
    """For embeddings and for other data: file to write with one row per query (.parquet), an input of `likewise compare`; a run
    folder has such a file for its own data. By default none."""
    memory: Memory = "512MB"
    """Working memory of the ranking on the device that ranks, besides the embeddings; less is slower and gives the same
    results."""


@dataclass(frozen=True)
class Embed(Computation):
    """Compute the embeddings of data with a trained network, and write them to a file that other commands read."""

    run: Annotated[Positional[str], called("RUN")]
    """A run folder; or the name of a backbone such as dinov2-small, to use its published weights, or --weights, without
    training."""
    data: Annotated[Positional[str], called("DATA")]
    """Any DATA of `likewise train`, or a folder of images without classes."""
    out: File
    """File to write: .npz with x, label, class_name, path and split."""
    root: Folder | None = None
    """Folder with the original download of a named data set, or the folder that the paths of a table start from. By default the
    folder of the table."""
    layer: Literal["embedding", "feature"] = "embedding"
    """Vector to write: the embedding, or the pooled feature before the head, on which `likewise train` can train a new head. A
    backbone has no head: its embedding is the feature at unit length."""
    checkpoint: Literal["best", "last", "untrained"] = "best"
    """Checkpoint of the run: best on validation (last if there was no validation), last, or untrained (as at the start)."""
    weights: Location | None = None
    """For a backbone: weight file in place of the published weights; for resnet50_v1 also a TensorFlow.js folder. By default
    none."""
    size: int | None = None
    """For a backbone: side of the square input image, in pixels. By default the input size of the backbone."""
    strict: bool = False
    """Stop at the first image that cannot be decoded. By default such images are skipped, counted and listed."""


@dataclass(frozen=True)
class Calibrate(MovedData):
    """Choose thresholds with a promise on new classes: same or different, known or unknown; and probabilities of neighbours."""

    run: Annotated[Positional[str], called("RUN")]
    """A run folder with validation classes that did not train."""
    far: float | None = None
    """False-accept rate to keep: of pairs of different classes, and of images of unknown classes. By default 0.01, or the
    smallest rate that the validation classes can promise if that is larger."""
    precision: float | None = None
    """Precision to keep in place of a false-accept rate: share of accepted pairs, and of accepted neighbours, that are right.
    By default a false-accept rate."""
    out: File | None = None
    """File for the figure (.png). By default calibration.png in the run folder."""


@dataclass(frozen=True)
class Compare(Computation):
    """Compare the retrieval of run B with run A: differences with intervals, and the classes and queries that changed."""

    run_a: Annotated[Positional[str], called("RUN_A")]
    """A run folder that was evaluated, or its per_query.parquet."""
    run_b: Annotated[Positional[str], called("RUN_B")]
    """Another run folder or per_query.parquet, with the same queries on the same data; with --on, any other run folder."""
    on: Data | None = None
    """Data to score both runs on first, by its labels: any DATA of `likewise train`, such as a corrected table. Its test split
    is used (all rows, if it has no `split` column), without samples that either run trained on. By default the stored scores of
    both runs are compared."""
    root: Folder | None = None
    """Folder that the paths of the table of --on start from, or the download of a named data set. By default the folder of the
    table."""
    strict: bool = False
    """With --on, stop at the first image that cannot be decoded. By default such images are skipped, counted and listed."""
    metrics: tuple[str, ...] | None = None
    """Metrics to compare; the first metric decides which run is better. By default all metrics of both runs, MAP@R first."""
    out: File | None = None
    """File for a figure of the differences (.png). By default no figure."""
    csv: File | None = None
    """File for a table of all queries whose value of a metric changed (.csv). By default no table."""


@dataclass(frozen=True)
class Hierarchy(Checkpoint):
    """Cluster the training classes by their embeddings, draw the tree, and measure its agreement with a known taxonomy."""

    run: Annotated[Positional[str], called("RUN")]
    """A run folder. A run trained with Hierarchical(...) has its own clusters; other runs are clustered by k-means of class
    means."""
    clusters: int | None = None
    """Number of clusters for k-means of the class means, for any loss. By default the run's own clusters, or a tenth of the
    number of classes."""
    taxonomy: str | None = None
    """Known taxonomy: cub200, cars196-type, a .json or .csv file (such as the hierarchy.csv of another run) or wordnet:ROOT. By
    default the taxonomy of the data."""
    out: Folder | None = None
    """Folder for hierarchy.png, hierarchy.csv and hierarchy.json. By default the run folder."""


@dataclass(frozen=True)
class List:
    """List the components of a registry, one line each, with a short description."""

    registry: Annotated[Positional[str], called("REGISTRY")] = ""
    """The registry to list: losses, miners, samplers, relevance, confidence, terms, noise, protocols, heads, loggers, metrics,
    data, recipes, tables (of papers, with their figures, commands and differences), backbones; all lists all of them except the
    backbones. By default the registries, with the number of their components."""
    pattern: Annotated[Positional[str], called("TEXT")] = ""
    """Show only names that contain this text, in upper or lower case, such as resnet. By default all names."""


@dataclass(frozen=True)
class RecipeShow:
    """Print a recipe: every value with its source, and the equivalent command."""

    name: Annotated[Positional[str], called("NAME")]
    """Name of the recipe; `likewise list recipes` shows all."""
    data: Data | None = None
    """Data set whose values are shown, such as cub200. By default the values for any data."""


@dataclass(frozen=True)
class RecipeDiff:
    """Print the settings in which two recipes differ, with both values and their sources."""

    a: Annotated[Positional[str], called("A")]
    """Name of a recipe, or a run folder; `likewise list recipes` shows all recipes."""
    b: Annotated[Positional[str | None], called("B")] = None
    """Another recipe or run folder. By default the defaults of `likewise train`."""
    data: Data | None = None
    """Data set whose values are compared, such as cub200. By default the data set of the run, if one is given."""
