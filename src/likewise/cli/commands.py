"""Every command: call its stage, then show the result. Torch is loaded only by a command that needs it."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable

COMMANDS: dict[str, Callable] = {}
"""Name -> function that takes the command's config. The config is the class of that name in a module of `likewise.config`."""

USAGE: dict[str, tuple[str, str]] = {}
"""Name -> the call as `likewise --help` writes it, and one line on what the command does."""


def command(call: str, summary: str) -> Callable[[Callable], Callable]:
    """Register a command: its name is the words in small letters with which the call begins."""

    def register(run: Callable) -> Callable:
        words = call.split()
        end = next((place for place, word in enumerate(words) if not word.isalpha() or word.isupper()), len(words))
        name = " ".join(words[:end])
        COMMANDS[name], USAGE[name] = run, (call, summary)
        return run

    return register


def shown_once(config):
    """Return the config for this process: of several that torchrun started, all but the first are quiet."""
    return config if os.environ.get("RANK", "0") == "0" else dataclasses.replace(config, quiet=True)


@command("demo", "train on glyphs with wrong labels, plain and robust, and show what was learned")
def run_demo(config) -> None:
    from likewise.render.scores import show_scores
    from likewise.stages.demo import demo

    result = demo(config)
    if config.quiet:
        return print(f"run:     {result['run'].path}\npicture: {result['picture']}")
    show_scores({"before training": result["before"], "plain": result["plain"], "robust": result["robust"]})
    print("\n".join([*result["doubts"], f"run:     {result['run'].path}", f"picture: {result['picture']}"]))


@command("train DATA [--robust]", "train an embedding on DATA, whose labels may be wrong, and evaluate it")
def run_train(config) -> None:
    from likewise.render.scores import by_gallery, show_scores
    from likewise.stages.train import sentences, train

    config = shown_once(config)
    run = train(config)
    if config.quiet:
        return
    if config.evaluate and (scores := run.scores) is not None:
        before = {"before training": scores | scores["before"]} if "before" in scores else {}
        show_scores(before | by_gallery("after training" if before else "test split", scores))
        for line in sentences(run):
            print(line)
    print(f"run: {run.path}")


@command("evaluate RUN_OR_EMBEDDINGS", "score an embedding by retrieval")
def run_evaluate(config) -> None:
    from likewise.render.scores import by_gallery, show_scores
    from likewise.stages.evaluate import evaluate

    config = shown_once(config)
    scores = evaluate(config)
    if not config.quiet:
        title = config.checkpoint if "checkpoint" in scores else "embeddings"
        title = (
            f"{title}, {config.split} split" if config.split != "test" else "test split" if title == "best" else title
        )
        show_scores(by_gallery(title, scores))


@command("embed RUN DATA --out z.npz", "turn data into embeddings")
def run_embed(config) -> None:
    from likewise.stages.embed import embed

    e = embed(config)
    print(f"{e.z.shape[0]} {config.layer}s of {e.z.shape[1]} numbers: {config.out}")


@command("search TARGET --query IMAGE", "find the nearest neighbours of a picture; --serve: on a page in the browser")
def run_search(config) -> None:
    from likewise.render.neighbours import show_neighbours
    from likewise.stages.search import search

    found = search(config)
    if config.query is None:
        return
    show_neighbours(found)
    if config.out:
        print(f"picture: {config.out}")


@command("compare RUN_A RUN_B", "tell whether B is better than A, how sure that is, and what changed")
def run_compare(config) -> None:
    from likewise.render.comparison import show_comparison
    from likewise.stages.compare import compare

    show_comparison(compare(config))
    for what, file in (("picture", config.out), ("queries that changed", config.csv)):
        if file:
            print(f"{what}: {file}")


@command(
    "bench TABLE_OR_GRID",
    "a paper's table, or a grid of your own: train every cell, print it beside the paper's",
)
def run_bench(config) -> None:
    from likewise.render.benchmark import show_sheet
    from likewise.render.tables import Table, show_table
    from likewise.stages.bench import bench

    found = bench(config)
    if isinstance(found, Table):
        return show_table(found)
    if not config.quiet:
        show_sheet(found)
        print(f"table: {found.folder / 'table.html'} (and .md, .tex, .csv)\nruns:  {found.folder / 'results.csv'}")
    if found.failed:
        sys.exit(1)


@command("tune CONFIG --ranges ...", "search for the best settings on validation classes")
def run_tune(config) -> None:
    from likewise.render.tuning import show_found
    from likewise.stages.tune import tune

    found = tune(config)
    if not config.quiet:
        show_found(found)


@command("noise DATA --model ...", "spoil training labels on purpose, and write the data as a table")
def run_noise(config) -> None:
    from likewise.render.noise import show_noise
    from likewise.stages.noise import noise

    spoiled = noise(config)
    if not config.quiet:
        show_noise(spoiled.items, spoiled.rows)
        print("\n".join([f"table: {spoiled.table}", *(f"picture: {file}" for file in spoiled.pictures)]))


@command("report RUNS", "one page about runs: scores, curves, map, galleries, confusions, doubts about labels")
def run_report(config) -> None:
    from likewise.stages.report import report

    print(f"page: {report(config)}")


@command("hierarchy RUN", "which classes a run sees as relatives: their tree drawn, and beside the known one")
def run_hierarchy(config) -> None:
    from likewise.render.hierarchy import show_learned
    from likewise.stages.hierarchy import hierarchy

    show_learned(hierarchy(config))


@command("audit RUN_OR_EMBEDDINGS", "which labels are probably wrong, and which training samples cause which errors")
def run_audit(config) -> None:
    from likewise.audit.summary import show_findings
    from likewise.render.error_overlap import Overlapped, show_overlap
    from likewise.stages.audit import audit

    found = audit(config)
    if not config.quiet:
        show_overlap(found) if isinstance(found, Overlapped) else show_findings(found)


@command("review AUDIT", "a page in the browser on which people judge what an audit found")
def run_review(config) -> None:
    from likewise.stages.review import review

    print(f"\nreview: {review(config)}")


@command("export RUN --to onnx", "the network for use elsewhere, checked, with a model card")
def run_export(config) -> None:
    from likewise.stages.export import export

    made = export(config)
    print(f"export: {made.folder} ({', '.join(made.files)})\nchecked on {made.parity}")


@command("list [REGISTRY]", "losses, miners, samplers, confidence, terms, noise, protocols, heads, metrics, data, ...")
def run_list(config) -> None:
    from likewise.render.listing import show_listing
    from likewise.stages.listing import listing

    show_listing(listing(config))


@command("published [--paper ...]", "what the papers report, and what must be known about their numbers")
def run_published(config) -> None:
    from likewise.render.published import show_papers, show_published
    from likewise.stages.published import published

    found = published(config)
    (show_published if found.is_chosen else show_papers)(found, found.papers)
    if config.csv:
        print(f"numbers: {os.path.expanduser(config.csv)}")


@command("recipe show NAME", "the settings of a paper, and where each value comes from")
def run_recipe_show(config) -> None:
    from likewise.render.recipes import show_recipe
    from likewise.stages.recipe import show

    found = show(config)
    show_recipe(found.recipe, found.data, found.command)


@command("recipe diff A B", "the settings in which two recipes, or a recipe and a run, differ")
def run_recipe_diff(config) -> None:
    from likewise.render.recipes import show_difference
    from likewise.stages.recipe import diff

    found = diff(config)
    show_difference(found.a, found.b, found.settings, found.data)
