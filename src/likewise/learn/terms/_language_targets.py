"""Target embeddings of classes or samples from text or from another network: computed once before training, stored in a file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from likewise.core.progress import bar
from likewise.core.types import LikewiseError, TrainingSetInfo
from likewise.models.pretrained.encoders import (
    PretrainedNetwork,
    load_classifier,
    load_image_encoder,
    text_encoder,
    words_of_synset,
)

CODE_NAME = re.compile(r"(?:.*/)?(?:(?:class|cls|id|item|label|n|no|person|pid|product)[\s#.-]*)?\d*", re.IGNORECASE)
"""Names that are no words: nothing, a number, or a number after such a word or below a folder: 11319, id 80, Aves/1234."""


class Guidance(NamedTuple):
    """Distinct target embeddings, and for each class or sample the rows of its k embeddings, best first."""

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
    """Return embeddings of the k most likely ImageNet names: of each class by its mean logits, or of each sample."""
    encode = text_encoder(encoder, given.device)  # first, because it may fail, and classifying all images takes long
    looker, names = load_classifier(classifier, weights)
    if k > len(names):
        raise LikewiseError(
            f"LanguageGuidance: k must be at most {len(names)}, the number of classes of the classifier, got {k}; lower k"
        )
    labels = torch.as_tensor(given.labels, device=given.device)
    total = torch.zeros(len(given.class_names), len(names), device=given.device)
    best = torch.zeros(len(labels), k, dtype=torch.int64)
    for logits, place in outputs_on_training_set(given, looker):
        if level == "class":
            total.index_add_(0, labels[place], logits)
        else:
            best[place.cpu()] = logits.topk(k).indices.cpu()
    if level == "class":
        count = labels.bincount(minlength=len(total)).clamp_min(1)
        best = (total / count[:, None]).topk(k).indices.cpu()
    return encode_names(names, best, prompt, encode)


def from_names(given: TrainingSetInfo, prompt: str, encoder: str) -> Guidance:
    """Return embeddings of the words of the data set's class names."""
    names = tuple(class_words(name, given.class_words or {}) for name in given.class_names)
    return encode_names(names, torch.arange(len(names))[:, None], prompt, text_encoder(encoder, given.device))


def class_words(name: str, known: Mapping[str, str]) -> str:
    """Return a class name as words: "001.Black_footed_Albatross" as "Black footed Albatross", "n01440764" as "tench".

    Raises for a number or a code, which a text encoder cannot read.

    Args:
        known: class name -> its words, for data whose names are numbers.
    """
    words = known.get(name) or (words_of_synset(name) if re.fullmatch(r"n\d{8}", name) else None) or name
    words = re.sub(r"^\d+\.", "", words).replace("_", " ").strip()
    if CODE_NAME.fullmatch(words):
        raise LikewiseError(
            f"LanguageGuidance: by='names' needs class names that are words, got {name!r}; rename the classes, or use "
            "by='classifier' (iNaturalist has the names of its species in categories.json: put it beside the images)"
        )
    return words


def from_images(given: TrainingSetInfo, image_encoder: str, weights: str | None) -> Guidance:
    """Return another network's embedding of every training image."""
    network = load_image_encoder(image_encoder, weights)
    outputs = [(e.cpu(), place.cpu()) for e, place in outputs_on_training_set(given, network)]
    e, place = (torch.cat(tensors) for tensors in zip(*outputs))
    table = F.normalize(e[place.argsort()], dim=1)
    return Guidance(table, torch.arange(len(table))[:, None])


def outputs_on_training_set(
    given: TrainingSetInfo, looker: PretrainedNetwork
) -> Iterator[tuple[Float[Tensor, "B M"], Int[Tensor, "B"]]]:
    """Yield batches of (network outputs, positions of their samples in the training set)."""
    looker = looker.to(given.device)
    with bar("embed images for LanguageGuidance", len(given.labels), quiet=given.quiet) as progress:
        for x, place in given.pictures(looker.transform()):
            if x.ndim != 4:
                raise LikewiseError(
                    f"LanguageGuidance: the data must be images, got features of shape {tuple(x.shape)}; use by='names'"
                )
            with torch.no_grad():
                yield looker(x).float(), place
            progress.advance(len(place))


def encode_names(
    names: tuple[str, ...], chosen: Int[Tensor, "S k"], prompt: str, encode: Callable[[list[str]], Tensor]
) -> Guidance:
    """Return embeddings of the chosen names; every distinct name is encoded once.

    Args:
        names: all names.
        chosen: numbers of the k names of each class or sample.
        prompt: text around a name, with {} in place of the name.
        encode: texts -> embeddings.
    """
    used = sorted({names[i] for i in chosen.unique().tolist()})
    number = {name: i for i, name in enumerate(used)}
    place = torch.tensor([number.get(name, -1) for name in names])
    table = F.normalize(encode([prompt.replace("{}", name) for name in used]), dim=1)
    return Guidance(table, place[chosen])


def save_guidance(guidance: Guidance, file: Path, fingerprint: str) -> None:
    """Write the targets and the fingerprint of their inputs to a file, atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".{file.name}.{os.getpid()}.part")
    tensors = {"table": guidance.table, "index": guidance.index.int()}
    save_file({k: v.contiguous() for k, v in tensors.items()}, aside, {"fingerprint": fingerprint})
    os.replace(aside, file)


def load_guidance(file: Path, fingerprint: str) -> Guidance | None:
    """Return the targets in a file; None if the file is missing or damaged, or its fingerprint differs."""
    if not file.is_file():
        return None
    try:
        with safe_open(file, "pt") as found:
            if (found.metadata() or {}).get("fingerprint") != fingerprint:
                return None
            return Guidance(found.get_tensor("table"), found.get_tensor("index").long())
    except SafetensorError:
        return None
