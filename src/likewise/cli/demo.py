"""`likewise demo`: train on glyphs with wrong labels, without and with --robust, and compare the scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from likewise.core.errors import LikewiseError, print_text
from likewise.core.files import atomic_write, make_folder
from likewise.core.notebook import table, view
from likewise.core.render.gallery import Tile, draw_gallery
from likewise.core.retrieval.ranking import nearest
from likewise.core.settings import Demo, Evaluate, Train, check
from likewise.core.types import Items
from likewise.core.vectors import in_memory
from likewise.data.dataset import load_items
from likewise.data.features import read_embeddings
from likewise.data.images import image_of
from likewise.data.protocols import UnseenClasses
from likewise.learn.recipes import apply
from likewise.learn.training.fit import train
from likewise.runs.folder import Run
from likewise.runs.open import OpenRun
from likewise.runs.training_files import read_sample_weights
from likewise.score.evaluate import evaluate_run
from likewise.score.metrics import as_text
from likewise.score.score_table import show_scores

DEMO_RECIPES = {"plain": "demo", "robust": "demo+robust"}
PROGRESS_LINES = {
    "plain": "plain: every label is used as given",
    "robust": "robust: wrong labels are corrected (--robust)",
}


class DemoResult(dict):
    """Result of the demo: scores before training, of the plain and of the robust run; flagged labels; robust run; figure."""

    @view
    def _repr_html_(self) -> str:
        sides = ("before", "plain", "robust")
        lines = [
            (name, *(as_text(name, self[side]["metrics"][name]) for side in sides))
            for name in self["robust"]["metrics"]
        ]
        notes = [*self["flagged"], f"run: {self['run'].path}", f"figure: {self['figure']}"]
        return table("glyphs with wrong labels", ("metric", "before training", *sides[1:]), lines, notes)


def demo(config: Demo, say=print) -> DemoResult:
    """Train without and with --robust on the same wrong labels, evaluate both, and draw a gallery of random queries.

    Returns a dict: the scores `before` training and of `plain` and `robust`, the sentences `flagged` about flagged labels, the
    robust `run`, and the `figure`, which is the path of the gallery.
    """
    check(config)
    if config.out:
        make_folder(config.out, "demo")
    items = load_items(config.data, None, strict=True, quiet=True, say=say)
    if items.path is None:
        raise LikewiseError(
            f"demo: --data must have images for the figure, but '{config.data}' has features; use glyphs"
        )
    rate = f"{config.noise_rate:.0%}"
    say(f"training on {config.data} with {rate} wrong training labels; tested on classes that are not trained")
    runs = {}
    for way, settings in settings_of(config, items).items():
        say(PROGRESS_LINES[way])
        runs[way] = train(settings, say)
        say(f"{way}: R@1 {runs[way].scores['metrics']['R@1']:.1%}")
    run = runs["robust"]
    opened = OpenRun(run, checkpoint="untrained", quiet=True)
    opened.take(items)
    before = evaluate_run(opened, Evaluate(str(run.path), metrics=opened.settings.metrics))
    figure, title = run.path / "gallery.png", f"R@1 {run.scores['metrics']['R@1']:.1%} on unseen characters"
    draw_random_gallery(run.path / "embeddings.npz", figure, title, seed=config.seed)
    scores = {way: one.scores for way, one in runs.items()}
    return DemoResult(before=before, **scores, flagged=describe_detection(run, items), run=run, figure=figure)


def settings_of(config: Demo, items: Items) -> dict[str, Train]:
    """Return the settings of the plain and of the robust training."""
    classes = len(np.unique(items.y[UnseenClasses().rows(items, "train")]))
    few = {"sampler": f"SamplesPerClass(batch={6 * classes}, per_class=6)"} if classes < 20 else {}
    noise = f"Uniform(share={config.noise_rate})" if config.noise_rate else None
    how = {
        **few, "epochs": config.epochs, "seed": config.seed, "restart": config.restart, "noise": noise, "quiet": config.quiet
    }  # fmt: skip
    return {
        way: apply(recipe, config.data, out=config.out and str(Path(config.out) / way), **how)
        for way, recipe in DEMO_RECIPES.items()
    }


def describe_detection(run: Run, items: Items) -> list[str]:
    """Return sentences on how many flagged labels are really wrong, according to the true labels in `items`.

    A label is flagged if its sample was dropped or relabelled at the end of training.
    """
    final = read_sample_weights(run.path, "report")
    if final is None:
        return []
    given, label, relabelled = final.given, final.label, final.relabelled
    true = np.asarray(items.class_name)[items.y[final.row]]
    wrong, flagged = given != true, relabelled | final.dropped
    found, false, right = (flagged & wrong).sum(), (flagged & ~wrong).sum(), (relabelled & (label == true)).sum()
    return [
        f"robust flagged {flagged.sum()} of {len(given)} labels: {found} of the {wrong.sum()} wrong ones, and {false} right ones",
        f"it relabelled {relabelled.sum()} samples, {right} of them with the true class, and dropped {final.dropped.sum()}",
    ]


def draw_random_gallery(
    embeddings: Path, file: Path, title: str, *, seed: int = 0, queries: int = 8, k: int = 5
) -> None:
    """Write a figure of random queries with their `k` nearest neighbours.

    Args:
        embeddings: embedding file with the paths of the images, such as embeddings.npz of a run.
        file: the figure to write (.png).
    """
    items = read_embeddings(str(embeddings))
    chosen = np.sort(np.random.default_rng(seed).permutation(len(items))[:queries])
    z = torch.as_tensor(in_memory(items.x))
    row, sim = nearest(z[chosen], z, k, own=torch.as_tensor(chosen))
    page = []
    for query, neighbours, sims in zip(chosen.tolist(), row.tolist(), sim.tolist(), strict=True):
        tiles = [
            Tile(image_of(items, a), items.class_name[items.y[a]], f"{s:.3f}", is_right(items, query, a))
            for a, s in zip(neighbours, sims, strict=True)
        ]
        page.append((Tile(image_of(items, query), items.class_name[items.y[query]], "query"), tiles))
    meaning = "same class, red: another class" if items.label_sets is None else "a label in common, red: none"
    note = f"{queries} random queries and their {k} nearest neighbours; green: {meaning}"
    with atomic_write(file) as aside:
        draw_gallery(page, title, note).save(aside, format="PNG")


def is_right(items: Items, query: int, row: int) -> bool:
    """Return whether a row has the class of the query, or one of its labels if samples have several."""
    a, b = int(items.y[query]), int(items.y[row])
    return a == b if items.label_sets is None else not set(items.label_sets[a]).isdisjoint(items.label_sets[b])


def show_demo(result: DemoResult, config: Demo) -> None:
    """Print the scores and the flagged labels, and the paths of the run and of the figure; with --quiet only the paths."""
    if not config.quiet:
        show_scores({"before training": result["before"], "plain": result["plain"], "robust": result["robust"]})
        print_text("\n".join(result["flagged"]))
    print_text(f"run:     {result['run'].path}\nfigure:  {result['figure']}")
