"""What each command does with its settings: work by its stage, and what is printed. Torch is loaded only to work."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable


def run_demo(config) -> None:
    from likewise.render.scores import show_scores
    from likewise.stages.demo import demo

    result = demo(config)
    show_scores({"before training": result["before"], "plain": result["plain"], "robust": result["robust"]})
    print("\n".join([*result["doubts"], f"run:     {result['run'].path}", f"picture: {result['picture']}"]))


def shown_once(config):
    """Of the processes that torchrun started, the first one alone has something to say."""
    return config if os.environ.get("RANK", "0") == "0" else dataclasses.replace(config, quiet=True)


def run_train(config) -> None:
    from likewise.evaluation.baseline import add_before, say_loss
    from likewise.render.scores import by_gallery, show_scores
    from likewise.report.label_trust import say_doubts
    from likewise.training.fit import train

    config = shown_once(config)
    run = train(config)
    if config.evaluate and not config.quiet and run.scores is not None:
        scores = add_before(run, config)
        before = {"before training": scores | scores["before"]} if "before" in scores else {}
        show_scores(before | by_gallery("after training" if before else "test part", scores))
        for line in filter(None, (say_loss(scores), say_doubts(run))):
            print(line)
    if not config.quiet:
        print(f"run: {run.path}")


def run_evaluate(config) -> None:
    from likewise.evaluation.evaluate import evaluate
    from likewise.render.scores import by_gallery, show_scores

    config = shown_once(config)
    scores = evaluate(config)
    if not config.quiet:
        title = config.which if "which" in scores else "embeddings"
        title = f"{title}, {config.part} part" if config.part != "test" else "test part" if title == "best" else title
        show_scores(by_gallery(title, scores))


def run_embed(config) -> None:
    from likewise.evaluation.embed_data import embed

    e = embed(config)
    print(f"{e.z.shape[0]} {config.layer}s of {e.z.shape[1]} numbers: {config.out}")


def run_search(config) -> None:
    from rich.console import Console
    from rich.table import Table

    from likewise.errors import printable
    from likewise.render.tables import escape
    from likewise.stages.search import search

    found = search(config)
    lines = [(f"{f['similarity']:.4f}", f["class"], str(f["row"]), f["path"]) for f in found]
    if config.query is None:
        return
    console = Console()
    if console.is_terminal:
        table = Table(
            "", "similarity", "class", "row", title=f"nearest to {escape(config.query)}", title_justify="left"
        )
        table.add_column("path", overflow="fold")
        for place, line in enumerate(lines, 1):
            table.add_row(str(place), *map(escape, line))
        console.print(table)
        for hit in found:
            if hit["same"]:
                print(f"row {hit['row']} is the same picture")
    else:  # for other programs: one line a neighbour, its fields apart by tabs
        for line in lines:
            print("\t".join(map(printable, line)))
    if config.out:
        print(f"picture: {config.out}")


def run_compare(config) -> None:
    from likewise.evaluation.compare import compare
    from likewise.render.comparison import show_comparison

    show_comparison(compare(config))
    for what, file in (("picture", config.out), ("queries that changed", config.csv)):
        if file:
            print(f"{what}: {file}")


def run_bench(config) -> None:
    from likewise.experiments.bench import bench
    from likewise.render.benchmark import show_sheet
    from likewise.render.tables import Table, show_table

    found = bench(config)
    if isinstance(found, Table):
        return show_table(found)
    if not config.quiet:
        show_sheet(found)
        print(f"table: {found.folder / 'table.html'} (and .md, .tex, .csv)\nruns:  {found.folder / 'results.csv'}")
    if found.failed:
        sys.exit(1)


def run_tune(config) -> None:
    from rich.console import Console
    from rich.table import Table

    from likewise.experiments.tune import tune
    from likewise.render.benchmark import show_sheet

    found = tune(config)
    if config.quiet:
        return
    best, count = found.about["best"], found.about["count"]
    table = Table("", f"best, trial {best['number']}")
    for name, value in best["values"].items():
        table.add_row(name, f"{value:.6g}" if isinstance(value, float) else str(value))
    table.add_row(f"val {found.about['select']}", f"{100 * best['value']:.1f} %")
    Console().print(table)
    print("trials: " + ", ".join(f"{number} {state}" for state, number in count.items() if number))
    for reason in sorted({t["reason"] for t in found.about["trials"] if t["reason"]})[:5]:
        print(f"  failed: {reason}")
    if found.final:
        show_sheet(found.final)
    print(f"settings: {found.folder / 'best.toml'}\npicture:  {found.folder / 'tune.png'}")


def run_noise(config) -> None:
    from likewise.render.noise import show_noise
    from likewise.stages.noise import noise

    spoiled = noise(config)
    if not config.quiet:
        show_noise(spoiled.items, spoiled.rows)
        print("\n".join([f"table: {spoiled.table}", *(f"picture: {file}" for file in spoiled.pictures)]))


def run_report(config) -> None:
    from likewise.report.write import report

    print(f"page: {report(config)}")


def run_hierarchy(config) -> None:
    from likewise.evaluation.hierarchy import hierarchy
    from likewise.render.hierarchy import show_learned

    show_learned(hierarchy(config))


def run_audit(config) -> None:
    if config.overlap:
        from likewise.evaluation.overlap_runs import overlap
        from likewise.render.error_overlap import show_overlap

        found = overlap(config)
        return None if config.quiet else show_overlap(found)
    from likewise.audit.audit import audit
    from likewise.audit.summary import show_findings

    show_findings(audit(config))


def run_review(config) -> None:
    from likewise.stages.review import review

    review(config)


def run_export(config) -> None:
    from likewise.deploy.export import export

    made = export(config)
    print(f"export: {made.folder} ({', '.join(made.files)})\nchecked on {made.parity}")


def run_list(config) -> None:
    from rich.console import Console
    from rich.table import Table

    from likewise.stages.listing import listing

    for shelf, entries in listing(config.shelf).items():
        table = Table(
            box=None, show_header=False, title=shelf, title_justify="left", title_style="bold", padding=(0, 2, 0, 0)
        )
        for name, line in entries.items():
            table.add_row(name, line)
        Console().print(table)


def run_published(config) -> None:
    from likewise.io.files import check_out
    from likewise.published import find, numbers, papers, write
    from likewise.render.published import show_papers, show_published

    file = check_out(config.csv, ".csv", "published", "--csv") if config.csv else None
    asked = {name: value for name, value in vars(config).items() if name != "csv" and value}
    found = find(**asked) if asked else numbers()
    (show_published if asked else show_papers)(found, papers())
    if file:
        write(found, file)
        print(f"numbers: {file}")


def run_recipe_show(config) -> None:
    from likewise.recipes import command, read
    from likewise.render.recipes import show_recipe

    recipe = read(config.name, config.data)
    show_recipe(recipe, config.data, command(recipe, config.data or "DATA"))


def run_recipe_diff(config) -> None:
    from likewise.recipes import difference, read_pair
    from likewise.render.recipes import show_difference

    a, b, data = read_pair(config.a, config.b, config.data)
    show_difference(a, b, difference(a, b), data)


COMMANDS: dict[str, Callable] = {
    "demo": run_demo,
    "train": run_train,
    "evaluate": run_evaluate,
    "embed": run_embed,
    "search": run_search,
    "compare": run_compare,
    "bench": run_bench,
    "tune": run_tune,
    "noise": run_noise,
    "report": run_report,
    "hierarchy": run_hierarchy,
    "audit": run_audit,
    "review": run_review,
    "export": run_export,
    "list": run_list,
    "published": run_published,
    "recipe show": run_recipe_show,
    "recipe diff": run_recipe_diff,
}
