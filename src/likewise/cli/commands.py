"""The commands: each calls its stage and prints the result. A command imports torch only if it needs torch."""

from __future__ import annotations

import dataclasses
import importlib
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from io import TextIOBase
from pkgutil import iter_modules
from typing import IO

from likewise.core.errors import printable

COMMANDS: dict[str, Callable] = {}
"""Name -> function that takes the command's config. The config is the class of that name in a module of `likewise.config`."""

USAGE: dict[str, tuple[str, str]] = {}
"""Name -> the call and one line of description, as `likewise --help` shows them."""


def command(call: str, summary: str) -> Callable[[Callable], Callable]:
    """Register a command; its name is the leading lower-case words of the call."""

    def register(run: Callable) -> Callable:
        words = call.split()
        end = next((place for place, word in enumerate(words) if not word.isalpha() or word.isupper()), len(words))
        name = " ".join(words[:end])
        COMMANDS[name], USAGE[name] = run, (call, summary)
        return run

    return register


def config_class(name: str) -> type:
    """Return the config class of a command: its name in title case, such as RecipeShow for `recipe show`."""
    from likewise.core import settings as configs

    title = "".join(word.title() for word in name.split())
    modules = (importlib.import_module(f"likewise.config.{found.name}") for found in iter_modules(configs.__path__))
    found = ((vars(module).get(title), module.__name__) for module in modules)
    return next(kind for kind, home in found if kind is not None and kind.__module__ == home)


def show(text: object = "", file: IO[str] | TextIOBase | None = None) -> None:
    """Print a text. Control characters are escaped, because names in data may hold terminal commands."""
    print(printable(str(text), keep="\n"), file=file, flush=True)


def shown_once(config):
    """Return the config for this process, quiet in all processes of torchrun except the first."""
    return config if os.environ.get("RANK", "0") == "0" else dataclasses.replace(config, quiet=True)


@command("demo", "train on drawn characters with wrong labels, without and with --robust, and compare the scores")
def run_demo(config) -> None:
    from likewise.cli.stages.demo import demo
    from likewise.score.score_table import show_scores

    result = demo(config, show)
    if config.quiet:
        return show(f"run:     {result['run'].path}\nfigure:  {result['figure']}")
    show_scores({"before training": result["before"], "plain": result["plain"], "robust": result["robust"]})
    show("\n".join([*result["flagged"], f"run:     {result['run'].path}", f"figure:  {result['figure']}"]))


@command("doctor", "print what is installed: versions, devices, extras, weights, the default backbone, free disk space")
def run_doctor(config) -> None:
    from likewise.cli.stages.doctor import doctor
    from likewise.core.render.tables import show_table

    found = doctor(config, show)
    show(found.as_json()) if config.json else show_table(found.table())


@command("train DATA [--robust]", "train an embedding and evaluate it; --robust corrects wrong labels")
def run_train(config) -> None:
    from likewise.cli.stages.train import sentences, train
    from likewise.score.score_table import by_gallery, show_scores

    config = shown_once(config)
    run = train(config, show)
    if config.quiet:
        return
    if config.evaluate and (scores := run.scores) is not None:
        before = {"before training": scores | scores["before"]} if "before" in scores else {}
        show_scores(before | by_gallery("after training" if before else "test split", scores))
        for line in sentences(run):
            show(line)
    name = shlex.quote(str(run.path))
    show(f"run: {run.path}\nnext: likewise audit {name} | report {name} | search {name} --serve")


@command("evaluate RUN_OR_EMBEDDINGS", "compute retrieval metrics of a run or of embeddings")
def run_evaluate(config) -> None:
    from likewise.cli.stages.evaluate import evaluate
    from likewise.score.score_table import by_gallery, show_scores

    config = shown_once(config)
    scores = evaluate(config, show)
    if not config.quiet:
        title = config.checkpoint if "checkpoint" in scores else "embeddings"
        title = (
            f"{title}, {config.split} split" if config.split != "test" else "test split" if title == "best" else title
        )
        show_scores(by_gallery(f"{title} of other data" if "data" in scores else title, scores))
        if config.out:
            show(f"scores: {config.out}")
        elif "data" in scores:
            show("not stored; the run keeps the scores of its own data (--out FILE.json stores these)")


@command("embed RUN DATA --out z.npz", "compute the embeddings of data with a trained network")
def run_embed(config) -> None:
    from likewise.cli.stages.embed import embed

    e = embed(config, show)
    show(f"{e.z.shape[0]} {config.layer}s of {e.z.shape[1]} numbers: {config.out}")


@command("search TARGET --query IMAGE", "find the nearest neighbours of an image, or serve a search page (--serve)")
def run_search(config) -> None:
    from likewise.cli.stages.search import search
    from likewise.deploy.index.search_index import show_neighbours

    if config.json:
        return show(search(config, partial(show, file=sys.stderr)).as_json())
    found = search(config, show)
    if config.query is None:
        return
    show_neighbours(found)
    if config.out:
        show(f"figure: {config.out}")


@command(
    "calibrate RUN [--far 0.01 | --precision 0.95]",
    "choose thresholds that keep a false-accept rate or a precision on new classes",
)
def run_calibrate(config) -> None:
    from likewise.cli.stages.calibrate import calibrate
    from likewise.core.render.tables import show_table

    result = calibrate(config, show)
    if not config.quiet:
        show_table(result.table())


@command(
    "compare RUN_A RUN_B [--on DATA]", "compare the metrics of two runs, with intervals and the queries that changed"
)
def run_compare(config) -> None:
    from likewise.cli.stages.compare import compare
    from likewise.score.compare import show_comparison

    show_comparison(compare(config, show))
    for what, file in (("figure", config.out), ("queries that changed", config.csv)):
        if file:
            show(f"{what}: {file}")


@command(
    "bench TABLE_OR_GRID",
    "train every cell of a paper's table or of a grid, and print the results beside the paper's",
)
def run_bench(config) -> None:
    from likewise.cli.stages.bench import bench
    from likewise.core.render.tables import Table, show_table
    from likewise.papers.benchmark_formats import show_benchmark

    found = bench(config, show)
    if isinstance(found, Table):
        return show_table(found)
    if not config.quiet:
        show_benchmark(found)
        if found.entries:
            show(f"table: {found.folder / 'table.html'} (and .md, .tex, .csv)\nruns:  {found.folder / 'results.csv'}")
        else:
            show(f"page: {found.folder / 'table.html'} (and .md)")
        for name in found.figures:
            show(f"figure: {found.folder / name} (its values: {name.removesuffix('.png')}.csv)")
    if found.failed:
        sys.exit(1)


@command("tune CONFIG --ranges ...", "search for the best settings of a training on validation classes")
def run_tune(config) -> None:
    from likewise.cli.stages.tune import tune
    from likewise.papers.tune_view import show_tuning

    result = tune(config, show)
    if not config.quiet:
        show_tuning(result)


@command("noise DATA --model ...", "make training labels wrong on purpose, and write the data as a table")
def run_noise(config) -> None:
    from likewise.cli.stages.noise import noise
    from likewise.data.noise_view import show_noise

    noisy = noise(config, show)
    if not config.quiet:
        show_noise(noisy.items, noisy.rows)
        show("\n".join([f"table: {noisy.table}", *(f"figure: {file}" for file in noisy.figures)]))


@command("report RUNS", "write an HTML page about runs: scores, curves, map, galleries, confusions, flagged labels")
def run_report(config) -> None:
    from likewise.cli.stages.report import report

    show(f"page: {report(config, show)}")


@command("hierarchy RUN", "cluster the classes of a run, draw their tree, and compare it with a known taxonomy")
def run_hierarchy(config) -> None:
    from likewise.cli.stages.hierarchy import hierarchy
    from likewise.score.learned_hierarchy import show_hierarchy

    show_hierarchy(hierarchy(config, show))


@command("clean DATA", "find wrong labels in a folder of images without training, and correct them on a page")
def run_clean(config) -> None:
    from likewise.cli.stages.clean import clean
    from likewise.curate.audit.summary import show_findings

    cleaned = clean(config, show, show=lambda found: None if config.quiet else show_findings(found))
    show(f"\nreview: {cleaned.reviewed}")
    if cleaned.applied:
        show("\n".join([*cleaned.applied.lines(), f"next: likewise train {cleaned.applied.folder}"]))


APPLY_ADVICE = "add --to FOLDER for a corrected copy of links, or --in-place to move the files"
"""What follows a plan of `likewise apply`."""


@command(
    "apply TABLE [--to FOLDER]", "write a folder with the corrected labels of a review, or move the files; with undo"
)
def run_apply(config) -> None:
    from likewise.cli.stages.apply import apply
    from likewise.curate.audit.apply_steps import undo_command

    applied = apply(config, show)
    show("\n".join(applied.lines()))
    if applied.done == "planned" and not config.dry_run:
        several = applied.folder.is_file()  # several labels per image: the table itself is the result
        show(f"next: likewise train {applied.folder}" if several else f"nothing was changed; {APPLY_ADVICE}")
    elif applied.journal:
        show(f"undo: {undo_command(config.table)}")


@command("audit TARGET", "find probably wrong labels of a folder, a run or embeddings, and the causes of test errors")
def run_audit(config) -> None:
    from likewise.cli.stages.audit import audit
    from likewise.curate.audit.summary import show_findings
    from likewise.score.error_overlap import ErrorOverlap, show_overlap

    found = audit(config, show)
    if not config.quiet:
        show_overlap(found) if isinstance(found, ErrorOverlap) else show_findings(found)


@command("review AUDIT", "serve a page on which people review the findings of an audit")
def run_review(config) -> None:
    from likewise.cli.stages.review import review

    show(f"\nreview: {review(config, show)}")


@command(
    "send TARGET --to TOOL --out PLACE",
    "send rows, findings and embeddings to another tool, such as Label Studio or Qdrant",
)
def run_send(config) -> None:
    from likewise.cli.stages.send import send

    sent = send(config, show)
    if not config.quiet:
        show(sent)


@command("receive SOURCE --from TOOL --into PLACE", "receive decisions, labels or embeddings from another tool")
def run_receive(config) -> None:
    from likewise.cli.stages.receive import receive

    received = receive(config, show)
    if not config.quiet:
        show(received)


@command("export RUN --to onnx", "export the network to ONNX or safetensors, check it, and write a model card")
def run_export(config) -> None:
    from likewise.cli.stages.export import export

    exported = export(config, show)
    show(f"export: {exported.folder} ({', '.join(exported.files)})\nchecked on {exported.parity}")


@command(
    "list [REGISTRY]",
    "list the losses, miners, samplers, metrics, data sets, recipes and other components",
)
def run_list(config) -> None:
    from likewise.cli.listing_view import show_listing
    from likewise.cli.stages.listing import listing
    from likewise.papers.published.coverage import PaperListing, show_papers

    found = listing(config, show)
    show_papers(found) if isinstance(found, PaperListing) else show_listing(found)


@command(
    "published [--paper ...]", "print published numbers of papers, with the conditions under which they were measured"
)
def run_published(config) -> None:
    from likewise.cli.stages.published import published
    from likewise.papers.published.published_view import show_papers, show_published

    found = published(config, show)
    (show_published if found.is_chosen else show_papers)(found, found.papers)
    if config.csv:
        show(f"numbers: {os.path.expanduser(config.csv)}")


@command("recipe show NAME", "print the settings of a recipe, with the source of every value")
def run_recipe_show(config) -> None:
    from likewise.cli.stages.recipe import show as recipe
    from likewise.learn.recipe_view import show_recipe

    found = recipe(config)
    show_recipe(found.recipe, found.data, found.command)


@command("recipe diff A B", "print the settings in which two recipes, or a recipe and a run, differ")
def run_recipe_diff(config) -> None:
    from likewise.cli.stages.recipe import diff
    from likewise.learn.recipe_view import show_difference

    found = diff(config)
    show_difference(found.a, found.b, found.settings, found.data)
