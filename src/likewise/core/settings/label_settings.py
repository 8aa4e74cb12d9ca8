"""The settings of commands about labels: noise, audit, review, clean, apply, send and receive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from likewise.core.argument_checks import Count, CountOrZero, NotNegative
from likewise.core.settings.field_types import (
    Checkpoint,
    Computation,
    Data,
    File,
    Folder,
    Location,
    Port,
    Positional,
    Seed,
    Spec,
    called,
)

ToolName = Literal["label-studio", "hugging-face", "csv", "parquet", "cvat"]
"""The tools, as in `likewise.curate.exchange.TOOL_BY_NAME`."""


@dataclass(frozen=True)
class Noise:
    """Make training labels wrong on purpose, and write the data as a table for `likewise train`. Test labels do not change."""

    data: Annotated[Positional[str], called("DATA")]
    """Any DATA of `likewise train`."""
    model: Spec
    """The noise model, such as "Uniform(share=0.2)" or "Semantic(share=0.2)"; `likewise list noise` shows all."""
    out: File
    """Table to write (.csv; .parquet for features), with the true labels in the column `label_clean`, or `labels_clean` if
    samples have several; figures (.png) are written next to it."""
    drop_wrong: bool = False
    """Drop the rows with wrong labels in place of writing them: the oracle baseline for robust training."""
    seed: Seed = 0
    """Seed of the noise; `likewise train --noise` with the same seed and protocol changes the same labels."""
    taxonomy: str | None = None
    """Taxonomy: cub200, cars196-type, cars196-deep, a .json or .csv file, or wordnet:ROOT. By default the taxonomy of the
    data."""
    root: Folder | None = None
    """Folder with the original download of a named data set, or the folder that the paths of a table start from. By default the
    folder of the table."""
    protocol: Spec | None = None
    """The rule that assigns rows to splits; the table has the result in its column `split`. By default the default of
    `likewise train`.

    To train on the table with a closed set of classes, use --protocol "SeenClasses(own_split=True)"."""
    strict: bool = False
    """Stop at the first image that cannot be decoded. By default such images are skipped, counted and listed."""
    allow_imports: bool = False
    """Allow components by dotted name (my_lab.noise.Mine()), which runs their code."""
    quiet: bool = False
    """Print no tables."""


@dataclass(frozen=True)
class Audit(Checkpoint):
    """Find labels that are probably wrong, classes that should be merged, and the training samples that cause test errors."""

    targets: Annotated[Positional[tuple[str, ...]], called("TARGET")] = ()
    """A folder of images with one sub-folder per class, or another DATA of `likewise train`; a run folder; or embeddings (.npz,
    .npy, .parquet). With --overlap, several runs."""
    labels: File | None = None
    """Labels for embeddings without labels: a table (.csv) with the column `label`, in the order of the embeddings, or an array
    (.npy). By default the labels in the file of embeddings."""
    out: Folder | None = None
    """Folder of the audit. By default `audit` in the run folder, or audit/NAME for data and embeddings."""
    backbone: str | None = None
    """For data: the pretrained network that computes its features. By default the best one whose weights can be had."""
    weights: Location | None = None
    """For data: weight file of the backbone, in place of the published weights. By default none."""
    votes: File | None = None
    """Labels by several workers: a table (.csv, .parquet) with one line per vote and the columns sample (the path, or the row of
    embeddings), worker and label. By default the column `votes` of the data, if it has one."""
    strict: bool = False
    """For data: stop at the first broken image. By default broken images are skipped and listed."""
    influence: Literal["finite", "lissa"] = "finite"
    """How the influence of training samples on errors is computed: by a finite step of the head, or with an inverse Hessian
    (lissa)."""
    heads: Count = 1
    """Number of perturbed heads that --influence finite compares: 1 is the head with the error corrected, 2 adds the head
    with the error made worse, further heads are random."""
    max_errors: CountOrZero = 50
    """Number of test errors of each kind for which causes are computed, worst first; all errors are listed."""
    max_classes: CountOrZero = 10
    """Number of test classes whose causes are computed, those with most errors first; the causes of a class count for all its
    errors together."""
    worst_by: Literal["count", "rate"] = "count"
    """Order of the worst classes: by the number of errors, or by the share of the class's queries that are errors."""
    forecast: bool = False
    """Forecast how a review of the flagged labels changes R@1 and MAP@R of a head on these features, with an interval."""
    order: Literal["suspicion", "gain"] = "suspicion"
    """With --forecast, the order of the review that is forecast and written to queue.csv: the most suspect labels first, or the
    decisions with the highest expected gain first, with groups that are decided at once."""
    verify: bool = False
    """Verify the causes: give training samples the weight 2 or 0, fine-tune the head, and measure whether the pairs move as
    predicted."""
    retrain: bool = False
    """Train again with the labels that the audit suggests, without a review, and compare both runs on the test split, query by
    query. After a review: `likewise review AUDIT --retrain`."""
    overlap: bool = False
    """Compare the test classes with most errors between several runs, and measure their overlap."""
    k: Count = 10
    """Number of causes listed per error and direction (harmful, helpful); with --overlap, number of classes per run."""
    seed: Seed = 0
    """Seed of all random choices: folds, batches for losses that compare samples, random baselines, resamples."""
    executor: str | None = None
    """What computes neighbours and scores: "ray" (the Ray cluster at RAY_ADDRESS, a running local one, or else a new local one)
    or "ray://HOST:PORT". The result is the same. By default this process."""


@dataclass(frozen=True)
class Review(Computation):
    """Serve a page in the browser on which people review the findings of an audit; corrected.csv is written at the end."""

    audit: Annotated[Positional[str], called("AUDIT")]
    """The folder of an audit, or the run folder that contains it."""
    host: str = "127.0.0.1"
    """Address to serve on. An address other than 127.0.0.1 admits other machines that have the token."""
    port: Port = 8017
    """Port to serve on; 0 takes any free port."""
    token_file: File | None = None
    """File that holds the token for opening the page. By default the environment variable LIKEWISE_TOKEN, or else a new
    random token. The printed address contains it."""
    store: File | None = None
    """File of the reviewers' decisions. By default decisions.sqlite in the folder of the audit."""
    root: Folder | None = None
    """Current folder of the images, if they were moved. By default the folder in the audit."""
    order: Literal["suspicion", "gain", "votes"] | None = None
    """Order in which the page begins: the most suspect labels first, the decisions with the highest expected gain first, or
    labels whose votes differ first. By default the order of the audit's forecast, or else suspicion."""
    stop_below: NotNegative | None = None
    """Points of MAP@R: the page suggests to stop when the next 20 decisions are expected to gain less. The audit must have a
    forecast. By default the page never suggests to stop."""
    browser: bool = True
    """Open the page in the browser; without a display the address is only printed."""
    retrain: bool = False
    """Serve no page: train again with the labels of the review, and compare the gain with the forecast of the audit: of the head
    that was forecast, and of the network if a run was audited."""


@dataclass(frozen=True)
class Clean(Computation):
    """Find wrong labels in a folder of images without training, review them on a page, and write the corrected labels."""

    data: Annotated[Positional[Data], called("DATA")]
    """A folder with one sub-folder per class, or another DATA of `likewise train` with images."""
    to: Folder | None = None
    """New folder with the corrected classes, written at the end; it holds links to the images and no copies. By default only
    the corrected table."""
    out: Folder | None = None
    """Folder of the audit and of the corrected table. By default audit/NAME. A second call continues there."""
    backbone: str | None = None
    """The pretrained network that computes the features. By default the best one whose weights can be had."""
    weights: Location | None = None
    """Weight file of the backbone, in place of the published weights. By default none."""
    votes: File | None = None
    """Labels by several workers: a table with one line per vote and the columns sample, worker and label; see `likewise audit`.
    By default the column `votes` of the data, if it has one."""
    root: Folder | None = None
    """Folder that the paths of a table start from. By default the folder of the table."""
    strict: bool = False
    """Stop at the first broken image. By default broken images are skipped and listed."""
    browser: bool = True
    """Open the page in the browser; without a display the address is only printed."""
    host: str = "127.0.0.1"
    """Address to serve the page on. An address other than 127.0.0.1 admits other machines that have the token."""
    port: Port = 8017
    """Port to serve the page on; 0 takes any free port."""


@dataclass(frozen=True)
class Apply:
    """Apply a corrected table to its images: write a new folder, or move files; without either, show what would change."""

    table: Annotated[Positional[str], called("TABLE")]
    """corrected.csv of a review, or the folder of its audit."""
    to: Folder | None = None
    """New folder: one sub-folder per class, with links to the images. The old folder is not changed. By default none."""
    in_place: bool = False
    """Move the relabelled images of the data folder to the folders of their new classes, and removed images to a folder beside
    it."""
    copy: bool = False
    """With --to, copy the images in place of linking them."""
    dry_run: bool = False
    """Show what would change, and change nothing."""
    undo: bool = False
    """Reverse the last call with this table."""
    root: Folder | None = None
    """The data folder. By default the folder in the audit beside the table."""


@dataclass(frozen=True)
class Send:
    """Send rows to another tool: labels with what an audit found about them, embeddings, images."""

    target: Annotated[Positional[str], called("TARGET")]
    """The folder of an audit, a run folder, embeddings (.npz), or any DATA of `likewise train`."""
    to: ToolName
    """The tool."""
    out: Location
    """Where to: a folder (label-studio, hugging-face, cvat), or a file (.csv, .parquet)."""
    columns: tuple[str, ...] = ()
    """New names of columns, as OURS=THEIRS, such as path=image label=class (csv). By default our names."""
    top: CountOrZero | None = None
    """Number of rows to send: the most suspect of an audit, or the first of a file. By default all."""
    embeddings: File | None = None
    """Embeddings (.npz) of the rows of an audit, to send with it. By default none."""
    labels: File | None = None
    """Labels for embeddings without labels: a table (.csv) with the column `label`, or an array (.npy). By default the labels in
    the file of embeddings."""
    similarity: Literal["cosine", "euclidean"] | None = None
    """Similarity by which the tool compares vectors. By default the one in the file of embeddings, or cosine."""
    url: str | None = None
    """Address at which Label Studio finds the folder of the images, such as https://images.example/birds. By default its local
    files."""
    root: Folder | None = None
    """Current folder of the images, if they were moved. By default the folder in the audit or the data."""
    replace: bool = False
    """Replace existing files of these names. Without it, an existing one is an error."""
    allow_imports: bool = False
    """Allow the data to be a reader of your own by dotted name, which runs its code."""
    quiet: bool = False
    """Print nothing."""


@dataclass(frozen=True)
class Receive:
    """Receive decisions, vectors or labels from another tool."""

    source: Annotated[Positional[str], called("SOURCE")]
    """An exported file (label-studio: JSON or JSON-MIN; cvat: XML or zip; csv; parquet), or a folder (hugging-face)."""
    from_: ToolName
    """The tool."""
    into: Location
    """An audit folder for decisions, a .npz file for vectors, or a .csv file for labels."""
    columns: tuple[str, ...] = ()
    """Names of columns in the source, as OURS=THEIRS, such as path=image label=class (csv). By default our names."""
    reviewer: str | None = None
    """Reviewer of decisions from a tool that does not name its annotators. By default the name of the tool."""
    replace: bool = False
    """Replace an existing file. Without it, an existing one is an error. Decisions in an audit are never replaced."""
    quiet: bool = False
    """Print nothing."""
