"""search: a picture (or a row) and a set of embeddings -> its nearest neighbours, as a table and a picture."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from likewise.configs import Search, check
from likewise.data.features import read_embeddings
from likewise.data.images import file_of, image_of, read_image
from likewise.files import check_out, write_aside
from likewise.report.gallery import Tile, draw_gallery
from likewise.run import Run
from likewise.search import nearest
from likewise.stages.assemble import choose_device, load_items, open_embedder, read_config, transforms
from likewise.stages.evaluate import evaluate_run
from likewise.stages.saved import find_target, origin
from likewise.types import Items, LikewiseError


def search(config: Search, say=print) -> list[dict]:
    """The k nearest rows: row, similarity, class and path of each."""
    check(config)
    out = check_out(config.out, ".png", "search") if config.out else None
    gallery, run, made_by = open_gallery(config, say)
    similarity, rows = made_by.get("similarity", "cosine"), made_by.get("row", np.arange(len(gallery)))
    by_row = config.query.isdecimal() and not os.path.exists(config.query)
    if by_row:
        place = np.flatnonzero(rows == int(config.query))
        if not len(place):
            raise LikewiseError(
                f"search: row {config.query} is wanted, but the target's {len(rows)} rows lie in {rows.min()} to {rows.max()}"
            )
        number = int(place[0])
        z, own = torch.as_tensor(gallery.x[number : number + 1]), torch.tensor([number])
        image = picture(gallery, number) if out else None
    else:
        image, own = read_image(Path(config.query).expanduser()), None
        z = embed_picture(image, run, config, made_by)
    if z.shape[1] != gallery.x.shape[1]:
        raise LikewiseError(
            f"search: the query has {z.shape[1]} dimensions and the target {gallery.x.shape[1]}; "
            "give the run that made the target: --model RUN"
        )
    k = min(config.k, len(gallery) - by_row)
    if k < 1:
        raise LikewiseError(f"search: the target holds row {config.query} alone; there is nothing else to find")
    row, sim = nearest(z, torch.as_tensor(gallery.x), k, own=own, similarity=similarity)
    found = [
        {"row": int(rows[r]), "similarity": s, "class": gallery.class_name[gallery.y[r]], "path": path_of(gallery, r)}
        for r, s in zip(row[0].tolist(), sim[0].tolist(), strict=True)
    ]
    if out:
        label = int(gallery.y[number]) if by_row else None
        name = Path(config.query).name if label is None else gallery.class_name[label]
        save_picture(out, Tile(image, name, "query"), found, row[0].tolist(), gallery, similarity, label)
    return found


def open_gallery(config: Search, say) -> tuple[Items, Run | None, dict]:
    """The embeddings to search, and what is known of their maker. A run is evaluated first where it was not."""
    target = find_target(config.target, "search")
    if not target.is_dir():
        items, made_by = read_embeddings(str(target)), origin(target)
        path = config.model or made_by.get("run")
        return items, Run(path) if path and (config.model or os.path.isdir(path)) else None, made_by
    run = Run(target)
    if config.model:
        raise LikewiseError(f"search: '{target}' is a run and has its own network; leave out --model")
    if not (target / "embeddings.npz").exists():
        settings = read_config(run, allow_imports=config.allow_imports)
        items = load_items(
            settings.data, settings.root, skip_bad=settings.skip_bad, workers=config.workers, quiet=config.quiet,
            say=say,
        )  # fmt: skip
        evaluate_run(
            run, config=settings, items=items, metrics=settings.metrics, device=choose_device(config.device),
            workers=config.workers, quiet=config.quiet,
        )  # fmt: skip
    file = target / "embeddings.npz"
    return read_embeddings(str(file)), run, origin(file)


def embed_picture(image: Image.Image, run: Run | None, config: Search, made_by: dict) -> torch.Tensor:
    """The query under the network, and in the form, that the gallery was made with."""
    if run is None:
        raise LikewiseError(
            "search: a picture needs a network to embed it, and the target names none; give --model RUN"
        )
    settings = read_config(run, allow_imports=config.allow_imports)
    if run.about["features"] is not None:
        raise LikewiseError(
            f"search: '{run.path}' was trained on features and cannot read pictures; query by row number"
        )
    device = choose_device(config.device)
    embedder = open_embedder(run, settings, made_by.get("which", "best"), device)
    _, plain = transforms(settings, embedder)
    with torch.no_grad():
        out = embedder(plain(image)[None].to(device))
    return (out.e if made_by.get("similarity") == "euclidean" else out.z).float().cpu()


def path_of(items: Items, row: int) -> str:
    return "" if items.path is None else file_of(items, row)


def picture(items: Items, row: int) -> Image.Image:
    if items.path is None:
        return Image.new("RGB", (64, 64), "#e6e9ef")
    return image_of(items, row)


def save_picture(
    out: Path, query: Tile, found: list[dict], places: list[int], gallery: Items, similarity: str, label: int | None
) -> None:
    answers = []
    for answer, place in zip(found, places, strict=True):
        right = None if label is None else bool(gallery.y[place] == label)
        answers.append(Tile(picture(gallery, place), answer["class"], f"{answer['similarity']:.3f}", right))
    note = f"nearest first, {'cosine similarity' if similarity == 'cosine' else 'minus the distance'} below"
    page = draw_gallery([(query, answers)], "Nearest neighbours", note)
    with write_aside(out) as aside:
        page.save(aside, format="PNG")
