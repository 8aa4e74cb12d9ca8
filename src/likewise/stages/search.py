"""search: a picture (or a row) and a set of embeddings -> its nearest neighbours, as a table and a picture."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from likewise.configs import Search
from likewise.data.features import read_embeddings
from likewise.data.images import file_of, read_image
from likewise.report.gallery import Tile, draw_gallery
from likewise.run import Run, write_aside
from likewise.search import nearest
from likewise.stages.assemble import choose_device, load_items, open_embedder, read_config, transforms
from likewise.stages.evaluate import evaluate_run
from likewise.types import Items, LikewiseError


def search(config: Search, say=print) -> list[dict]:
    """The k nearest rows: row, similarity, class and path of each."""
    if config.k < 1:
        raise LikewiseError(f"search: k must be 1 or more, got {config.k}")
    gallery, run = open_gallery(config, say)
    by_row = config.query.isdigit() and not os.path.exists(config.query)
    if by_row:
        number = int(config.query)
        if number >= len(gallery):
            raise LikewiseError(f"search: row {number} is wanted, but the target has rows 0 to {len(gallery) - 1}")
        z, own = torch.as_tensor(gallery.x[number : number + 1]), torch.tensor([number])
        image = picture(gallery, number)
    else:
        image, own = read_image(config.query), None
        z = embed_picture(image, run, config)
    if z.shape[1] != gallery.x.shape[1]:
        raise LikewiseError(
            f"search: the query has {z.shape[1]} dimensions and the target {gallery.x.shape[1]}; "
            "give the run that made the target: --model RUN"
        )
    k = min(config.k, len(gallery) - by_row)
    row, sim = nearest(z, torch.as_tensor(gallery.x), k, own=own)
    found = [
        {"row": r, "similarity": s, "class": gallery.class_name[gallery.y[r]], "path": path_of(gallery, r)}
        for r, s in zip(row[0].tolist(), sim[0].tolist(), strict=True)
    ]
    if config.out:
        name = gallery.class_name[gallery.y[int(config.query)]] if by_row else Path(config.query).name
        save_picture(config.out, image, name, found, gallery, name if by_row else None)
    return found


def open_gallery(config: Search, say) -> tuple[Items, Run | None]:
    """The embeddings to search, and the run that made them if that is known. A run is evaluated first where it was not."""
    target = Path(config.target)
    if not target.is_dir():
        items = read_embeddings(str(target))
        made_by = config.model or maker(target)
        return items, Run(made_by) if made_by else None
    run = Run(target)
    if not (target / "embeddings.npz").exists():
        settings = read_config(run, allow_imports=config.allow_imports)
        items = load_items(settings.data, settings.root, skip_bad=False, workers=config.workers, quiet=config.quiet, say=say)
        evaluate_run(
            run, config=settings, items=items, metrics=settings.metrics, device=choose_device(config.device),
            workers=config.workers, quiet=config.quiet,
        )  # fmt: skip
    return read_embeddings(str(target / "embeddings.npz")), run


def maker(file: Path) -> str | None:
    """The run that an embedding file says it comes from, if that folder is still there."""
    if file.suffix != ".npz":
        return None
    with np.load(file, allow_pickle=False) as data:
        path = str(data["run"]) if "run" in data.files else None
    return path if path and os.path.isdir(path) else None


def embed_picture(image: Image.Image, run: Run | None, config: Search) -> torch.Tensor:
    if run is None:
        raise LikewiseError("search: a picture needs a network to embed it, and the target names none; give --model RUN")
    settings = read_config(run, allow_imports=config.allow_imports)
    if run.about["features"] is not None:
        raise LikewiseError(f"search: '{run.path}' was trained on features and cannot read pictures; query by row number")
    device = choose_device(config.device)
    embedder = open_embedder(run, settings, "best", device)
    _, plain = transforms(settings, embedder)
    with torch.no_grad():
        return embedder(plain(image)[None].to(device)).z.float().cpu()


def path_of(items: Items, row: int) -> str:
    return "" if items.path is None else file_of(items, row)


def picture(items: Items, row: int) -> Image.Image:
    if items.path is None:
        return Image.new("RGB", (64, 64), "#e6e9ef")
    return read_image(file_of(items, row), None if items.box is None else items.box[row])


def save_picture(out: str, image: Image.Image, name: str, found: list[dict], gallery: Items, label: str | None) -> None:
    answers = [
        Tile(picture(gallery, f["row"]), f["class"], f"{f['similarity']:.3f}", None if label is None else f["class"] == label)
        for f in found
    ]
    page = draw_gallery([(Tile(image, name, "query"), answers)], "Nearest neighbours", "nearest first, cosine similarity below")
    with write_aside(Path(out)) as aside:
        page.save(aside, format="PNG")
