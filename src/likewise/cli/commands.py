"""The table of commands: for each its settings, the function that does it, and the function that prints the result.

A function `f(config, say)` takes the settings of its command and `say`, which receives the lines for the user. It checks the
settings, prints nothing, and returns an object with a display in notebooks, which `show(result, config)` prints. All of them are
imported when the command is called, so that help and the check of the words are quick.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from likewise.core.errors import print_text


class Command(NamedTuple):
    """One line of the table. Modules are named below `likewise`."""

    call: str
    """The call, as `likewise --help` shows it."""
    summary: str
    """One line of description."""
    settings: str
    """Class in `likewise.core.settings`."""
    function: str
    """Module and function, separated by a colon."""
    show: str = ""
    """Module and function that print the result. Without them its text is printed, and nothing with --quiet."""


COMMANDS = {
    "demo": Command(
        "demo", "train on drawn characters with wrong labels, without and with --robust, and compare the scores",
        "Demo", "cli.demo:demo", "cli.demo:show_demo",
    ),
    "doctor": Command(
        "doctor", "print what is installed: versions, devices, extras, weights, the default backbone, free disk space",
        "Doctor", "runs.machine:doctor", "runs.machine:show_machine",
    ),
    "train": Command(
        "train DATA [--robust]", "train an embedding and evaluate it; --robust corrects wrong labels",
        "Train", "learn.train:train", "learn.train:show_training",
    ),
    "evaluate": Command(
        "evaluate RUN_OR_EMBEDDINGS", "compute retrieval metrics of a run or of embeddings",
        "Evaluate", "score.evaluate:evaluate", "score.score_table:show_evaluation",
    ),
    "embed": Command(
        "embed RUN DATA --out z.npz", "compute the embeddings of data with a trained network",
        "Embed", "score.embed_data:embed", "score.embed_data:show_embedded",
    ),
    "search": Command(
        "search TARGET --query IMAGE", "find the nearest neighbours of an image, or serve a search page (--serve)",
        "Search", "deploy.index.search_index:search", "deploy.index.search_index:show_search",
    ),
    "calibrate": Command(
        "calibrate RUN [--far 0.01 | --precision 0.95]",
        "choose thresholds that keep a false-accept rate or a precision on new classes",
        "Calibrate", "deploy.calibration.calibrate:calibrate", "deploy.calibration.calibrate:show_calibrated",
    ),
    "compare": Command(
        "compare RUN_A RUN_B [--on DATA]",
        "compare the metrics of two runs, with intervals and the queries that changed",
        "Compare", "score.compare:compare", "score.compare:show_comparison",
    ),
    "bench": Command(
        "bench TABLE_OR_GRID", "train every cell of a paper's table or of a grid, and print the results beside the paper's",
        "Bench", "papers.bench:bench", "papers.benchmark_formats:show_bench",
    ),
    "tune": Command(
        "tune CONFIG --ranges ...", "search for the best settings of a training on validation classes",
        "Tune", "papers.tune:tune", "papers.tune:show_tuning",
    ),
    "noise": Command(
        "noise DATA --model ...", "make training labels wrong on purpose, and write the data as a table",
        "Noise", "data.noisy_table:noise", "data.noisy_table:show_noisy_items",
    ),
    "report": Command(
        "report RUNS", "write an HTML page about runs: scores, curves, map, galleries, confusions, flagged labels",
        "Report", "report.write_report:report", "report.write_report:show_page",
    ),
    "hierarchy": Command(
        "hierarchy RUN", "cluster the classes of a run, draw their tree, and compare it with a known taxonomy",
        "Hierarchy", "score.learned_hierarchy:hierarchy", "score.learned_hierarchy:show_hierarchy",
    ),
    "clean": Command(
        "clean DATA", "find wrong labels in a folder of images without training, and correct them on a page",
        "Clean", "curate.clean:clean_and_show", "curate.clean:show_cleaned",
    ),
    "apply": Command(
        "apply TABLE [--to FOLDER]",
        "write a folder with the corrected labels of a review, or move the files; with undo",
        "Apply", "curate.audit.apply:apply", "curate.audit.apply:show_applied",
    ),
    "audit": Command(
        "audit TARGET", "find probably wrong labels of a folder, a run or embeddings, and the causes of test errors",
        "Audit", "curate.audit.audit:audit_targets", "curate.audit.summary:show_audit",
    ),
    "review": Command(
        "review AUDIT", "serve a page on which people review the findings of an audit",
        "Review", "curate.review:review", "curate.review:show_reviewed",
    ),
    "send": Command(
        "send TARGET --to TOOL --out PLACE",
        "send rows, findings and embeddings to another tool, such as Label Studio or Qdrant",
        "Send", "curate.exchange.transfer:send",
    ),
    "receive": Command(
        "receive SOURCE --from TOOL --into PLACE", "receive decisions, labels or embeddings from another tool",
        "Receive", "curate.exchange.transfer:receive",
    ),
    "export": Command(
        "export RUN --to onnx", "export the network to ONNX or safetensors, check it, and write a model card",
        "Export", "deploy.export:export", "deploy.export:show_exported",
    ),
    "list": Command(
        "list [REGISTRY]", "list the losses, miners, samplers, metrics, data sets, recipes and other components",
        "List", "cli.listing:listing", "cli.listing:show_listing",
    ),
    "published": Command(
        "published [--paper ...]",
        "print published numbers of papers, with the conditions under which they were measured",
        "Published", "papers.published.published_view:published", "papers.published.published_view:show_numbers",
    ),
    "recipe show": Command(
        "recipe show NAME", "print the settings of a recipe, with the source of every value",
        "RecipeShow", "learn.recipe_view:recipe_show", "learn.recipe_view:show_recipe",
    ),
    "recipe diff": Command(
        "recipe diff A B", "print the settings in which two recipes, or a recipe and a run, differ",
        "RecipeDiff", "learn.recipe_view:recipe_diff", "learn.recipe_view:show_difference",
    ),
}  # fmt: skip
"""Name -> command, in the order of `likewise --help`."""


def config_class(name: str) -> type:
    """Return the class of a command's settings."""
    return getattr(importlib.import_module("likewise.core.settings"), COMMANDS[name].settings)


def function_at(place: str) -> Callable:
    """Import the function that a line of the table names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"likewise.{module}"), name)


def run(name: str, config: Any) -> None:
    """Run a command and print its result. Ends with 1 if a part of the work failed."""
    command = COMMANDS[name]
    config = shown_once(config)
    lines_apart = getattr(config, "json", False)  # stdout has only the JSON object
    result = function_at(command.function)(config, partial(print_text, file=sys.stderr) if lines_apart else print_text)
    if command.show:
        function_at(command.show)(result, config)
    elif not config.quiet:
        print_text(result)
    if getattr(result, "failed", False):
        sys.exit(1)


def shown_once(config):
    """Return the config for this process, quiet in all processes of torchrun except the first."""
    if os.environ.get("RANK", "0") == "0" or not hasattr(config, "quiet"):
        return config
    return dataclasses.replace(config, quiet=True)
