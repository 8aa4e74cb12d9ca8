"""What language, or another network, makes of the training samples: worked out once before training, and kept in a file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from likewise.io.progress import bar
from likewise.pretrained.encoders import Looker, load_classifier, load_image_encoder, text_encoder
from likewise.types import LikewiseError, TrainingSetInfo


class Guidance(NamedTuple):
    """Embeddings of distinct things, and which of them, best first, stand for each class or for each sample."""

    table: Float[Tensor, "M d"]  # unit rows
    index: Int[Tensor, "S k"]


def from_classifier(
    given: TrainingSetInfo,
    classifier: str,
    weights: str | None,
    level: Literal["class", "sample"],
    k: int,
    prompt: str,
    encoder: str,
) -> Guidance:
    """The k ImageNet names that a classifier finds best: for each class by its mean logits, or for each sample."""
    encode = text_encoder(encoder, given.device)  # first: looking at all pictures takes long, and this may fail
    looker, names = load_classifier(classifier, weights)
    if k > len(names):
        raise LikewiseError(f"LanguageGuidance: k must be at most the classifier's {len(names)} classes, got {k}")
    labels = torch.as_tensor(given.labels, device=given.device)
    total = torch.zeros(len(given.class_names), len(names), device=given.device)
    best = torch.zeros(len(labels), k, dtype=torch.int64)
    for logits, place in look(given, looker):
        if level == "class":
            total.index_add_(0, labels[place], logits)
        else:
            best[place.cpu()] = logits.topk(k).indices.cpu()
    if level == "class":
        count = labels.bincount(minlength=len(total)).clamp_min(1)
        best = (total / count[:, None]).topk(k).indices.cpu()
    return encode_names(names, best, prompt, encode)


def from_names(given: TrainingSetInfo, prompt: str, encoder: str) -> Guidance:
    """The data's own class names, such as "001.Black_footed_Albatross" as "Black footed Albatross"."""
    names = tuple(re.sub(r"^\d+\.", "", name).replace("_", " ").strip() for name in given.class_names)
    return encode_names(names, torch.arange(len(names))[:, None], prompt, text_encoder(encoder, given.device))


def from_images(given: TrainingSetInfo, image_encoder: str, weights: str | None) -> Guidance:
    """Every sample by another network's embedding of it."""
    seen = [(e.cpu(), place.cpu()) for e, place in look(given, load_image_encoder(image_encoder, weights))]
    e, place = (torch.cat(tensors) for tensors in zip(*seen))
    table = F.normalize(e[place.argsort()], dim=1)
    return Guidance(table, torch.arange(len(table))[:, None])


def look(given: TrainingSetInfo, looker: Looker) -> Iterator[tuple[Float[Tensor, "B M"], Int[Tensor, "B"]]]:
    """What a network gives for every training picture, and which sample that is."""
    looker = looker.to(given.device)
    with bar("look at pictures", len(given.labels), quiet=given.quiet) as progress:
        for x, place in given.pictures(looker.transform()):
            if x.ndim != 4:
                raise LikewiseError(
                    f"LanguageGuidance: it must see pictures, got features of shape {tuple(x.shape)}; use by='names'"
                )
            with torch.no_grad():
                yield looker(x).float(), place
            progress.advance(len(place))


def encode_names(
    names: tuple[str, ...], chosen: Int[Tensor, "S k"], prompt: str, encode: Callable[[list[str]], Tensor]
) -> Guidance:
    """Encode every distinct name among the chosen ones once."""
    used = sorted({names[i] for i in chosen.unique().tolist()})
    number = {name: i for i, name in enumerate(used)}
    place = torch.tensor([number.get(name, -1) for name in names])
    table = F.normalize(encode([prompt.replace("{}", name) for name in used]), dim=1)
    return Guidance(table, place[chosen])


def keep(guidance: Guidance, file: Path, fingerprint: str) -> None:
    """Write it aside and put it in its place, marked with what it was made from."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}.part")
    tensors = {"table": guidance.table, "index": guidance.index.int()}
    save_file({k: v.contiguous() for k, v in tensors.items()}, aside, {"fingerprint": fingerprint})
    os.replace(aside, file)


def kept(file: Path, fingerprint: str) -> Guidance | None:
    """What a file holds; None: there is none, it is damaged, or it was made from something else."""
    if not file.is_file():
        return None
    try:
        with safe_open(file, "pt") as found:
            if (found.metadata() or {}).get("fingerprint") != fingerprint:
                return None
            return Guidance(found.get_tensor("table"), found.get_tensor("index").long())
    except SafetensorError:
        return None
