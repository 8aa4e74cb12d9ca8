"""The command that a user needs most often after another one; `likewise` prints it as the last line, to be pasted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from likewise.core.files import read_json
from likewise.curate.audit.states import REVIEWED_STATES


def next_words(name: str, config: Any, words: Sequence[str], result: Any) -> list[str]:
    """Return the words after `likewise` of the command that follows a command.

    Args:
        name: the command.
        words: the words that its settings `config` were read from.
        result: what it returned.
    """
    return [os.fspath(word) for word in FOLLOWING[name](config, list(words), result)]


def after_clean(config, words, result) -> list:
    """Return the training; the same command if the new folder is still to be written, because no decision was made.

    On a CPU, the training is that of a head on the corrected features, which takes seconds in place of hours.
    """
    if result.applied:
        return ["train", result.reviewed.features if trains_head(result.reviewed) else result.applied.folder]
    if config.to:
        return ["clean", *words]
    return after_review(config, words, result.reviewed, audit=result.audited.folder)


def after_audit(config, words, result) -> list:
    """Return the review; the training on audited data of which no label is to be reviewed."""
    if config.overlap:
        return ["report", *config.targets]
    states = [split["states"] for split in result.about["parts"].values()]
    is_right = all(split["ok"] and not any(split.get(state) for state in REVIEWED_STATES) for split in states)
    return ["train", *config.targets] if result.about["kind"] == "data" and is_right else ["review", result.folder]


def after_review(config, words, result, audit: str | Path | None = None) -> list:
    """Return the training on the corrected features or table; without decisions, the review again."""
    corrected = result.features if trains_head(result) else getattr(result, "corrected", None)
    return ["train", corrected] if corrected else ["review", audit or config.audit]


def trains_head(reviewed: Any) -> bool:
    """Whether a head on corrected features should be trained: there are some, and no GPU that would train the whole network."""
    if getattr(reviewed, "features", None) is None:
        return False
    from likewise.core.devices import choose_device  # imports torch, which the command before has imported

    return choose_device(None).type == "cpu"


def after_apply(config, words, result) -> list:
    """Return the call that carries out a plan, the plan again after --undo, or the training on the changed folder."""
    if result.done == "undone":
        return ["apply", config.table]
    if result.done == "planned" and not result.folder.is_file():
        to = [] if config.to or config.in_place else ["--to", "corrected"]
        return ["apply", *(word for word in words if word != "--dry-run"), *to]
    return ["train", result.folder]


def after_send(config, words, result) -> list:
    into = config.target if (Path(config.target).expanduser() / "audit.json").exists() else "received.csv"
    return ["receive", config.out, "--from", config.to, "--into", into]


def after_receive(config, words, result) -> list:
    follow = {"decisions": ["review", config.into], "labels": ["train", config.into]}
    return follow.get(result.kind, ["audit", config.into])


def after_train(config, words, result) -> list:
    """Return the report of the run; the search, if it has no test split to report on."""
    if config.evaluate and not result.scores:
        return ["search", result.path, "--serve"]
    return ["report" if config.evaluate else "evaluate", result.path]


def after_evaluate(config, words, result) -> list:
    """Return the report of a run, or the audit of embeddings."""
    if "checkpoint" in result:
        return ["report", config.target]
    return ["audit", config.target, *(["--labels", config.labels] if config.labels else [])]


def after_compare(config, words, result) -> list:
    """Return the report of both runs, or of the second one if both have old scores by other labels than those of --on.

    A run may be named by its per_query.parquet.
    """
    if config.on:
        return ["report", config.run_b]
    runs = (Path(run) for run in (config.run_a, config.run_b))
    return ["report", *(run.parent if run.suffix == ".parquet" else run for run in runs)]


def after_report(config, words, result) -> list:
    """Return the search page of the first run; the search for a row, if the run embeds features and not images."""
    settings = Path(config.runs[0]) / "config.json"
    on_features = settings.is_file() and read_json(settings, "report").get("features") is not None
    return ["search", config.runs[0], *(["--query", "0"] if on_features else ["--serve"])]


def after_search(config, words, result) -> list:
    """Return the page of the saved or searched index; after the page, the search for one image."""
    if config.serve:
        return ["search", config.target, "--query", config.query or "0"]
    model = ["--model", config.model] if config.model else []
    return ["search", config.save or config.target, *model, "--serve"]


def after_bench(config, words, result) -> list:
    """Return the training of listed cells, with --quick if no folder of data is given; the published numbers of a trained table;
    or the list of a grid's runs."""
    from likewise.papers.published import papers

    if config.grid is None:
        return ["bench", "procsim-table5", "--quick"]
    if config.list:
        can_train = config.quick or config.root or Path(config.grid).suffix == ".toml"
        return ["bench", *(word for word in words if word != "--list"), *([] if can_train else ["--quick"])]
    paper = next((key for key in papers() if config.grid.startswith(key)), None)
    return ["published", "--paper", paper] if paper else ["bench", *words, "--list"]


def after_tune(config, words, result) -> list:
    if result.final is None:
        return ["tune", *words, "--final-runs", "3"]
    return ["report", *(one["run"] for one in result.final.trainings if one["run"])]


def after_list(config, words, result) -> list:
    """Return the next narrower list, the settings of a listed recipe, or the test of a listed table."""
    if not config.registry:
        return ["list", "losses"]
    if config.registry == "recipes":
        return ["recipe", next(iter(result["recipes"]))]
    return ["bench", "--list"] if config.registry == "tables" else ["train", "--help"]


def after_recipe(config, words, result) -> list:
    if config.other is None:
        return ["recipe", config.name, "defaults", *(["--data", config.data] if config.data else [])]
    return ["recipe", config.name if config.other == "defaults" else config.other]


FOLLOWING: dict[str, Callable[[Any, list[str], Any], list]] = {
    "demo": lambda config, words, result: ["report", result["run"].path],
    "clean": after_clean,
    "audit": after_audit,
    "review": after_review,
    "apply": after_apply,
    "send": after_send,
    "receive": after_receive,
    "train": after_train,
    "evaluate": after_evaluate,
    "compare": after_compare,
    "report": after_report,
    "search": after_search,
    "calibrate": lambda config, words, result: ["search", config.run, "--serve"],
    "export": lambda config, words, result: ["search", config.run, "--serve"],
    "embed": lambda config, words, result: ["search", config.out, "--serve"],
    "doctor": lambda config, words, result: ["clean", "FOLDER"] if result["backbone"]["name"] else ["demo"],
    "bench": after_bench,
    "tune": after_tune,
    "list": after_list,
    "recipe": after_recipe,
    "published": lambda config, words, result: ["bench", "--list"],
    "noise": lambda config, words, result: ["train", result.table, "--robust"],
    "hierarchy": lambda config, words, result: ["report", config.run],
}
"""Command -> function of its settings, its words and its result that returns the words of the next command."""
