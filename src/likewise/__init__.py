"""likewise: visual-similarity learning that people can trust, even when the labels are wrong.

    from likewise import train, evaluate, embed, losses

Every command is a function here. It has the command's defaults, takes the fields of the command's config as keyword arguments
(`likewise.config`; a setting such as `loss` may also be an object), returns an object with a notebook view, and prints nothing
on stdout. Progress and messages go to stderr; `quiet=True`, where the command has it, turns them off.

Importing the package is cheap: torch and the networks are loaded when they are first used.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from likewise._version import __version__ as __version__
from likewise.core import public_modules as public_modules

if TYPE_CHECKING:
    from datasets import Dataset

    from likewise import data, models
    from likewise.cli.demo import DemoResult
    from likewise.cli.listing import Listing
    from likewise.core.render.tables import Table
    from likewise.core.types import Embedded
    from likewise.core.vectors import Vectors
    from likewise.curate.audit.apply import Applied
    from likewise.curate.audit.audit import Audited
    from likewise.curate.audit.label_audit import LabelAudit, LabelSetAudit
    from likewise.curate.clean import Cleaned
    from likewise.curate.exchange.transfer import Received, Sent
    from likewise.curate.review.prove import Proved
    from likewise.curate.review.review_page import Reviewed
    from likewise.data import noise, protocols
    from likewise.data.noisy_table import NoisyItems
    from likewise.deploy.calibration.calibrate import Calibrated
    from likewise.deploy.export import Exported
    from likewise.deploy.index.search_index import Neighbours
    from likewise.deploy.model import Model
    from likewise.learn import confidence, losses, miners, samplers, terms
    from likewise.learn.recipe_view import RecipeDifference, ShownRecipe
    from likewise.papers.benchmark_table import BenchmarkTable
    from likewise.papers.published.coverage import PaperListing
    from likewise.papers.published.published_view import Numbers
    from likewise.papers.tune import TuneResult
    from likewise.report.widgets.map_widget import MapWidget as MapWidget
    from likewise.report.write_report import Page
    from likewise.runs.folder import Run
    from likewise.runs.machine import Machine
    from likewise.score import metrics
    from likewise.score.compare import Compared
    from likewise.score.error_overlap import ErrorOverlap
    from likewise.score.learned_hierarchy import LearnedHierarchy
    from likewise.score.score_table import Scored

Place = str | PathLike
"""Path of a file or folder; runs, audits and exports are folders too."""

__all__ = [
    "train",
    "evaluate",
    "embed",
    "load",
    "search",
    "calibrate",
    "compare",
    "bench",
    "tune",
    "demo",
    "doctor",
    "export",
    "send",
    "receive",
    "hierarchy",
    "clean",
    "apply",
    "audit_run",
    "audit_labels",
    "review",
    "write_report",
    "spoil_labels",
    "list_components",
    "published_numbers",
    "show_recipe",
    "losses",
    "miners",
    "samplers",
    "noise",
    "confidence",
    "terms",
    "protocols",
    "metrics",
    "models",
    "data",
]


def train(data: Place | Dataset, *, recipe: str | None = None, **settings) -> Run:
    """Train an embedding and evaluate it; the same as `likewise train`.

    Args:
        data: a folder, a table, a feature file, the name of a data set, or a Dataset of Hugging Face.
        recipe: named settings to start from, such as "proxy-anchor+robust".
        settings: fields of `likewise.config.Train`; components may be given as objects or as specs.
    """
    from likewise.core.settings import Train
    from likewise.core.settings.setting_values import plain_settings
    from likewise.learn import train as training
    from likewise.learn.recipes import apply

    text, say = str(data), _say(settings)
    if hasattr(data, "save_to_disk"):
        from likewise.data.hugging_face import from_object

        text = from_object(data)
    run = training.train(apply(recipe, text, **plain_settings(Train, settings)), say)
    for line in training.sentences(run):
        say(line)
    return run


def evaluate(target: Place | Any, labels: Place | Any = None, **settings) -> Scored:
    """Compute the scores of a run, of a file of embeddings, or of arrays; the same as `likewise evaluate`.

    Args:
        target: a run, a file of embeddings, or an array of embeddings (N, D) of numpy or torch.
        labels: for an array, its N labels, N lists of labels, or a matrix (N, L) of 0 and 1; for a file without labels, a file.
        settings: fields of `likewise.config.Evaluate`. `data` is where the data of the run is now, or other data to score it on,
            without the samples that the run trained on. `data`, `root`, `checkpoint`, `workers` and `allow_imports` are for runs;
            `per_query` is for files, arrays and other data; `split` also for files with it. `relevance` may be a matrix (N, N).
    """
    from likewise.core.errors import LikewiseError

    is_array, has_array = (not isinstance(value, str | PathLike) for value in (target, labels))
    if is_array and (labels is None or not has_array):
        raise LikewiseError(
            "evaluate: an array of embeddings must come with an array of labels, got "
            f"{'no labels' if labels is None else 'a file'}; pass evaluate(z, y)"
        )
    if not is_array and labels is not None and has_array:
        raise LikewiseError(
            "evaluate: the labels of a file must be a file too, and a run has labels of its own, got an array; "
            "pass evaluate(z, y), or labels='labels.npy'"
        )
    if is_array:
        from likewise.core.settings import Evaluate
        from likewise.core.settings.setting_values import make_config
        from likewise.score.evaluate_arrays import evaluate_arrays

        relevance = None if isinstance(settings.get("relevance"), str | None) else settings.pop("relevance")
        return evaluate_arrays(make_config(Evaluate, target="arrays", **settings), target, labels, relevance)
    return _call("evaluate", target=target, labels=labels, **settings)


def embed(run: Place, data: Place, *, out: Place = "", **settings) -> Embedded | Vectors:
    """Embed data with the network of a run; write the embeddings to `out` if given: .npz, or FOLDER/ for shards on disk.

    The same as `likewise embed`.
    """
    return _call("embed", run=run, data=data, out=out, **settings)


def load(path: Place, *, checkpoint: str = "best", device: str | None = None, allow_imports: bool = False) -> Model:
    """Return the network of a run, or of an export to safetensors: `load("runs/mine")(["a.jpg"])` returns embeddings."""
    from likewise.deploy.model import load as open_model

    return open_model(path, checkpoint=checkpoint, device=device, allow_imports=allow_imports)


def search(target: Place, query: Place | int | None = None, **settings) -> Neighbours:
    """Find the nearest rows of an image or of a row; the same as `likewise search`. `serve=True` serves a page until Ctrl-C."""
    return _call("search", target=target, query=query, **settings)


def calibrate(run: Place, **settings) -> Calibrated:
    """Choose thresholds of a run that keep a false-accept rate or a precision on new classes; as `likewise calibrate`.

    likewise.calibrate("runs/mine", far=0.01).calibration.pair.value
    """
    return _call("calibrate", run=run, **settings)


def compare(run_a: Place, run_b: Place, **settings) -> Compared:
    """Compute the differences between two evaluated runs, with intervals; the same as `likewise compare`.

    With `on="corrected.csv"`, both runs are first scored on that data, without samples that either run trained on.
    """
    return _call("compare", run_a=run_a, run_b=run_b, **settings)


def bench(grid: Place | None = None, **settings) -> BenchmarkTable | Table:
    """Train every cell of a grid: a paper's table, given by name, or a grid file. The same as `likewise bench`."""
    return _call("bench", grid=grid, **settings)


def tune(config: Place, **settings) -> TuneResult:
    """Search for the best settings on validation classes; the same as `likewise tune`."""
    return _call("tune", config=config, **settings)


def demo(**settings) -> DemoResult:
    """Train on glyphs with wrong labels, with and without a robust method, and evaluate both; the same as `likewise demo`."""
    return _call("demo", **settings)


def doctor(json: bool = False) -> Machine:
    """Return versions, devices, extras, weights, the default backbone and free disk space; the same as `likewise doctor`.

    `json` is only for the command line; `as_json()` of the result returns the JSON text.
    """
    return _call("doctor", json=json)


def export(run: Place, to: str = "onnx", **settings) -> Exported:
    """Export the network of a run and compare the export with the original; the same as `likewise export`."""
    return _call("export", run=run, to=to, **settings)


def send(target: Place, to: str, out: Place, **settings) -> Sent:
    """Send rows, findings and embeddings to another tool; the same as `likewise send`.

    likewise.send("runs/mine/audit", "label-studio", "to-label")
    """
    return _call("send", target=target, to=to, out=out, **settings)


def receive(source: Place, from_: str, into: Place, **settings) -> Received:
    """Receive decisions, labels or embeddings from another tool; the same as `likewise receive`.

    likewise.receive("export.json", "label-studio", "runs/mine/audit")
    """
    return _call("receive", source=source, from_=from_, into=into, **settings)


def hierarchy(run: Place, **settings) -> LearnedHierarchy:
    """Compute the tree of the training classes from the embeddings of a run; the same as `likewise hierarchy`."""
    return _call("hierarchy", run=run, **settings)


def clean(data: Place, **settings) -> Cleaned:
    """Find wrong labels of images without training, and serve the page to correct them; the same as `likewise clean`.

    `data` is a folder with one sub-folder per class, or a table; `to` is a new folder for the corrected classes.
    """
    return _call("clean", data=data, **settings)


def apply(table: Place, **settings) -> Applied:
    """Apply a corrected table to its images: a new folder (`to`), or moves (`in_place`); the same as `likewise apply`."""
    return _call("apply", table=table, **settings)


def audit_run(targets: Place | Sequence[Place], **settings) -> Audited | ErrorOverlap:
    """Find probably wrong labels, retrieval errors and their causes in a run, a file of embeddings or data.

    The same as `likewise audit`. With `overlap=True`, find the classes at which several runs fail.
    """
    return _call("audit", targets=targets, **settings)


def audit_labels(z: Any, y: Any = None, features: Any = None, **more) -> LabelAudit | LabelSetAudit:
    """Compute the probability that each label is right, and a suggested label, as `likewise audit`, from embeddings in memory.

        found = likewise.audit_labels(z, y)  # found.score, found.issues, found.suggested, found.noise_rate

    Args:
        z, y: embeddings (N, D) of numpy or torch, and N labels, integers or strings.
        features: features (N, F) of the backbone, if available; they are less fitted to the wrong labels than embeddings.
        more: `seed`, `device`, `group`; or, in place of y, `label_sets`: ["dress|red", "shirt|blue|striped", ...].
    """
    from likewise.curate.audit.label_audit import audit_labels as audit

    return audit(z, y, features, **more)


def review(audit: Place, **settings) -> Reviewed | Proved:
    """Serve the page on which people review the labels of an audit, until they finish it or Ctrl-C; as `likewise review`."""
    return _call("review", audit=audit, **settings)


def write_report(runs: Place | Sequence[Place], **settings) -> Page:
    """Write one HTML page about runs or files of embeddings; the same as `likewise report`."""
    return _call("report", runs=runs, **settings)


def spoil_labels(data: Place, model: Any, out: Place, **settings) -> NoisyItems:
    """Write data as a table whose training labels have noise from a noise model; the same as `likewise noise`."""
    return _call("noise", data=data, model=model, out=out, **settings)


def list_components(registry: str = "", pattern: str = "") -> Listing | PaperListing:
    """Return registry -> name -> first line of the docstring, for losses, miners, data sets, ...; as `likewise list`.

    Without a registry, the registries and the number of their components. `pattern`: only names that contain this text.
    "tables" returns paper -> its tables and figures, each with its command, and how it deviates or why it cannot be had.
    """
    return _call("list", registry=registry, pattern=pattern)


def published_numbers(**settings) -> Numbers:
    """Return numbers that papers report, selected by `paper`, `table`, `dataset`, ...; the same as `likewise published`."""
    return _call("published", **settings)


def show_recipe(name: Place, other: Place | None = None, data: str | None = None) -> ShownRecipe | RecipeDifference:
    """Return a recipe with the source of every value, or the settings in which two recipes or runs differ; as `recipe`."""
    return _call("recipe", name=name, other=other, data=data)


def _call(command: str, **settings) -> Any:
    """Return the result of a command with these settings. Messages go to stderr."""
    from likewise.cli.commands import COMMANDS, config_class, function_at
    from likewise.core.settings.setting_values import make_config

    return function_at(COMMANDS[command].function)(make_config(config_class(command), **settings), _say(settings))


def _say(settings: dict) -> Callable[[str], None]:
    """Return the function that prints a message to stderr; it prints nothing if `quiet`, or in processes other than the first."""
    if settings.get("quiet") or os.environ.get("RANK", "0") != "0":
        return lambda line: None
    from likewise.core.errors import print_text

    return lambda line: print_text(line, sys.stderr)


def __getattr__(name: str):
    if name in __all__:
        return importlib.import_module(f"likewise.{name}")
    if name == "MapWidget":  # not in `__all__`, because it needs the extra `notebook`
        return importlib.import_module("likewise.report.widgets.map_widget").MapWidget
    raise AttributeError(f"likewise has no attribute '{name}'; its names are: {', '.join([*__all__, 'MapWidget'])}")
