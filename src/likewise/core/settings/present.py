"""The settings of report, search and export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from likewise.core.settings.cli_types import Data, File, Folder, Location, Memory, Positional, called
from likewise.core.settings.shared import Computation, MovedData


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
    max_images: int = 3000
    """Largest number of samples with an image in the page. To keep the page below 15 MB, images are first made smaller and then
    left out; only maps of a million samples make it larger."""
    k: int = 8
    """Number of neighbours shown per query."""
    top: int = 40
    """Number of queries shown in a gallery, and number of flagged labels listed."""
    seed: int = 0
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
    k: int = 5
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
    port: int = 8018
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
    parity_samples: int = 64
    """Number of samples of the run's data for the comparison of both networks; 0 takes random inputs, if the data is not
    available."""
    data: Location | None = None
    """Current path of the run's data, if it was moved. By default the path in the run's settings."""
    root: Folder | None = None
    """Current folder of the images of a table or a named data set, if they were moved. By default the folder in the run's
    settings."""
    allow_imports: bool = False
    """Allow the run's specs to import components by dotted name, which runs their code."""
    quiet: bool = False
    """Print no progress bar."""
