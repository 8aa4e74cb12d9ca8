"""demo: train on glyphs with wrong labels, plain and robust, and show what was learned beside what was there before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from likewise.config import Demo, check
from likewise.data.features import read_embeddings
from likewise.evaluation.evaluate import evaluate_run
from likewise.index.search import picture
from likewise.io.files import write_aside
from likewise.protocols import UnseenClasses
from likewise.recipes import apply
from likewise.render.gallery import Tile, draw_gallery
from likewise.retrieval.ranking import nearest
from likewise.runs.dataset import load_items
from likewise.runs.devices import choose_device
from likewise.runs.embeddings import EMBEDDINGS
from likewise.runs.folder import Run
from likewise.runs.sample_weights import read_sample_weights
from likewise.runs.settings import read_config
from likewise.training.fit import train
from likewise.types import Items


def demo(config: Demo, say=print) -> dict:
    """Train plainly and robustly on the same wrong labels, evaluate, draw a gallery.

    Returns the scores before training and of both, lines on the labels that were doubted, the robust run and the picture.
    """
    check(config)
    items = load_items(config.data, None, skip_bad=False, workers=-1, quiet=True, say=say)
    classes = len(np.unique(items.y[UnseenClasses().rows(items, "train")]))
    few = {"sampler": f"SamplesPerClass(batch={6 * classes}, per_class=6)"} if classes < 20 else {}
    say(
        f"learning {config.data} with {config.share:.0%} of the training labels wrong; tested on classes it has never seen"
    )
    runs = {}
    for way, recipe in {"plain": "demo", "robust": "demo+robust"}.items():
        settings = apply(
            recipe, config.data, out=config.out and str(Path(config.out) / way), length=config.length, seed=config.seed,
            again=config.again, noise=f"Uniform(share={config.share})" if config.share else None, **few,
        )  # fmt: skip
        say("plain: every label is believed" if way == "plain" else "robust: labels are doubted, see --robust")
        runs[way] = train(settings, say)
        say(f"{way}: R@1 {runs[way].scores['metrics']['R@1']:.1%}")
    run = runs["robust"]
    stored = read_config(run)
    before = evaluate_run(
        run, config=stored, items=items, metrics=stored.metrics, device=choose_device(None), which="untrained", quiet=True
    )  # fmt: skip
    file = run.path / "gallery.png"
    draw_random(run, file, f"R@1 {run.scores['metrics']['R@1']:.1%} on unseen characters", config.seed)
    scores = {way: one.scores for way, one in runs.items()}
    return {"before": before, **scores, "doubts": doubts(run, items), "run": run, "picture": file}


def doubts(run: Run, items: Items) -> list[str]:
    """Lines on the labels that the run left out or changed in the end, and how many of those are wrong indeed."""
    final = read_sample_weights(run.path, "demo")
    assert final is not None  # the run is finished and has a confidence
    given, label, used = final.given, final.label, final.weight > 0
    true = np.asarray(items.class_name)[items.y[final.row]]
    wrong, changed = given != true, used & (label != given)
    doubted = changed | ~used
    found, false, right = (doubted & wrong).sum(), (doubted & ~wrong).sum(), (changed & (label == true)).sum()
    return [
        f"robust doubted {doubted.sum()} of {len(given)} labels: {found} of the {wrong.sum()} wrong ones, and {false} right ones",
        f"it changed {changed.sum()} of them, {right} to the true class, and left out {(~used).sum()}",
    ]


def draw_random(run: Run, file: Path, title: str, seed: int, lines: int = 8, k: int = 5) -> None:
    """A gallery of queries drawn at random, not chosen: what a reader would see who tried."""
    items: Items = read_embeddings(str(run.path / EMBEDDINGS))
    chosen = np.sort(np.random.default_rng(seed).permutation(len(items))[:lines])
    z = torch.as_tensor(items.x)
    row, sim = nearest(z[chosen], z, k, own=torch.as_tensor(chosen))
    page = []
    for query, answers, sims in zip(chosen.tolist(), row.tolist(), sim.tolist(), strict=True):
        tiles = [
            Tile(picture(items, a), items.class_name[items.y[a]], f"{s:.3f}", bool(items.y[a] == items.y[query]))
            for a, s in zip(answers, sims, strict=True)
        ]
        page.append((Tile(picture(items, query), items.class_name[items.y[query]], "query"), tiles))
    note = f"{lines} random queries and their {k} nearest; green: the same class, red: another"
    with write_aside(file) as aside:
        draw_gallery(page, title, note).save(aside, format="PNG")
