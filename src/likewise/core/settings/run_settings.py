"""The settings of commands that read runs: evaluate, embed, calibrate, compare, hierarchy, report, search and export.

Also those of list, recipe and doctor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from likewise.core.argument_checks import Count, CountOrZero
from likewise.core.settings.field_types import (
    Checkpoint,
    Computation,
    Data,
    File,
    Folder,
    Location,
    Memory,
    MovedData,
    Port,
    Positional,
    Seed,
    Spec,
    StoredType,
    called,
)
from likewise.core.settings.training_settings import DEFAULT_METRICS


@dataclass(frozen=True)
class Evaluate(Checkpoint):
    """Score an embedding by retrieval: every test sample is a query, all other test samples are its gallery."""

    target: Annotated[Positional[str], called("TARGET")]
    """A run folder; or embeddings: .npz, .parquet or .safetensors with
    x,label[,split,query,gallery,group,camera,junk], a folder of shards (of `likewise embed`), or .npy with --labels."""
    labels: File | None = None
    """Labels for embeddings without labels: .csv with a column `label`, .npy, or .txt with one label per line. By default the
    labels in the file of embeddings."""
    metrics: tuple[str, ...] = DEFAULT_METRICS
    """Metrics to compute; `likewise list metrics` explains all. With a class tree also of its levels: R@1:level1. With a
    relevance, the default also has NDCG@10; with judged triplets only, it is triplet-agreement."""
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
    queries: Count | None = None
    """Number of queries to rank: a random sample, the same share of every class, each ranked exactly against the whole gallery;
    the intervals include the sampling. For large sets: time grows with queries times gallery. By default all queries."""
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
    results. With --executor, the memory of every task."""
    executor: str | None = None
    """What computes the ranking: "ray" (the Ray cluster at RAY_ADDRESS, a running local one, or else a new local one)
    or "ray://HOST:PORT". The result is the same. By default this process."""


@dataclass(frozen=True)
class Embed(Computation):
    """Compute the embeddings of data with a trained network, and write them to a file that other commands read."""

    run: Annotated[Positional[str], called("RUN")]
    """A run folder; or the name of a backbone such as dinov2-small, to use its published weights, or --weights, without
    training."""
    data: Annotated[Positional[str], called("DATA")]
    """Any DATA of `likewise train`, or a folder of images without classes."""
    out: File
    """File to write: .npz with x, label, class_name, path and split. Or a folder (FOLDER/) for shards: files of some rows each,
    which every command reads in blocks. A folder that an interrupted command left continues: finished shards are skipped."""
    dtype: StoredType | None = None
    """Number type of shards: float16 halves the space of float32, int8 with a scale per row quarters it. By default float16; a
    .npz file has float32."""
    shard_rows: Count = 65_536
    """Rows of a shard. An interrupted command loses at most one shard of work."""
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
    size: Count | None = None
    """For a backbone: side of the square input image, in pixels. By default the input size of the backbone."""
    strict: bool = False
    """Stop at the first image that cannot be decoded. By default such images are skipped, counted and listed."""
    executor: str | None = None
    """What embeds: "ray" (the Ray cluster at RAY_ADDRESS, a running local one, or else a new local one) or "ray://HOST:PORT",
    on CPU cores; all nodes must see the images under the same path. The result is the same. By default this process."""


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
    queries: Count | None = None
    """Largest number of validation images to compare with each other: random ones, of all classes as equally as possible and at
    least two of each that is drawn. Time grows with its square. By default 10,000."""
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
    queries: Count | None = None
    """With --on, number of queries to rank: a random sample, the same queries for both runs, each ranked exactly against the
    whole gallery. By default all queries."""
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
class Report(MovedData):
    """Write one HTML page about runs, readable offline: scores, curves, a map of the embedding, galleries, confusions and flagged
    labels."""

    runs: Annotated[Positional[tuple[str, ...]], called("RUNS")] = ()
    """Run folders or files of embeddings, at least one; several are shown side by side."""
    out: File | None = None
    """File to write (.html). By default report.html in the folder of a single run, otherwise in the current folder."""
    map: Literal["auto", "pca", "tsne", "umap", "none"] = "auto"
    """Projection for the map of the embedding: pca takes seconds; tsne and umap take minutes and need `likewise[map]`. auto draws
    pca, and also tsne if it is installed and the set is not too large."""
    max_images: CountOrZero = 3000
    """Largest number of samples with an image in the page. To keep the page below 15 MB, images are first made smaller and then
    left out; only maps of a million samples make it larger."""
    k: Count = 8
    """Number of neighbours shown per query."""
    top: CountOrZero = 40
    """Number of queries shown in a gallery, and number of flagged labels listed."""
    seed: Seed = 0
    """Seed of random choices: samples, pairs, the map."""


@dataclass(frozen=True)
class Search(Computation):
    """Find the nearest neighbours of an image: for one query, or on a page in the browser until Ctrl-C."""

    target: Annotated[Positional[str], called("TARGET")]
    """The gallery: a run folder (all images of its data), embeddings written by `likewise embed`, or an index folder written
    with --save."""
    query: str | None = None
    """An image file, or the number of a row of the data (as in per_query.parquet and in the results). By default no query."""
    split: Literal["all", "test"] = "all"
    """Images of a run to search: all of its data, which is embedded once and stored in the run folder, or its test split
    only."""
    model: Folder | None = None
    """Run folder whose network embeds the query image. By default the run that is named in the file of embeddings."""
    k: Count = 5
    """Number of neighbours to return."""
    filter: str | None = None
    """Labels that results must have or, after !, must not have: `red & !striped`. The nearest of these rows are returned, by
    exact comparison. With one label per image, the label is the class. By default all rows."""
    out: File | None = None
    """File for a figure of the query and its neighbours (.png). By default no figure."""
    json: bool = False
    """Print one JSON object with the neighbours, the decision (unknown, label, probability) and the classes of --add."""
    index: Literal["exact", "hnsw", "ivfpq"] | None = None
    """Search method: exact compares with every row; hnsw and ivfpq (`likewise[faiss]`) are for millions of rows and miss some
    neighbours; the measured recall is printed. By default exact, or the method of a saved index."""
    save: Folder | None = None
    """Folder to save the index in; as a TARGET it opens without computing embeddings again. By default the index is not
    saved."""
    add: Data | None = None
    """Data to embed and add to the saved index (any DATA of `likewise embed`). By default none."""
    strict: bool = False
    """With --add, stop at the first image that cannot be decoded. By default such images are skipped, counted and listed."""
    remove: tuple[int, ...] = ()
    """Numbers of the rows to remove from the saved index. By default none."""
    serve: bool = False
    """Serve a page in the browser on which an image can be dropped as a query."""
    browser: bool = True
    """Open the page in the browser of this machine, if there is one."""
    host: str = "127.0.0.1"
    """Address to serve on. An address other than 127.0.0.1 admits other machines that have the token."""
    port: Port = 8018
    """Port to serve on; 0 takes any free port."""
    token_file: File | None = None
    """File that holds the token for opening the page. By default the environment variable LIKEWISE_TOKEN, or else a new
    random token. The printed address contains it."""
    max_upload: Memory = "20MB"
    """Largest image file that the page accepts."""


@dataclass(frozen=True)
class Export:
    """Export the network of a run, check that the exported network gives the same embeddings, and write a model card."""

    run: Annotated[Positional[str], called("RUN")]
    """A run folder."""
    to: Literal["onnx", "safetensors"] = "onnx"
    """Format: onnx runs without torch (needs `likewise[onnx]`); safetensors holds weights and settings for `likewise.load`."""
    out: Folder | None = None
    """Folder to write. By default export-onnx or export-safetensors in the run folder."""
    checkpoint: Literal["best", "last", "untrained"] = "best"
    """Checkpoint of the run: best on validation (last if there was no validation), last, or untrained (as at the start)."""
    gallery: Location | None = None
    """Gallery of known classes to export with the network, for label, probability and unknown: an index folder, embeddings, or
    the run itself (all images of its data). The run must be calibrated. By default the export has no gallery."""
    parity_samples: CountOrZero = 64
    """Number of samples of the run's data for the comparison of both networks; 0 takes random inputs, if the data is not
    available."""
    data: Location | None = None
    """Current path of the run's data, if it was moved. By default the path in the run's settings."""
    root: Folder | None = None
    """Current folder of the images of a table or a named data set, if they were moved. By default the folder in the run's
    settings."""
    allow_imports: bool = False
    """Allow components by dotted name (my_lab.losses.Mine()) in the run, which runs their code."""
    quiet: bool = False
    """Print no progress bar."""


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
class ShowRecipe:
    """Print a recipe with the source of every value and the equivalent command, or the settings in which two recipes differ."""

    name: Annotated[Positional[str], called("NAME")]
    """Name of the recipe; `likewise list recipes` shows all. With OTHER also a run folder."""
    other: Annotated[Positional[str | None], called("OTHER")] = None
    """Recipe or run folder to compare with, or `defaults`: those of `likewise train`."""
    data: Data | None = None
    """Data set whose values are shown, such as cub200. By default the values for any data, or for the data of the run."""


@dataclass(frozen=True)
class Doctor:
    """Print what is installed on this machine: versions, devices, extras, weights, the default backbone and free disk space."""

    json: bool = False
    """Print one JSON object in place of the table."""
