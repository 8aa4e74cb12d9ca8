"""The table of commands: for each its settings, the function that does it, and the function that prints the result.

A function `f(config, say)` takes the settings of its command and `say`, which receives the lines for the user. It checks the
settings, prints nothing, and returns an object with a display in notebooks, which `show(result, config)` prints. All of them are
imported when the command is called, so that help and the check of the words are quick.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import shlex
import sys
from collections.abc import Callable, Sequence
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
        "demo", "train on drawn characters with wrong labels: 2 minutes",
        "Demo", "cli.demo:demo", "cli.demo:show_demo",
    ),
    "clean": Command(
        "clean DATA", "find wrong labels in a folder, and fix them on a page",
        "Clean", "curate.clean:clean_and_show", "curate.clean:show_cleaned",
    ),
    "audit": Command(
        "audit TARGET", "list the labels that are probably wrong, and why",
        "Audit", "curate.audit.audit:audit_targets", "curate.audit.summary:show_audit",
    ),
    "review": Command(
        "review AUDIT", "open the page on which people decide about an audit",
        "Review", "curate.review:review", "curate.review:show_reviewed",
    ),
    "apply": Command(
        "apply TABLE", "write a folder with the corrected labels; with undo",
        "Apply", "curate.audit.apply:apply", "curate.audit.apply:show_applied",
    ),
    "send": Command(
        "send TARGET", "send rows and findings to Label Studio, CVAT, ...",
        "Send", "curate.exchange.transfer:send",
    ),
    "receive": Command(
        "receive SOURCE", "receive decisions, labels or embeddings from a tool",
        "Receive", "curate.exchange.transfer:receive",
    ),
    "train": Command(
        "train DATA [--robust]", "train and test an embedding; --robust: wrong labels",
        "Train", "learn.train:train", "learn.train:show_training",
    ),
    "evaluate": Command(
        "evaluate TARGET", "compute retrieval metrics of a run or of embeddings",
        "Evaluate", "score.evaluate:evaluate", "score.score_table:show_evaluation",
    ),
    "compare": Command(
        "compare RUN_A RUN_B", "is B better than A? Differences with intervals",
        "Compare", "score.compare:compare", "score.compare:show_comparison",
    ),
    "report": Command(
        "report RUNS", "write one HTML page: scores, map, galleries, errors",
        "Report", "report.write_report:report", "report.write_report:show_page",
    ),
    "search": Command(
        "search TARGET", "find the nearest images of a photo; or --serve a page",
        "Search", "deploy.index.search_index:search", "deploy.index.search_index:show_search",
    ),
    "calibrate": Command(
        "calibrate RUN", "choose thresholds: same or not, known or unknown",
        "Calibrate", "deploy.calibration.calibrate:calibrate", "deploy.calibration.calibrate:show_calibrated",
    ),
    "export": Command(
        "export RUN", "write the network as ONNX or safetensors, checked",
        "Export", "deploy.export:export", "deploy.export:show_exported",
    ),
    "embed": Command(
        "embed RUN DATA", "compute the embeddings of data with a network",
        "Embed", "score.embed_data:embed", "score.embed_data:show_embedded",
    ),
    "doctor": Command(
        "doctor", "print versions, devices, extras and installed weights",
        "Doctor", "runs.machine:doctor", "runs.machine:show_machine",
    ),
    "bench": Command(
        "bench TABLE_OR_GRID", "train every cell of a paper's table or of a grid",
        "Bench", "papers.bench:bench", "papers.benchmark_formats:show_bench",
    ),
    "tune": Command(
        "tune CONFIG", "search for the best settings on validation classes",
        "Tune", "papers.tune:tune", "papers.tune:show_tuning",
    ),
    "list": Command(
        "list [REGISTRY]", "list losses, miners, metrics, data sets, recipes, ...",
        "List", "cli.listing:listing", "cli.listing:show_listing",
    ),
    "recipe": Command(
        "recipe NAME [OTHER]", "print the settings of a recipe, or where two differ",
        "ShowRecipe", "learn.recipe_view:show_recipe", "learn.recipe_view:print_recipe",
    ),
    "published": Command(
        "published", "print published numbers of papers",
        "Published", "papers.published.published_view:published", "papers.published.published_view:show_numbers",
    ),
    "noise": Command(
        "noise DATA", "make training labels wrong on purpose, as a table",
        "Noise", "data.noisy_table:noise", "data.noisy_table:show_noisy_items",
    ),
    "hierarchy": Command(
        "hierarchy RUN", "draw the tree of the classes, beside a taxonomy",
        "Hierarchy", "score.learned_hierarchy:hierarchy", "score.learned_hierarchy:show_hierarchy",
    ),
}  # fmt: skip
"""Name -> command."""

GROUPS = {
    "Clean": ("clean", "audit", "review", "apply", "send", "receive"),
    "Learn": ("train", "evaluate", "compare", "report"),
    "Use": ("search", "calibrate", "export", "embed", "doctor"),
    "Papers": ("bench", "tune", "list", "recipe", "published", "noise", "hierarchy"),
}
"""Heading -> commands, in the order of `likewise --help`. The demo is in "Start here"."""

MAIN_COMMANDS = ("clean", "audit", "review", "train", "compare", "report", "search")
"""The commands that are enough for most work; help prints them in bold."""


def config_class(name: str) -> type:
    """Return the class of a command's settings."""
    return getattr(importlib.import_module("likewise.core.settings"), COMMANDS[name].settings)


def function_at(place: str) -> Callable:
    """Import the function that a line of the table names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"likewise.{module}"), name)


def run(name: str, config: Any, words: Sequence[str] = ()) -> None:
    """Run a command, print its result, and print the command that follows. Ends with 1 if a part of the work failed.

    Args:
        words: the words that `config` was read from.
    """
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
    if not lines_apart and not getattr(config, "quiet", False):
        following = function_at("cli.next_step:next_words")(name, config, words, result)
        print_text(f"next: {shlex.join(['likewise', *following])}", file=sys.stderr)  # stdout has only the result


def shown_once(config):
    """Return the config for this process, quiet in all processes of torchrun except the first."""
    if os.environ.get("RANK", "0") == "0" or not hasattr(config, "quiet"):
        return config
    return dataclasses.replace(config, quiet=True)
